package runner_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// lostExecutors reports the executor of the first epoch in which it is called as lost.
type lostExecutors struct {
	mu     sync.Mutex // guards the fields below
	epochs []int64
}

func (*lostExecutors) Has(string) (string, bool) { return sandbox.RuntimeNode, true }

func (e *lostExecutors) Invoke(_ context.Context, inv sandbox.Invocation, _ sandbox.Hooks) (sandbox.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.epochs = append(e.epochs, inv.Session.Epoch)
	if inv.Session.Epoch == e.epochs[0] {
		return sandbox.Result{}, &sandbox.SessionLost{
			Session: inv.Session.ID, EpochRequested: inv.Session.Epoch, Cause: sandbox.CauseCrash, Message: "exit status 3",
		}
	}
	return sandbox.Result{Output: inv.Input}, nil
}

func (*lostExecutors) Exported(context.Context, string, string) ([]byte, error) { return nil, nil }

// replacer replaces the errors of activities.
type replacer struct{ workflow.InterceptorBase }

func (replacer) InterceptActivity(ctx context.Context, _ *workflow.Call, next func(context.Context) error) error {
	if next(ctx) != nil {
		return errors.New("replaced")
	}
	return nil
}

// Activities that arrive after the executor of their session has ended, but before the app knows that, do not fail: the
// worker returns them, and they run again under a higher epoch of the session.
func TestCallsThatComeAfterTheEndOfAnExecutorAreReturned(t *testing.T) {
	t.Run("without interceptors", func(t *testing.T) { callAfterTheEnd(t) })
	t.Run("with an interceptor that replaces errors", func(t *testing.T) { callAfterTheEnd(t, replacer{}) })
}

func callAfterTheEnd(t *testing.T, interceptors ...workflow.Interceptor) {
	bubble(t, func(t *testing.T, a *control) {
		executors := &lostExecutors{}
		a.worker("w", func(r *worker.Registry) {
			r.Intercept(interceptors...)
			r.Workflow("calls", func(ctx workflow.Context) error {
				s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
				if err != nil {
					return err
				}
				var fs []workflow.Future
				for i := range 4 {
					fs = append(fs, s.Execute(ctx, "handler", i))
				}
				for _, f := range fs {
					if err := f.Get(ctx, nil); err != nil {
						return err
					}
				}
				return s.End(ctx)
			})
			r.Activity("handler", func(context.Context, int) error { return nil }, activity.Isolated)
		}, func(o *runner.Options) { o.Executors, o.InProcess = executors, false })
		run := a.begin("calls")
		if _, ok := a.end(run).Data.(*history.WorkflowCompleted); !ok {
			t.Fatalf("the run ends with %+v", a.last(run).Data)
		}
		events := a.events(run)
		if n := len(all[*history.ActivityRetryScheduled](events)); n != 0 {
			t.Errorf("%d attempts failed", n)
		}
		returned := 0
		for _, d := range all[*history.ActivityCompleted](events) {
			returned += len(d.Lost)
			want := 1
			// the app released the delivery before the worker could report that no code began
			for _, l := range d.Lost {
				if l.Why == string(protocol.ReasonStaleSessionEpoch) {
					want++
				}
			}
			if d.Number != want {
				t.Errorf("activity %d completed in attempt %d, want %d after %+v", d.Sequence, d.Number, want, d.Lost)
			}
			if len(d.Lost) > 1 || len(d.Lost) == 1 && (d.Lost[0].Epoch >= d.SessionEpoch || d.Lost[0].Verdict != "") {
				t.Errorf("activity %d completed under epoch %d after %+v", d.Sequence, d.SessionEpoch, d.Lost)
			}
		}
		if returned == 0 {
			t.Error("no activity was returned")
		}
	})
}

// A worker that returns an activity reports whether its code began. Only if it began does the delivery count as an
// attempt.
func TestReturnedTaskReportsWhetherItsCodeStarted(t *testing.T) {
	for name, c := range map[string]struct {
		stop func(*member)
		want int
	}{
		"no executor": {(*member).kill, 1},
		"stopped while its code ran": {func(m *member) {
			short, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = m.Stop(short) // returns at the timeout, because the activity does not end
			m.HandBack(context.Background())
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *control) {
				define := func(code func(context.Context) (int, error)) func(*worker.Registry) {
					return func(r *worker.Registry) {
						r.Workflow("calls", func(ctx workflow.Context) (n int, err error) {
							return n, workflow.ExecuteActivity(ctx, "code").Get(ctx, &n)
						})
						r.Activity("code", code, activity.Options{Isolated: c.want == 1})
					}
				}
				first := a.worker("a", define(func(ctx context.Context) (int, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				}), func(o *runner.Options) { o.InProcess = false })
				run := a.begin("calls")
				time.Sleep(10 * time.Second)
				c.stop(first)
				a.worker("b", define(func(ctx context.Context) (int, error) { return activity.Info(ctx).Attempt, nil }), nil)
				a.end(run)
				done := all[*history.ActivityCompleted](a.events(run))
				if len(done) != 1 || done[0].Number != c.want || strings.HasSuffix(done[0].AttemptID, "-1") {
					t.Errorf("completed %+v, want attempt %d of a later delivery", done, c.want)
				}
			})
		})
	}
}
