package workflow_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// redriven returns an app with the run that continues the failed run of a.
func (a *app) redriven(runID string) (*app, int64) {
	a.t.Helper()
	plan, err := engine.PrepareRedrive(&a.run.Head, a.events, runID)
	if err != nil {
		a.t.Fatal(err)
	}
	d, resume, err := plan.Decide("", func(id string) *engine.Session {
		if s, ok := a.sessions[id]; ok {
			return &s
		}
		return nil
	}, a.now)
	if err != nil {
		a.t.Fatal(err)
	}
	next := &app{t: a.t, def: a.def, sessions: a.sessions, now: a.now}
	next.applyDecision(d)
	// The stored events yield the same state as the decision.
	folded := &engine.Run{Head: engine.Head{Namespace: "default"}}
	for _, e := range next.events {
		folded.Evolve(e)
	}
	if folded.LastSeq != next.run.LastSeq || folded.Activities.Len() != next.run.Activities.Len() ||
		folded.CommandSeq != next.run.CommandSeq {
		a.t.Errorf("the stored events yield another state: %+v, want %+v", folded.Head, next.run.Head)
	}
	return next, resume
}

// fail is a failure that is not retried.
var fail = &protocol.Failure{Message: "declined", NonRetryable: true}

// The code of the copied events gets the identifiers, the session and the child of the failed run. Later code gets
// identifiers that the failed run never used.
func TestARedrivenRunKeepsTheIdentifiersOfItsRecordedCode(t *testing.T) {
	var ids, later [][]string
	a := start(t, func(ctx workflow.Context) (string, error) {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
		if err != nil {
			return "", err
		}
		child := workflow.StartChild(ctx, "child")
		if _, err := workflow.Await[any](ctx, child); err != nil {
			return "", err
		}
		mine := []string{workflow.NewID(ctx), s.ID, child.WorkflowID, fmt.Sprint(workflow.Random(ctx).Int64())}
		n, err := workflow.Execute[int](ctx, "one")
		if err != nil {
			return "", err
		}
		ids = append(ids, append(mine, workflow.NewID(ctx)))
		m, err := workflow.Execute[int](ctx, "two")
		later = append(later, []string{workflow.NewID(ctx), workflow.NewID(ctx)})
		return fmt.Sprint(n, m), err
	})
	a.drain(nil)
	a.child(2, protocol.RunCompleted, nil, nil)
	a.drain(nil)
	a.complete(3, 1)
	a.drain(nil)
	a.failActivity(4, fail)
	a.drain(nil)
	for i := range 3 {
		var resume int64
		a, resume = a.redriven(fmt.Sprintf("REDRIVEN%d", i))
		if resume != 4 {
			t.Errorf("redrive %d resumes at command %d", i, resume)
		}
		a.drain(nil)
		if i < 2 {
			a.failActivity(4, fail)
		} else {
			a.complete(4, 2)
		}
		a.drain(nil)
	}
	if got := a.output(); got != "1 2" {
		t.Errorf("result %v", got)
	}
	for i := range ids {
		if fmt.Sprint(ids[i]) != fmt.Sprint(ids[0]) {
			t.Errorf("execution %d of the recorded code has the identifiers %v, the first had %v", i, ids[i], ids[0])
		}
	}
	seen := map[string]bool{}
	for _, list := range later {
		seen[list[0]] = true
	}
	if len(seen) != 4 {
		t.Errorf("the code after the failure got %d different identifiers in four runs: %v", len(seen), later)
	}
}

// A side effect that the failed task recorded does not run again; the code after it does, with the corrected code.
func TestARedriveKeepsTheSideEffectsOfTheFailedTask(t *testing.T) {
	ran := map[string]int{}
	good := false
	code := func(ctx workflow.Context) (string, error) {
		first, err := workflow.SideEffect(ctx, func() int { ran["effect"]++; return ran["effect"] })
		if err != nil {
			return "", err
		}
		if !good {
			return "", errors.New("a defect")
		}
		return fmt.Sprint(first), nil
	}
	a := start(t, code)
	a.drain(nil)
	a.failure()
	next, resume := a.redriven("NEXT")
	if resume != 2 {
		t.Errorf("resumes at command %d", resume)
	}
	good = true
	next.drain(nil)
	if got := next.output(); got != "1" || ran["effect"] != 1 {
		t.Errorf("result %v, the side effect ran %d times", got, ran["effect"])
	}
}

// An activity that its code has cancelled, and that its worker had not stopped when the run failed, ends as cancelled
// in the new run: its work does not begin again.
func TestARedriveDoesNotRunACancelledActivityAgain(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		under, cancel := workflow.WithCancel(ctx)
		long := workflow.ExecuteActivity(
			workflow.WithActivity(under, workflow.ActivityOptions{WaitForCancellation: true}), "long",
		)
		if _, err := workflow.Execute[int](ctx, "one"); err != nil {
			return "", err
		}
		cancel()
		if _, err := workflow.Execute[int](ctx, "two"); err != nil {
			return "", err
		}
		return fmt.Sprint(errors.Is(long.Get(ctx, nil), workflow.ErrCancelled)), nil
	})
	a.drain(nil)
	a.leaseActivity(1)
	a.complete(2, 1)
	a.drain(nil)
	a.failActivity(4, fail)
	a.drain(nil)
	a.failure()
	next, _ := a.redriven("NEXT")
	if open, ok := next.run.Activities.Get(1); ok {
		t.Errorf("the cancelled activity is open: %+v", open)
	}
	next.drain(nil)
	next.complete(4, 2)
	next.drain(nil)
	if got := next.output(); got != "true" {
		t.Errorf("result %v", got)
	}
	next.replays()
}

// A run is not redriven if its new run would not fit the recorded history.
func TestARedriveRefusesHistoriesThatItCannotContinue(t *testing.T) {
	refused := func(a *app, want protocol.Reason) {
		t.Helper()
		if _, err := engine.PrepareRedrive(&a.run.Head, a.events, "NEXT"); protocol.ReasonOf(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	open := start(t, func(ctx workflow.Context) error { return workflow.Sleep(ctx, 1e9) })
	open.drain(nil)
	refused(open, protocol.ReasonRunNotFailed)
	done := start(t, func(workflow.Context) error { return nil })
	done.drain(nil)
	refused(done, protocol.ReasonRunNotFailed)
	child := start(t, func(ctx workflow.Context) error {
		workflow.StartChild(ctx, "child")
		_, err := workflow.Execute[int](ctx, "one")
		return err
	})
	child.drain(nil)
	child.failActivity(2, fail)
	child.drain(nil)
	refused(child, protocol.ReasonUnsupportedHistory)
	selected := start(t, func(ctx workflow.Context) error {
		_, err := workflow.Execute[int](ctx, "one")
		return err
	})
	selected.drain(nil)
	selected.failActivity(1, fail)
	selected.drain(nil)
	for i := range selected.events {
		if d, ok := selected.events[i].Data.(*history.ActivityFailed); ok {
			// the app records the winner of a selection of another SDK after the event that ended it
			winner := history.Event{
				Seq: selected.events[i].Seq + 1, At: selected.events[i].At,
				Data: &history.SelectionResolved{EventID: selected.events[i].ID(), EventType: d.Type()},
			}
			selected.events = append(selected.events[:i+1], append([]history.Event{winner}, selected.events[i+1:]...)...)
			break
		}
	}
	refused(selected, protocol.ReasonUnsupportedHistory)
	large := start(t, func(workflow.Context) error { return errors.New("a defect") })
	large.drain(nil)
	large.run.Bytes = engine.MaxCopiedBytes + 1
	refused(large, protocol.ReasonUnsupportedHistory)
}
