package workflow_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// waitsForActivity is a workflow that, when cancellation of the run is requested, waits until its activity has ended.
func waitsForActivity(ctx workflow.Context) (string, error) {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
		WaitForCancellation: true, Retry: &workflow.RetryPolicy{MaxAttempts: 5},
	})
	result, err := workflow.Execute[string](ctx, "slow")
	return fmt.Sprintf("%s, cancelled %v, asked %v", result, errors.Is(err, workflow.ErrCancelled), ctx.Err() != nil), nil
}

// cancelRequestedRun returns a run of waitsForActivity whose cancellation was requested while a worker runs its
// activity.
func cancelRequestedRun(t *testing.T) (*app, engine.Holder) {
	a := start(t, waitsForActivity)
	a.drain(nil)
	h := a.leaseActivity(1)
	a.decide(engine.RequestCancellation{Reason: "enough"})
	a.drain(nil)
	c := a.batches[1].commands
	if len(c) != 1 || c[0].Type != protocol.CancelActivity || !c[0].UntilEnded {
		t.Fatalf("the commands: %+v", c)
	}
	if act, open := a.run.Activities.Get(1); !open || !act.Cancel || !a.run.Status.Open() {
		t.Fatalf("the activity is open: %v, its worker has the request: %v", open, act.Cancel)
	}
	return a, h
}

func TestCancelledActivityIsAwaitedWithWaitForCancellation(t *testing.T) {
	done, err := payload.Encode("cleaned up")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		end  func(h engine.Holder) engine.Input
		want string
	}{
		"it gives up": {func(h engine.Holder) engine.Input {
			return engine.FailActivity{Seq: 1, Holder: h, Failure: protocol.Failure{Message: "stopped", Cancelled: true}}
		}, ", cancelled true, asked true"},
		"it returns all the same": {func(h engine.Holder) engine.Input {
			return engine.CompleteActivity{Seq: 1, Holder: h, Result: done.Blob}
		}, "cleaned up, cancelled false, asked true"},
		"it fails, and is not tried again": {func(h engine.Holder) engine.Input {
			return engine.FailActivity{Seq: 1, Holder: h, Failure: protocol.Failure{Type: "Oops", Message: "no"}}
		}, ", cancelled false, asked true"},
		"its worker is lost": {func(h engine.Holder) engine.Input {
			lost := engine.LostTask{Seq: 1, Delivery: h.Delivery, Part: engine.LossBlamed}
			return engine.Lose{Tasks: []engine.LostTask{lost}, Process: "w/1", Leased: 1, Why: engine.LeaseExpired}
		}, ", cancelled true, asked true"},
		"its worker hands it back": {func(h engine.Holder) engine.Input {
			return engine.ReleaseActivity{Seq: 1, Delivery: h.Delivery, Owner: h.Owner, Why: engine.ReturnedDraining}
		}, ", cancelled true, asked true"},
		"it did not reach its worker": {func(h engine.Holder) engine.Input {
			return engine.ReleaseActivity{Seq: 1, Delivery: h.Delivery, Undone: true}
		}, ", cancelled true, asked true"},
	} {
		t.Run(name, func(t *testing.T) {
			a, h := cancelRequestedRun(t)
			a.decide(c.end(h))
			a.drain(nil)
			want(t, "output", a.output(), any(c.want))
			a.replays()
		})
	}
}

func TestCancelledActivityWithoutAWorkerEndsAtOnce(t *testing.T) {
	a := start(t, waitsForActivity)
	a.drain(nil)
	a.decide(engine.RequestCancellation{})
	a.drain(nil)
	want(t, "output", a.output(), any(", cancelled true, asked true"))
	a.replays()
}

// If the activity ends before its cancellation takes effect, the code receives the activity's result.
func TestAResultBeforeTheCancellationIsReturned(t *testing.T) {
	a := start(t, waitsForActivity)
	a.drain(nil)
	a.decide(engine.RequestCancellation{})
	task, _ := a.lease()
	a.complete(1, "made it") // after the app delivered a task with the request
	a.answer(task.LastSequence, a.commandsAt(int(task.LastSequence)))
	a.drain(nil)
	want(t, "output", a.output(), any("made it, cancelled false, asked true"))
	a.replays()
}

// With WaitForCancellation, Join waits for the cancelled steps until they have ended, and does not wait for other
// steps. Select does not wait, because its context has ended.
func TestJoinWaitsForCancelledSteps(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		under, cancel := workflow.WithCancel(ctx)
		patient := workflow.WithActivity(under, workflow.ActivityOptions{WaitForCancellation: true})
		one, two := workflow.ExecuteActivity(patient, "one"), workflow.ExecuteActivity(under, "two")
		timer := workflow.NewTimer(under, time.Hour)
		workflow.Go(ctx, func(ctx workflow.Context) {
			_ = workflow.Signal(ctx, "stop").Receive(ctx, nil)
			cancel()
		})
		_, selected := workflow.Select(under, one, two, timer)
		err := workflow.Join(under, one, two, timer)
		return fmt.Sprint(one.Ready(), errors.Is(selected, workflow.ErrCancelled), err != nil), nil
	})
	a.drain(nil)
	h := a.leaseActivity(1)
	a.leaseActivity(2)
	a.signal("stop")
	a.drain(nil)
	if !a.run.Status.Open() {
		t.Fatalf("the run has ended before its activity: %v", a.output())
	}
	a.decide(engine.FailActivity{Seq: 1, Holder: h, Failure: protocol.Failure{Message: "stopped", Cancelled: true}})
	a.drain(nil)
	want(t, "output", a.output(), any("true true true"))
	a.replays()
}

// The parent waits for a cancelled child and receives the result of the child's code; a child that fails is not
// retried.
func TestCancelledChildIsAwaitedWithWaitForCancellation(t *testing.T) {
	flow := func(ctx workflow.Context) (string, error) {
		ctx = workflow.WithChild(ctx, workflow.ChildOptions{
			WaitForCancellation: true, ParentClose: workflow.AskToCancel, Retry: &workflow.RetryPolicy{MaxAttempts: 5},
		})
		result, err := workflow.ExecuteChild[string](ctx, "sub")
		return fmt.Sprintf("%s, cancelled %v", result, errors.Is(err, workflow.ErrCancelled)), nil
	}
	for expected, end := range map[string]func(a *app){
		"tidied, cancelled false": func(a *app) { a.child(1, protocol.RunCompleted, "tidied", nil) },
		", cancelled true":        func(a *app) { a.child(1, protocol.RunCancelled, nil, &history.Failure{}) },
		", cancelled false":       func(a *app) { a.child(1, protocol.RunFailed, nil, &history.Failure{Message: "no"}) },
	} {
		a := start(t, flow)
		a.drain(nil)
		a.decide(engine.RequestCancellation{})
		a.drain(nil)
		if got := types(a.batches[1].commands); len(got) != 1 || got[0] != "cancel_child_workflow" || !a.run.Status.Open() {
			t.Fatalf("the commands: %v", got)
		}
		end(a)
		a.drain(nil)
		want(t, "output", a.output(), any(expected))
		a.replays()
	}
}
