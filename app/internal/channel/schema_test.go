package channel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

var update = flag.Bool("update", false, "write docs/schemas/channel.json anew")

const schemaFile = "../../../docs/schemas/channel.json"

type object = map[string]any

// methodTypes maps each method to its argument and result types.
var methodTypes = map[string][2]any{
	protocol.MethodSettings:         {protocol.MachineInformation{}, protocol.WorkerSettings{}},
	protocol.MethodRegister:         {protocol.RegisterRequest{}, protocol.RegisterResponse{}},
	protocol.MethodDeregister:       {protocol.DeregisterRequest{}, protocol.DeregisterResponse{}},
	protocol.MethodPoll:             {protocol.ChannelPoll{}, protocol.ChannelPollResponse{}},
	protocol.MethodExtendLock:       {protocol.JobRef{}, protocol.JobLock{}},
	protocol.MethodReportProgress:   {protocol.JobProgress{}, protocol.JobLock{}},
	protocol.MethodCompleteJob:      {protocol.ChannelComplete{}, protocol.ChannelCompleteResponse{}},
	protocol.MethodReturnJob:        {protocol.JobReturn{}, nil},
	protocol.MethodFetchHistory:     {protocol.JobHistory{}, protocol.HistoryPage{}},
	protocol.MethodUploadLogs:       {protocol.JobLogs{}, protocol.JobLogsResponse{}},
	protocol.MethodHeartbeat:        {protocol.WorkerHeartbeat{}, protocol.WorkerHeartbeatResponse{}},
	protocol.MethodCreateSession:    {protocol.SessionCreate{}, protocol.SessionResponse{}},
	protocol.MethodHeartbeatSession: {protocol.SessionVerb{}, protocol.SessionResponse{}},
	protocol.MethodReleaseSession:   {protocol.SessionVerb{}, protocol.SessionResponse{}},
	protocol.MethodCloseSession:     {protocol.SessionVerb{}, protocol.SessionResponse{}},
}

// notices maps the notices of the app to their arguments.
var notices = map[string]any{
	protocol.NoticeCancel: protocol.CancelNotice{}, protocol.NoticeDrain: struct{}{}, protocol.NoticeSettings: struct{}{},
	protocol.NoticeSession: protocol.SessionNotice{}, protocol.NoticeYield: protocol.SessionNotice{},
	protocol.NoticeEvict: protocol.EvictNotice{},
	protocol.NoticePause: protocol.PauseNotice{}, protocol.NoticeResume: struct{}{},
}

// drawer derives JSON schemas from the Go types that are encoded and decoded.
type drawer struct {
	defs    object
	answers bool // types that the app sends: members that are always present are required
}

func ref(name string) object { return object{"$ref": "#/$defs/" + name} }

func enum[T ~string](values ...T) object { return object{"enum": values} }

var (
	timeType      = reflect.TypeFor[history.Time]()
	marshalerType = reflect.TypeFor[json.Marshaler]()
)

func (d drawer) draw(t reflect.Type) any {
	switch t {
	case timeType:
		return object{"type": []string{"string", "null"}, "format": "date-time"}
	case reflect.TypeFor[payload.Payload]():
		return ref("envelope")
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[protocol.Value]():
		return true
	case reflect.TypeFor[protocol.Text]():
		return object{"type": []string{"string", "number", "boolean", "null"}}
	case reflect.TypeFor[protocol.PollStatus]():
		return enum(protocol.PollLeased, protocol.PollEmpty, protocol.PollThrottled, protocol.PollUnavailable,
			protocol.PollBackend, protocol.PollDraining,
			protocol.PollMismatch, protocol.PollConflict, protocol.PollNoWorkflow, protocol.PollNoActivity,
			protocol.PollRefused)
	case reflect.TypeFor[protocol.TaskKind]():
		return enum(protocol.KindWorkflow, protocol.KindActivity, protocol.KindQuery, protocol.KindValidation)
	case reflect.TypeFor[protocol.JobStatus]():
		return enum(
			protocol.JobOK, protocol.JobUserFailure, protocol.JobTimeout, protocol.JobMemoryIssue, protocol.JobLogSizeExceeded,
			protocol.JobInternalError,
		)
	case reflect.TypeFor[protocol.Job]():
		return ref("job")
	case reflect.TypeFor[protocol.ChannelPollResponse]():
		return ref("pollAnswer")
	}
	if t.Implements(marshalerType) || reflect.PointerTo(t).Implements(marshalerType) {
		return true
	}
	switch t.Kind() {
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Pointer:
		return d.draw(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": d.draw(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.draw(t.Elem())}
	case reflect.Struct:
		return d.named(t)
	}
	return true
}

// named adds a struct to the definitions and returns a reference to it. A type that the app sends has a separate
// definition from the same type when the app receives it.
func (d drawer) named(t reflect.Type) object {
	name := strings.ToLower(t.Name()[:1]) + t.Name()[1:]
	if d.answers {
		name += "Said"
	}
	if _, known := d.defs[name]; known {
		return ref(name)
	}
	d.defs[name] = nil // the type may contain itself
	d.defs[name] = d.members(t)
	return ref(name)
}

func (d drawer) members(t reflect.Type) object {
	properties, required := object{}, []string{}
	d.collect(t, properties, &required)
	out := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		slices.Sort(required)
		out["required"] = required
	}
	return out
}

func (d drawer) collect(t reflect.Type, properties object, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			d.collect(embedded, properties, required)
			continue
		}
		if name == "-" || !f.IsExported() {
			continue
		}
		schema := d.draw(f.Type)
		if always := !strings.Contains(options, "omit"); always && d.answers {
			*required = append(*required, name)
		}
		if k := f.Type.Kind(); (k == reflect.Pointer || k == reflect.Slice || k == reflect.Map) && schema != true {
			schema = object{"anyOf": []any{schema, object{"type": "null"}}}
		}
		properties[name] = schema
	}
}

// drawn returns the whole schema file.
func drawn() object {
	null, text := object{"type": "null"}, object{"type": "string"}
	defs := object{}
	in, out := drawer{defs: defs}, drawer{defs: defs, answers: true}
	defs["envelope"] = object{"description": "A value: see \"Payloads\" of docs/guide/workers-in-any-language.md. A bare string is the blob alone.", "anyOf": []any{
		null, text,
		object{
			"type": "object", "properties": object{"codec": object{"const": "avro"}, "blob": text},
			"required": []string{"blob", "codec"},
		},
	}}
	defs["job"] = object{
		"type": "object", "required": []string{"jobId", "kind", "lockExpiresAt", "queue", "release", "task", "token"},
		"properties": object{
			"jobId": text, "queue": text,
			"token":   object{"type": "string", "description": "opaque; every later call about the job carries it"},
			"release": text,
			"kind":    out.draw(reflect.TypeFor[protocol.TaskKind]()), "lockExpiresAt": out.draw(timeType),
			"session": out.draw(reflect.TypeFor[protocol.JobSession]()),
			"task":    object{"type": "object", "description": "the task of the HTTP worker protocol: see docs/openapi.json"},
		},
	}
	defs["pollAnswer"] = object{
		"description": "Without max null or a job.",
		"anyOf":       []any{null, ref("job"), out.members(reflect.TypeFor[protocol.ChannelPollResponse]())},
	}
	defs["completeAnswer"] = object{"description": "For one job what next got, for items an object.", "anyOf": []any{
		null, ref("pollAnswer"), out.members(reflect.TypeFor[protocol.ChannelCompleteResponse]()),
	}}
	var methods []string
	for method, types := range methodTypes {
		methods = append(methods, method)
		answer := any(null)
		switch {
		case method == protocol.MethodCompleteJob:
			answer = ref("completeAnswer")
		case types[1] != nil:
			answer = out.draw(reflect.TypeOf(types[1]))
		}
		defs[method+".payload"], defs[method+".answer"] = in.draw(reflect.TypeOf(types[0])), answer
	}
	slices.Sort(methods)
	var received []string
	for method, body := range notices {
		received = append(received, method)
		defs[method+".notice"] = out.members(reflect.TypeOf(body))
	}
	slices.Sort(received)
	code := object{
		"type": "object", "properties": object{"code": text, "status": object{"type": "integer"}},
		"required": []string{"code"},
	}
	defs["auth"] = in.members(reflect.TypeFor[protocol.ChannelAuth]())
	defs["auth"].(object)["required"] = []string{"protocol", "workerId"}
	defs["connectError"] = object{"type": "object", "required": []string{"message"}, "properties": object{
		"message": text,
		"data":    object{"type": "object", "properties": object{"reason": text}, "required": []string{"reason"}},
	}}
	defs["settings"] = out.draw(reflect.TypeFor[protocol.WorkerSettings]())
	defs["machine"] = in.draw(reflect.TypeFor[protocol.MachineInformation]())
	defs["call"] = object{"type": "object", "required": []string{"method"}, "properties": object{
		"method": enum(methods...), "payload": object{"description": "METHOD.payload"},
		"deadlineMs": object{"type": "integer", "minimum": 1},
	}}
	defs["refusal"] = object{
		"type": "object", "required": []string{"__rpcApError", "__rpcError"},
		"properties": object{"__rpcError": text, "__rpcApError": code},
	}
	defs["notice"] = object{"type": "object", "required": []string{"method"}, "properties": object{
		"method": enum(received...), "payload": object{"description": "METHOD.notice"},
	}}
	return object{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "sojourn.channel.1", "title": "The worker channel",
		"description": "What workers and apps say over Socket.IO, as docs/guide/socket-workers.md explains it. CONNECT carries auth and is refused with connectError; " +
			"FETCH_WORKER_SETTINGS carries machine and is acked with settings; rpc carries call and is acked with METHOD.answer or refusal; rpc-notify carries " +
			"notice. Members that are not named here are ignored.",
		"$defs": defs,
	}
}

func TestTheSchemaOfTheChannelIsWhatIsEncoded(t *testing.T) {
	want, err := json.MarshalIndent(drawn(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/schemas/channel.json is not what is encoded: go test ./app/internal/channel -run Schema -update writes it anew")
	}
	table := apptest.Start(t, apptest.Options{}).Channel().Handlers()
	for method := range table {
		if _, ok := methodTypes[method]; !ok {
			t.Errorf("method %s is not described", method)
		}
	}
	if len(table) != len(methodTypes) {
		t.Errorf("%d methods are served, %d described", len(table), len(methodTypes))
	}
}

// shapes checks messages against the published schema; members that the schema does not name are errors here.
type shapes struct {
	t *testing.T
	c *jsonschema.Compiler
}

func published(t *testing.T) shapes {
	t.Helper()
	raw, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	var shut func(any)
	shut = func(node any) {
		switch v := node.(type) {
		case map[string]any:
			if _, ok := v["properties"].(map[string]any); ok && v["description"] == nil {
				v["additionalProperties"] = false
			}
			for _, m := range v {
				shut(m)
			}
		case []any:
			for _, m := range v {
				shut(m)
			}
		}
	}
	shut(doc)
	at := doc.(map[string]any)
	for _, name := range []string{"$defs", "refusal", "properties", "__rpcApError"} {
		at = at[name].(map[string]any)
	}
	delete(at, "additionalProperties") // has the details of each reason
	c := jsonschema.NewCompiler()
	if err := c.AddResource("channel.json", doc); err != nil {
		t.Fatal(err)
	}
	return shapes{t, c}
}

func (s shapes) add(name string, message any) {
	s.t.Helper()
	raw, err := json.Marshal(message)
	if err != nil {
		s.t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		s.t.Fatal(err)
	}
	schema, err := s.c.Compile("channel.json#/$defs/" + name)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		s.t.Errorf("%s: %v\n%s", name, err, raw)
	}
}

// ask calls a method and checks its arguments and its result against the schema.
func (s shapes) ask(p *peer, method string, in any) json.RawMessage {
	s.t.Helper()
	call := map[string]any{"method": method, "payload": in, "deadlineMs": 30_000}
	s.add("call", call)
	s.add(method+".payload", in)
	ack, err := p.EmitWithAck(within(s.t), rpc.EventCall, call)
	if err != nil || len(ack) > 1 {
		s.t.Fatalf("%s: %s, %v", method, ack, err)
	}
	answer := json.RawMessage("null")
	if len(ack) == 1 {
		answer = ack[0]
	}
	if bytes.Contains(answer, []byte("__rpcError")) {
		s.add("refusal", answer)
		return answer
	}
	s.add(method+".answer", answer)
	return answer
}

// acked returns the single value with which an event was acknowledged.
func acked(t *testing.T, p *peer, event string, arg any) json.RawMessage {
	t.Helper()
	ack, err := p.EmitWithAck(within(t), event, arg)
	if err != nil || len(ack) != 1 {
		t.Fatalf("%s: %s, %v", event, ack, err)
	}
	return ack[0]
}

func TestMessagesOfTheChannelMatchItsSchema(t *testing.T) {
	s := published(t)
	a := apptest.Start(t, apptest.Options{})
	hello := map[string]any{"workerId": "w", "protocol": 1, "token": ""}
	s.add("auth", hello)
	received := make(chan json.RawMessage, 10)
	w, err := dial(t, a, hello, func(k *socketio.Socket) {
		k.On(rpc.EventNotify, func(_ context.Context, args []json.RawMessage) ([]any, error) {
			received <- args[0]
			return nil, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	s.add("refusal", acked(t, w, rpc.EventCall, map[string]any{"method": "poll"}))
	machine := map[string]any{
		"workerId": "w", "cpuUsagePercentage": 1.5, "workerProps": map[string]any{"version": "test", "WORKER_CONCURRENCY": 3},
	}
	s.add("machine", machine)
	s.add("settings", acked(t, w, protocol.EventFetchSettings, machine))
	s.ask(w, protocol.MethodSettings, machine)
	s.ask(w, protocol.MethodRegister, map[string]any{
		"supported_activity_types": []string{"work"}, "capabilities": []string{"worker_sessions"},
		"max_concurrent_worker_sessions": 2, "held_tasks": []string{},
	})
	flow := scheduler(t, a)
	run := schedule(t, a, flow, 3)
	next := func() (j protocol.Job, ref map[string]any) {
		t.Helper()
		var answer protocol.ChannelPollResponse
		if err := json.Unmarshal(s.ask(w, protocol.MethodPoll, map[string]any{
			"max": 1, "timeoutMs": 20_000,
		}), &answer); err != nil || len(answer.Jobs) != 1 {
			t.Fatalf("%v %+v", err, answer)
		}
		return answer.Jobs[0], map[string]any{"jobId": answer.Jobs[0].ID, "token": answer.Jobs[0].Token}
	}
	with := func(ref map[string]any, name string, value any) map[string]any {
		return map[string]any{"jobId": ref["jobId"], "token": ref["token"], name: value}
	}
	_, ref := next()
	s.ask(w, protocol.MethodPoll, map[string]any{"timeoutMs": 0})
	s.ask(w, protocol.MethodPoll, map[string]any{"max": 1, "timeoutMs": 0, "release": "other"})
	s.ask(w, protocol.MethodExtendLock, ref)
	s.ask(w, protocol.MethodExtendLock, with(ref, "token", "a99.w"))
	s.ask(w, protocol.MethodReportProgress, with(ref, "progress", map[string]any{"message": "half"}))
	s.ask(w, protocol.MethodUploadLogs, with(ref, "lines", []any{map[string]any{"text": "a line"}}))
	s.ask(w, protocol.MethodReturnJob, with(ref, "reason", "tired"))
	j, ref := next()
	s.ask(w, protocol.MethodHeartbeat, map[string]any{"machine": machine, "leases": []any{map[string]any{
		"kind": "activity", "task_id": j.Task.Activity.TaskID, "lease_owner": "w",
		"activity_attempt_id": j.Task.Activity.AttemptID,
	}}})
	s.ask(w, protocol.MethodCompleteJob, map[string]any{
		"items": []any{
			map[string]any{
				"jobId": ref["jobId"], "token": ref["token"], "status": "OK", "response": map[string]any{"result": []any{1}},
			},
		},
		"next": map[string]any{"max": 1},
	})
	has[*history.ActivityCompleted](t, a, run)
	s.ask(
		w, protocol.MethodCompleteJob,
		map[string]any{"jobId": ref["jobId"], "token": ref["token"], "status": "OK", "response": map[string]any{"result": 2}},
	)
	s.ask(w, protocol.MethodFetchHistory, ref)
	task := flow.job(nil)
	s.ask(flow, protocol.MethodFetchHistory, map[string]any{"jobId": task.ID, "token": task.Token})
	s.ask(w, protocol.MethodCreateSession, map[string]any{"session_id": "s", "lease_seconds": 60, "ttl_seconds": 600})
	for _, verb := range []string{
		protocol.MethodHeartbeatSession, protocol.MethodReleaseSession, protocol.MethodCloseSession,
	} {
		s.ask(w, verb, map[string]any{"session_id": "s"})
	}
	notice := func(send func()) {
		t.Helper()
		send()
		var raw json.RawMessage
		select {
		case raw = <-received:
		case <-time.After(ceiling):
			t.Fatal("no notice came")
		}
		s.add("notice", raw)
		var n struct {
			Method  string
			Payload json.RawMessage
		}
		if err := json.Unmarshal(raw, &n); err != nil {
			t.Fatal(err)
		}
		s.add(n.Method+".notice", n.Payload)
	}
	c := a.Connections()
	notice(func() { c.Cancel("default", "w", protocol.CancelNotice{TaskID: "t", AttemptID: "t-1"}) })
	notice(func() {
		c.CloseSession("default", "w", protocol.SessionNotice{SessionID: "s", Epoch: 1, Reason: "closed"})
	})
	notice(func() {
		c.YieldSession("default", "w", protocol.SessionNotice{SessionID: "s", Epoch: 1, Reason: "queue"})
	})
	notice(func() { c.SettingsChanged("") })
	for _, i := range []protocol.Intent{protocol.IntentPause, protocol.IntentWork, protocol.IntentLeave} {
		notice(func() { c.SendIntent("default", "w", i, protocol.PauseNotice{Reason: "kernel"}) })
	}
	notice(c.DrainWorkers)
	s.ask(w, protocol.MethodHeartbeat, map[string]any{"draining": true})
	s.ask(w, protocol.MethodDeregister, map[string]any{})
	_, err = dial(t, a, map[string]any{"workerId": "w", "protocol": 9}, nil)
	if err == nil || !strings.Contains(err.Error(), string(protocol.ReasonUnsupportedVersion)) {
		t.Errorf("another protocol: %v", err)
	}
}
