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

// If a response is delayed for longer than a lease, other workers may have leased its tasks since. The worker
// recognizes such tasks by the age of the response.
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
						t.Errorf("attempt %s began on %s after its lease", info.AttemptID, info.WorkerID)
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
		a.loses(func(worker, method string) error { // the response is not lost, only delayed
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
		time.Sleep(2 * time.Minute) // all delayed responses have arrived
		for _, run := range runs {
			a.end(run)
		}
		if slow.Load() == 0 || begun.Load() < 30 {
			t.Errorf("%d responses were late, %d attempts began: want more of both", slow.Load(), begun.Load())
		}
	})
}

// slowExecutors take a minute to start an executor, longer than any lease, and then begin the call if that is still
// allowed.
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

func (*slowExecutors) Exported(context.Context, string, string) ([]byte, error) { return nil, nil }

// If a worker loses a lease while an executor starts, it does not begin the call when the executor is ready.
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
