package httpapi_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestStartReportsWhetherTheRunIsNew(t *testing.T) {
	f := &fake{
		start: protocol.StartResponse{
			WorkflowID: "order-1", RunID: "r1", Status: "pending", Outcome: "started_new", New: true,
		},
	}
	s := fakeServer(t, f, auth.Options{})
	const body = `{"workflow_id":"order-1","workflow_type":"order","input":[1],"run_timeout_seconds":null,"duplicate_policy":"use-existing","x":1}`
	got := ask(t, s, "POST", "/api/workflows", body, map[string]string{"X-Namespace": "blue"})
	p := got.plane()
	if got.status != 201 || p["workflow_id"] != "order-1" || p["outcome"] != "started_new" || p["run_id"] != "r1" ||
		p["operation"] != "start" {
		t.Errorf("got %d %s", got.status, got.raw)
	}
	in := last[protocol.StartRequest](t, f)
	if in.Namespace != "blue" || in.Identity != "bootstrap" || string(in.Input) != "[1]" ||
		in.DuplicatePolicy != "use-existing" {
		t.Errorf("request %+v", in)
	}
	f.start.New, f.start.Outcome = false, "returned_existing_active"
	if got := ask(t, s, "POST", "/api/workflows", body, nil); got.status != 200 ||
		got.plane()["outcome"] != "returned_existing_active" {
		t.Errorf("got %d %s", got.status, got.raw)
	}
}

func TestStartRejectsUnsupportedOptions(t *testing.T) {
	f := &fake{}
	s := fakeServer(t, f, auth.Options{})
	got := ask(
		t, s, "POST", "/api/workflows",
		`{"workflow_type":"w","request_id":"x","retry_policy":{"max_attempts":3},"workflow_run_timeout":null}`, nil,
	)
	fields, _ := got.body["errors"].(map[string]any)
	same, _ := got.body["validation_errors"].(map[string]any)
	if got.status != 422 || fields["request_id"] == nil || fields["retry_policy"] == nil || len(fields) != 2 ||
		len(same) != 2 || f.called() != 0 {
		t.Errorf("got %d %s", got.status, got.raw)
	}
	got = ask(
		t, s, "POST", "/api/sojourn/activities",
		`{"activity_type":"a","execution_timeout_seconds":3600,"cron":"@daily","run_timeout_seconds":9,"request_id":null}`, nil,
	)
	if fields, _ := got.body["errors"].(map[string]any); got.status != 422 || fields["execution_timeout_seconds"] == nil ||
		fields["cron"] == nil || fields["run_timeout_seconds"] == nil || len(fields) != 3 || f.called() != 0 {
		t.Errorf("got %d %s", got.status, got.raw)
	}
	got = ask(t, s, "POST", "/api/workflows", `{"workflow_type":7}`, nil)
	if fields, _ := got.body["errors"].(map[string]any); got.status != 422 || fields["workflow_type"] == nil {
		t.Errorf("got %d %s", got.status, got.raw)
	}
}

func TestCommandsReachTheRunThePathNames(t *testing.T) {
	f := &fake{
		receipt: protocol.CommandReceipt{
			Outcome: "done", WorkflowID: "order-1", RunID: "r1", Status: "accepted", CommandID: "r1-9",
		},
	}
	s := fakeServer(t, f, auth.Options{})
	for verb, operation := range map[string]string{
		"cancel": "cancel", "terminate": "terminate", "request-cancellation": "request_cancellation", "repair": "repair",
	} {
		for at, run := range map[string]string{"/api/workflows/order-1/": "", "/api/workflows/order-1/runs/r1/": "r1"} {
			got := ask(t, s, "POST", at+verb, `{"reason":"why","request_id":"q","workflow_id":"other","run_id":"other"}`, nil)
			scope := "instance"
			if run != "" {
				scope = "run"
			}
			p := got.plane()
			if got.status != 200 || p["operation"] != operation || p["outcome"] != "done" || got.text("target_scope") != scope ||
				p["command_id"] != "r1-9" {
				t.Errorf("%s%s: got %d %s", at, verb, got.status, got.raw)
			}
			in := last[ended](t, f)
			if in.verb != operation || in.WorkflowID != "order-1" || in.RunID != run || in.Reason != "why" ||
				in.RequestID != "q" ||
				in.Namespace != "default" || in.Identity != "bootstrap" {
				t.Errorf("%s%s: request %+v", at, verb, in)
			}
		}
	}
	if got := ask(t, s, "POST", "/api/workflows/order-1/cancel", "", map[string]string{
		"Content-Type": "",
	}); got.status != 200 {
		t.Errorf("without a body: got %d %s", got.status, got.raw)
	}
	got := ask(t, s, "POST", "/api/workflows/order-1/signal/add%2Fitem%20%C3%A4", `{"input":["x"],"request_id":"q"}`, nil)
	in := last[protocol.SignalRequest](t, f)
	if got.status != 202 || in.SignalName != "add/item ä" || string(in.Input) != `["x"]` || in.WorkflowID != "order-1" {
		t.Errorf("signal: got %d, %+v", got.status, in)
	}
	if p := got.plane(); p["operation_name"] != "add/item ä" || p["operation_name_field"] != "signal_name" {
		t.Errorf("signal: %v", p)
	}
	var actions []string
	for _, n := range f.notes {
		actions = append(actions, n.Action)
	}
	slices.Sort(actions)
	if want := []string{
		"workflow.cancel", "workflow.repair", "workflow.terminate",
	}; !slices.Equal(slices.Compact(actions), want) {
		t.Errorf("audit: got %q, want %q", actions, want)
	}
}

func TestAnUpdateIsAnsweredByItsStage(t *testing.T) {
	message, sum := "no", "+"
	for _, a := range []struct {
		status  int
		reason  any
		message any
		protocol.UpdateResponse
	}{
		{202, nil, nil, protocol.UpdateResponse{Outcome: "update_accepted", UpdateStatus: "accepted", WaitTimedOut: true}},
		{
			200, nil, nil,
			protocol.UpdateResponse{
				Outcome: "update_completed", UpdateStatus: "completed", Result: []byte(`7`),
				ResultEnvelope: &payload.Payload{Blob: sum},
			},
		},
		{
			422, "update_failed", "no",
			protocol.UpdateResponse{Outcome: "update_failed", UpdateStatus: "failed", FailureMessage: &message},
		},
	} {
		a.RunID, a.UpdateID, a.WaitFor = "r1", "r1-u4", "completed"
		f := &fake{update: a.UpdateResponse}
		s := fakeServer(t, f, auth.Options{})
		got := ask(
			t, s, "POST", "/api/workflows/order-1/update/add",
			`{"input":[1],"wait_for":"completed","wait_timeout_seconds":9,"request_id":"q"}`, nil,
		)
		in := last[protocol.UpdateRequest](t, f)
		if in.UpdateName != "add" || in.WorkflowID != "order-1" || in.WaitFor != "completed" || *in.WaitTimeout != 9 ||
			in.RequestID != "q" || in.Identity != "bootstrap" {
			t.Errorf("request %+v", in)
		}
		p := got.plane()
		if got.status != a.status || got.body["reason"] != a.reason || got.body["message"] != a.message ||
			got.text("update_id") != "r1-u4" ||
			got.text("update_status") != a.UpdateStatus || p["operation_name"] != "add" ||
			p["operation_name_field"] != "update_name" ||
			p["update_id"] != "r1-u4" || p["outcome"] != a.Outcome || p["wait_timed_out"] != a.WaitTimedOut {
			t.Errorf("%s: got %d %s", a.UpdateStatus, got.status, got.raw)
		}
	}
}

func TestAQueryIsAnsweredWithItsResult(t *testing.T) {
	f := &fake{
		query: protocol.QueryResponse{
			WorkflowID: "order-1", RunID: "r1", QueryName: "total", TargetScope: "run", Result: []byte("null"),
		},
	}
	s := fakeServer(t, f, auth.Options{})
	got := ask(t, s, "POST", "/api/workflows/order-1/runs/r1/query/total", `{"input":["x"]}`, nil)
	in := last[protocol.QueryRequest](t, f)
	if in.QueryName != "total" || in.WorkflowID != "order-1" || in.RunID != "r1" || string(in.Input) != `["x"]` {
		t.Errorf("request %+v", in)
	}
	result, there := got.plane()["result"]
	if p := got.plane(); got.status != 200 || !there || result != nil || p["operation_name"] != "total" ||
		p["operation_name_field"] != "query_name" {
		t.Errorf("got %d %s", got.status, got.raw)
	}
	f.err = protocol.Refuse(protocol.ReasonQueryTimeout, "nobody answered")
	if got := ask(t, s, "POST", "/api/workflows/order-1/query/total", "", nil); got.status != 504 ||
		got.text("reason") != "query_worker_timeout" ||
		got.text("query_name") != "total" {
		t.Errorf("got %d %s", got.status, got.raw)
	}
}

// A caller with four concurrent searches must wait for one of them before the fifth; its other reads are not limited.
func TestAFifthSearchAtOnceIsThrottled(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	f := &fake{listing: make(chan chan struct{})}
	s := fakeServer(t, f, auth.Options{})
	search := func() response { return ask(t, s, "GET", "/api/workflows?query=part&partial=true", "", nil) }
	var ends []chan struct{}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if got := search(); got.status != 200 {
				t.Errorf("got %d %s", got.status, got.raw)
			}
		})
		ends = append(ends, <-f.listing)
	}
	var others sync.WaitGroup
	others.Go(func() { // end at once
		for end := range f.listing {
			close(end)
		}
	})
	if got := search(); got.status != 429 || got.text("reason") != string(protocol.ReasonThrottled) {
		t.Errorf("a fifth: got %d %s", got.status, got.raw)
	}
	for _, path := range []string{"/api/workflows", "/api/workflows?status=failed", "/api/workflows/order-1"} {
		if got := ask(t, s, "GET", path, "", nil); got.status != 200 {
			t.Errorf("%s meanwhile: got %d %s", path, got.status, got.raw)
		}
	}
	for _, end := range ends {
		close(end)
	}
	all.Wait()
	if got := search(); got.status != 200 {
		t.Errorf("after they ended: got %d %s", got.status, got.raw)
	}
	close(f.listing)
	others.Wait()
}

func TestListingsAndDescriptionsKeepTheirShape(t *testing.T) {
	f := &fake{run: protocol.RunView{
		WorkflowID: "order-1", RunID: "r1", Namespace: "default", Status: "waiting", StatusBucket: "running", RunCount: 1,
		Current: true,
	}}
	s := fakeServer(t, f, auth.Options{})
	got := ask(
		t, s, "GET", "/api/workflows?workflow_type=w&status=running&query=or&page_size=200&next_page_token=t", "", nil,
	)
	if in := last[protocol.ListRequest](t, f); in != (protocol.ListRequest{
		Namespace: "default", WorkflowType: "w", Status: "running", Query: "or", PageSize: 200, PageToken: "t",
	}) {
		t.Errorf("list: %+v", in)
	}
	if got.status != 200 || got.plane()["workflow_count"] != 1.0 || len(got.body["workflows"].([]any)) != 1 {
		t.Errorf("list: got %d %s", got.status, got.raw)
	}
	got = ask(t, s, "GET", "/api/workflows/order-1", "", nil)
	p := got.plane()
	if p["status"] != "waiting" || p["is_current_run"] != true || p["operation"] != "describe" ||
		got.body["output_envelope"] != nil {
		t.Errorf("describe: %s", got.raw)
	}
	got = ask(t, s, "GET", "/api/workflows/order-1/runs", "", nil)
	if got.body["run_count"] != 1.0 || got.plane()["operation"] != "list_runs" || got.text("workflow_id") != "order-1" {
		t.Errorf("runs: %s", got.raw)
	}
	got = ask(t, s, "GET", "/api/runs/r1", "", map[string]string{httpapi.VersionHeader: ""})
	if in := last[protocol.Target](t, f); in != (protocol.Target{Namespace: "default", RunID: "r1"}) ||
		got.text("run_id") != "r1" || got.plane() != nil {
		t.Errorf("run by id: %+v, %s", in, got.raw)
	}
	for path, want := range map[string]struct {
		run  string
		wait time.Duration
	}{
		"/api/sojourn/workflows/order-1/result":                        {"", 30 * time.Second},
		"/api/sojourn/workflows/order-1/runs/r1/result?wait_seconds=7": {"r1", 7 * time.Second},
		"/api/sojourn/workflows/order-1/result?view=full":              {"", 30 * time.Second},
	} {
		got = ask(t, s, "GET", path, "", map[string]string{httpapi.VersionHeader: ""})
		in := last[protocol.Target](t, f)
		if in != (protocol.Target{Namespace: "default", WorkflowID: "order-1", RunID: want.run}) || f.waited != want.wait ||
			got.text("run_id") != "r1" || f.full != strings.HasSuffix(path, "view=full") {
			t.Errorf("%s: %+v for %s, full: %v, %s", path, in, f.waited, f.full, got.raw)
		}
	}
	if got = ask(t, s, "GET", "/api/sojourn/workflows/order-1/result?view=all", "", nil); got.status != 422 {
		t.Errorf("an unknown view: %d %s", got.status, got.raw)
	}
	if got = ask(t, s, "GET", "/api/sojourn/workflows/order-1/result?wait_seconds=61", "", nil); got.status != 422 {
		t.Errorf("a wait of 61 s: %d %s", got.status, got.raw)
	}
	ask(t, s, "GET", "/api/workers?task_queue=q&status=active", "", nil)
	if in := last[[]string](t, f); !slices.Equal(in, []string{"default", "q", "active"}) {
		t.Errorf("workers: %q", in)
	}
	got = ask(t, s, "POST", "/api/worker-sessions/a%2Fb/migrate", `{"reason":"rebalance"}`, nil)
	if in := last[[]string](t, f); !slices.Equal(in, []string{"default", "a/b", "migrate", "bootstrap", "rebalance"}) ||
		got.text("outcome") != "migrated" {
		t.Errorf("migrate: %q, %s", in, got.raw)
	}
	got = ask(t, s, "DELETE", "/api/workers/w", "", nil)
	if got.text("outcome") != "deregistered" || got.text("worker_id") != "w" || f.notes[0].Action != "worker.deregister" ||
		f.notes[0].Target != "w" {
		t.Errorf("remove worker: %s, %+v", got.raw, f.notes)
	}
	if got = ask(t, s, "GET", "/api/audit", "", nil); len(got.body["entries"].([]any)) != 1 {
		t.Errorf("audit: %s", got.raw)
	}
}

func TestHistoryShowsItsBlobsDecodedWhenAsked(t *testing.T) {
	p, err := payload.FromJSON([]byte(`[{"n":7}]`))
	if err != nil {
		t.Fatal(err)
	}
	memo, err := payload.FromJSON([]byte(`{"note":"fragile"}`))
	if err != nil {
		t.Fatal(err)
	}
	next := "t2"
	at := history.At(time.Date(2026, 4, 18, 12, 0, 0, 0, time.UTC))
	f := &fake{history: protocol.HistoryPage{NextPageToken: &next, Events: []history.Event{
		{Seq: 1, At: at, Data: &history.WorkflowStarted{WorkflowType: "w", Arguments: p.Blob, PayloadCodec: "avro"}},
		{Seq: 2, At: at, Data: &history.SignalReceived{SignalName: "s", Value: "!!not base64"}},
		{Seq: 3, At: at, TaskID: "r1-1-workflow", Data: &history.TimerFired{Sequence: 1, TimerID: "r1-1"}},
		{Seq: 4, At: at, Data: &history.MemoUpserted{Sequence: 2, Entries: memo, Merged: memo}},
		{Seq: 5, At: at, Data: &history.ActivityFailed{Sequence: 3, Failure: history.Failure{
			Exception: []byte(`{"type":"Oops","details":"` + p.Blob + `","details_payload_codec":"avro"}`),
		}}},
	}}}
	s := fakeServer(t, f, auth.Options{})
	const path = "/api/workflows/order-1/runs/r1/history"
	got := ask(t, s, "GET", path+"?wait_new_event=1&page_size=10&next_page_token=t1&decoded=true", "", nil)
	if in := last[protocol.HistoryQuery](t, f); !in.Wait || in.PageSize != 10 || in.PageToken != "t1" ||
		in.RunID != "r1" || in.WorkflowID != "order-1" {
		t.Errorf("query %+v", in)
	}
	events := got.body["events"].([]any)
	first := events[0].(map[string]any)
	if first["event_type"] != "WorkflowStarted" || first["timestamp"] != "2026-04-18T12:00:00.000000Z" ||
		first["sequence"] != 1.0 {
		t.Errorf("event: %v", first)
	}
	if !strings.Contains(string(got.raw), `"decoded":{"arguments":[{"n":7}]}`) ||
		first["payload"].(map[string]any)["arguments"] != p.Blob {
		t.Errorf("decoded: %s", got.raw)
	}
	for _, want := range []string{
		`"decoded":{"entries":{"note":"fragile"},"merged":{"note":"fragile"}}`, `"decoded":{"details":[{"n":7}]}`,
	} {
		if !strings.Contains(string(got.raw), want) {
			t.Errorf("decoded lacks %s: %s", want, got.raw)
		}
	}
	for i, want := range []bool{true, false, false, true, true} {
		if _, there := events[i].(map[string]any)["decoded"]; there != want {
			t.Errorf("event %d: decoded %v", i+1, there)
		}
	}
	if c := got.plane(); c["next_page_token"] != "t2" || c["run_id"] != "r1" || got.text("next_page_token") != "t2" {
		t.Errorf("control_plane %v", c)
	}
	if got := ask(t, s, "GET", path, "", nil); strings.Contains(string(got.raw), "decoded") {
		t.Errorf("not asked for: %s", got.raw)
	}
}

func TestClusterInfoContainsWhatClientsCheck(t *testing.T) {
	s := fakeServer(t, &fake{}, auth.Options{})
	got := ask(t, s, "GET", "/api/cluster/info", "", map[string]string{httpapi.VersionHeader: "", "X-Namespace": "Blue"})
	at := func(path ...string) any {
		var v any = got.body
		for _, p := range path {
			m, _ := v.(map[string]any)
			v = m[p]
		}
		return v
	}
	for _, c := range []struct {
		want any
		path []string
	}{
		{"2", []string{"control_plane", "version"}},
		{"durable-workflow.v2.control-plane-request.contract", []string{"control_plane", "request_contract", "schema"}},
		{1.0, []string{"control_plane", "request_contract", "version"}},
		{"1.20", []string{"worker_protocol", "version"}},
		{true, []string{"worker_protocol", "server_capabilities", "query_tasks"}},
		{true, []string{"worker_protocol", "server_capabilities", "worker_sessions", "supported"}},
		{"durable-workflow.v2.auth-composition.contract", []string{"auth_composition_contract", "schema"}},
		{"redacted", []string{"auth_composition_contract", "auth_material", "token", "effective_config_value"}},
		{"DW_ENV", []string{"auth_composition_contract", "canonical_environment", "profile"}},
		{"blue", []string{"namespace", "name"}},
		{"1.2.3", []string{"sojourn", "release"}},
		{"app-1", []string{"server_id"}},
		{true, []string{"capabilities", "queries"}},
		{true, []string{"capabilities", "schedules"}},
		{true, []string{"capabilities", "updates"}},
		{2097152.0, []string{"limits", "max_payload_bytes"}},
		{2000.0, []string{"limits", "max_pending_children"}},
		{2000.0, []string{"structural_limits", "pending_child_count"}},
		{5000.0, []string{"structural_limits", "pending_signal_count"}},
		{500.0, []string{"structural_limits", "pending_update_count"}},
	} {
		if v := at(c.path...); v != c.want {
			t.Errorf("%s: got %v, want %v", strings.Join(c.path, "."), v, c.want)
		}
	}
	commands, _ := at("worker_protocol", "server_capabilities", "supported_workflow_task_commands").([]any)
	if stages, _ := at(
		"control_plane", "request_contract", "operations", "update", "fields", "wait_for", "canonical_values",
	).([]any); len(stages) != 2 {
		t.Errorf("stages of an update: %v", stages)
	}
	if len(commands) == 0 || commands[0] != "complete_workflow" ||
		!slices.Contains(commands, any("record_local_activity")) {
		t.Errorf("commands: %v", commands)
	}
	if got.header.Get(httpapi.VersionHeader) != "2" || got.header.Get("X-Durable-Workflow-Protocol-Version") != "1.20" {
		t.Errorf("headers: %v", got.header)
	}
}

func TestHealthChecksTheStoreAndLivenessDoesNot(t *testing.T) {
	f := &fake{}
	s := fakeServer(t, f, auth.Options{})
	open := map[string]string{"Authorization": "", httpapi.VersionHeader: ""}
	for path, want := range map[string][2]string{
		"/api/health": {"serving", "unavailable"}, "/api/ready": {"ready", "not_ready"}, "/readyz": {"ready", "not_ready"},
		"/up":      {"up", "up"},
		"/healthz": {"up", "up"},
	} {
		f.ready = nil
		if got := ask(t, s, "GET", path, "", open); got.status != 200 || got.text("status") != want[0] {
			t.Errorf("%s: got %d %s", path, got.status, got.raw)
		}
		f.ready = errors.New("no database")
		status := 503
		if want[1] == "up" {
			status = 200
		}
		if got := ask(t, s, "GET", path, "", open); got.status != status || got.text("status") != want[1] {
			t.Errorf("%s without a store: got %d %s", path, got.status, got.raw)
		}
	}
	f.ready, f.drained = nil, make(chan struct{})
	close(f.drained)
	for path, status := range map[string]int{"/api/health": 200, "/api/ready": 503, "/readyz": 503, "/healthz": 200} {
		if got := ask(t, s, "GET", path, "", open); got.status != status {
			t.Errorf("%s in a drain: got %d %s", path, got.status, got.raw)
		}
	}
}

func TestMetricsCountAnswersByOperation(t *testing.T) {
	s := fakeServer(t, &fake{}, auth.Options{})
	ask(t, s, "GET", "/api/workflows/x", "", nil)
	ask(t, s, "GET", "/api/workflows/x", "", map[string]string{"Authorization": ""})
	got := ask(t, s, "GET", "/metrics", "", map[string]string{httpapi.VersionHeader: ""})
	for _, line := range []string{
		`sojourn_http_answers_total{operation="describe",status="200"} 1`,
		`sojourn_http_answers_total{operation="describe",status="401"} 1`,
		`sojourn_http_seconds_count{operation="describe"} 2`,
	} {
		if !strings.Contains(string(got.raw), line) {
			t.Errorf("missing: %s", line)
		}
	}
}

func TestTheDashboardSignsInOnceAndThenHoldsACookie(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	f := &fake{}
	s := fakeServer(t, f, auth.Options{Store: db})
	none := map[string]string{"Authorization": "", httpapi.VersionHeader: ""}
	if got := ask(t, s, "POST", "/api/sojourn/login", `{"token":"wrong"}`, none); got.status != 401 ||
		len(got.cookies) != 0 {
		t.Errorf("a wrong token: got %d, %v", got.status, got.cookies)
	}
	got := ask(t, s, "POST", "/api/sojourn/login", `{"token":"`+secret+`"}`, none)
	if got.status != 200 || got.text("identity") != "bootstrap" || len(got.cookies) != 1 {
		t.Fatalf("sign in: got %d %s, %v", got.status, got.raw, got.cookies)
	}
	with := map[string]string{
		"Authorization": "", httpapi.VersionHeader: "", "Cookie": got.cookies[0].Name + "=" + got.cookies[0].Value,
	}
	got = ask(t, s, "GET", "/api/sojourn/me", "", with)
	if got.status != 200 || got.text("method") != "cookie" || len(got.body["roles"].([]any)) != len(auth.Roles) {
		t.Errorf("me: got %d %s", got.status, got.raw)
	}
	if got := ask(t, s, "GET", "/api/workflows/x", "", with); got.status != 200 {
		t.Errorf("a contract's route with the cookie and no version: got %d", got.status)
	}
	with["Origin"] = "https://evil.example"
	if got := ask(t, s, "POST", "/api/workflows/x/cancel", "{}", with); got.status != 403 {
		t.Errorf("from another site: got %d", got.status)
	}
	delete(with, "Origin")
	if got := ask(t, s, "DELETE", "/api/sojourn/login", "", with); got.status != 200 {
		t.Errorf("sign out: got %d", got.status)
	}
	if got := ask(t, s, "GET", "/api/sojourn/me", "", with); got.status != 401 ||
		got.header.Get("WWW-Authenticate") == "" {
		t.Errorf("signed out: got %d", got.status)
	}
}

func TestWithoutAuthenticationThisMachineIsServed(t *testing.T) {
	s := fakeServer(t, &fake{}, auth.Options{None: true})
	got := ask(t, s, "GET", "/api/sojourn/me", "", map[string]string{"Authorization": ""})
	if got.status != 200 || got.text("method") != "none" || got.text("identity") != "local" {
		t.Errorf("got %d %s", got.status, got.raw)
	}
	if got := ask(t, s, "POST", "/api/workflows", `{}`, map[string]string{
		"Origin": "http://evil.example",
	}); got.status != 403 {
		t.Errorf("from another site: got %d", got.status)
	}
}

func TestOnePortServesEverything(t *testing.T) {
	s := fakeServer(t, &fake{}, auth.Options{})
	for path, want := range map[string]int{
		"/": 200, "/runs/r1": 200, "/api/socket.io/?EIO=4": http.StatusTeapot, "/api/socket.io": http.StatusTeapot,
		"/api/worker/protocol": 200,
		"/api/worker-sessions": 200, "/apiary": 200, "/upward": 200,
	} {
		got := ask(t, s, "GET", path, "", nil)
		if got.status != want {
			t.Errorf("%s: got %d", path, got.status)
		}
		if page := strings.HasPrefix(string(got.raw), "<title>"); page != (!strings.HasPrefix(path, "/api/")) {
			t.Errorf("%s: the dashboard answered: %v", path, page)
		}
	}
}
