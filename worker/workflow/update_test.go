package workflow_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// cart is a workflow that adds items by updates until an update closes the cart, and returns the items.
func cart(ctx workflow.Context) ([]string, error) {
	items, closed := []string{}, false
	workflow.HandleUpdate(ctx, "add", func(_ workflow.Context, item string) (int, error) {
		if item == "bomb" {
			return 0, activity.NewError("forbidden", "not here", activity.Details("bomb"))
		}
		items = append(items, item)
		return len(items), nil
	}, workflow.UpdateOptions{Validate: func(_ workflow.Context, item string) error {
		if item == "" {
			return activity.NewError("nameless", "an item needs a name")
		}
		return nil
	}})
	workflow.HandleUpdate(ctx, "close", func(workflow.Context) error { closed = true; return nil })
	workflow.HandleQuery(ctx, "items", func(_ workflow.Context, from int) ([]string, error) { return items[from:], nil })
	err := workflow.Until(ctx, func() bool { return closed })
	return items, err
}

func TestUpdatesAreAnsweredInOrderAndChangeTheWorkflow(t *testing.T) {
	a := start(t, cart)
	early := a.update("add", "a") // before the code first ran
	a.drain(nil)
	second := a.update("add", "b")
	a.drain(nil)
	last := a.update("close")
	a.drain(nil)
	for id, n := range map[string]int{early: 1, second: 2} {
		var got int
		if err := payload.Decode(payload.Payload{Blob: a.answered(id).Result}, &got); err != nil || got != n {
			t.Errorf("update %s: got %d, %v", id, got, err)
		}
	}
	want(t, "failed", a.answered(last).Failed, false)
	want(t, "last batch", types(a.batches[len(a.batches)-1].commands), []string{"complete_update", "complete_workflow"})
	want(t, "output", a.output(), any([]any{"a", "b"}))
	a.replays()
}

func TestFailedUpdatesHaveAReasonAndDoNotAffectTheRun(t *testing.T) {
	a := start(t, cart)
	a.drain(nil)
	for _, c := range []struct {
		name string
		args []any
		typ  string
		text string
	}{
		{"add", []any{"bomb"}, "forbidden", "not here"},
		{"add", []any{""}, workflow.TypeUpdateRejected, "an item needs a name"},
		{"add", []any{7}, activity.TypeArguments, "update \"add\""},
		{"add", []any{"one", "two"}, activity.TypeArguments, "update \"add\""},
		{"take", nil, workflow.TypeUnknownUpdate, `has no handler for update "take"`},
	} {
		id := a.update(c.name, c.args...)
		a.drain(nil)
		d := a.answered(id)
		if !d.Failed || d.ExceptionType != c.typ || !strings.Contains(d.Message, c.text) {
			t.Errorf("%s%v: got %+v", c.name, c.args, d)
		}
	}
	for _, e := range a.events {
		if e.Type() == "UpdateApplied" {
			t.Errorf("event %d accepts the update", e.Seq)
		}
	}
	a.update("close")
	a.drain(nil)
	want(t, "output", a.output(), any([]any{}))
	a.replays()
}

// What a handler did before it failed has an effect in every replay. A replay does not run validators again.
func TestReplayHandlesUpdatesLikeTheRun(t *testing.T) {
	strict := true
	code := func(ctx workflow.Context) (int, error) {
		n := 0
		workflow.HandleUpdate(ctx, "add", func(_ workflow.Context, by int) error {
			if n += by; by == 3 {
				return errors.New("three is too many")
			}
			return nil
		}, workflow.UpdateOptions{Validate: func(_ workflow.Context, by int) error {
			if strict == (by > 5) {
				return errors.New("no")
			}
			return nil
		}})
		return n, workflow.Until(ctx, func() bool { return n >= 9 })
	}
	a := start(t, code)
	a.drain(nil)
	for _, by := range []int{3, 8, 4} {
		a.update("add", by)
		a.drain(nil)
	}
	strict = false // the changed validator would reject what was accepted, and accept what was rejected
	m := replay.New(a.def, a.options)
	defer m.Close()
	commands, err := m.Apply(a.task(len(a.events)), a.events)
	if err != nil || len(commands) != 0 || m.Unconfirmed() != 0 {
		t.Errorf("got %v, %v, %d unconfirmed", types(commands), err, m.Unconfirmed())
	}
}

func TestUpdateMayBeAnsweredByAnyTask(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		var log []string
		workflow.HandleUpdate(ctx, "note", func(ctx workflow.Context, text string) (int64, error) {
			log = append(log, text)
			return workflow.Now(ctx).UnixMilli(), nil
		})
		for range 2 {
			v, err := workflow.Execute[string](ctx, "work")
			if err != nil {
				return "", err
			}
			log = append(log, v)
		}
		return strings.Join(log, " "), nil
	})
	a.drain(nil)
	before := a.update("note", "before") // the task created for this update will also contain the end of the activity
	at := a.events[len(a.events)-1].At.UnixMilli()
	a.complete(1, "one")
	task, _ := a.lease()
	during := a.update("note", "during") // while the task is leased
	a.answer(task.LastSequence, a.commandsAt(int(task.LastSequence)))
	want(t, "commands", types(a.batches[len(a.batches)-1].commands), []string{"complete_update", "schedule_activity"})
	a.complete(2, "two")
	a.drain(nil)
	want(t, "output", a.output(), any("before one during two"))
	var now int64
	if err := payload.Decode(payload.Payload{Blob: a.answered(before).Result}, &now); err != nil || now != at {
		t.Errorf("the handler's time: got %d, want that of the update, %d (%v)", now, at, err)
	}
	want(t, "failed", a.answered(during).Failed, false)
	a.replays()
}

func TestUnhandledUpdatesFailWhenTheWorkflowEnds(t *testing.T) {
	code := func(next bool) func(ctx workflow.Context, left int) (string, error) {
		return func(ctx workflow.Context, left int) (string, error) {
			got := ""
			workflow.HandleUpdate(ctx, "set", func(_ workflow.Context, v string) error { got = v; return nil })
			if err := workflow.Sleep(ctx, time.Second); err != nil {
				return "", err
			}
			if next && left > 0 {
				return "", workflow.ContinueAsNew(ctx, left-1)
			}
			return got, nil
		}
	}
	a := start(t, code(false), 0)
	a.drain(nil)
	a.fire(1)
	task, _ := a.lease()
	id := a.update("set", "late")
	a.answer(task.LastSequence, a.commandsAt(int(task.LastSequence)))
	want(t, "type", a.answered(id).ExceptionType, "run_closed")
	a.replays()
	if _, err := a.ask(len(a.events), "none"); !errors.Is(err, workflow.ErrUnknownQuery) {
		t.Errorf("got %v", err)
	}

	a = start(t, code(true), 1)
	a.drain(nil)
	a.fire(1)
	task, _ = a.lease()
	id = a.update("set", "late")
	a.answer(task.LastSequence, a.commandsAt(int(task.LastSequence)))
	a.replays()
	b := startRun(t, a.def, *a.next)
	b.drain(nil)
	want(t, "carried and answered", b.answered(id).Failed, false)
	b.fire(1)
	b.drain(nil)
	want(t, "output", b.output(), any("late"))
	b.replays()
}

// A task that was created for an update must complete the update, even if another event of the task closes the workflow
// first.
func TestTaskOfAnUpdateAnswersItAlthoughTheWorkflowEndsFirst(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		workflow.HandleUpdate(ctx, "set", func(workflow.Context) error { return nil })
		x, y := workflow.ExecuteActivity(ctx, "x"), workflow.ExecuteActivity(ctx, "y")
		ended := false
		workflow.Go(ctx, func(ctx workflow.Context) {
			if workflow.Signal(ctx, "go").Receive(ctx) == nil {
				_ = x.Get(ctx, nil) // resolved only when the whole group has ended
				ended = true
			}
		})
		workflow.Go(ctx, func(ctx workflow.Context) { _ = workflow.Join(ctx, x, y) })
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return err
		}
		return workflow.Until(ctx, func() bool { return ended })
	})
	a.drain(nil)
	a.fire(3)
	a.drain(nil)
	a.signal("go")
	a.drain(nil)
	a.complete(1, nil) // wakes no branch: the group has not ended
	id := a.update("set")
	a.drain(nil)
	want(t, "type", a.answered(id).ExceptionType, "run_closed")
	if _, ok := a.events[len(a.events)-1].Data.(*history.WorkflowCompleted); !ok {
		t.Errorf("the run ended with %s", a.events[len(a.events)-1].Type())
	}
	a.replays()
}

// An update failed because its worker did not support updates. It stays failed in a replay, also with code that has a
// handler now.
func TestUnhandledUpdateIsNotHandledInReplay(t *testing.T) {
	a := start(t, cart)
	a.drain(nil)
	a.update("add", "lost")
	if _, ok := a.lease(); !ok {
		t.Fatal("no task")
	}
	a.answer(int64(len(a.events)), nil)
	a.batches = nil // these commands are not from this code
	a.update("add", "kept")
	a.drain(nil)
	a.update("close")
	a.drain(nil)
	want(t, "output", a.output(), any([]any{"kept"}))
}

func TestAnotherAnswerToAnUpdateIsNondeterminism(t *testing.T) {
	handler := func(answer error) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			workflow.HandleUpdate(ctx, "set", func(workflow.Context) error { return answer })
			return workflow.Sleep(ctx, time.Hour)
		}
	}
	replay := func(ran, replayed func(workflow.Context) error) error {
		a := start(t, ran)
		a.drain(nil)
		a.update("set")
		a.update("set")
		a.drain(nil)
		return replay.Events(define(t, replayed), replay.Options{}, a.events)
	}
	bad := errors.New("no")
	for _, c := range []struct {
		ran, replayed    func(workflow.Context) error
		recorded, issued string
	}{
		{handler(nil), handler(bad), `completion of update "set"`, `failure of update "set"`},
		{handler(bad), handler(nil), `failure of update "set"`, `completion of update "set"`},
		{handler(nil), onSignal, `completion of update "set"`, `failure of update "set"`},
	} {
		err := replay(c.ran, c.replayed)
		mismatch, ok := errors.AsType[*workflow.NonDeterminismError](err)
		if !ok || mismatch.Recorded != c.recorded || mismatch.Issued != c.issued {
			t.Errorf("want %s and %s, got %v", c.recorded, c.issued, err)
		}
	}
	if err := replay(handler(nil), handler(nil)); err != nil {
		t.Error(err)
	}
}

// onSignal is a workflow that sleeps like the others and has no update handler.
func onSignal(ctx workflow.Context) error { return workflow.Sleep(ctx, time.Hour) }

func TestCachedMachineAnswersAnUpdateOnce(t *testing.T) {
	a := start(t, cart)
	kept := replay.New(a.def, a.options)
	defer kept.Close()
	a.drain(kept)
	id := a.update("add", "a")
	task, _ := a.lease()
	first, err := kept.Apply(task, a.events)
	if err != nil {
		t.Fatal(err)
	}
	continueAsNew, err := kept.Apply(task, a.events) // the completion of this task was lost
	if err != nil || !slices.Equal(types(first), types(continueAsNew)) {
		t.Fatalf("got %v, then %v, %v", types(first), types(continueAsNew), err)
	}
	a.answer(task.LastSequence, continueAsNew)
	a.update("close")
	a.drain(kept)
	want(t, "unconfirmed", kept.Unconfirmed(), 2) // the completion of the update and the end of the run
	want(t, "answered", a.answered(id).Failed, false)
	want(t, "output", a.output(), any([]any{"a"}))
}

func TestManyCommandsLeaveRoomForUpdateCompletions(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		workflow.HandleUpdate(ctx, "set", func(workflow.Context) error { return nil })
		for range 2500 {
			workflow.ExecuteActivity(ctx, "x")
		}
		return workflow.Sleep(ctx, time.Hour)
	})
	task, _ := a.lease()
	a.answer(task.LastSequence, a.commandsAt(int(task.LastSequence)))
	id := a.update("set")
	task, _ = a.lease()
	commands := a.commandsAt(int(task.LastSequence))
	want(t, "commands", len(commands), protocol.MaxCommands)
	want(t, "first", commands[0].Type, protocol.CompleteUpdate)
	a.answer(task.LastSequence, commands)
	want(t, "failed", a.answered(id).Failed, false)
}

func TestHandlerOfTheWrongShapePanics(t *testing.T) {
	for _, fn := range []func(ctx workflow.Context){
		func(ctx workflow.Context) { workflow.HandleUpdate(ctx, "set", func() {}) },
		func(ctx workflow.Context) {
			workflow.HandleUpdate(ctx, "", func(workflow.Context) error { return nil })
		},
		func(ctx workflow.Context) {
			workflow.HandleUpdate(ctx, "set", func(workflow.Context) error { return nil }, workflow.UpdateOptions{Validate: 7})
		},
		func(ctx workflow.Context) { workflow.HandleQuery(ctx, "set", nil) },
	} {
		_, err := once(t, func(ctx workflow.Context) error { fn(ctx); return nil })
		if _, ok := errors.AsType[*workflow.PanicError](err); !ok {
			t.Errorf("got %v", err)
		}
	}
}

func TestValidatorThatActsIsAnError(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		workflow.HandleUpdate(ctx, "set", func(workflow.Context) error { return nil }, workflow.UpdateOptions{
			Validate: func(ctx workflow.Context) error { workflow.NewTimer(ctx, time.Second); return nil },
		})
		return workflow.Sleep(ctx, time.Hour)
	})
	a.drain(nil)
	id := a.update("set")
	a.drain(nil)
	if d := a.answered(id); d.ExceptionType != workflow.TypeUpdateRejected ||
		!strings.Contains(d.Message, workflow.ErrReadOnly.Error()) {
		t.Errorf("got %+v", d)
	}
	a.replays()
}

func TestUpdateOfACancelledRunIsStillAnswered(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (int, error) {
		n := 0
		workflow.HandleUpdate(ctx, "set", func(ctx workflow.Context, v int) error { n = v; return ctx.Err() })
		clean := workflow.WithoutCancel(ctx)
		return n, workflow.Until(clean, func() bool { return n > 0 })
	})
	a.drain(nil)
	a.decide(engine.RequestCancellation{})
	a.drain(nil)
	id := a.update("set", 1)
	a.drain(nil)
	want(t, "type", a.answered(id).ExceptionType, "Cancelled")
	a.replays()
}
