package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// steps registers a workflow of sequential activities. It also uses side effects, versions, the time, timers, sessions,
// two concurrent activities and an attempt that fails, and receives signals if a test sends them.
func steps(ran *atomic.Int64) func(*worker.Registry) {
	return func(r *worker.Registry) {
		r.Workflow("steps", func(ctx workflow.Context, n int) ([]string, error) {
			var results []string
			for i := range n {
				// The argument shows that the code reads the recorded time.
				v, err := workflow.Await[string](ctx, workflow.ExecuteActivity(ctx, "step", i, workflow.Now(ctx).IsZero()))
				if err != nil {
					return nil, err
				}
				results = append(results, v)
				if i == 1 {
					if err := workflow.Sleep(ctx, time.Second); err != nil {
						return nil, err
					}
				}
				if i == 2 {
					session := workflow.InSession(ctx, "shared")
					if _, err := workflow.Await[string](ctx, workflow.ExecuteActivity(session, "step", 100, false)); err != nil {
						return nil, err
					}
					if _, err := workflow.Await[string](ctx, workflow.ExecuteActivity(session, "step", 101, false)); err != nil {
						return nil, err
					}
				}
				if i == 3 {
					one, two := workflow.ExecuteActivity(ctx, "step", 200, false), workflow.ExecuteActivity(ctx, "step", 201, false)
					if err := errors.Join(one.Get(ctx, nil), two.Get(ctx, nil)); err != nil {
						return nil, err
					}
				}
				if i == 4 {
					try := workflow.WithActivity(ctx, workflow.ActivityOptions{
						Retry: &workflow.RetryPolicy{MaxAttempts: 3, Backoff: []time.Duration{time.Second}},
					})
					if _, err := workflow.Await[string](try, workflow.ExecuteActivity(try, "twice")); err != nil {
						return nil, err
					}
				}
			}
			return results, nil
		})
		r.Activity("step", func(_ context.Context, n int, _ bool) (string, error) {
			if ran.Add(1); n == 201 { // after the two concurrent activities
				<-time.After(time.Second)
			}
			return fmt.Sprint(n), nil
		})
		var tries atomic.Int64
		r.Activity("twice", func(context.Context) (string, error) {
			if ran.Add(1); tries.Add(1)%2 == 1 {
				return "", errors.New("not yet")
			}
			return "yes", nil
		})
	}
}

// bare returns the events of a history without the values that differ between runs: times, IDs and hashes.
func bare(t *testing.T, run string, events []history.Event) (list []string) {
	t.Helper()
	for _, e := range events {
		raw, err := json.Marshal(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{
			"then_hash", "taken_at", "started_at", "fire_at", "workflow_id", "retry_available_at", "session_epoch", "failure_id",
		} {
			delete(m, k)
		}
		raw, _ = json.Marshal(m)
		list = append(list, strings.ReplaceAll(
			fmt.Sprintf("%d %s by %s seen %d: %s", e.Seq, e.Type(), e.TaskID, e.SeenThrough, raw), run, "RUN",
		))
	}
	return list
}

func fusedTurns(events []history.Event) (n int) {
	for _, d := range all[*history.ActivityCompleted](events) {
		if d.EagerHash != "" {
			n++
		}
	}
	return n
}

// The history of a run contains the same events for eager and for separate workflow tasks, and workflow code replays
// both.
func TestEagerTasksLeaveTheHistoryUnchanged(t *testing.T) {
	histories := map[bool][]string{}
	for _, plain := range []bool{true, false} {
		bubble(t, func(t *testing.T, a *control) {
			var ran atomic.Int64
			r := worker.NewRegistry()
			steps(&ran)(r)
			a.plain.Store(plain)
			a.worker("w", steps(&ran), nil)
			before := a.store.Stats().Commits
			run := a.begin("steps", 8)
			a.end(run)
			events := a.events(run)
			histories[plain] = bare(t, run, events)
			n := fusedTurns(events)
			t.Logf("plain %v: %d turns with results, %d commits", plain, n, a.store.Stats().Commits-before)
			if plain && n > 0 || !plain && n < 9 {
				t.Errorf("%d of 13 turns came with their results", n)
			}
			def, _ := r.FindWorkflow("steps")
			if err := replay.Events(def, replay.Options{Names: r, CompareArguments: true}, events); err != nil {
				t.Error(err)
			}
		})
	}
	if !reflect.DeepEqual(histories[true], histories[false]) {
		t.Errorf("in separate tasks:\n%s\nwith results:\n%s",
			strings.Join(histories[true], "\n"), strings.Join(histories[false], "\n"))
	}
}

// If the response to any eager workflow task is lost, the run continues, and no activity runs twice.
func TestLostResponseToAnEagerTaskIsRepeated(t *testing.T) {
	const of = 6
	for lost := range of + 1 {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			bubble(t, func(t *testing.T, a *control) {
				var ran, answers atomic.Int64
				a.worker("w", func(r *worker.Registry) {
					r.Workflow("steps", func(ctx workflow.Context) error {
						for i := range of {
							if err := workflow.ExecuteActivity(ctx, "step", i).Get(ctx, nil); err != nil {
								return err
							}
						}
						return nil
					})
					r.Activity("step", func(context.Context, int) error { ran.Add(1); return nil })
				}, nil)
				a.loses(func(_, method string) error {
					if method == "Complete" && answers.Add(1) == int64(lost+1) {
						return errBroken
					}
					return nil
				})
				run := a.begin("steps")
				if _, ok := a.end(run).Data.(*history.WorkflowCompleted); !ok {
					t.Fatal("the run failed")
				}
				if n := ran.Load(); n != of {
					t.Errorf("%d activities ran %d times", of, n)
				}
				// The first workflow task of the run is not an eager one.
				if n := fusedTurns(a.events(run)); n != of {
					t.Errorf("%d of %d turns came with results", n, of)
				}
			})
		})
	}
}

// If the app rejects eager workflow tasks, the worker reads at most twice the events of the run: with a signal at every
// second activity, and with many concurrent activities.
func TestRejectedEagerTasksAreCheap(t *testing.T) {
	if testing.Short() {
		t.Skip("runs workflows of hundreds of steps")
	}
	for name, c := range map[string]struct {
		code func(a *control, run func() string) func(*worker.Registry)
	}{
		"signals": {code: func(a *control, run func() string) func(*worker.Registry) {
			return func(r *worker.Registry) {
				r.Workflow("wf", func(ctx workflow.Context) error {
					// receive signals as they arrive, so that a machine that is ahead of history receives fewer
					received := 0
					for i := range 200 {
						if err := workflow.ExecuteActivity(ctx, "step", i).Get(ctx, nil); err != nil {
							return err
						}
						for ok := true; ok; {
							var err error
							if ok, err = workflow.Signal(ctx, "go").ReceiveAsync(); err != nil {
								return err
							}
							if ok {
								received++
							}
						}
					}
					if received != 100 {
						return fmt.Errorf("%d signals were received", received)
					}
					return nil
				})
				r.Activity("step", func(_ context.Context, n int) error {
					if n%2 == 1 {
						a.signal(run(), "go")
					}
					return nil
				})
			}
		}},
		"at once": {code: func(*control, func() string) func(*worker.Registry) {
			return func(r *worker.Registry) {
				r.Workflow("wf", func(ctx workflow.Context) error {
					var futures []workflow.Future
					for i := range 1000 {
						futures = append(futures, workflow.ExecuteActivity(ctx, "step", i))
					}
					for _, f := range futures {
						if err := f.Get(ctx, nil); err != nil {
							return err
						}
					}
					return nil
				})
				r.Activity("step", func(context.Context, int) error { return nil })
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *control) {
				var run string
				known := make(chan struct{})
				a.worker("w", c.code(a, func() string { <-known; return run }), nil)
				run = a.begin("wf")
				close(known)
				last := a.last(run)
				if _, ok := last.Data.(*history.WorkflowCompleted); !ok {
					t.Errorf("the run ended with %+v", last.Data)
				}
				events := last.Seq
				t.Logf("a run of %d events, of which %d were read again", events, a.replayed.Load())
				if n := a.replayed.Load(); n > 2*events {
					t.Errorf("%d events of %d were read again", n, events)
				}
			})
		})
	}
}

// An eager workflow task that is too large for a message is omitted, and its activity result is still sent.
func TestTooLargeEagerTaskIsOmitted(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var ran atomic.Int64
		a.narrow.Store(true)
		a.worker("w", steps(&ran), nil)
		run := a.begin("steps", 4)
		if got := result[[]string](t, a.end(run)); !reflect.DeepEqual(got, []string{"0", "1", "2", "3"}) {
			t.Errorf("got %v", got)
		}
		if n := fusedTurns(a.events(run)); n > 0 {
			t.Errorf("%d eager tasks were sent with results", n)
		}
	})
}

// A run has no eager workflow task while another event can make it continue: two concurrent results are sent without
// one.
func TestConcurrentResultsAreSentWithoutEagerTasks(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		a.worker("w", func(r *worker.Registry) {
			r.Workflow("pair", func(ctx workflow.Context) error {
				one, two := workflow.ExecuteActivity(ctx, "wait", 1), workflow.ExecuteActivity(ctx, "wait", 2)
				return errors.Join(one.Get(ctx, nil), two.Get(ctx, nil))
			})
			r.Activity("wait", func(_ context.Context, n int) error {
				<-time.After(time.Duration(n) * time.Second)
				return nil
			})
		}, nil)
		run := a.begin("pair")
		a.end(run)
		ended := all[*history.ActivityCompleted](a.events(run))
		if len(ended) != 2 || ended[0].EagerHash != "" {
			t.Errorf("the first result had an eager task: %+v", ended)
		}
	})
}

// The time that workflow code reads in an eager workflow task is the time of its event in history, so that a replay
// reads the same time.
func TestTimeOfAnEagerTaskIsThatOfItsEvent(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		r := worker.NewRegistry()
		define := func(r *worker.Registry) {
			r.Workflow("clock", func(ctx workflow.Context) ([]int64, error) {
				var at []int64
				for range 5 {
					if err := workflow.ExecuteActivity(ctx, "rest", workflow.Now(ctx).UnixMicro()).Get(ctx, nil); err != nil {
						return nil, err
					}
					at = append(at, workflow.Now(ctx).UnixMicro())
				}
				return at, nil
			})
			r.Activity("rest", func(context.Context, int64) error {
				<-time.After(1700 * time.Millisecond)
				return nil
			})
		}
		define(r)
		a.worker("w", define, nil)
		run := a.begin("clock")
		got := result[[]int64](t, a.end(run))
		events := a.events(run)
		var want []int64
		last := events[0].At
		for _, e := range events {
			if _, ok := e.Data.(*history.ActivityCompleted); ok {
				want = append(want, e.At.UnixMicro())
			}
			if e.At.Before(last.Time) {
				t.Errorf("event %d is older than the one before", e.Seq)
			}
			last = e.At
		}
		if !reflect.DeepEqual(got, want) || fusedTurns(events) != 5 {
			t.Errorf("the code received %v, history has %v; %d turns came with results", got, want, fusedTurns(events))
		}
		def, _ := r.FindWorkflow("clock")
		if err := replay.Events(def, replay.Options{Names: r, CompareArguments: true}, events); err != nil {
			t.Error(err)
		}
	})
}

// An older app ignores eager workflow tasks: its response does not mention them, and the worker uses separate workflow
// tasks.
func TestAppWithoutEagerTasksAcceptsTheResults(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var ran atomic.Int64
		a.older.Store(true)
		a.worker("w", steps(&ran), nil)
		run := a.begin("steps", 8)
		if got := result[[]string](t, a.end(run)); len(got) != 8 {
			t.Errorf("got %v", got)
		}
		if n := fusedTurns(a.events(run)); n > 0 {
			t.Errorf("%d eager tasks were accepted with results", n)
		}
		// 13 steps: after each rejection 1, 2, then 4 steps are sent without an eager task
		if n := a.turns.Load(); n == 0 || n > 5 {
			t.Errorf("%d eager tasks were sent", n)
		}
	})
}
