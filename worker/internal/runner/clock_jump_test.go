package runner_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
)

// While activities run for ten minutes, the database's clock jumps back and forward by more than any lease. Each
// activity runs once, and runs that start after a jump are not delayed.
func TestActivitiesRunOnceWhileTheDatabasesClockJumps(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var begun atomic.Int64
		a.worker("w", func(r *worker.Registry) {
			single(r, "work", func(ctx context.Context) error {
				begun.Add(1)
				select {
				case <-time.After(10 * time.Minute):
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
			single(r, "new", func(context.Context) error { return nil })
		}, nil)
		runs := []string{a.begin("do_work"), a.begin("do_work"), a.begin("do_work")}
		for _, by := range []time.Duration{-time.Hour, 0, time.Hour, -2 * time.Minute} {
			time.Sleep(time.Minute)
			a.clock.Store(int64(by))
			for _, wait := range []time.Duration{0, 2 * time.Second, 50 * time.Second} {
				time.Sleep(wait)
				began := time.Now()
				result[any](t, a.end(a.begin("do_new")))
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("a run that started %s after the clock was set by %s took %s", wait, by, took)
				}
			}
		}
		for _, id := range runs {
			result[any](t, a.end(id))
			for _, e := range a.events(id) {
				if _, repeated := e.Data.(*history.ActivityRetryScheduled); repeated {
					t.Errorf("run %s had another attempt", id)
				}
			}
		}
		if n := begun.Load(); n != int64(len(runs)) {
			t.Errorf("activities were begun %d times, want %d", n, len(runs))
		}
	})
}

// The task of a dead worker is redelivered after its lease, at default settings, also if the clock was set back by an
// hour meanwhile.
func TestTaskOfADeadWorkerIsRedeliveredAfterAClockJumpBack(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		define := func(r *worker.Registry) {
			single(r, "work", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		}
		dead := a.worker("dead", define, nil)
		run := a.begin("do_work")
		time.Sleep(time.Second)
		dead.kill()
		a.clock.Store(-int64(time.Hour))
		a.worker("other", func(r *worker.Registry) {
			single(r, "work", func(context.Context) error { return nil })
		}, nil)
		began := time.Now()
		result[any](t, a.end(run))
		if waited := time.Since(began); waited > 3*lease+clockCheckInterval {
			t.Errorf("another worker received the task after %s; the lease is %s", waited, lease)
		}
	})
}

// clockCheckInterval is how often an app checks the clock of its machine.
const clockCheckInterval = 5 * time.Second
