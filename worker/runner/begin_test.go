package runner_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Answers that lie on their way for longer than a lease bring tasks that are somebody else's: their age tells.
func TestNothingBeginsThatCameLaterThanItsLease(t *testing.T) {
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
