package workflow_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func TestQueryIsAnsweredAtEveryMomentOfTheRun(t *testing.T) {
	a := start(t, cart)
	a.drain(nil)
	for _, item := range []string{"a", "b"} {
		a.update("add", item)
		a.drain(nil)
	}
	a.update("close")
	a.drain(nil)
	counts := map[int]bool{}
	for n := 1; n <= len(a.events); n++ {
		v, err := a.ask(n, "items", 0)
		if err != nil {
			t.Fatalf("after event %d: %v", n, err)
		}
		counts[len(v.([]any))] = true
	}
	want(t, "sizes seen", counts, map[int]bool{0: true, 1: true, 2: true})
	v, err := a.ask(len(a.events), "items", 1) // the run has closed
	want(t, "items", v, any([]any{"b"}))
	want(t, "error", err, nil)
}

func TestFailedQueriesHaveAReason(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		n := 0
		workflow.HandleQuery(ctx, "fails", func(workflow.Context) (int, error) { return 0, errors.New("not now") })
		workflow.HandleQuery(ctx, "acts", func(ctx workflow.Context) error {
			return workflow.ExecuteActivity(ctx, "x").Get(ctx, nil)
		})
		workflow.HandleQuery(ctx, "waits", func(ctx workflow.Context) error {
			return workflow.Until(ctx, func() bool { return n > 0 })
		})
		workflow.HandleQuery(ctx, "panics", func(workflow.Context) error { panic("oh") })
		workflow.HandleQuery(ctx, "reads", func(ctx workflow.Context, add int) (int, error) {
			workflow.Logger(ctx).Info("asked")
			return n + add + int(workflow.Info(ctx).RunNumber), nil
		})
		return workflow.Sleep(ctx, time.Hour)
	})
	a.drain(nil)
	for name, is := range map[string]error{
		"acts": workflow.ErrReadOnly, "waits": workflow.ErrReadOnly, "none": workflow.ErrUnknownQuery,
	} {
		if _, err := a.ask(len(a.events), name); !errors.Is(err, is) || !strings.Contains(err.Error(), `query "`+name+`"`) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := a.ask(len(a.events), "fails"); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Errorf("got %v", err)
	}
	_, err := a.ask(len(a.events), "panics")
	if _, ok := errors.AsType[*workflow.PanicError](err); !ok {
		t.Errorf("got %v", err)
	}
	for _, args := range [][]any{{"text"}, {1, 2}} {
		if _, err := a.ask(len(a.events), "reads", args...); !errors.Is(err, workflow.ErrQueryArguments) {
			t.Errorf("%v: got %v", args, err)
		}
	}
	v, err := a.ask(len(a.events), "reads", 4)
	want(t, "reads", v, any(int64(5)))
	want(t, "error", err, nil)
}

// A query does not run a side effect that no task has recorded yet.
func TestQueryDoesNotMakeUpSideEffects(t *testing.T) {
	made := 0
	a := start(t, func(ctx workflow.Context) error {
		state := "new"
		workflow.HandleQuery(ctx, "state", func(workflow.Context) (string, error) { return state, nil })
		v, err := workflow.SideEffect(ctx, func() int { made++; return made })
		if err != nil {
			return err
		}
		state = "made"
		_ = v
		return workflow.Sleep(ctx, time.Hour)
	})
	v, err := a.ask(1, "state")
	want(t, "before the first task", v, any("new"))
	want(t, "error", err, nil)
	want(t, "made", made, 0)
	a.drain(nil)
	v, err = a.ask(len(a.events), "state")
	want(t, "after it", v, any("made"))
	want(t, "error", err, nil)
	want(t, "made", made, 1)
}

func TestQueryThatDoesNotEndIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		a := start(t, func(ctx workflow.Context) error {
			workflow.HandleQuery(ctx, "hangs", func(workflow.Context) error { <-release; return nil })
			return workflow.Sleep(ctx, time.Hour)
		})
		m := replay.New(a.def, replay.Options{Patience: 3 * time.Second})
		if _, err := m.Apply(a.task(1), a.events); err != nil {
			t.Fatal(err)
		}
		_, err := m.Query("hangs", payload.Payload{}, nil)
		if _, ok := errors.AsType[*workflow.DeadlockError](err); !ok {
			t.Errorf("got %v", err)
		}
		m.Close()
		if _, err := m.Query("hangs", payload.Payload{}, nil); err == nil {
			t.Error("a closed machine ran a query")
		}
		close(release)
		synctest.Wait()
	})
}
