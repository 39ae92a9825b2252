package httpapi_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/server"
)

// real serves the HTTP API over the real broker on SQLite.
func real(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(apptest.OpenServer(t, "", server.Options{Release: "1.2.3", Token: secret}).Handler())
	t.Cleanup(s.Close)
	return s
}

// A worker that uses only the published HTTP API completes a workflow with one activity; each caller has a token with
// its own role.
func TestAWorkflowRunsToItsEndOverHTTPOnly(t *testing.T) {
	s := real(t)
	token := func(role string) map[string]string {
		got := ask(t, s, "POST", "/api/tokens", `{"name":"`+role+`","roles":["`+role+`"]}`, nil)
		if got.status != 201 || !strings.HasPrefix(got.text("token"), "sjn_") {
			t.Fatalf("token: %d %s", got.status, got.raw)
		}
		return map[string]string{
			"Authorization": "Bearer " + got.text("token"), "X-Durable-Workflow-Protocol-Version": "1.20",
		}
	}
	writer, worker, viewer := token("writer"), token("worker"), token("viewer")
	if got := ask(t, s, "POST", "/api/workflows", `{"workflow_type":"greet"}`, worker); got.status != 403 {
		t.Fatalf("a worker may start workflows: %d", got.status)
	}
	ok := func(status int, got response) response {
		t.Helper()
		if got.status != status {
			t.Fatalf("got %d %s", got.status, got.raw)
		}
		return got
	}
	ok(201, ask(t, s, "POST", "/api/worker/register",
		`{"worker_id":"py-1","task_queue":"q","runtime":"python","supported_workflow_types":["greet"],"supported_activity_types":["hello"]}`, worker))
	ok(200, ask(t, s, "POST", "/api/worker/heartbeat", `{"worker_id":"py-1"}`, worker))
	run := ok(201, ask(t, s, "POST", "/api/workflows",
		`{"workflow_id":"g-1","workflow_type":"greet","task_queue":"q","input":["you"]}`, writer)).text("run_id")
	if got := ok(
		409, ask(t, s, "POST", "/api/workflows", `{"workflow_id":"g-1","workflow_type":"greet"}`, writer),
	); got.text("outcome") != "rejected_duplicate" {
		t.Errorf("again: %s", got.raw)
	}
	poll := func(kind string) map[string]any {
		t.Helper()
		got := ok(
			200,
			ask(
				t, s, "POST", "/api/worker/"+kind+"-tasks/poll", `{"worker_id":"py-1","task_queue":"q","timeout_seconds":30}`,
				worker,
			),
		)
		task, _ := got.body["task"].(map[string]any)
		if task == nil || got.text("poll_status") != "leased" {
			t.Fatalf("%s poll: %s", kind, got.raw)
		}
		return task
	}
	complete := func(task map[string]any, commands string) response {
		return ask(t, s, "POST", "/api/worker/workflow-tasks/"+task["task_id"].(string)+"/complete",
			`{"lease_owner":"py-1","workflow_task_attempt":1,"commands":`+commands+`}`, worker)
	}
	first := poll("workflow")
	if got := ok(
		422, complete(first, `[{"type":"schedule_activity"}]`),
	); got.body["errors"].(map[string]any)["commands.0.activity_type"] == nil {
		t.Errorf("a missing field: %s", got.raw)
	}
	args := first["arguments"].(map[string]any)["blob"].(string)
	schedule := `[{"type":"schedule_activity","activity_type":"hello","queue":"q","arguments":{"codec":"avro","blob":"` +
		args + `"}}]`
	ok(200, complete(first, schedule))
	if got := ok(200, complete(first, schedule)); got.body["recorded"] != false ||
		got.text("reason") != "already_completed" {
		t.Errorf("the same again: %s", got.raw)
	}
	act := poll("activity")
	path := "/api/worker/activity-tasks/" + act["task_id"].(string)
	lease := `"lease_owner":"py-1","activity_attempt_id":"` + act["activity_attempt_id"].(string) + `"`
	if got := ok(
		200, ask(t, s, "POST", path+"/heartbeat", `{`+lease+`,"message":"half","current":1}`, worker),
	); got.body["can_continue"] != true {
		t.Errorf("heartbeat: %s", got.raw)
	}
	ok(200, ask(t, s, "POST", path+"/complete", `{`+lease+`,"result":"hello you"}`, worker))
	second := poll("workflow")
	ok(200, complete(second, `[{"type":"complete_workflow","result":{"codec":"avro","blob":"`+args+`"}}]`))
	got := ok(200, ask(t, s, "GET", "/api/workflows/g-1", "", viewer))
	if got.text("status") != "completed" || got.plane()["is_terminal"] != true ||
		got.body["output_envelope"].(map[string]any)["blob"] != args {
		t.Errorf("describe: %s", got.raw)
	}
	got = ok(200, ask(t, s, "GET", "/api/workflows/g-1/runs/"+run+"/history?decoded=true", "", viewer))
	if !strings.Contains(string(got.raw), `"decoded":{"result":"hello you"}`) {
		t.Errorf("history: %s", got.raw)
	}
	if got := ok(
		409, ask(t, s, "POST", "/api/workflows/g-1/signal/late", `{}`, writer),
	); got.plane()["outcome"] != "rejected_not_active" {
		t.Errorf("a late signal: %s", got.raw)
	}
	if got := ok(
		200, ask(t, s, "DELETE", "/api/worker/registrations/py-1", "", worker),
	); got.text("outcome") != "deregistered" {
		t.Errorf("deregister: %s", got.raw)
	}
	if got := ok(404, ask(t, s, "GET", "/api/workers/py-1", "", viewer)); got.text("reason") != "worker_not_found" {
		t.Errorf("afterwards: %s", got.raw)
	}
}

// A memo preserves bytes, and doubles without a fraction, which plain JSON cannot represent.
func TestMemoKeepsTypesThatJSONLacks(t *testing.T) {
	s := real(t)
	ok := func(status int, got response) response {
		t.Helper()
		if got.status != status {
			t.Fatalf("got %d %s", got.status, got.raw)
		}
		return got
	}
	worker := map[string]string{"X-Durable-Workflow-Protocol-Version": "1.20"}
	ok(
		201,
		ask(
			t, s, "POST", "/api/worker/register",
			`{"worker_id":"w","task_queue":"q","runtime":"rust","supported_workflow_types":["noting"]}`, worker,
		),
	)
	run := ok(
		201, ask(t, s, "POST", "/api/workflows", `{"workflow_id":"m","workflow_type":"noting","task_queue":"q"}`, nil),
	).text("run_id")
	task := ok(200, ask(t, s, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q"}`, worker)).
		body["task"].(map[string]any)
	// {"binary": bytes "same", "double": 7.0, "invalid_binary": bytes ff00, "long": 7, "nested": {"alpha": 1, "beta":
	// 2}, "text": "same"}
	const blob = "wwHioz3/VYAiNw4MDGJpbmFyeQgIc2FtZQxkb3VibGUGAAAAAAAAHEAcaW52YWxpZF9iaW5hcnkIBP8ACGxvbmcEDgxuZXN0ZWQOBAphbHBoYQQCCGJldGEEBAAIdGV4dAoIc2FtZQA="
	ok(200, ask(t, s, "POST", "/api/worker/workflow-tasks/"+task["task_id"].(string)+"/complete",
		`{"lease_owner":"w","workflow_task_attempt":1,"commands":[{"type":"upsert_memo","entries":{"codec":"avro","blob":"`+
			blob+`"}},
		{"type":"start_timer","delay_seconds":600}]}`, worker))
	shown := string(ok(200, ask(t, s, "GET", "/api/workflows/m", "", nil)).raw)
	if want := `"memo":{"binary":{"$type":"bytes","base64":"c2FtZQ=="},"double":7,"invalid_binary":{"$type":"bytes","base64":"/wA="},"long":7,`; !strings.Contains(shown, want) {
		t.Errorf("shown: %s", shown)
	}
	kept := ok(200, ask(t, s, "GET", "/api/workflows/m/runs/"+run+"/history", "", nil)).raw
	if n := strings.Count(string(kept), blob); n != 2 { // in the entries and in the merged memo
		t.Errorf("the envelope is there %d times: %s", n, kept)
	}
}

// A list request with an unknown word is rejected with the known words, since an empty list would mean that nothing
// matches.
func TestValuesOutsideAnEnumAreRejected(t *testing.T) {
	s := real(t)
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Schema   described
			}
		}
		Components struct{ Schemas map[string]described }
	}
	if err := json.Unmarshal(ask(t, s, "GET", "/api/openapi.json", "", nil).raw, &doc); err != nil {
		t.Fatal(err)
	}
	refused := map[string]bool{}
	for path, verbs := range doc.Paths {
		for _, p := range verbs["get"].Parameters {
			words := p.Schema.Enum
			if name, ref := strings.CutPrefix(p.Schema.Ref, "#/components/schemas/"); ref {
				words = doc.Components.Schemas[name].Enum
			}
			if p.In != "query" || len(words) == 0 {
				continue
			}
			got := ask(t, s, "GET", path+"?"+p.Name+"=nope", "", nil)
			for _, word := range words {
				if got.status != 422 || !strings.Contains(got.text("message"), word) {
					t.Errorf("%s?%s=nope is answered without %s: %d %s", path, p.Name, word, got.status, got.raw)
				}
				if got := ask(t, s, "GET", path+"?"+p.Name+"="+word, "", nil); got.status != 200 &&
					!strings.HasSuffix(got.text("reason"), "_not_found") {
					t.Errorf("%s?%s=%s: %d %s", path, p.Name, word, got.status, got.raw)
				}
			}
			refused[path+" "+p.Name] = true
		}
	}
	for _, list := range []string{
		"/api/workers status", "/api/worker-sessions status", "/api/workflows kind", "/api/workflows stored_status",
	} {
		if !refused[list] {
			t.Errorf("the words of %s are not described: %v", list, refused)
		}
	}
}

type described struct {
	Enum []string
	Ref  string `json:"$ref"`
}
