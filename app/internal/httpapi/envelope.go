package httpapi

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// SDKs read the object control_plane and not the response around it. It is built from the response's own members in one
// place, for all routes, so that the two cannot differ.

// projected lists the members of a response that its control_plane object repeats.
var projected = []string{
	"run_id", "workflow_type", "namespace", "business_key", "status", "status_bucket", "is_terminal", "task_queue",
	"run_number", "run_count",
	"workflow_count", "is_current_run", "compatibility", "started_at", "closed_at", "last_progress_at", "wait_kind",
	"wait_reason",
	"next_page_token", "command_id", "command_status", "command_source", "target_scope", "outcome", "reason",
	"rejection_reason",
	"validation_errors", "result", "result_envelope", "update_id", "update_status", "wait_for", "wait_timed_out",
	"wait_timeout_seconds",
	"blocked_reason", "message", "diagnostic_status",
}

// requiredMembers lists the members of an operation's control_plane object that are always present, and those of
// successful responses.
type requiredMembers struct{ always, success []string }

var requiredByOperation = map[string]requiredMembers{
	"start":                {nil, []string{"workflow_id", "outcome"}},
	"describe":             {[]string{"workflow_id"}, nil},
	"list_runs":            {[]string{"workflow_id"}, nil},
	"describe_run":         {[]string{"workflow_id"}, []string{"run_id"}},
	"history":              {[]string{"workflow_id", "run_id"}, []string{"next_page_token"}},
	"signal":               {[]string{"workflow_id", "operation_name", "operation_name_field"}, []string{"outcome"}},
	"query":                {[]string{"workflow_id", "operation_name", "operation_name_field"}, []string{"result"}},
	"update":               {[]string{"workflow_id", "operation_name", "operation_name_field"}, []string{"outcome"}},
	"cancel":               {[]string{"workflow_id"}, []string{"outcome"}},
	"terminate":            {[]string{"workflow_id"}, []string{"outcome"}},
	"request_cancellation": {[]string{"workflow_id"}, []string{"outcome"}},
	"repair":               {[]string{"workflow_id"}, []string{"outcome"}},
	"archive":              {[]string{"workflow_id"}, []string{"outcome"}},
	"redrive":              {[]string{"workflow_id"}, []string{"run_id", "outcome"}},
	"debug_workflow":       {[]string{"workflow_id"}, []string{"run_id", "diagnostic_status"}},
}

// contractNote lists the members that a client may rely on, so that the client need not define them.
type contractNote struct {
	Schema   string            `json:"schema"`
	Version  int               `json:"version"`
	Policy   string            `json:"legacy_field_policy"`
	Legacy   map[string]string `json:"legacy_fields"`
	Required []string          `json:"required_fields"`
	Success  []string          `json:"success_fields"`
}

// appendControlPlane appends the object that describes the operation and its outcome, so that a client need not parse
// the rest of the response.
func appendControlPlane(out []byte, c *call, status int, body any) ([]byte, error) {
	p := requiredByOperation[c.rt.Operation]
	all := membersOf(body)
	out = append(out, `{"schema":"durable-workflow.v2.control-plane-response","version":1`...)
	out = appendString(append(out, `,"operation":`...), c.rt.Operation)
	// A start without an ID gets a generated ID, which only the response contains.
	id := c.PathValue("workflow")
	if id == "" && c.rt.Operation == "start" {
		if v, there := all.get("workflow_id"); there && v.Kind() == reflect.String {
			id = v.String()
		}
	}
	if id != "" {
		out = appendString(append(out, `,"workflow_id":`...), id)
	}
	if c.rt.named != "" {
		out = appendString(append(out, `,"operation_name":`...), c.PathValue("name"))
		out = appendString(append(out, `,"operation_name_field":`...), c.rt.named)
	}
	out = append(append(out, `,"contract":`...), contractOf(c.rt.Operation)...)
	for i, name := range projected {
		v, there := all.projected(i)
		if !there && name == "run_id" && c.PathValue("run") != "" {
			v, there = reflect.ValueOf(c.PathValue("run")), true
		}
		// Members promised for success are written as null if missing; an error does not have them.
		if !there && !(status < http.StatusBadRequest && slices.Contains(p.success, name)) {
			continue
		}
		out = append(append(append(out, `,"`...), name...), `":`...)
		var err error
		if out, err = appendValue(out, v); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

var contracts sync.Map // operation → []byte, its contractNote as JSON

func contractOf(operation string) []byte {
	if known, ok := contracts.Load(operation); ok {
		return known.([]byte)
	}
	p := requiredByOperation[operation]
	note, err := httpjson.Encode(contractNote{
		"durable-workflow.v2.control-plane-response.contract", 1, "reject_non_canonical",
		map[string]string{"query": "query_name", "signal": "signal_name", "update": "update_name", "wait_policy": "wait_for"},
		protocol.OrEmpty(p.always), protocol.OrEmpty(p.success),
	})
	if err != nil {
		panic("httpapi: " + err.Error())
	}
	contracts.Store(operation, note)
	return note
}

// appendString appends a text as JSON.
func appendString(out []byte, text string) []byte {
	out, err := httpjson.AppendText(out, text)
	if err != nil {
		panic("httpapi: a text has no JSON form: " + err.Error())
	}
	return out
}

// appendValue appends a member's value as JSON, without the encoder for the types of most members. The invalid value is
// null.
func appendValue(out []byte, v reflect.Value) ([]byte, error) {
	if !v.IsValid() {
		return append(out, "null"...), nil
	}
	t := v.Type()
	if t == stringPointer && !v.IsNil() {
		v, t = v.Elem(), stringType
	}
	switch {
	case t == stringType:
		return httpjson.AppendText(out, v.String())
	case t == stringPointer:
		return append(out, "null"...), nil
	case t.Kind() == reflect.Bool:
		return strconv.AppendBool(out, v.Bool()), nil
	case t == intType:
		return strconv.AppendInt(out, v.Int(), 10), nil
	}
	return httpjson.AppendValue(out, v.Interface())
}

var (
	stringType    = reflect.TypeFor[string]()
	stringPointer = reflect.TypeFor[*string]()
	intType       = reflect.TypeFor[int64]()
)

// withWarnings adds warnings to a response. raw is body as JSON.
func withWarnings(raw []byte, body any, more []protocol.Warning) ([]byte, error) {
	if len(more) == 0 {
		return raw, nil
	}
	if own, there := membersOf(body).get("warnings"); there {
		list, ok := own.Interface().([]protocol.Warning)
		if !ok {
			return nil, fmt.Errorf("the member warnings of %T is not a []protocol.Warning", body)
		}
		v := reflect.New(reflect.TypeOf(body)).Elem()
		v.Set(reflect.ValueOf(body))
		v.FieldByIndex(structMembersOf(v.Type()).byName["warnings"].path).Set(reflect.ValueOf(slices.Concat(list, more)))
		return httpjson.Encode(v.Interface())
	}
	list, err := httpjson.Encode(more)
	if err != nil {
		return nil, err
	}
	return httpjson.Append(raw, httpjson.Member("warnings", list)), nil
}

// rejectionMembers returns the additional members of a refusal on the workflow routes: the names in the request, and
// the refusal in the form of a command's outcome.
func rejectionMembers(c *call, e *protocol.Error) map[string]any {
	m := map[string]any{}
	if id := c.PathValue("workflow"); id != "" {
		m["workflow_id"] = id
	}
	if id := c.PathValue("run"); id != "" {
		m["run_id"] = id
		m["target_scope"] = "run"
	}
	if c.rt.named != "" {
		m[c.rt.named] = c.PathValue("name")
	}
	if c.started != "" {
		m["workflow_id"] = c.started
	}
	if c.Method != http.MethodPost || c.rt.Operation == "unknown" || e.Reason.Away() {
		return m
	}
	m["command_status"], m["rejection_reason"] = "rejected", e.Reason
	if _, present := e.Details["outcome"]; !present {
		if o := outcomes[e.Reason]; o != "" {
			m["outcome"] = o
		}
	}
	return m
}

var outcomes = map[protocol.Reason]string{
	protocol.ReasonAlreadyStarted:   "rejected_duplicate",
	protocol.ReasonDuplicateStart:   "rejected_duplicate",
	protocol.ReasonUnknownSignal:    "rejected_unknown_signal",
	protocol.ReasonRunNotActive:     "rejected_not_active",
	protocol.ReasonRunNotClosed:     "rejected_run_not_closed",
	protocol.ReasonHistoricalRun:    "rejected_not_current",
	protocol.ReasonInstanceNotFound: "rejected_not_started",
	protocol.ReasonValidation:       "rejected_invalid_arguments",
	protocol.ReasonUnsupportedCodec: "rejected_invalid_arguments",
}

// members are the members of a response by JSON name: of a map, or of a struct, whose omitted members count as missing.
type members struct {
	object map[string]any
	value  reflect.Value // type of a struct
	of     *structMembers
}

func membersOf(body any) members {
	if m, ok := body.(map[string]any); ok {
		return members{object: m}
	}
	v := reflect.ValueOf(body)
	return members{value: v, of: structMembersOf(v.Type())}
}

func (m members) get(name string) (reflect.Value, bool) {
	if m.of == nil {
		v, ok := m.object[name]
		return reflect.ValueOf(v), ok
	}
	f, ok := m.of.byName[name]
	if !ok {
		return reflect.Value{}, false
	}
	return m.at(f)
}

// projected returns the member with the name projected[i].
func (m members) projected(i int) (reflect.Value, bool) {
	if m.of == nil {
		return m.get(projected[i])
	}
	return m.at(m.of.projected[i])
}

func (m members) at(f place) (reflect.Value, bool) {
	if f.path == nil {
		return reflect.Value{}, false
	}
	at := m.value.FieldByIndex(f.path)
	return at, !f.omits || !at.IsZero()
}

// place is a field of a struct; without a path: none.
type place struct {
	path  []int
	omits bool
}

// structMembers returns the fields of a struct by JSON name, and the fields of the projected members in their order.
type structMembers struct {
	byName    map[string]place
	projected []place
}

var structs sync.Map // reflect.Type → *structMembers

func structMembersOf(t reflect.Type) *structMembers {
	if known, ok := structs.Load(t); ok {
		return known.(*structMembers)
	}
	of := &structMembers{byName: map[string]place{}, projected: make([]place, len(projected))}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" || name == "-" {
			continue
		}
		if old, taken := of.byName[name]; !taken || len(old.path) > len(f.Index) {
			of.byName[name] = place{f.Index, strings.Contains(options, "omit")}
		}
	}
	for i, name := range projected {
		of.projected[i] = of.byName[name]
	}
	structs.Store(t, of)
	return of
}
