package workflow_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func TestUntilReturnsWhenOtherBranchesMakeItTrue(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		n, order := 0, ""
		for i := range 3 {
			workflow.Go(ctx, func(ctx workflow.Context) {
				if workflow.Until(ctx, func() bool { return n > i }) == nil {
					order += fmt.Sprint(i)
					n++ // this branch makes the condition of the next one true
				}
			})
		}
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
		n = 1
		return order, workflow.Until(ctx, func() bool { return len(order) == 3 })
	})
	a.drain(nil)
	want(t, "commands", types(a.batches[0].commands), []string{"start_timer"})
	a.fire(1)
	a.drain(nil)
	want(t, "events", len(a.events), 4) // started, timer, timer fired, completed
	a.replays()
	if a.run.Status.Open() {
		t.Error("the run is still open")
	}
}

func TestUntilEndsWithItsContext(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		under, cancel := workflow.WithCancel(ctx)
		var waitErr error
		workflow.Go(under, func(ctx workflow.Context) { waitErr = workflow.Until(ctx, func() bool { return false }) })
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
		cancel()
		if err := workflow.Until(ctx, func() bool { return waitErr != nil }); err != nil {
			return "", err
		}
		return fmt.Sprint(waitErr, workflow.Until(under, func() bool { return false }), workflow.Until(under, func() bool {
			return true
		})), nil
	})
	a.drain(nil)
	a.fire(1)
	a.drain(nil)
	want(t, "output", a.output(), any("cancelled cancelled <nil>"))
	a.replays()
}

func TestUntilTimeout(t *testing.T) {
	code := func(ctx workflow.Context) (string, error) {
		ready := false
		workflow.Go(ctx, func(ctx workflow.Context) { ready = workflow.Signal(ctx, "go").Receive(ctx) == nil })
		met, err := workflow.UntilTimeout(ctx, time.Minute, func() bool { return ready })
		if err != nil {
			return "", err
		}
		repeated, err := workflow.UntilTimeout(ctx, time.Minute, func() bool { return met })
		if met && !repeated {
			return "", errors.New("a condition that is true must not wait")
		}
		return fmt.Sprint(met), err
	}
	a := start(t, code)
	a.drain(nil)
	a.signal("go")
	a.drain(nil)
	want(t, "in time", a.output(), any("true"))
	a.replays()

	a = start(t, code)
	a.drain(nil)
	a.fire(1)
	a.drain(nil)
	a.fire(3) // fires the timer of the second wait
	a.drain(nil)
	want(t, "too late", a.output(), any("false"))
	a.replays()

	a = start(t, code)
	a.drain(nil)
	a.decide(engine.RequestCancellation{})
	a.drain(nil)
	a.cancelled()
	a.replays()
}

func TestConditionThatActsFailsTheTask(t *testing.T) {
	_, err := once(t, func(ctx workflow.Context) error {
		return workflow.Until(ctx, func() bool { workflow.NewTimer(ctx, time.Second); return false })
	})
	if !errors.Is(err, workflow.ErrReadOnly) {
		t.Errorf("got %v", err)
	}
}

// While a branch waits for a condition, no futures are grouped for a Join: the condition may check any of them.
func TestConditionMayReadJoinedFutures(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (bool, error) {
		x, y := workflow.ExecuteActivity(ctx, "x"), workflow.ExecuteActivity(ctx, "y")
		early := false
		workflow.Go(ctx, func(ctx workflow.Context) {
			early = workflow.Until(ctx, x.Ready) == nil && !y.Ready()
		})
		err := workflow.Join(ctx, x, y)
		return early, err
	})
	a.drain(nil)
	a.complete(1, nil)
	a.drain(nil)
	a.complete(2, nil)
	a.drain(nil)
	want(t, "output", a.output(), any(true))
	a.replays()
}

func TestEntriesThatCannotBeAreRefusedAtOnce(t *testing.T) {
	commands, err := once(t, func(ctx workflow.Context) error {
		for _, bad := range []map[string]any{
			nil, {"": 1}, {"12": 1}, {"a b": 1}, {"big": make([]byte, 11_000)}, {"no": make(chan int)},
		} {
			if workflow.UpsertMemo(ctx, bad) == nil || workflow.UpsertSearchAttributes(ctx, bad) == nil {
				t.Errorf("%v was taken", bad)
			}
		}
		for _, bad := range []any{map[string]int{"a": 1}, []int{1}, struct{ A int }{1}} {
			if err := workflow.UpsertSearchAttributes(ctx, map[string]any{
				"a": bad,
			}); !errors.Is(err, workflow.ErrInvalidOptions) {
				t.Errorf("%v: got %v", bad, err)
			}
		}
		all := map[string]any{"text": "x", "n": 1, "f": 1.5, "yes": true, "at": epoch, "list": []string{"a"}, "gone": nil}
		if err := errors.Join(workflow.UpsertMemo(ctx, all), workflow.UpsertSearchAttributes(ctx, all)); err != nil {
			return err
		}
		return workflow.Sleep(ctx, time.Hour)
	})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "commands", types(commands), []string{"upsert_memo", "upsert_search_attributes", "start_timer"})
}

func TestMemoAndSearchAttributesAreTheRuns(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		err := errors.Join(
			workflow.UpsertMemo(ctx, map[string]any{"customer": map[string]any{"name": "Ada"}, "left": 2}),
			workflow.UpsertSearchAttributes(ctx, map[string]any{"stage": "packing", "at": epoch}),
			workflow.UpsertMemo(ctx, map[string]any{"left": nil}),
		)
		if err != nil {
			return err
		}
		return workflow.Sleep(ctx, time.Hour)
	})
	a.drain(nil)
	want(t, "memo", string(a.run.Memo), `{"customer":{"name":"Ada"}}`)
	want(t, "attributes", string(a.run.SearchAttributes), `{"at":"2026-01-01T00:00:00Z","stage":"packing"}`)
	a.fire(4)
	a.drain(nil)
	a.replays()
}

func TestContinueAsNewWithoutArgumentsKeepsThem(t *testing.T) {
	code := func(how int) func(ctx workflow.Context, name string, n int) error {
		return func(ctx workflow.Context, name string, n int) error {
			switch how {
			case 0:
				return workflow.ContinueAsNew(ctx)
			case 1:
				return workflow.ContinueAsNewWith(ctx, workflow.ContinueOptions{Queue: "slow", Workflow: "successor"}, "x")
			}
			return workflow.ContinueAsNewWith(ctx, workflow.ContinueOptions{Workflow: 7})
		}
	}
	a := start(t, code(0), "Ada", 3)
	a.drain(nil)
	b := startRun(t, a.def, *a.next)
	want(t, "arguments", b.task(1).Arguments, a.task(1).Arguments)
	want(t, "queue", b.run.Queue, "default")
	a.replays()

	a = start(t, code(1), "Ada", 3)
	a.drain(nil)
	want(t, "queue and type", a.next.Request.TaskQueue+" "+a.next.Request.WorkflowType, "slow successor")

	a = start(t, code(2), "Ada", 3)
	a.drain(nil)
	if f := a.failure(); f.Message == "" || a.next != nil {
		t.Errorf("got %+v", f)
	}
}
