package workflow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// other adds a child that an earlier run of the same workflow ID started.
func (a *app) other(id string, status protocol.RunStatus, end engine.Message) {
	if a.otherRuns == nil {
		a.otherRuns, a.ends = map[string]*engine.Run{}, map[string]engine.Message{}
	}
	a.otherRuns[id] = &engine.Run{Head: engine.Head{
		ID: "R-" + id, WorkflowID: id, Type: "sub", Number: 1, Status: status,
		Parent: &engine.Parent{RunID: "EARLIER", WorkflowID: "wf", Seq: 1},
	}}
	if !status.Open() {
		end.Kind, end.Run, end.Number, end.Status = engine.ChildEnded, "R-"+id, 1, status
		a.ends[id] = end
	}
}

func TestAChildOfAnEarlierRunIsAttachedTo(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		done, open, broken := workflow.AttachChild(ctx, "done"), workflow.AttachChild(ctx, "open"),
			workflow.AttachChild(ctx, "broken")
		missing := workflow.AttachChild(ctx, "nobody")
		if done.WorkflowID != "done" {
			return "", fmt.Errorf("workflow id %q", done.WorkflowID)
		}
		first, err := workflow.Await[string](ctx, done)
		if err != nil {
			return "", err
		}
		failed, ok := errors.AsType[*workflow.ChildError](broken.Get(ctx, nil))
		if !ok || failed.WorkflowID != "broken" || failed.WorkflowType != "sub" || failed.Sequence != 3 {
			return "", fmt.Errorf("no typed error: %+v", failed)
		}
		if err := missing.Get(ctx, nil); !errors.Is(err, workflow.ErrChildNotFound) {
			return "", fmt.Errorf("want not found, got %w", err)
		}
		if err := open.Signal(ctx, "hurry"); err != nil {
			return "", err
		}
		second, err := workflow.Await[string](ctx, open)
		return first + second + ", " + failed.Error(), err
	})
	value, err := payload.Encode("one ")
	if err != nil {
		t.Fatal(err)
	}
	a.other("done", protocol.RunCompleted, engine.Message{Value: value.Blob})
	a.other(
		"broken", protocol.RunFailed, engine.Message{Failure: &history.Failure{Message: "broke", ExceptionType: "Oops"}},
	)
	a.other("open", protocol.RunRunning, engine.Message{})
	a.drain(nil)
	want(
		t, "commands", fmt.Sprint(types(a.batches[0].commands)),
		"[attach_child_workflow attach_child_workflow attach_child_workflow attach_child_workflow]",
	)
	want(t, "signalled", a.batches[1].commands[0].WorkflowID, "open")
	if value, err = payload.Encode("two"); err != nil {
		t.Fatal(err)
	}
	a.ended("open", engine.Message{Status: protocol.RunCompleted, Value: value.Blob})
	a.drain(nil)
	want(t, "output", a.output(), any(`one two, child workflow "sub": Oops: broke`))
	for _, e := range a.events {
		if strings.HasPrefix(e.Type(), "Child") {
			t.Errorf("event %d is %s", e.Seq, e.Type())
		}
	}
	a.replays()
}

// ended reports to the run that a child of an earlier run has closed.
func (a *app) ended(id string, m engine.Message) {
	a.t.Helper()
	m.Kind, m.ToRun, m.ToSeq, m.Run, m.Number = engine.ChildEnded, "EARLIER", 1, "R-"+id, 1
	a.decide(engine.InheritedReport{Message: m, Child: id})
}

func TestEndsOfAnAttachedChildHaveDifferentErrors(t *testing.T) {
	for status, is := range map[protocol.RunStatus]error{
		protocol.RunCancelled: workflow.ErrCancelled, protocol.RunTerminated: workflow.ErrTerminated,
		protocol.RunTimedOut: workflow.ErrTimedOut,
	} {
		a := start(t, func(ctx workflow.Context) (bool, error) {
			return errors.Is(workflow.AttachChild(ctx, "sub").Get(ctx, nil), is), nil
		})
		a.other("sub", status, engine.Message{Failure: &history.Failure{Message: "it ended"}})
		a.drain(nil)
		want(t, string(status), a.output(), any(true))
		a.replays()
	}
}

func TestCancellingAContextCancelsTheChildThatIsAttachedUnderIt(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		under, cancel := workflow.WithCancel(ctx)
		child := workflow.AttachChild(under, "sub")
		kept := workflow.AttachChild(workflow.WithoutCancel(under), "kept")
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
		cancel()
		err := child.Get(ctx, nil)
		if failed, ok := errors.AsType[*workflow.ChildError](err); !ok || !failed.Cancelled || failed.WorkflowID != "sub" {
			return "", fmt.Errorf("want a cancelled child, got %w", err)
		}
		if err := workflow.AttachChild(under, "late").Get(ctx, nil); err != workflow.ErrCancelled {
			return "", fmt.Errorf("want cancelled, got %w", err)
		}
		if err := workflow.AttachChild(ctx, "").Get(ctx, nil); !errors.Is(err, workflow.ErrInvalidOptions) {
			return "", fmt.Errorf("want invalid options, got %w", err)
		}
		return "kept on", kept.Get(ctx, nil)
	})
	a.other("sub", protocol.RunRunning, engine.Message{})
	a.other("kept", protocol.RunRunning, engine.Message{})
	a.drain(nil)
	a.fire(3)
	a.drain(nil)
	c := a.batches[1].commands
	want(t, "commands", fmt.Sprint(types(c), c[0].Target), "[cancel_child_workflow] 1")
	// the confirmed end of the child, for which no branch waits
	a.ended("sub", engine.Message{Status: protocol.RunCancelled})
	a.ended("kept", engine.Message{Status: protocol.RunCompleted})
	a.drain(nil)
	want(t, "output", a.output(), any("kept on"))
	a.replays()
}

func TestAnAttachedChildIsJoinedWithSteps(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (int, error) {
		x, y, z := workflow.ExecuteActivity(ctx, "x"), workflow.AttachChild(ctx, "sub"), workflow.ExecuteActivity(ctx, "z")
		return 7, workflow.Join(ctx, x, y, z)
	})
	a.other("sub", protocol.RunRunning, engine.Message{})
	a.drain(nil)
	want(t, "group", a.batches[0].commands[0].GroupID, "")
	a.complete(1, nil)
	a.ended("sub", engine.Message{Status: protocol.RunCompleted})
	a.complete(3, nil)
	a.drain(nil)
	want(t, "output", a.output(), any(int64(7)))
	a.replays()
}

func TestAnotherAttachmentIsNondeterminismAndNamesBoth(t *testing.T) {
	run := func(id string) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			_ = workflow.AttachChild(ctx, id).Get(ctx, nil)
			return workflow.Sleep(ctx, time.Hour)
		}
	}
	if err := replayedBy(t, run("sub"), run("sub")); err != nil {
		t.Error(err)
	}
	for recorded, c := range map[string]struct{ ran, replayed any }{
		`attachment to child workflow "sub", the code has attachment to child workflow "other"`: {run("sub"), run("other")},
		`attachment to child workflow "sub", the code has activity "sub"`: {
			run("sub"), onSession("sub", ""),
		},
	} {
		if err := replayedBy(t, c.ran, c.replayed); err == nil || !namesBoth(err, recorded) {
			t.Errorf("want %q, got %v", recorded, err)
		}
	}
}

func TestTheIDPoliciesOfAChildAreSentWithAnIDOnly(t *testing.T) {
	o := workflow.ChildOptions{ReuseID: workflow.AllowReuse, Conflict: workflow.TerminateExisting}
	a := start(t, func(ctx workflow.Context) error {
		derived := workflow.WithChild(ctx, o)
		named := workflow.WithChild(derived, workflow.ChildOptions{WorkflowID: "order-6"})
		return workflow.Join(ctx, workflow.StartChild(derived, "sub"), workflow.StartChild(named, "sub"))
	})
	a.drain(nil)
	for i, policies := range []string{"", "allow terminate-existing"} {
		c := a.batches[0].commands[i]
		want(t, "policies", strings.TrimSpace(c.ReusePolicy+" "+c.ConflictPolicy), policies)
	}
	a.replays()
}

func TestAChildOfAChosenID(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		under, cancel := workflow.WithCancel(ctx)
		child := workflow.StartChild(workflow.WithChild(under, workflow.ChildOptions{WorkflowID: "order-7"}), "sub")
		taken := workflow.StartChild(workflow.WithChild(ctx, workflow.ChildOptions{WorkflowID: "order-6"}), "sub")
		if child.WorkflowID != "order-7" {
			return "", fmt.Errorf("workflow id %q", child.WorkflowID)
		}
		failed, ok := errors.AsType[*workflow.ChildError](taken.Get(ctx, nil))
		if !ok || !errors.Is(failed, workflow.ErrWorkflowIDTaken) || failed.WorkflowID != "order-6" || !failed.NonRetryable {
			return "", fmt.Errorf("want an id that is taken, got %+v", failed)
		}
		cancel()
		if cancelled, ok := errors.AsType[*workflow.ChildError](child.Get(ctx, nil)); !ok ||
			cancelled.WorkflowID != "order-7" {
			return "", fmt.Errorf("want a cancelled child, got %+v", cancelled)
		}
		return "went on", nil
	})
	a.other("order-6", protocol.RunRunning, engine.Message{})
	a.drain(nil)
	want(t, "ids", fmt.Sprint(a.batches[0].commands[0].WorkflowID, a.batches[0].commands[1].WorkflowID), "order-7order-6")
	want(t, "output", a.output(), any("went on"))
	a.replays()
	for _, id := range []string{"a\nb", "..", strings.Repeat("x", 256), "01ARZ3NDEKTSV4RRFFQ69G5FAV-1"} {
		if _, err := once(t, func(ctx workflow.Context) error {
			if err := workflow.StartChild(workflow.WithChild(ctx, workflow.ChildOptions{WorkflowID: id}), "sub").
				Get(ctx, nil); !errors.Is(err, workflow.ErrInvalidOptions) {
				t.Errorf("%q: got %v", id, err)
			}
			return workflow.Sleep(ctx, time.Hour)
		}); err != nil {
			t.Error(err)
		}
	}
}
