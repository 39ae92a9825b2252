package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Clients of the contract read the object control_plane and not the answer around it. It is made of the answer's own
// members in one place, behind every verb, so that no verb can answer one thing outside and another within.

// projected are the members of an answer that its control_plane object repeats.
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

// controlPlane returns the object that describes the operation and its outcome, so that a client need not parse the
// rest of the response.
func controlPlane(c *call, status int, body any) ([]byte, error) {
	p := requiredByOperation[c.rt.Operation]
	member := membersOf(body)
	var b bytes.Buffer
	b.WriteString(`{"schema":"durable-workflow.v2.control-plane-response","version":1`)
	add := func(name string, v any) error {
		raw, err := httpjson.Encode(v)
		if err == nil {
			b.WriteByte(',')
			b.Write(httpjson.Member(name, raw))
		}
		return err
	}
	if err := add("operation", c.rt.Operation); err != nil {
		return nil, err
	}
	// A start without an ID gets a generated ID, which only the response contains.
	id := c.PathValue("workflow")
	if id == "" && c.rt.Operation == "start" {
		if said, ok := member("workflow_id"); ok {
			id, _ = said.(string)
		}
	}
	if id != "" {
		if err := add("workflow_id", id); err != nil {
			return nil, err
		}
	}
	if c.rt.named != "" {
		if err := add("operation_name", c.PathValue("name")); err != nil {
			return nil, err
		}
		if err := add("operation_name_field", c.rt.named); err != nil {
			return nil, err
		}
	}
	note := contractNote{
		"durable-workflow.v2.control-plane-response.contract", 1, "reject_non_canonical",
		map[string]string{"query": "query_name", "signal": "signal_name", "update": "update_name", "wait_policy": "wait_for"},
		protocol.OrEmpty(p.always), protocol.OrEmpty(p.success),
	}
	if err := add("contract", note); err != nil {
		return nil, err
	}
	for _, name := range projected {
		v, there := member(name)
		if !there && name == "run_id" && c.PathValue("run") != "" {
			v, there = c.PathValue("run"), true
		}
		// Members promised for success are written as null if missing; an error has none of them.
		if !there && !(status < http.StatusBadRequest && slices.Contains(p.success, name)) {
			continue
		}
		if err := add(name, v); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// withWarnings adds warnings to a response. raw is body as JSON.
func withWarnings(raw []byte, body any, more []protocol.Warning) ([]byte, error) {
	if len(more) == 0 {
		return raw, nil
	}
	if own, _ := membersOf(body)("warnings"); own != nil {
		list, ok := own.([]protocol.Warning)
		if !ok {
			return nil, fmt.Errorf("the member warnings of %T is not a []protocol.Warning", body)
		}
		v := reflect.New(reflect.TypeOf(body)).Elem()
		v.Set(reflect.ValueOf(body))
		v.FieldByIndex(indexOf(v.Type())["warnings"].path).Set(reflect.ValueOf(slices.Concat(list, more)))
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
	if _, said := e.Details["outcome"]; !said {
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

// membersOf returns a lookup of members by JSON name: of a map, or of a struct, whose omitted members count as missing.
func membersOf(body any) func(name string) (any, bool) {
	if m, ok := body.(map[string]any); ok {
		return func(name string) (any, bool) { v, ok := m[name]; return v, ok }
	}
	v := reflect.ValueOf(body)
	index := indexOf(v.Type())
	return func(name string) (any, bool) {
		f, ok := index[name]
		if !ok {
			return nil, false
		}
		at := v.FieldByIndex(f.path)
		if f.omits && at.IsZero() {
			return nil, false
		}
		return at.Interface(), true
	}
}

type place struct {
	path  []int
	omits bool
}

var indexes sync.Map // reflect.Type → map[string]place

func indexOf(t reflect.Type) map[string]place {
	if known, ok := indexes.Load(t); ok {
		return known.(map[string]place)
	}
	index := map[string]place{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" || name == "-" {
			continue
		}
		if old, taken := index[name]; !taken || len(old.path) > len(f.Index) {
			index[name] = place{f.Index, strings.Contains(options, "omit")}
		}
	}
	indexes.Store(t, index)
	return index
}
