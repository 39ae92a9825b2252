package broker_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// If another worker acquired a workflow's session, an attempt of the previous epoch may still have a valid lease, but
// its result is rejected, since it used another session state. The task is ready again immediately.
func TestAResultUnderASupersededEpochDoesNotCount(t *testing.T) {
	for name, report := range map[string]func(a *app, task *protocol.Task) protocol.CompleteResponse{
		"completed": func(a *app, task *protocol.Task) protocol.CompleteResponse { return a.result(task, "late") },
		"failed": func(a *app, task *protocol.Task) protocol.CompleteResponse {
			return a.complete(protocol.CompleteItem{
				Kind: protocol.KindActivity, TaskID: task.Activity.TaskID, Owner: task.Activity.LeaseOwner,
				AttemptID: task.Activity.AttemptID,
				Failure:   &protocol.Failure{Message: "late", NonRetryable: true},
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Databases(t, func(t *testing.T, database string) {
				a := on(t, database)
				a.register("flow")
				a.ours("a", "a1", 200*time.Millisecond, time.Hour, 10)
				run := a.start("wf")
				session := run.RunID + "-1"
				a.taken(a.decide(
					a.task("flow", protocol.KindWorkflow, "wf"), protocol.Command{Type: protocol.StartSession}, inSession(session),
					inSession(session),
				))
				first := a.task("a", protocol.KindActivity, "wf")
				a.ours("b", "b1", time.Minute, time.Hour, 10)
				second := a.task("b", protocol.KindActivity, "wf") // waits until the session's lease has expired
				if was, is := first.Activity.Session.Epoch, second.Activity.Session.Epoch; is <= was ||
					first.Activity.TaskID == second.Activity.TaskID {
					t.Fatalf("epoch %d of %s after %d of %s", is, second.Activity.TaskID, was, first.Activity.TaskID)
				}
				late := report(a, first)
				// the app also releases such an attempt in the background, so the attempt may have ended already
				if r := protocol.ReasonOf(late.Err); r != protocol.ReasonStaleSessionEpoch && r != protocol.ReasonStaleAttempt ||
					late.Recorded {
					t.Errorf("the late report: %+v", late)
				}
				redelivered := a.poll("b", protocol.KindActivity, 30)
				if redelivered == nil || redelivered.Activity.TaskID != first.Activity.TaskID ||
					redelivered.Activity.Session.Epoch != second.Activity.Session.Epoch {
					t.Fatalf("redelivered: %+v", redelivered)
				}
				a.taken(a.result(redelivered, "done"))
				a.taken(a.result(second, "done"))
			})
		})
	}
}

// After a workflow's session was acquired again, an attempt of the previous epoch does not delay the workflow: its task
// is ready again although its worker sends nothing and its lease is valid for minutes.
func TestStaleAttemptDoesNotBlockOthers(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("a", "a1", 200*time.Millisecond, time.Hour, 10)
		run := a.start("wf")
		session := run.RunID + "-1"
		a.taken(a.decide(
			a.task("flow", protocol.KindWorkflow, "wf"), protocol.Command{Type: protocol.StartSession}, inSession(session),
			inSession(session),
		))
		first := a.task("a", protocol.KindActivity, "wf")
		a.ours("b", "b1", time.Minute, time.Hour, 10)
		second := a.task("b", protocol.KindActivity, "wf") // waits until the session's lease has expired
		redelivered := a.poll("b", protocol.KindActivity, 30)
		if redelivered == nil || redelivered.Activity.TaskID != first.Activity.TaskID ||
			redelivered.Activity.Session.Epoch != second.Activity.Session.Epoch {
			t.Fatalf("redelivered: %+v", redelivered)
		}
		if got, want := first.Activity.LeaseExpiresAt.Time, time.Now().Add(30*time.Second); got.Before(want) {
			t.Errorf("the lease of the previous attempt ended at %s: the test did not reach its case", got)
		}
		a.taken(a.result(redelivered, "done"))
		a.taken(a.result(second, "done"))
	})
}
