package apptest_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// A worker that completes a task with a next poll gets the next task of the same run before older tasks of other runs,
// at most eight times in a row, and never before tasks of higher priority.
func TestRunOvertakesOthersAtMostEightTimesInARow(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		w := register(caller{t, a, ""}, "w", "")
		poll := `{"worker_id":"w","task_queue":"` + handQueue + `","kinds":["workflow","activity"],"max":1,"timeout_seconds":0}`
		w.want(200, "POST", "/api/worker/tasks/poll", poll) // the app knows from here on that the queue is empty
		started := func(id, more string) {
			w.want(
				201, "POST", "/api/workflows",
				`{"workflow_id":"`+id+`","workflow_type":"flow","task_queue":"`+handQueue+`","input":[1]`+more+`}`,
			)
		}
		var kind string
		taken := func(tasks any) handTask {
			t.Helper()
			list, _ := tasks.([]any)
			if len(list) != 1 {
				t.Fatalf("%d tasks", len(list))
			}
			one := list[0].(map[string]any)
			kind = one["kind"].(string)
			return one[kind].(map[string]any)
		}
		// done completes a task and returns the next one.
		done := func(task handTask) handTask {
			t.Helper()
			item := fmt.Sprintf(
				`"task_id":%q,"lease_owner":"w","activity_attempt_id":%q`, task.text("task_id"), task.text("activity_attempt_id"),
			)
			if kind == "workflow" {
				item = fmt.Sprintf(
					`"task_id":%q,"lease_owner":"w","workflow_task_attempt":%d,"commands":[%s]`, task.text("task_id"),
					task.number("workflow_task_attempt"), step,
				)
			}
			s := w.want(200, "POST", "/api/worker/tasks/complete", `{"items":[{`+item+`}],"next":`+poll+`}`)
			return taken(s.body["next"].(map[string]any)["tasks"])
		}
		started("a", "")
		task := taken(w.want(200, "POST", "/api/worker/tasks/poll", poll).body["tasks"])
		started("b", "")
		var order []string
		for range 20 {
			task = done(task)
			order = append(order, task.text("workflow_id"))
		}
		// no activity of another run waits, so the ninth task overtakes none; b was dispatched in order
		var want []string
		for _, of := range []struct {
			run   string
			times int
		}{{"a", 9}, {"b", 10}, {"a", 1}} {
			want = append(want, slices.Repeat([]string{of.run}, of.times)...)
		}
		if !slices.Equal(order, want) {
			t.Errorf("the tasks came in the order %v, want %v", order, want)
		}
		started("urgent", `,"priority":1`)
		for task = done(task); kind != "workflow"; {
			task = done(task)
		}
		if task.text("workflow_id") != "urgent" {
			t.Errorf("a workflow task of %s went past a more urgent one", task.text("workflow_id"))
		}
	})
}
