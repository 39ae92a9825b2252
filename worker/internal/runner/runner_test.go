package runner_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

var errBroken = errors.New("the connection is broken")

func TestLongActivityKeepsItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var runs atomic.Int32
		a.worker("w", func(r *worker.Registry) {
			single(r, "long", func(ctx context.Context) error { runs.Add(1); time.Sleep(10 * lease); return context.Cause(ctx) })
		}, nil)
		result[any](t, a.end(a.begin("do_long")))
		if runs.Load() != 1 {
			t.Errorf("the activity ran %d times", runs.Load())
		}
	})
}

// A worker that cannot renew a lease ends the attempt before the app dispatches the task to another worker. The app
// rejects later outcomes of the attempt.
func TestAttemptThatCannotBeRenewedEndsBeforeAnotherBegins(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var first, running, most atomic.Int32
		ended := make(chan error, 1)
		define := func(r *worker.Registry) {
			single(r, "work", func(ctx context.Context) (string, error) {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				if first.Add(1) == 1 {
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return "too late", nil
				}
				return activity.Info(ctx).WorkerID, nil
			})
		}
		a.worker("a", define, nil)
		run := a.begin("do_work")
		synctest.Wait()
		a.breaks(func(worker, _ string) error {
			if worker == "a" {
				return errBroken
			}
			return nil
		})
		a.worker("b", define, nil)
		if got := result[string](t, a.end(run)); got != "b" {
			t.Errorf("completed by %q", got)
		}
		if cause := <-ended; !errors.Is(cause, runner.ErrLeaseLost) {
			t.Errorf("ended by %v", cause)
		}
		if most.Load() != 1 {
			t.Errorf("%d attempts ran at once", most.Load())
		}
	})
}

func TestTerminatedRunEndsItsAttempts(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		ended := make(chan error, 1)
		a.worker("w", func(r *worker.Registry) {
			single(r, "wait", func(ctx context.Context) error { <-ctx.Done(); ended <- context.Cause(ctx); return ctx.Err() })
		}, nil)
		run := a.begin("do_wait")
		synctest.Wait()
		began := time.Now()
		head := a.events(run)[0].Data.(*history.WorkflowStarted)
		if _, err := a.Terminate(t.Context(), protocol.EndRequest{
			Target: protocol.Target{WorkflowID: head.WorkflowID},
		}); err != nil {
			t.Fatal(err)
		}
		if cause := <-ended; !errors.Is(cause, runner.ErrCancelled) {
			t.Errorf("ended by %v", cause)
		}
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("cancelling took %s: the notice did not arrive", waited)
		}
	})
}

// Outcomes of a fairness class wait neither for outcomes of another class nor for the response to them.
func TestClassesReportByThemselves(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		a.worker("w", func(r *worker.Registry) {
			single(r, "work", func(context.Context) error { return nil })
		}, func(o *runner.Options) { o.Senders = 1 })
		begin := func(key string) string {
			run, err := a.Start(t.Context(), protocol.StartRequest{WorkflowType: "do_work", FairnessKey: key})
			if err != nil {
				t.Fatal(err)
			}
			return run.RunID
		}
		result[any](t, a.end(begin("")))
		if a.asked.Load() == 0 {
			t.Error("no request with outcomes also polled")
		}
		result[any](t, a.end(begin("large"))) // from now on the queue has fairness classes
		asked := a.asked.Load()
		first := make(chan struct{})
		held, release := sync.OnceFunc(func() { <-first }), sync.OnceFunc(func() { close(first) })
		defer release()
		a.hangs(func(_, method string) error {
			if method == "Complete" {
				held()
			}
			return nil
		})
		large := begin("large")
		synctest.Wait()
		a.hangs(nil)
		small := begin("small")
		result[any](t, a.end(small))
		if n := len(a.events(large)); n != 1 {
			t.Errorf("the other class has %d events: its outcomes did not wait", n)
		}
		release()
		result[any](t, a.end(large))
		if n := a.asked.Load() - asked; n > 0 {
			t.Errorf("%d requests with outcomes of a fairness class polled", n)
		}
	})
}

// If the notice about a cancellation is lost, the response to the next heartbeat reports it.
func TestHeartbeatReportsACancellationAfterALostNotice(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		ended := make(chan error, 1)
		a.mute = true
		a.worker("w", func(r *worker.Registry) {
			r.Workflow("cancels", func(ctx workflow.Context) (string, error) {
				inner, cancel := workflow.WithCancel(ctx)
				f := workflow.ExecuteActivity(inner, "wait")
				if err := workflow.Sleep(ctx, time.Second); err != nil {
					return "", err
				}
				cancel()
				if err := f.Get(ctx, nil); err == nil {
					return "not cancelled", nil
				}
				return "cancelled", nil
			})
			r.Activity("wait", func(ctx context.Context) error { <-ctx.Done(); ended <- context.Cause(ctx); return ctx.Err() })
		}, nil)
		began := time.Now()
		if got := result[string](t, a.end(a.begin("cancels"))); got != "cancelled" {
			t.Errorf("got %q", got)
		}
		cause := <-ended
		if !errors.Is(cause, runner.ErrLeaseLost) && !errors.Is(cause, runner.ErrCancelled) {
			t.Errorf("ended by %v", cause)
		}
		if took := time.Since(began); took < time.Second || took > lease {
			t.Errorf("cancelling took %s, want at most the time between two renewals", took)
		}
	})
}

func TestOutcomeWithALostResponseIsRepeatedAndCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var runs, lost atomic.Int32
		a.worker("w", func(r *worker.Registry) {
			single(r, "work", func(context.Context) (string, error) { runs.Add(1); return "done", nil })
		}, nil)
		a.loses(func(_, method string) error {
			if method == "Complete" && lost.Add(1)%2 == 1 {
				return errBroken
			}
			return nil
		})
		run := a.begin("do_work")
		if got := result[any](t, a.end(run)); got != "done" {
			t.Errorf("got %v", got)
		}
		if runs.Load() != 1 || len(all[*history.ActivityCompleted](a.events(run))) != 1 {
			t.Errorf("it ran %d times", runs.Load())
		}
	})
}

// While the store rejects writes, a worker keeps trying to report an outcome, also after the lease has expired, and the
// activity does not run again.
func TestOutcomeIsKeptWhileTheStoreIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var runs atomic.Int32
		a.worker("w", func(r *worker.Registry) {
			single(r, "work", func(context.Context) (string, error) {
				runs.Add(1)
				time.Sleep(lease / 10)
				return "done", nil
			})
		}, nil)
		run := a.begin("do_work")
		synctest.Wait()
		a.away.Store(true)
		time.Sleep(lease / 2) // the activity ends meanwhile
		a.away.Store(false)
		back := time.Now()
		if got := result[any](t, a.end(run)); got != "done" || runs.Load() != 1 {
			t.Errorf("got %v after %d runs", got, runs.Load())
		}
		if took := time.Since(back); took > lease/4 {
			t.Errorf("the outcome was stored %s after the store was back", took)
		}
	})
}

func TestActivityRunsOnWhileTheConnectionIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var runs atomic.Int32
		a.worker("w", func(r *worker.Registry) {
			single(r, "work", func(ctx context.Context) (string, error) {
				runs.Add(1)
				time.Sleep(5 * time.Second)
				return "done", ctx.Err()
			})
		}, nil)
		run := a.begin("do_work")
		synctest.Wait()
		a.breaks(func(string, string) error { return errBroken })
		time.Sleep(10 * time.Second) // the activity ends meanwhile, and its outcome cannot be reported
		a.breaks(nil)
		if got := result[any](t, a.end(run)); got != "done" || runs.Load() != 1 {
			t.Errorf("got %v after %d runs", got, runs.Load())
		}
	})
}

func TestIdleWorkerPollsRarely(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		a.worker("w", func(r *worker.Registry) { single(r, "work", func(context.Context) error { return nil }) }, nil)
		time.Sleep(10 * time.Minute)
		if n := a.called("Poll"); n > 3*14 {
			t.Errorf("%d polls in ten idle minutes", n)
		}
		before := a.called("Poll")
		a.breaks(func(_, method string) error {
			if method == "Poll" {
				return protocol.Refuse(protocol.ReasonThrottled, "not now")
			}
			return nil
		})
		time.Sleep(10 * time.Minute)
		if n := a.called("Poll") - before; n > 1000 {
			t.Errorf("%d polls in ten minutes of errors", n)
		}
	})
}

func TestIdleWorkerCostsNoStatement(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		a.worker("w", func(r *worker.Registry) { single(r, "work", func(context.Context) error { return nil }) }, nil)
		result[any](t, a.end(a.begin("do_work")))
		time.Sleep(10 * time.Minute) // minutes after its start, an app looks once for tasks that a dead app has left
		before := a.store.Stats()
		time.Sleep(4 * time.Minute)
		if now := a.store.Stats(); now.Statements != before.Statements || now.Reads != before.Reads {
			t.Errorf("%d statements and %d reads in four idle minutes", now.Statements-before.Statements, now.Reads-before.Reads)
		}
	})
}

func TestStuckLoopIsNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		hang := make(chan struct{})
		m := a.worker("w", func(r *worker.Registry) { single(r, "work", func(context.Context) error { return nil }) }, nil)
		time.Sleep(5 * time.Minute)
		if err := m.Alive(); err != nil {
			t.Errorf("an idle worker: %v", err)
		}
		a.hangs(func(_, method string) error {
			if method == "Poll" {
				<-hang // the code ignores its context, as a system call that blocks does
			}
			return nil
		})
		time.Sleep(5 * time.Minute)
		if err := m.Alive(); err == nil || !strings.Contains(err.Error(), "stuck") {
			t.Errorf("a worker that hangs: %v", err)
		}
		a.hangs(nil)
		close(hang)
		time.Sleep(time.Minute)
		if err := m.Alive(); err != nil {
			t.Errorf("after the loop continued: %v", err)
		}
	})
}

func TestBusyWorkerIsNotTakenForStuck(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		m := a.worker("w", func(r *worker.Registry) {
			r.Workflow("many", func(ctx workflow.Context) error {
				var all []workflow.Future
				for range 4 {
					all = append(all, workflow.ExecuteActivity(ctx, "long"))
				}
				return workflow.Join(ctx, all...)
			})
			r.Activity("long", func(ctx context.Context) error { time.Sleep(20 * time.Minute); return context.Cause(ctx) })
		}, nil)
		run := a.begin("many")
		time.Sleep(15 * time.Minute)
		if err := m.Alive(); err != nil {
			t.Error(err)
		}
		result[any](t, a.end(run))
	})
}

func TestDeadlineIsATimeoutOfTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		a.worker("w", func(r *worker.Registry) {
			r.Workflow("short", func(ctx workflow.Context) error {
				return workflow.ExecuteActivity(workflow.WithActivity(ctx, workflow.ActivityOptions{
					StartToClose: 3 * time.Second,
				}), "slow").Get(ctx, nil)
			})
			r.Activity("slow", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		}, nil)
		began := time.Now()
		run := a.begin("short")
		a.end(run)
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("the attempt took %s, want 3 s", took)
		}
		events := a.events(run)
		var types []string // the error is the same whether app or worker detected the timeout
		for _, e := range all[*history.ActivityTimedOut](events) {
			types = append(types, e.ExceptionType)
		}
		for _, e := range all[*history.ActivityFailed](events) {
			types = append(types, e.ExceptionType)
		}
		if !slices.Equal(types, []string{history.TypeActivityTimeout}) {
			t.Errorf("the attempt ended as %q", types)
		}
	})
}

func TestHeartbeatsOfCodeKeepItFromTimingOutAndShowProgress(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		a.worker("w", func(r *worker.Registry) {
			r.Workflow("beats", func(ctx workflow.Context) error {
				return workflow.ExecuteActivity(workflow.WithActivity(ctx, workflow.ActivityOptions{
					Heartbeat: 3 * time.Second,
				}), "beat").Get(ctx, nil)
			})
			r.Activity("beat", func(ctx context.Context) error {
				for i := range 60 {
					if err := activity.Heartbeat(ctx, activity.Progress{Current: float64(i)}); err != nil {
						return err
					}
					time.Sleep(500 * time.Millisecond)
				}
				return nil
			})
		}, nil)
		result[any](t, a.end(a.begin("beats")))
		if n := a.called("HeartbeatTask"); n < 10 || n > 40 {
			t.Errorf("%d requests for 60 heartbeats in 30 s, want about one per second", n)
		}
	})
}

func TestDrainReturnsUnfinishedTasks(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var runs atomic.Int32
		define := func(r *worker.Registry) {
			single(r, "work", func(ctx context.Context) (string, error) {
				if runs.Add(1) == 1 {
					<-ctx.Done()
					return "", ctx.Err()
				}
				return activity.Info(ctx).WorkerID, nil
			})
		}
		first := a.worker("a", define, nil)
		run := a.begin("do_work")
		synctest.Wait()
		first.link.Drain()
		a.worker("b", define, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := first.Stop(ctx); err == nil {
			t.Error("Stop returned although the activity runs")
		}
		began := time.Now()
		first.HandBack(t.Context())
		if got := result[string](t, a.end(run)); got != "b" {
			t.Errorf("completed by %q", got)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the other worker waited %s", took)
		}
		if d := all[*history.ActivityCompleted](a.events(run)); len(d) != 1 || len(d[0].Lost) != 1 {
			t.Errorf("got %+v", *d[0])
		}
	})
}

func TestCachedMachineContinuesAndANewOneReplays(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		define := func(r *worker.Registry) {
			r.Workflow("steps", func(ctx workflow.Context) (int, error) {
				sum := 0
				for i := range 120 {
					n, err := workflow.Await[int](ctx, workflow.ExecuteActivity(ctx, "add", i))
					if err != nil {
						return 0, err
					}
					sum += n
				}
				return sum, nil
			})
			r.Activity("add", func(_ context.Context, n int) (int, error) { return n, nil })
		}
		for name, machines := range map[string]int{"kept": 100, "hardly kept": 1} {
			m := a.worker("w"+name[:1], define, func(o *runner.Options) { o.Machines = machines })
			x, y := a.begin("steps"), a.begin("steps")
			for _, run := range []string{x, y} {
				if got := result[int](t, a.end(run)); got != 7140 {
					t.Errorf("%s: got %d", name, got)
				}
			}
			m.kill()
		}
	})
}

func TestWorkerThatTakesOverALongRunReadsItsHistoryInPages(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		define := func(r *worker.Registry) {
			r.Workflow("long", func(ctx workflow.Context) (int, error) {
				sum := 0
				for i := range 700 {
					n, err := workflow.Await[int](ctx, workflow.ExecuteActivity(ctx, "add", i))
					if err != nil {
						return 0, err
					}
					sum += n
				}
				return sum, workflow.Signal(ctx, "go").Receive(ctx)
			})
			r.Activity("add", func(_ context.Context, n int) (int, error) { return n, nil })
		}
		first := a.worker("a", define, nil)
		run := a.begin("long")
		time.Sleep(time.Minute)
		first.kill()
		a.worker("b", define, nil)
		a.signal(run, "go")
		if got := result[int](t, a.last(run)); got != 244650 {
			t.Errorf("got %d", got)
		}
		if n := a.called("HistoryPage"); n == 0 {
			t.Error("no page was fetched: the history was not longer than one")
		}
	})
}

// A step of 900 concurrent activities adds 1,800 events before the next workflow task. They need only two pages of the
// maximum size.
func TestAWideStepIsShownInFewPages(t *testing.T) {
	if testing.Short() {
		t.Skip("runs 900 activities")
	}
	bubble(t, func(t *testing.T, a *control) {
		const wide = 900
		a.worker("a", func(r *worker.Registry) {
			r.Workflow("wide", func(ctx workflow.Context) (sum int, err error) {
				all := make([]workflow.Future, wide)
				for i := range all {
					all[i] = workflow.ExecuteActivity(ctx, "one")
				}
				if err := workflow.Join(ctx, all...); err != nil {
					return 0, err
				}
				for _, f := range all {
					n := 0
					if err := f.Get(ctx, &n); err != nil {
						return 0, err
					}
					sum += n
				}
				return sum, nil
			})
			r.Activity("one", func(context.Context) (int, error) { return 1, nil })
		}, nil)
		if got := result[int](t, a.last(a.begin("wide"))); got != wide {
			t.Errorf("got %d", got)
		}
		if n := a.called("HistoryPage"); n > 1 {
			t.Errorf("%d pages of history were fetched after the task", n)
		}
	})
}

func TestNonDeterministicWorkflowFailsItsTaskWithTheLocation(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		define := func(name string) func(r *worker.Registry) {
			return func(r *worker.Registry) {
				r.Workflow("changes", func(ctx workflow.Context) error {
					if err := workflow.ExecuteActivity(ctx, name).Get(ctx, nil); err != nil {
						return err
					}
					return workflow.Signal(ctx, "go").Receive(ctx)
				})
				r.Activity("one", func(context.Context) error { return nil })
				r.Activity("two", func(context.Context) error { return nil })
			}
		}
		first := a.worker("a", define("one"), nil)
		run := a.begin("changes")
		synctest.Wait()
		first.kill()
		a.worker("b", define("two"), nil)
		head := a.events(run)[0].Data.(*history.WorkflowStarted)
		_, err := a.Signal(
			t.Context(), protocol.SignalRequest{Target: protocol.Target{WorkflowID: head.WorkflowID}, SignalName: "go"},
		)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		view, err := a.Describe(t.Context(), protocol.Target{WorkflowID: head.WorkflowID})
		if err != nil {
			t.Fatal(err)
		}
		if view.Quarantined == nil || !strings.Contains(*view.Quarantined, "one") ||
			!strings.Contains(*view.Quarantined, "two") {
			t.Errorf("the run has %+v", view)
		}
	})
}
