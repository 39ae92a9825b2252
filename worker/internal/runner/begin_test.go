package runner_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A response that is delayed for longer than a lease contains tasks that other workers may have leased since. The
// worker recognizes them by their age.
func TestTaskReceivedAfterItsLeaseDoesNotStart(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var begun, late, slow atomic.Int64
		define := func(r *worker.Registry) {
			r.Workflow("steps", func(ctx workflow.Context) error {
				for i := range 6 {
					if err := workflow.ExecuteActivity(ctx, "step", i).Get(ctx, nil); err != nil {
						return err
					}
				}
				return nil
			})
			r.Activity("step", func(ctx context.Context, _ int) error {
				info := activity.Info(ctx)
				begun.Add(1)
				err := a.store.View(ctx, func(r store.Reader) error {
					run, err := r.Run(ctx, info.RunID)
					if err != nil {
						return err
					}
					_, seq, _ := engine.ParseStepID(info.TaskID)
					now, err := a.store.Now(ctx)
					open, ok := run.Activities.Get(seq)
					if !ok || engine.AttemptID(run.ID, seq, open.Delivery) != info.AttemptID || !open.Until.After(now) {
						late.Add(1)
						t.Errorf("attempt %s began on %s and is over", info.AttemptID, info.WorkerID)
					}
					return err
				})
				return err
			})
		}
		a.worker("slow", define, nil)
		a.worker("quick", define, nil)
		warm := a.begin("steps")
		a.end(warm)
		time.Sleep(5 * time.Second)
		a.loses(func(worker, method string) error { // it is not lost, only late
			if worker == "slow" && (method == "Poll" || method == "Complete") {
				slow.Add(1)
				time.Sleep(lease + 10*time.Second)
			}
			return nil
		})
		var runs []string
		for range 4 {
			runs = append(runs, a.begin("steps"))
		}
		time.Sleep(3 * time.Minute)
		a.loses(nil)
		time.Sleep(2 * time.Minute) // whatever is late has come
		for _, run := range runs {
			a.end(run)
		}
		if slow.Load() == 0 || begun.Load() < 30 {
			t.Errorf("%d answers came late, %d attempts began: nothing was shown", slow.Load(), begun.Load())
		}
	})
}

// slowExecutors start an executor for a minute, longer than any lease, and then begin the call if they may.
type slowExecutors struct{ asked, begun atomic.Int64 }

func (*slowExecutors) Has(string) (string, bool) { return sandbox.RuntimeNode, true }

func (e *slowExecutors) Invoke(
	_ context.Context, inv sandbox.Invocation, hooks sandbox.Hooks,
) (sandbox.Result, error) {
	time.Sleep(time.Minute)
	e.asked.Add(1)
	if hooks.OnBegin != nil {
		if err := hooks.OnBegin(); err != nil {
			return sandbox.Result{}, err
		}
	}
	e.begun.Add(1)
	return sandbox.Result{Output: inv.Input}, nil
}

func (*slowExecutors) Recovery(context.Context, string) ([]byte, error) { return nil, nil }

// A worker that loses its lease while an executor starts does not begin the call when the executor is there.
func TestCallDoesNotStartInAnExecutorThatStartedAfterItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		executors := &slowExecutors{}
		define := func(options activity.Options) func(*worker.Registry) {
			return func(r *worker.Registry) {
				r.Workflow("one", func(ctx workflow.Context) (n int, err error) {
					return workflow.Execute[int](ctx, "step")
				})
				r.Activity("step", func(ctx context.Context) (int, error) { return activity.Info(ctx).Attempt, nil }, options)
			}
		}
		a.worker("slow", define(activity.Isolated), func(o *runner.Options) { o.Executors, o.InProcess = executors, false })
		run := a.begin("one")
		time.Sleep(time.Second)
		a.breaks(func(worker, method string) error {
			if worker == "slow" && strings.Contains(method, "Heartbeat") {
				return errors.New("cut off")
			}
			return nil
		})
		a.worker("quick", define(activity.Options{}), nil)
		time.Sleep(2 * time.Minute)
		if asked, begun := executors.asked.Load(), executors.begun.Load(); asked == 0 || begun != 0 {
			t.Errorf("%d of %d calls began after their leases", begun, asked)
		}
		a.breaks(nil)
		a.end(run)
		if done := all[*history.ActivityCompleted](a.events(run)); len(done) != 1 || len(done[0].Lost) == 0 {
			t.Errorf("completed %+v, want a lost delivery before it", done)
		}
	})
}
