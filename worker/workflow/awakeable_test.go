package workflow_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// resolve ends an awakeable of the run with a result, or with f.
func (a *app) resolve(seq int64, result any, f *protocol.Failure) {
	a.t.Helper()
	p, err := payload.Encode(result)
	if err != nil {
		a.t.Fatal(err)
	}
	a.decide(engine.ResolveAwakeable{Seq: seq, ID: engine.StepID(a.run.ID, seq), Result: p.Blob, Failure: f, Hash: "h"})
}

func TestAnAwakeableHasTheResultThatItsCallerDelivers(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		first, second := workflow.Awakeable[string](ctx, 0), workflow.Awakeable[int](ctx, time.Minute)
		third := workflow.Awakeable[int](ctx, 90*time.Second+1)
		if run := workflow.Info(ctx).RunID; first.ID != run+"-1" || third.ID != run+"-3" {
			return "", fmt.Errorf("awakeable IDs %q and %q", first.ID, third.ID)
		}
		_, err := second.Result(ctx)
		failed, ok := errors.AsType[*workflow.AwakeableError](err)
		var by string
		if !ok || failed.ID != second.ID || failed.DecodeDetails(&by) != nil || by != "Ada" ||
			errors.Is(err, workflow.ErrTimedOut) {
			return "", fmt.Errorf("no typed error: %+v, details %q", failed, by)
		}
		if err := third.Get(ctx, nil); !errors.Is(err, workflow.ErrTimedOut) {
			return "", fmt.Errorf("want a timeout, got %w", err)
		}
		text, err := workflow.Await[string](ctx, first)
		return text + ", " + failed.Error(), err
	})
	a.drain(nil)
	commands := a.batches[0].commands
	want(t, "commands", fmt.Sprint(types(commands)), "[open_awakeable open_awakeable open_awakeable]")
	if commands[0].Timeout != nil || *commands[1].Timeout != 60 || *commands[2].Timeout != 91 {
		t.Errorf("timeouts %v", commands)
	}
	details, err := payload.Encode("Ada")
	if err != nil {
		t.Fatal(err)
	}
	a.resolve(1, "yes", nil)
	a.drain(nil)
	a.resolve(2, nil, &protocol.Failure{
		Type: "Rejected", Message: "no budget", Details: fmt.Appendf(nil, `{"codec":"avro","blob":%q}`, details.Blob),
	})
	a.drain(nil)
	a.fire(3)
	a.drain(nil)
	want(t, "output", a.output(), any(`yes, awakeable "`+a.run.ID+`-2": Rejected: no budget`))
	a.replays()
}

func TestACancelledAwakeableEnds(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		under, cancel := workflow.WithCancel(ctx)
		left := workflow.Awakeable[string](under, time.Hour)
		right := workflow.Awakeable[string](ctx, 0)
		if _, err := workflow.Select(ctx, left, right); err != nil {
			return "", err
		}
		cancel()
		if err := left.Get(ctx, nil); err != workflow.ErrCancelled {
			return "", fmt.Errorf("want cancelled, got %w", err)
		}
		late := workflow.Awakeable[string](under, 0)
		if late.ID != "" || !errors.Is(late.Get(ctx, nil), workflow.ErrCancelled) {
			return "", errors.New("a cancelled context opened an awakeable")
		}
		if err := workflow.Awakeable[string](ctx, -time.Second).Get(ctx, nil); !errors.Is(err, workflow.ErrInvalidOptions) {
			return "", fmt.Errorf("a negative timeout: %w", err)
		}
		if err := workflow.Signal(ctx, "go").Receive(ctx); err != nil {
			return "", err
		}
		return right.Result(ctx)
	})
	a.drain(nil)
	a.resolve(2, "right", nil)
	a.drain(nil)
	if a.run.Waits.Any(func(w engine.Wait) bool { return w.Kind == engine.AwakeableWait }) || a.run.Timers.Len() > 0 {
		t.Error("the cancelled awakeable is open")
	}
	a.signal("go")
	a.drain(nil)
	want(t, "output", a.output(), any("right"))
	a.replays()
}

// A history of a build without awakeables has other commands under the same numbers.
func TestCodeThatAddsAnAwakeableBeforeARecordedStepIsNonDeterministic(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		return "", workflow.Sleep(ctx, time.Hour)
	})
	a.drain(nil)
	changed := define(t, func(ctx workflow.Context) (string, error) {
		return workflow.Awakeable[string](ctx, 0).Result(ctx)
	})
	m := replay.New(changed, replay.Options{})
	defer m.Close()
	_, err := m.Apply(a.task(len(a.events)), a.events)
	if _, ok := errors.AsType[*workflow.NonDeterminismError](err); !ok {
		t.Fatalf("want a mismatch, got %v", err)
	}
}

func TestMoreAwakeablesThanTheRunMayOpenAreOpenedLater(t *testing.T) {
	const all = protocol.MaxPending + 3
	a := start(t, func(ctx workflow.Context) (int, error) {
		var open []workflow.Future
		for range all {
			open = append(open, workflow.Awakeable[int](ctx, 0))
		}
		return len(open), workflow.Join(ctx, open...)
	})
	most := 0
	for seq := range int64(all) {
		if seq%500 < 2 {
			a.drain(nil)
			most = max(most, a.run.Waits.Len())
		}
		a.resolve(seq+1, 1, nil)
	}
	a.drain(nil)
	if most > protocol.MaxPending || most < protocol.MaxPending/2 {
		t.Errorf("%d awakeables were open at once", most)
	}
	want(t, "output", a.output(), any(int64(all)))
}

// A redriven run has the results and IDs of resolved awakeables. A run that failed with an open one is not redriven:
// the ID that callers know names the failed run.
func TestARedrivenRunKeepsResolvedAwakeables(t *testing.T) {
	for _, resolved := range []bool{true, false} {
		var ids []string
		a := start(t, func(ctx workflow.Context) (string, error) {
			first := workflow.Awakeable[string](ctx, 0)
			if !resolved {
				return workflow.Execute[string](ctx, "step")
			}
			text, err := first.Result(ctx)
			if err != nil {
				return "", err
			}
			ids = append(ids, first.ID)
			_, err = workflow.Execute[string](ctx, "step")
			return text, err
		})
		a.drain(nil)
		if resolved {
			a.resolve(1, "yes", nil)
			a.drain(nil)
		}
		a.failActivity(2, fail)
		a.drain(nil)
		if !resolved {
			_, err := engine.PrepareRedrive(&a.run.Head, a.events, "NEXT")
			if protocol.ReasonOf(err) != protocol.ReasonUnsupportedHistory {
				t.Errorf("a run with an open awakeable: %v", err)
			}
			continue
		}
		failed := ids[0]
		a, _ = a.redriven("NEXT")
		a.drain(nil)
		a.complete(2, "done")
		a.drain(nil)
		want(t, "output", a.output(), any("yes"))
		if last := ids[len(ids)-1]; last != failed {
			t.Errorf("the code receives ID %s, and %s in the redriven run", failed, last)
		}
		for i := range a.events { // a history that arrives in two pages
			m := replay.New(a.def, a.options)
			for _, to := range []int{i, len(a.events)} {
				if _, err := m.Apply(a.task(to), a.events[:to]); to > 0 && err != nil {
					t.Errorf("a page ends at %d: %v", i, err)
				}
			}
			m.Close()
			if last := ids[len(ids)-1]; last != failed {
				t.Errorf("a page ends at %d: the code receives ID %s, want %s", i, last, failed)
			}
		}
	}
}
