package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// published returns a validator by the definitions of the repository's JSON schema.
func published(t *testing.T) func(definition string, value any) error {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	const file = "../docs/schemas/worker-sessions-runtime.schema.json"
	return func(definition string, value any) error {
		t.Helper()
		s, err := c.Compile(file + "#/$defs/" + definition)
		if err != nil {
			t.Fatal(err)
		}
		return s.Validate(value)
	}
}

// plane is an HTTP client of an app for both APIs, that of workers and that of operators.
type plane struct {
	t   *testing.T
	url string
}

func (p plane) call(method, path string, body any, status int) map[string]any {
	p.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+"/api"+path, bytes.NewReader(raw))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(path, "/worker/") {
		req.Header.Set("X-Durable-Workflow-Protocol-Version", "1.20")
	} else {
		req.Header.Set("X-Durable-Workflow-Control-Plane-Version", "2")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	v, err := jsonschema.UnmarshalJSON(res.Body)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	if res.StatusCode != status {
		p.t.Fatalf("%s %s: %d %v, want %d", method, path, res.StatusCode, v, status)
	}
	return v.(map[string]any)
}

func at(v any, path ...string) any {
	for _, k := range path {
		v = v.(map[string]any)[k]
	}
	return v
}

type object = map[string]any

// All responses about worker sessions match the published schema: the contract, receipts and errors of every verb,
// tasks, lists and details.
func TestServedWorkerSessionsMatchTheirSchema(t *testing.T) {
	judge := published(t)
	fits := func(definition string, value any) {
		t.Helper()
		if err := judge(definition, value); err != nil {
			t.Errorf("not a %s: %v\n%v", definition, err, value)
		}
	}
	p := plane{t, apptest.Start(t, apptest.Options{}).URL()}
	info := p.call("GET", "/cluster/info", nil, 200)
	contract := at(info, "worker_protocol", "server_capabilities", "worker_sessions").(object)
	fits("workerSessionRuntimeContract", contract)
	if contract["supported"] != true || at(info, "sojourn", "sessions", "fencing_token") != "session_epoch" {
		t.Errorf("worker sessions are not said to be supported, or not how they are fenced: %v", at(info, "sojourn"))
	}
	for _, k := range []string{"feature", "verbs", "lifecycle", "ownership", "admission", "statuses"} {
		// the judge can say no
		less := maps.Clone(contract)
		delete(less, k)
		if judge("workerSessionRuntimeContract", less) == nil {
			t.Errorf("a contract without %s fits", k)
		}
	}
	register := func(id, queue string, sessions int, capabilities ...string) {
		t.Helper()
		p.call("POST", "/worker/register", object{
			"worker_id": id, "task_queue": queue, "runtime": "test", "supported_workflow_types": []string{"wf"},
			"supported_activity_types": []string{"turn"}, "capabilities": append(capabilities, "worker_sessions"),
			"max_concurrent_worker_sessions": sessions,
		}, 201)
	}
	register("w", "default", 5, "gpu")
	register("other", "default", 1)
	register("full", "default", 1)
	register("away", "elsewhere", 5)
	create := func(worker, id string, status int, more object) map[string]any {
		t.Helper()
		body := object{"worker_id": worker, "session_id": id}
		for k, v := range more {
			body[k] = v
		}
		fits("workerSessionCreateRequest", number(t, body))
		v := p.call("POST", "/worker/sessions", body, status)
		fits("workerSessionOperationResult", v)
		return v
	}
	verb := func(method, id, path, worker, definition string, status int) map[string]any {
		t.Helper()
		v := p.call(method, "/worker/sessions/"+id+path, object{"worker_id": worker}, status)
		fits(definition, v)
		return v
	}
	refused := func(v map[string]any, reason string) {
		t.Helper()
		if v["reason"] != reason || v["admitted"] != false {
			t.Errorf("refused with %v, want %s", v["reason"], reason)
		}
	}
	outcome := func(v map[string]any, want string) {
		t.Helper()
		if v["outcome"] != want || v["admitted"] != true || v["reason"] != nil {
			t.Errorf("outcome %v, want %s", v["outcome"], want)
		}
	}
	first := create("w", "s", 201, object{"requirements": []string{"gpu"}})
	outcome(first, "created")
	outcome(create("w", "s", 200, object{"requirements": []string{"gpu"}}), "reused")
	refused(create("other", "s", 409, object{"requirements": []string{"gpu"}}), "session_requirements_not_met")
	refused(create("away", "s", 409, object{"requirements": []string{"gpu"}}), "session_queue_mismatch")
	refused(create("w", "s", 422, object{"lease_seconds": 7}), "invalid_worker_session")
	refused(create("w", "missing", 409, object{"create_if_missing": false}), "session_missing")
	refused(create("nobody", "s", 412, nil), "worker_not_registered")
	outcome(create("full", "f1", 201, nil), "created")
	refused(create("full", "f2", 409, nil), "worker_session_limit_exceeded")
	refused(create("other", "f1", 409, nil), "session_owned_by_another_worker")
	soft := create("w", "soft", 201, object{"affinity": "soft", "fallback_after_seconds": 5})
	if s := at(soft, "session").(object); s["affinity"] != "soft" || fmt.Sprint(s["fallback_after_seconds"]) != "5" {
		t.Errorf("a soft session is %v", s)
	}
	const result = "workerSessionOperationResult"
	renewed := verb("POST", "s", "/heartbeat", "w", result, 200)
	outcome(renewed, "heartbeat_recorded")
	if a, b := at(first, "session", "ttl_expires_at"), at(renewed, "session", "ttl_expires_at"); a != b {
		t.Errorf("the absolute end moved from %v to %v", a, b)
	}
	refused(verb("POST", "s", "/heartbeat", "other", result, 409), "session_owner_mismatch")
	refused(verb("POST", "nowhere", "/heartbeat", "w", result, 404), "session_not_found")
	outcome(verb("POST", "f1", "/release", "full", "workerSessionReleaseResult", 200), "released")
	outcome(create("other", "f1", 200, nil), "reacquired")

	p.call(
		"POST", "/workflows", object{"workflow_id": "one", "workflow_type": "wf", "task_queue": "default", "input": []any{}},
		201,
	)
	poll := func(kind string) map[string]any {
		t.Helper()
		v := p.call(
			"POST", "/worker/"+kind+"-tasks/poll", object{"worker_id": "w", "task_queue": "default", "timeout_seconds": 20}, 200,
		)
		task, ok := v["task"].(map[string]any)
		if !ok {
			t.Fatalf("no %s task: %v", kind, v)
		}
		return task
	}
	task := poll("workflow")
	args := task["arguments"]
	options := object{"session_id": "s", "requirements": []string{"gpu"}}
	fits("workerSessionOptions", number(t, options))
	p.call("POST", fmt.Sprintf("/worker/workflow-tasks/%s/complete", task["task_id"]), object{
		"lease_owner": "w", "workflow_task_attempt": task["workflow_task_attempt"], "commands": []any{
			object{
				"type": "schedule_activity", "activity_type": "turn", "queue": "default", "arguments": args,
				"worker_session": options,
			},
			object{
				"type": "schedule_activity", "activity_type": "turn", "queue": "default", "arguments": args,
				"session_id": "implicit",
			},
			object{"type": "start_session"},
		},
	}, 200)
	for range 2 {
		act := poll("activity")
		fits("workerSessionTaskAffinity", act["worker_session"])
		beat := p.call("POST", fmt.Sprintf("/worker/activity-tasks/%s/heartbeat", act["task_id"]), object{
			"lease_owner": "w", "activity_attempt_id": act["activity_attempt_id"],
		}, 200)
		fits("workerSessionTaskAffinity", beat["worker_session"])
	}
	closed := verb("DELETE", "s", "", "w", result, 200)
	outcome(closed, "closed")
	if at(closed, "session", "lease_owner") != "w" {
		t.Errorf("after the close the owner is %v", at(closed, "session", "lease_owner"))
	}
	outcome(verb("DELETE", "s", "", "w", result, 200), "already_closed")
	refused(verb("POST", "s", "/heartbeat", "w", result, 409), "session_not_active")
	refused(create("w", "s", 409, object{"requirements": []string{"gpu"}}), "session_closed")

	list := p.call("GET", "/worker-sessions", nil, 200)
	fits("workerSessionVisibility", list)
	if n := len(list["sessions"].([]any)); n != 5 {
		t.Errorf("%d sessions are listed, want one of each door and two others", n)
	}
	fits("workerSessionDetail", p.call("GET", "/worker-sessions/implicit", nil, 200))
	fits("workerSessionMetrics", p.call("GET", "/system/operator-metrics", nil, 200)["worker_sessions"])
}

// number is a value as the schema's own decoder reads it.
func number(t *testing.T, v any) any {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return out
}
