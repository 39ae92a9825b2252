package apptest_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// abandoned is a step with the cancellation policy abandon.
const abandoned = `{"type":"schedule_activity","activity_type":"step","queue":"` + handQueue +
	`","cancellation_policy":"abandon"`

// rowsOf lists the rows of a table that contain a text.
func rowsOf(a *apptest.App, table, text string) (rows []string) {
	for _, row := range a.Dump()[table] {
		if strings.Contains(row, text) {
			rows = append(rows, row)
		}
	}
	return rows
}

// A run closes in five ways while an abandoned activity runs, one waits for a worker, and one without the policy runs.
// The abandoned ones run to their ends, also at another app, and the closed run stays as it is.
func TestAnAbandonedActivityDoesNotEndWithItsRun(t *testing.T) {
	ways := []struct {
		name  string
		close func(h hand, id string)
	}{
		{"terminated", func(h hand, id string) { h.want(200, "POST", "/api/workflows/"+id+"/terminate", `{}`) }},
		{"cancelled", func(h hand, id string) { h.want(200, "POST", "/api/workflows/"+id+"/cancel", `{}`) }},
		{"completed", func(h hand, _ string) { h.decide(h.poll("workflow"), finish) }},
		{"failed", func(h hand, _ string) { h.decide(h.poll("workflow"), `{"type":"fail_workflow","message":"no"}`) }},
		{"continued", func(h hand, _ string) { h.decide(h.poll("workflow"), `{"type":"continue_as_new"}`) }},
	}
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h := register(caller{t, a, "default"}, "w", "")
		other := register(caller{t, b, "default"}, "other", "")
		for _, way := range ways {
			run := h.start(way.name)
			h.decide(h.poll("workflow"), step, abandoned+`}`, abandoned+`,"retry_policy":{"max_attempts":2}}`,
				`{"type":"open_signal_wait","signal_name":"go"}`)
			plain, running := h.poll("activity"), h.poll("activity")
			h.want(202, "POST", "/api/workflows/"+way.name+"/signal/go", `{}`)
			way.close(h, way.name)
			path := "/api/workflows/" + way.name + "/runs/" + run
			history, row := h.want(200, "GET", path+"/history", "").raw, rowsOf(a, "runs", run)[0]
			pending, _ := h.want(200, "GET", path, "").body["pending"].(map[string]any)
			if list, _ := pending["activities"].([]any); len(list) != 2 || strings.Count(history, "ActivityCancelled") != 1 {
				t.Errorf("%s: %d activities are open, want 2; history: %s", way.name, len(list), history)
			}
			if got := h.ask("POST", stepPath(plain, "heartbeat"), h.stepBody(plain, "")); got.body["can_continue"] != false {
				t.Errorf("%s: the activity without the policy: %s", way.name, got.raw)
			}
			h.want(409, "POST", stepPath(plain, "complete"), h.stepBody(plain, ""))
			at := hand{other.caller, h.id}
			beat := at.want(200, "POST", stepPath(running, "heartbeat"), h.stepBody(running, ""))
			if beat.body["can_continue"] != true || beat.body["cancel_requested"] != false {
				t.Errorf("%s: heartbeat: %s", way.name, beat.raw)
			}
			for range 2 { // both attempts fail; the first one is retried
				waiting := other.poll("activity")
				if !strings.HasPrefix(waiting.text("task_id"), run) {
					t.Fatalf("%s: another task: %v", way.name, waiting)
				}
				got := other.want(200, "POST", stepPath(waiting, "fail"), other.stepBody(waiting, `,"failure":{"message":"no"}`))
				if got.body["recorded"] != true || got.text("outcome") != "failed" {
					t.Errorf("%s: failure: %s", way.name, got.raw)
				}
			}
			got := at.want(200, "POST", stepPath(running, "complete"), h.stepBody(running, ""))
			if got.body["recorded"] != true || got.text("outcome") != "completed" {
				t.Errorf("%s: result: %s", way.name, got.raw)
			}
			h.want(409, "POST", stepPath(running, "complete"), h.stepBody(running, "")) // the attempt has ended
			h.empty("activity")
			other.empty("activity")
			if now := h.want(200, "GET", path+"/history", "").raw; now != history {
				t.Errorf("%s: the history changed to %s", way.name, now)
			}
			if now := rowsOf(a, "runs", run); now[0] != row {
				t.Errorf("%s: the run changed from %s to %s", way.name, row, now[0])
			}
			if left := rowsOf(a, "tasks", run); len(left) > 0 {
				t.Errorf("%s: left: %v", way.name, left)
			}
			if got := h.want(200, "GET", path, ""); got.body["pending"] != nil {
				t.Errorf("%s: pending: %s", way.name, got.raw)
			}
			if way.name == "continued" {
				h.poll("workflow")
			}
		}
	})
}

// A closed run is deleted at another app while its abandoned activities run and wait in a session. They end with it,
// and an activity of another run in the same session gets the freed place.
func TestAbandonedActivitiesEndWhenTheirRunIsDeleted(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h := register(caller{t, a, "default"}, "w", "")
		run := h.start("doomed")
		const inside = `,"worker_session":{"session_id":"s"}}`
		h.decide(h.poll("workflow"), abandoned+inside, abandoned+inside)
		running := h.poll("activity")
		h.want(200, "POST", "/api/workflows/doomed/terminate", `{}`)
		h.start("bystander")
		h.decide(h.poll("workflow"), inSession("s"))
		h.empty("activity") // the session runs one activity at a time
		caller{t, b, "default"}.want(200, "DELETE", "/api/workflows/doomed/runs/"+run, "")
		h.want(404, "POST", stepPath(running, "complete"), h.stepBody(running, ""))
		if left := rowsOf(a, "tasks", run); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		next := h.poll("activity")
		if strings.HasPrefix(next.text("task_id"), run) {
			t.Error("an activity of the deleted run was delivered")
		}
		h.want(200, "POST", stepPath(next, "complete"), h.stepBody(next, ""))
	})
}

// The worker process of an abandoned activity ends after the run has closed. The activity is delivered again.
func TestAbandonedActivityIsRedeliveredWhenItsWorkerDies(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h := register(caller{t, a, "default"}, "w", `,"incarnation":"one"`)
		run := h.start("left")
		h.decide(taskOf(t, h.pollWith("workflow", `,"incarnation":"one","timeout_seconds":30`)), abandoned+`}`)
		first := taskOf(t, h.pollWith("activity", `,"incarnation":"one","timeout_seconds":30`))
		h.want(200, "POST", "/api/workflows/left/cancel", `{}`)
		next := register(caller{t, b, "default"}, "w", `,"incarnation":"two"`)
		redelivered := taskOf(t, next.pollWith("activity", `,"incarnation":"two","timeout_seconds":30`))
		if redelivered.text("task_id") != first.text("task_id") || redelivered.number("attempt_number") != 2 {
			t.Errorf("delivered again: %v", redelivered)
		}
		next.want(409, "POST", stepPath(first, "complete"), next.stepBody(first, ""))
		next.want(200, "POST", stepPath(redelivered, "complete"), next.stepBody(redelivered, ""))
		if left := rowsOf(a, "tasks", run); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// Retention deletes a closed run with an abandoned activity that no worker has leased.
func TestRetentionRemovesAbandonedActivities(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		var shift atomic.Int64
		c := caller{t, shifted(t, database, &shift), "default"}
		h := register(c, "w", "")
		run := h.start("old")
		h.decide(h.poll("workflow"), abandoned+`,"worker_session":{"session_id":"s"}}`, abandoned+`}`)
		h.want(200, "POST", "/api/workflows/old/terminate", `{}`)
		if got := rowsOf(c.app, "tasks", run); len(got) != 2 {
			t.Fatalf("%d activities are open, want 2", len(got))
		}
		shift.Store(int64(31 * 24 * time.Hour))
		if got := h.want(200, "POST", "/api/system/retention/pass", `{}`); got.body["pruned"] != 1.0 {
			t.Errorf("pass: %s", got.raw)
		}
		if left := rowsOf(c.app, "tasks", run); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}
