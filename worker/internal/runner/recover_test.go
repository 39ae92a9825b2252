package runner_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// cold registers a workflow with n concurrent activities in a session whose state was never built.
func cold(
	r *worker.Registry, n int, policy activity.SessionRecoveryPolicy, rebuild func(context.Context, string) error,
) {
	r.Workflow("cold", func(ctx workflow.Context) (int, error) {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
		if err != nil {
			return 0, err
		}
		var fs []workflow.Future
		for range n {
			fs = append(fs, s.Execute(ctx, "use", "a b c", 1))
		}
		sum := 0
		for _, f := range fs {
			k, err := workflow.Await[int](ctx, f)
			if err != nil {
				return 0, err
			}
			sum += k
		}
		return sum, s.End(ctx)
	})
	policy.RebuildActivity = "rebuild"
	r.Activity("use", func(ctx context.Context, _ string, add int) (int, error) {
		words, err := activity.Get[[]string](ctx, "words")
		return len(words) + add, err
	}, activity.Options{Recovery: &policy})
	r.Activity("rebuild", rebuild)
}

func TestLostStateIsRebuiltInsideTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var rebuilds atomic.Int32
		a.worker("w", func(r *worker.Registry) {
			cold(r, 1, activity.SessionRecoveryPolicy{}, func(ctx context.Context, text string) error {
				rebuilds.Add(1)
				activity.SessionState(ctx).Set("words", strings.Fields(text))
				return nil
			})
		}, nil)
		run := a.begin("cold")
		if got := result[int](t, a.end(run)); got != 4 {
			t.Errorf("got %d", got)
		}
		events := a.events(run)
		recovered, completed := all[*history.SessionRecovered](events), all[*history.ActivityCompleted](events)
		if rebuilds.Load() != 1 || len(recovered) != 1 || recovered[0].Rebuild != "rebuild" ||
			recovered[0].Reason != "missing_state" || recovered[0].Retries != 1 || recovered[0].Epoch == 0 {
			t.Errorf("%d rebuilds, events %+v", rebuilds.Load(), recovered)
		}
		if len(completed) != 1 || completed[0].Number != 1 {
			t.Errorf("completed: %+v", completed)
		}
	})
}

func TestColdActivitiesShareOneRebuildUnlessThePolicyIsParallel(t *testing.T) {
	for name, c := range map[string]struct {
		policy activity.SessionRecoveryPolicy
		want   int32
	}{
		"default":  {activity.SessionRecoveryPolicy{}, 1},
		"parallel": {activity.SessionRecoveryPolicy{ParallelRebuilds: true}, 4},
		"singleflight": {activity.SessionRecoveryPolicy{
			ParallelRebuilds: true, SingleflightPerSession: true, //nolint:staticcheck // it keeps its meaning
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *control) {
				var rebuilds atomic.Int32
				a.worker("w", func(r *worker.Registry) {
					cold(r, 4, c.policy, func(ctx context.Context, text string) error {
						rebuilds.Add(1)
						time.Sleep(time.Second)
						activity.SessionState(ctx).Set("words", strings.Fields(text))
						return nil
					})
				}, nil)
				if got := result[int](t, a.end(a.begin("cold"))); got != 16 {
					t.Errorf("got %d", got)
				}
				if rebuilds.Load() != c.want {
					t.Errorf("%d rebuilds, want %d", rebuilds.Load(), c.want)
				}
			})
		})
	}
}

func TestFailedRebuildFailsTheActivity(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"its own error": {activity.NewError("NoSource", "the file is gone"), "NoSource"},
		"lost again":    {activity.SessionLost("still cold"), activity.TypeSessionLost},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *control) {
				var rebuilds atomic.Int32
				a.worker("w", func(r *worker.Registry) {
					cold(r, 1, activity.SessionRecoveryPolicy{MaxAutoRetries: 3}, func(context.Context, string) error {
						rebuilds.Add(1)
						return c.err
					})
				}, nil)
				run := a.begin("cold")
				a.end(run)
				failed := all[*history.ActivityFailed](a.events(run))
				if len(failed) != 1 || failed[0].ExceptionType != c.want || rebuilds.Load() != 1 {
					t.Errorf("%d rebuilds, failed: %+v", rebuilds.Load(), failed)
				}
			})
		})
	}
}

func TestRebuildIsRetriedByItsPolicy(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var rebuilds atomic.Int32
		a.worker("w", func(r *worker.Registry) {
			cold(r, 1, activity.SessionRecoveryPolicy{MaxAutoRetries: 2}, func(context.Context, string) error {
				rebuilds.Add(1)
				return nil
			})
		}, nil)
		run := a.begin("cold")
		a.end(run)
		failed := all[*history.ActivityFailed](a.events(run))
		if len(failed) != 1 || failed[0].Category != activity.KindSessionLost || rebuilds.Load() != 2 {
			t.Errorf("%d rebuilds, failed: %+v", rebuilds.Load(), failed)
		}
	})
}

// If the owner of a session dies, another worker acquires the session under a higher epoch, without the old state.
func TestSessionMovesWhenItsWorkerDies(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		define := func(r *worker.Registry) {
			r.Workflow("moves", func(ctx workflow.Context) (string, error) {
				s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
				if err != nil {
					return "", err
				}
				var first, second string
				if err := s.Execute(ctx, "who").Get(ctx, &first); err != nil {
					return "", err
				}
				if err := workflow.Signal(ctx, "go").Receive(ctx); err != nil {
					return "", err
				}
				return first + " " + second, errors.Join(s.Execute(ctx, "who").Get(ctx, &second), s.End(ctx))
			})
			r.Activity("who", func(ctx context.Context) (string, error) {
				id, err := activity.GetOrCreate(ctx, "who", func(context.Context) (string, error) {
					return activity.Info(ctx).WorkerID, nil
				})
				return id, err
			})
		}
		first := a.worker("a", define, nil)
		run := a.begin("moves")
		time.Sleep(time.Second)
		first.kill()
		second := a.worker("b", define, nil)
		a.signal(run, "go")
		a.end(run)
		done := all[*history.ActivityCompleted](a.events(run))
		if len(done) != 2 || done[0].Worker != "a" || done[1].Worker != "b" || done[1].SessionEpoch <= done[0].SessionEpoch {
			t.Fatalf("got %+v", done)
		}
		if held := second.sessions.List(); len(held) > 1 {
			t.Errorf("held: %+v", held)
		}
	})
}

// A rebuild reports the reason why the state is missing: the end of the previous epoch, or a loss in this epoch.
func TestARebuildNamesTheRealReason(t *testing.T) {
	define := func(r *worker.Registry) {
		r.Workflow("steps", func(ctx workflow.Context, steps []string) error {
			ctx = workflow.InSession(ctx, "s")
			for _, step := range steps {
				if err := workflow.ExecuteActivity(ctx, step).Get(ctx, nil); err != nil {
					return err
				}
				if err := workflow.Signal(ctx, "go").Receive(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		r.Activity("use", func(ctx context.Context) error {
			_, err := activity.Get[bool](ctx, "there")
			return err
		}, activity.Options{Recovery: &activity.SessionRecoveryPolicy{RebuildActivity: "rebuild"}})
		r.Activity("rebuild", func(ctx context.Context) error { activity.SessionState(ctx).Set("there", true); return nil })
		r.Activity("forget", func(ctx context.Context) error { activity.SessionState(ctx).Set("there", nil); return nil })
	}
	release := func(reason string) func(*control, *member, protocol.SessionView) {
		return func(a *control, m *member, s protocol.SessionView) {
			m.sessions.Drop("s", s.Epoch, reason)
			_, err := a.ReleaseSession(a.t.Context(), protocol.SessionVerb{
				SessionID: "s", WorkerID: "a", Epoch: s.Epoch, Reason: reason,
			})
			if err != nil {
				a.t.Fatal(err)
			}
		}
	}
	kill := func(a *control, m *member, _ protocol.SessionView) {
		m.kill()
		a.worker("b", define, nil)
	}
	for name, c := range map[string]struct {
		steps []string
		then  func(*control, *member, protocol.SessionView)
		want  []string
	}{
		"the worker was killed": {[]string{"use", "use"}, kill, []string{"missing_state", "worker_lost"}},
		"the session was idle": {[]string{"use", "use"}, func(*control, *member, protocol.SessionView) {
			time.Sleep(7 * time.Minute) // the session still exists in the database
		}, []string{"missing_state", "evicted_idle"}},
		"the worker shut down": {[]string{"use", "use"}, release("shutdown"), []string{"missing_state", "drained"}},
		"the session made room for another": {
			[]string{"use", "use"}, release("evicted_pressure"), []string{"missing_state", "evicted_pressure"},
		},
		"its holder released it": {[]string{"use", "use"}, release("no more disk"), []string{"missing_state", "released"}},
		"killed, and later its code lost it": {
			[]string{"use", "use", "forget", "use"}, kill, []string{"missing_state", "worker_lost", "missing_state"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *control) {
				m := a.worker("a", define, nil)
				run := a.begin("steps", c.steps)
				time.Sleep(time.Second)
				held, err := a.Session(t.Context(), "", "s")
				if err != nil {
					t.Fatal(err)
				}
				c.then(a, m, held)
				for range c.steps {
					a.signal(run, "go")
					time.Sleep(time.Minute)
				}
				a.end(run)
				var got []string
				for _, e := range all[*history.SessionRecovered](a.events(run)) {
					got = append(got, e.Reason)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("reasons %q, want %q", got, c.want)
				}
			})
		})
	}
}
