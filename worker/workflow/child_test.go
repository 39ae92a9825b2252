package workflow_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func TestChildIsStartedAndItsResultIsReturned(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		child := workflow.StartChild(ctx, "in_python", "Ada", 7)
		if child.WorkflowID != "RUN-1" {
			return "", fmt.Errorf("workflow id %q", child.WorkflowID)
		}
		if err := child.Signal(ctx, "hurry", true); err != nil {
			return "", err
		}
		first, err := workflow.Await[string](ctx, child)
		if err != nil {
			return "", err
		}
		second, err := workflow.ExecuteChild[string](workflow.WithChild(ctx, workflow.ChildOptions{
			Queue: "gpu", ParentClose: workflow.TerminateHard, RunTimeout: 1500 * time.Millisecond,
			ExecutionTimeout: time.Minute,
			Retry:            &workflow.RetryPolicy{MaxAttempts: 2, Backoff: []time.Duration{time.Second}},
		}), "other")
		return first + second, err
	})
	a.drain(nil)
	want(t, "commands", types(a.batches[0].commands), []string{"start_child_workflow", "signal_workflow"})
	want(t, "signalled", a.batches[0].commands[1].WorkflowID, "RUN-1")
	a.child(1, protocol.RunCompleted, "one ", nil)
	a.drain(nil)
	c := a.batches[1].commands[0]
	want(
		t, "options",
		fmt.Sprint(c.Queue, c.ParentClosePolicy, c.RunTimeout, c.ExecutionTimeout, c.RetryPolicy.BackoffSeconds),
		"gputerminate2 60 [1]",
	)
	a.child(3, protocol.RunCompleted, "two", nil)
	a.drain(nil)
	want(t, "output", a.output(), any("one two"))
	a.replays()
}

func TestDecodeErrorNamesTheStepOfTheResult(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		_, byActivity := workflow.Await[int](ctx, workflow.ExecuteActivity(ctx, "count"))
		_, byChild := workflow.ExecuteChild[int](ctx, "sub")
		return fmt.Sprintf("%v; %v", byActivity, byChild), nil
	})
	a.drain(nil)
	a.complete(1, "three")
	a.drain(nil)
	a.child(2, protocol.RunCompleted, "four", nil)
	a.drain(nil)
	want(t, "output", a.output(), any(`result of activity "count": cannot decode a string into int; `+
		`result of child workflow "sub": cannot decode a string into int`))
	a.replays()
}

func TestEndsOfAChildHaveDifferentErrors(t *testing.T) {
	for status, c := range map[protocol.RunStatus]struct {
		is   error
		text string
	}{
		protocol.RunFailed:     {nil, `child workflow "sub": Oops: broke`},
		protocol.RunCancelled:  {workflow.ErrCancelled, `child workflow "sub": Oops: broke`},
		protocol.RunTerminated: {workflow.ErrTerminated, `child workflow "sub": Oops: broke`},
		protocol.RunTimedOut:   {workflow.ErrTimedOut, `child workflow "sub": Oops: broke`},
	} {
		a := start(t, func(ctx workflow.Context) (string, error) {
			_, err := workflow.ExecuteChild[int](ctx, "sub")
			failed, ok := errors.AsType[*workflow.ChildError](err)
			if !ok {
				return "", fmt.Errorf("no typed error: %w", err)
			}
			var details int
			if err := failed.DecodeDetails(&details); err != nil {
				return "", err
			}
			var is []bool
			for _, e := range []error{workflow.ErrCancelled, workflow.ErrTerminated, workflow.ErrTimedOut} {
				is = append(is, errors.Is(err, e))
			}
			return fmt.Sprintf("%v %s %d %d %v", is, failed.WorkflowID, failed.Sequence, details, err), nil
		})
		a.drain(nil)
		a.child(1, status, nil, &history.Failure{
			Message: "broke", ExceptionType: "Oops",
			Exception: []byte(`{"type":"Oops","details":{"codec":"avro","blob":"wwHioz3/VYAiNwQC"}}`),
		})
		a.drain(nil)
		is := fmt.Sprint([]bool{c.is == workflow.ErrCancelled, c.is == workflow.ErrTerminated, c.is == workflow.ErrTimedOut})
		want(t, string(status), a.output(), any(is+" RUN-1 1 1 "+c.text))
		a.replays()
	}
}

func TestUnhandledFailureOfAChildFailsItsParentWithItsType(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error { return workflow.StartChild(ctx, "sub").Get(ctx, nil) })
	a.drain(nil)
	a.child(1, protocol.RunFailed, nil, &history.Failure{Message: "broke", ExceptionType: "Oops", NonRetryable: true})
	a.drain(nil)
	want(t, "type", a.failure().ExceptionType, "Oops")
	want(t, "non-retryable", a.failure().NonRetryable, true)
}

func TestChildThatContinuesOrIsRetriedIsOneFuture(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (int, error) {
		ctx = workflow.WithChild(ctx, workflow.ChildOptions{Retry: &workflow.RetryPolicy{MaxAttempts: 2}})
		return workflow.ExecuteChild[int](ctx, "sub")
	})
	a.drain(nil)
	a.child(1, protocol.RunContinued, nil, nil)
	a.child(1, protocol.RunFailed, nil, &history.Failure{Message: "broke"})
	want(t, "tasks while the child goes on", a.drain(nil), 0)
	a.child(1, protocol.RunCompleted, 5, nil)
	a.drain(nil)
	want(t, "output", a.output(), any(int64(5)))
	a.replays()
}

func TestJoinedChildrenAndActivitiesWakeTheRunOnce(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (int, error) {
		x, y, z := workflow.StartChild(ctx, "x"), workflow.StartChild(ctx, "y"), workflow.ExecuteActivity(ctx, "z")
		if err := workflow.Join(ctx, x, y, z, x); err != nil {
			return 0, err
		}
		return workflow.Await[int](ctx, y)
	})
	a.drain(nil)
	want(t, "group", a.batches[0].commands[1].GroupID, "parallel-calls:1:3")
	a.child(2, protocol.RunCompleted, 2, nil)
	a.child(1, protocol.RunCompleted, 1, nil)
	want(t, "tasks before the last", a.drain(nil), 0)
	a.complete(3, nil)
	want(t, "tasks after the last", a.drain(nil), 1)
	want(t, "output", a.output(), any(int64(2)))
	a.replays()

	b := start(t, func(ctx workflow.Context) error {
		return workflow.Join(ctx, workflow.StartChild(ctx, "x"), workflow.StartChild(ctx, "y"))
	})
	b.drain(nil)
	want(
		t, "group of children", b.batches[0].commands[0].GroupID+b.batches[0].commands[0].GroupKind,
		"parallel-children:1:2child",
	)
}

func TestCancellingAContextCancelsItsChildren(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		under, cancel := workflow.WithCancel(ctx)
		child := workflow.StartChild(under, "sub")
		kept := workflow.StartChild(workflow.WithoutCancel(under), "kept")
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
		cancel()
		err := child.Get(ctx, nil)
		if failed, ok := errors.AsType[*workflow.ChildError](err); !ok || !failed.Cancelled || failed.WorkflowID != "RUN-1" {
			return "", fmt.Errorf("want a cancelled child, got %w", err)
		}
		if err := workflow.StartChild(under, "late").Get(ctx, nil); err != workflow.ErrCancelled {
			return "", fmt.Errorf("want cancelled, got %w", err)
		}
		return workflow.Await[string](ctx, kept)
	})
	a.drain(nil)
	a.fire(3)
	a.drain(nil)
	c := a.batches[1].commands
	want(t, "commands", fmt.Sprint(types(c), c[0].Target), "[cancel_child_workflow] 1")
	// the confirmed end of the child, for which no branch waits
	a.child(1, protocol.RunCancelled, nil, &history.Failure{})
	a.child(2, protocol.RunCompleted, "went on", nil)
	a.drain(nil)
	want(t, "output", a.output(), any("went on"))
	a.replays()
}

func TestCancellationOfTheRunReachesItsChildren(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error { return workflow.StartChild(ctx, "sub").Get(ctx, nil) })
	a.drain(nil)
	a.decide(engine.RequestCancellation{})
	a.drain(nil)
	a.cancelled()
	a.replays()
}

func TestChildOptionsThatCannotBeAreRefusedAtOnce(t *testing.T) {
	_, err := once(t, func(ctx workflow.Context) error {
		for _, o := range []workflow.ChildOptions{
			{ParentClose: "never"},
			{WorkflowID: "x", ReuseID: "sometimes"},
			{WorkflowID: "x", Conflict: "sometimes"},
			{RunTimeout: -1},
			{ExecutionTimeout: -1},
			{RunTimeout: 2 * time.Second, ExecutionTimeout: time.Second},
			{Retry: &workflow.RetryPolicy{MaxAttempts: -1}},
		} {
			if err := workflow.StartChild(workflow.WithChild(ctx, o), "sub").
				Get(ctx, nil); !errors.Is(err, workflow.ErrInvalidOptions) {
				t.Errorf("%+v: got %v", o, err)
			}
		}
		for _, name := range []any{"", 7} {
			if err := workflow.StartChild(ctx, name).Signal(ctx, "x"); !errors.Is(err, workflow.ErrInvalidOptions) {
				t.Errorf("workflow %v: got %v", name, err)
			}
		}
		return workflow.Sleep(ctx, time.Hour)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAnotherChildIsNondeterminismAndNamesBoth(t *testing.T) {
	run := func(name string) func(workflow.Context) error {
		return func(ctx workflow.Context) error { return workflow.StartChild(ctx, name).Get(ctx, nil) }
	}
	if err := replayedBy(t, run("sub"), run("sub")); err != nil {
		t.Error(err)
	}
	for recorded, c := range map[string]struct{ ran, replayed any }{
		`child workflow "sub", the code has child workflow "other"`: {run("sub"), run("other")},
		`child workflow "sub", the code has activity "sub"`:         {run("sub"), onSession("sub", "")},
		`activity "sub", the code has child workflow`:               {onSession("sub", ""), run("sub")},
		`child workflow "sub", the code has no further command`: {run("sub"), func(workflow.Context) error {
			return nil
		}},
		`an upsert of the memo, the code has an upsert of search`: {
			upsert(workflow.UpsertMemo), upsert(workflow.UpsertSearchAttributes),
		},
		`an upsert of search attributes, the code has an upsert of the m`: {
			upsert(workflow.UpsertSearchAttributes), upsert(workflow.UpsertMemo),
		},
	} {
		if err := replayedBy(t, c.ran, c.replayed); err == nil || !namesBoth(err, recorded) {
			t.Errorf("want %q, got %v", recorded, err)
		}
	}
}

func upsert(fn func(workflow.Context, map[string]any) error) func(workflow.Context) error {
	return func(ctx workflow.Context) error {
		if err := fn(ctx, map[string]any{"state": "open"}); err != nil {
			return err
		}
		return workflow.Sleep(ctx, time.Hour)
	}
}
