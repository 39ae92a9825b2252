package channel_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Which app handed a job out is in no app's memory alone: its outcome counts at any, once.
func TestAJobIsCompletedAtAnotherApp(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		first := apptest.Start(t, apptest.Options{Database: database})
		s := scheduler(t, first)
		run := schedule(t, first, s, 1)
		w := join(t, first, "w", "test")
		call[protocol.RegisterResponse](w, protocol.MethodRegister, protocol.RegisterRequest{ActivityTypes: []string{"work"}})
		j := w.job(nil)
		if strings.HasPrefix(database, "sqlite:") {
			first.Stop() // one app at a time has the file
		}
		second := apptest.Start(t, apptest.Options{Database: database})
		reconnected := join(t, second, "w", "test")
		call[protocol.RegisterResponse](reconnected, protocol.MethodRegister, protocol.RegisterRequest{
			ActivityTypes: []string{"work"}, Held: &[]string{j.Task.Activity.AttemptID},
		})
		call[protocol.JobLock](reconnected, protocol.MethodExtendLock, protocol.JobRef{ID: j.ID, Token: j.Token})
		reconnected.ok(j, map[string]any{"result": "done"})
		has[*history.ActivityCompleted](t, second, run)
		// the response was lost: the same request again changes nothing
		reconnected.ok(j, map[string]any{"result": "done"})
		page, err := second.View().History(within(t), protocol.HistoryQuery{Target: protocol.Target{RunID: run}})
		if err != nil {
			t.Fatal(err)
		}
		recorded := 0
		for _, e := range page.Events {
			if _, ok := e.Data.(*history.ActivityCompleted); ok {
				recorded++
			}
		}
		if recorded != 1 {
			t.Errorf("recorded %d times", recorded)
		}
	})
}

// A run whose worker has died can be cancelled by the app alone. After the response the run is closed, and later
// requests of the worker change nothing.
func TestRunOfADeadWorkerIsCancelledWithoutAWorker(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		s := scheduler(t, a)
		run := schedule(t, a, s, 1)
		w := join(t, a, "w", "test")
		j := w.job(nil)
		w.hangUp()
		s.hangUp()
		before, err := a.View().Describe(within(t), protocol.Target{RunID: run})
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.Broker().Cancel(within(t), protocol.EndRequest{
			Target: protocol.Target{WorkflowID: before.WorkflowID}, Reason: "gone",
		})
		if err != nil || got.Outcome != "cancelled" {
			t.Fatalf("got %+v, %v", got, err)
		}
		seen, err := a.View().Describe(within(t), protocol.Target{RunID: run})
		if err != nil || seen.Status != "cancelled" {
			t.Errorf("the run is %v, %v", seen.Status, err)
		}
		back := join(t, a, "w", "test")
		late := map[string]any{"jobId": j.ID, "token": j.Token, "status": "OK", "response": map[string]any{"result": 1}}
		if err := back.Call(within(t), protocol.MethodCompleteJob, late, nil); err == nil {
			t.Error("the late outcome was taken")
		}
		page, err := a.View().History(within(t), protocol.HistoryQuery{Target: protocol.Target{RunID: run}})
		if err != nil {
			t.Fatal(err)
		}
		if last := page.Events[len(page.Events)-1].Data; last.Type() != "WorkflowCancelled" {
			t.Errorf("the history ends with %s", last.Type())
		}
	})
}
