package apptest_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A run of the published Python SDK is reset to the end of its first workflow task. The code replays the copied events,
// receives the signal again and runs the activity again. It does not handle the updates that the old run answered: one
// that arrived while the first task ran, and one that arrived afterwards.
func TestAPythonRunIsReset(t *testing.T) {
	t.Parallel()
	python(t)
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, ""}
	h := hand{c, "hand"}
	h.want(201, "POST", "/api/worker/register", `{"worker_id":"hand","task_queue":"`+pythonQueue+`","runtime":"external",
		"supported_workflow_types":["approval"]}`)
	r := run(t, a, "approval", 1, 30, 3600)
	task := taskOf(t, h.want(
		200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"hand","task_queue":"`+pythonQueue+`","timeout_seconds":30}`,
	))
	deposit := func(amount, total int) {
		t.Helper()
		got := c.want(
			200, "POST", "/api/workflows/"+r.WorkflowID+"/update/deposit",
			fmt.Sprintf(`{"input":[%d],"wait_for":"completed","wait_timeout_seconds":60}`, amount),
		)
		if result, _ := got.body["result"].(map[string]any); result["total"] != float64(total) {
			t.Errorf("deposit of %d: %s", amount, got.raw)
		}
	}
	c.want(202, "POST", "/api/workflows/"+r.WorkflowID+"/update/deposit", `{"input":[10]}`)
	h.decide(task, `{"type":"open_condition_wait","condition_key":"approved","timeout_seconds":3600}`)
	h.want(200, "DELETE", "/api/worker/registrations/hand", "")

	w := work(t, a, "py-1", "50")
	c.want(202, "POST", "/api/workflows/"+r.WorkflowID+"/signal/approve", `{"input":["Ada"]}`)
	deposit(5, 15)
	next := c.want(202, "POST", resetPath(r.WorkflowID, r.RunID), `{"to":"first_task"}`).text("run_id")
	deposit(30, 30)
	var got struct {
		Names    []string
		Total    int
		Greeting string
	}
	until(t, "the new run completes", func() bool {
		v, err := a.View().Describe(t.Context(), protocol.Target{WorkflowID: r.WorkflowID})
		return err == nil && v.Status == "completed" && v.RunID == next && json.Unmarshal(v.Output, &got) == nil
	})
	if len(got.Names) != 1 || got.Names[0] != "Ada" || got.Total != 30 || got.Greeting != "hello Ada" {
		t.Errorf("output: %+v", got)
	}
	if n := len(c.eventsOf(r.WorkflowID, next, "ActivityCompleted")); n != 1 {
		t.Errorf("%d activities completed in the new run", n)
	}
	w.stop()
}
