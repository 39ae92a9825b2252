package workflow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// till is a workflow that sells by updates: each update charges a sale by an activity, and the updates of all callers
// may run concurrently.
func till(ctx workflow.Context) ([]string, error) {
	var sold []string
	closed := false
	workflow.HandleUpdate(ctx, "sell", func(ctx workflow.Context, what string) (string, error) {
		receipt, err := workflow.Execute[string](ctx, "charge", what)
		if err != nil {
			return "", err
		}
		sold = append(sold, what)
		return receipt, nil
	})
	workflow.HandleUpdate(ctx, "close", func(workflow.Context) error { closed = true; return nil })
	workflow.HandleQuery(ctx, "sold", func(workflow.Context) (int, error) { return len(sold), nil })
	err := workflow.Until(ctx, func() bool { return closed && workflow.AllHandlersFinished(ctx) })
	return sold, err
}

// open reports whether an update has no result yet.
func (a *app) open(id string) bool {
	for _, e := range a.events {
		if d, ok := e.Data.(*history.UpdateCompleted); ok && d.UpdateID == id {
			return false
		}
	}
	return true
}

func TestUpdateIsAnsweredWhenItsHandlerReturns(t *testing.T) {
	a := start(t, till)
	a.drain(nil)
	milk := a.update("sell", "milk")
	a.drain(nil)
	want(
		t, "first task of the update", types(a.batches[len(a.batches)-1].commands),
		[]string{"apply_update", "schedule_activity"},
	)
	bread := a.update("sell", "bread")
	a.drain(nil)
	want(t, "tasks while both handlers wait", a.drain(nil), 0)
	a.complete(2, "receipt 2") // the second activity ends first
	a.drain(nil)
	if !a.open(milk) || a.open(bread) {
		t.Fatal("the updates did not complete in the expected order")
	}
	a.update("close")
	a.drain(nil)
	v, err := a.ask(len(a.events), "sold")
	want(t, "sold while a handler waits", fmt.Sprint(v, err), "1 <nil>")
	a.complete(1, "receipt 1")
	a.drain(nil)
	for id, receipt := range map[string]string{milk: "receipt 1", bread: "receipt 2"} {
		var got string
		if err := payload.Decode(payload.Payload{Blob: a.answered(id).Result}, &got); err != nil || got != receipt {
			t.Errorf("update %s: got %q, %v", id, got, err)
		}
	}
	want(t, "last batch", types(a.batches[len(a.batches)-1].commands), []string{"complete_update", "complete_workflow"})
	want(t, "output", a.output(), any([]any{"bread", "milk"}))
	a.replays()
}

func TestHandlersWaitForWhateverWorkflowsWaitFor(t *testing.T) {
	var order []string
	a := start(t, func(ctx workflow.Context) error {
		order = nil
		open, n := false, 0
		wait := func(ctx workflow.Context, how string) (string, error) {
			switch how {
			case "timer":
				return how, workflow.Sleep(ctx, time.Minute)
			case "until":
				return how, workflow.Until(ctx, func() bool { return open })
			case "signal":
				return workflow.ReceiveSignal[string](ctx, "word")
			case "child":
				return workflow.ExecuteChild[string](ctx, "sub")
			case "session":
				s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
				if err != nil {
					return "", err
				}
				return workflow.ExecuteIn[string](ctx, s, "work")
			}
			open = true
			return how, nil
		}
		workflow.HandleUpdate(ctx, "wait", func(ctx workflow.Context, how string) (string, error) {
			v, err := wait(ctx, how)
			order = append(order, how)
			n++
			return v, err
		})
		return workflow.Until(ctx, func() bool { return n == 6 })
	})
	a.drain(nil)
	ids := map[string]string{}
	for _, how := range []string{"until", "timer", "signal", "child", "session", "at once"} {
		ids[how] = a.update("wait", how) // one task contains several of these updates
		if how != "until" {
			a.drain(nil)
		}
	}
	want(t, "finished", order, []string{"at once", "until"})
	a.complete(5, "done")
	a.signal("word", "said")
	a.drain(nil)
	a.child(3, "completed", "grown", nil)
	a.drain(nil)
	for seq := range a.run.Timers.All() {
		a.fire(seq)
	}
	a.drain(nil)
	for how, text := range map[string]string{
		"until": "until", "timer": "timer", "signal": "said", "child": "grown", "session": "done", "at once": "at once",
	} {
		var got string
		d := a.answered(ids[how])
		if err := payload.Decode(payload.Payload{Blob: d.Result}, &got); err != nil || got != text {
			t.Errorf("%s: got %q, %v, %+v", how, got, err, d)
		}
	}
	a.output()
	a.replays()
}

// updateWaiter returns a workflow whose update handler waits for a signal. The workflow calls end at the end of its
// first run.
func updateWaiter(end func(ctx workflow.Context) error) func(ctx workflow.Context, round int) (int, error) {
	return func(ctx workflow.Context, round int) (int, error) {
		workflow.HandleUpdate(ctx, "take", func(ctx workflow.Context) (string, error) {
			if err := workflow.ExecuteActivity(ctx, "prepare").Get(ctx, nil); err != nil {
				return "", err
			}
			u, _ := workflow.CurrentUpdate(ctx)
			return fmt.Sprintf("%s in round %d", u.Name, round), workflow.Signal(ctx, "go").Receive(ctx)
		})
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return round, err
		}
		if round == 0 {
			return round, end(ctx)
		}
		return round, workflow.Until(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
	}
}

func TestRunThatEndsFailsTheUpdatesWhoseHandlersWait(t *testing.T) {
	ends := map[string]func(workflow.Context) error{
		"completed": func(workflow.Context) error { return nil },
		"failed":    func(workflow.Context) error { return errors.New("no more") },
	}
	for name, end := range ends {
		a := start(t, updateWaiter(end), 0)
		a.drain(nil)
		before := a.update("take")
		a.drain(nil)
		a.complete(2, nil)
		a.drain(nil)
		task, _ := a.lease()
		if task != nil {
			t.Fatal("the run got a task although all handlers wait")
		}
		late := a.update("take") // the task created for this update also contains the end of the run's wait
		a.fire(1)
		a.drain(nil)
		for _, id := range []string{before, late} {
			if d := a.answered(id); d.ExceptionType != "run_closed" {
				t.Errorf("%s: got %+v", name, d)
			}
		}
		a.replays()
		if err := replay.Events(a.def, a.options, a.events); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	a := start(t, updateWaiter(nil), 1)
	a.drain(nil)
	id := a.update("take")
	a.drain(nil)
	a.decide(engine.EndRun{Terminate: true})
	want(t, "type", a.answered(id).ExceptionType, "run_closed")
	a.replays()
}

func TestHandlersRestartInTheContinuedRun(t *testing.T) {
	a := start(t, updateWaiter(func(ctx workflow.Context) error { return workflow.ContinueAsNew(ctx, 1) }), 0)
	a.drain(nil)
	waits := a.update("take")
	a.drain(nil)
	a.complete(2, nil)
	a.drain(nil)
	begun := a.update("take") // the handler starts in the task that continues the run as new
	a.fire(1)
	a.drain(nil)
	want(t, "other waits stay open", []bool{a.open(waits), a.open(begun)}, []bool{true, true})
	a.replays()

	b := startRun(t, a.def, *a.next)
	b.drain(nil)
	b.fire(1)
	b.drain(nil)
	want(t, "the new run's activities", b.run.Activities.Len(), 2)
	for seq := range b.run.Activities.All() {
		b.complete(seq, nil)
	}
	b.drain(nil)
	b.signal("go")
	b.signal("go")
	b.drain(nil)
	for _, id := range []string{waits, begun} {
		var got string
		if err := payload.Decode(payload.Payload{Blob: b.answered(id).Result}, &got); err != nil || got != "take in round 1" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	want(t, "output", b.output(), any(int64(1)))
	b.replays()
}

func TestHandlerThatFailsOrPanicsFailsItsUpdateAlone(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		done := false
		workflow.HandleUpdate(ctx, "do", func(ctx workflow.Context, how string) error {
			err := workflow.ExecuteActivity(ctx, "work").Get(ctx, nil)
			switch how {
			case "panic":
				panic(errors.New("a bug"))
			case "condition":
				return workflow.Until(ctx, func() bool { workflow.NewID(ctx); return false })
			case "continue":
				return workflow.ContinueAsNew(ctx)
			case "end":
				done = true
			}
			return err
		})
		return workflow.Until(ctx, func() bool { return done })
	})
	a.drain(nil)
	for i, c := range []struct{ how, typ, text string }{
		{"error", "declined", "no credit"},
		{"panic", workflow.TypeUpdatePanicked, `the handler of update "do" panicked: a bug`},
		{"condition", workflow.TypeUpdatePanicked, workflow.ErrReadOnly.Error()},
		{"continue", "Error", "cannot continue the workflow as new"},
	} {
		id := a.update("do", c.how)
		a.drain(nil)
		if c.how == "error" {
			a.failActivity(int64(i+1), activitywire.FailureOf(activity.NewError("declined", "no credit")))
		} else {
			a.complete(int64(i+1), nil)
		}
		a.drain(nil)
		if d := a.answered(id); !d.Failed || d.ExceptionType != c.typ || !strings.Contains(d.Message, c.text) {
			t.Errorf("%s: got %+v", c.how, d)
		}
	}
	a.update("do", "end")
	a.drain(nil)
	a.complete(5, nil)
	a.drain(nil)
	a.output()
	a.replays()
}

func TestCancellationOfTheRunReachesTheHandlers(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		workflow.HandleUpdate(ctx, "wait", func(ctx workflow.Context) (string, error) {
			err := workflow.ExecuteActivity(ctx, "work").Get(ctx, nil)
			clean := workflow.WithoutCancel(ctx)
			if tidy := workflow.ExecuteActivity(clean, "tidy").Get(clean, nil); tidy != nil {
				return "", tidy
			}
			return fmt.Sprint(errors.Is(err, workflow.ErrCancelled)), nil
		})
		err := workflow.Sleep(ctx, time.Hour)
		clean := workflow.WithoutCancel(ctx)
		return errors.Join(err, workflow.Until(clean, func() bool { return workflow.AllHandlersFinished(clean) }))
	})
	a.drain(nil)
	id := a.update("wait")
	a.drain(nil)
	a.decide(engine.RequestCancellation{})
	a.drain(nil)
	for seq := range a.run.Activities.All() {
		a.complete(seq, nil)
	}
	a.drain(nil)
	var got string
	if err := payload.Decode(payload.Payload{Blob: a.answered(id).Result}, &got); err != nil || got != "true" {
		t.Errorf("got %q, %v", got, err)
	}
	a.cancelled()
	a.replays()
}

// The acceptance of an update is recorded once, by a cached workflow and by a workflow that replays it from history. F
func TestUpdateStartIsReportedOnce(t *testing.T) {
	a := start(t, till)
	kept := replay.New(a.def, a.options)
	defer kept.Close()
	a.drain(kept)
	a.update("sell", "milk")
	task, _ := a.lease()
	for range 2 { // the completion of the task was lost
		commands, err := kept.Apply(task, a.events)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "commands", types(commands), []string{"apply_update", "schedule_activity"})
	}
	a.answer(task.LastSequence, a.commandsAt(int(task.LastSequence)))
	a.update("close")
	a.drain(kept)
	want(t, "last batch", types(a.batches[len(a.batches)-1].commands), []string{"complete_update"})
	a.complete(1, "receipt")
	a.drain(kept)
	a.output()
	a.replays()
}

func TestHandlersThatChangedAreNondeterminism(t *testing.T) {
	code := func(handle func(ctx workflow.Context) error) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			if handle != nil {
				workflow.HandleUpdate(ctx, "set", handle)
			}
			return workflow.Sleep(ctx, time.Hour)
		}
	}
	work := func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "work").Get(ctx, nil) }
	longer := func(ctx workflow.Context) error { _ = work(ctx); return workflow.Signal(ctx, "x").Receive(ctx) }
	a := start(t, code(work))
	a.drain(nil)
	a.update("set")
	a.drain(nil)
	waiting := a.events[:len(a.events):len(a.events)]
	a.complete(2, nil)
	a.drain(nil)
	for _, c := range []struct {
		code             func(workflow.Context) error
		events           []history.Event
		recorded, issued string
	}{
		{nil, waiting, `start of the handler of update "set"`, `failure of update "set"`},
		{func(workflow.Context) error { return nil }, waiting, `activity "work" without a session`, "no further command"},
		{longer, a.events, `completion of update "set"`, "a handler of it that waits"},
	} {
		err := replay.Events(define(t, code(c.code)), replay.Options{}, c.events)
		mismatch, ok := errors.AsType[*workflow.NonDeterminismError](err)
		if !ok || mismatch.Recorded != c.recorded || mismatch.Issued != c.issued {
			t.Errorf("want %s and %s, got %v", c.recorded, c.issued, err)
		}
		if strings.Contains(err.Error(), "command 0") { // commands about updates have no number
			t.Errorf("got %v", err)
		}
	}
	if err := replay.Events(define(t, code(work)), replay.Options{}, waiting); err != nil {
		t.Error(err)
	}
}

// A handler may return in the task that accepts its update. Events that arrive during that task precede UpdateApplied
// in history.
func TestHandlerMayReturnBeforeItsStartIsRecorded(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		workflow.HandleUpdate(ctx, "ask", func(ctx workflow.Context) (string, error) {
			return workflow.ReceiveSignal[string](ctx, "word")
		})
		return workflow.Until(ctx, func() bool {
			return workflow.Info(ctx).HistoryLength > 2 && workflow.AllHandlersFinished(ctx)
		})
	})
	id := a.update("ask")
	task, _ := a.lease()
	a.signal("word", "early")
	a.answer(task.LastSequence, a.commandsAt(int(task.LastSequence)))
	want(t, "commands", types(a.batches[0].commands), []string{"apply_update", "open_signal_wait"})
	a.drain(nil)
	var got string
	if err := payload.Decode(payload.Payload{Blob: a.answered(id).Result}, &got); err != nil || got != "early" {
		t.Errorf("got %q, %v", got, err)
	}
	a.output()
	a.replays()
}
