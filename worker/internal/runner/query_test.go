package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// counter registers a workflow that adds up the numbers of its updates until it is stopped.
func counter(r *worker.Registry) {
	r.Workflow("counter", func(ctx workflow.Context, from int) (int, error) {
		n, stopped := from, false
		workflow.HandleUpdate(ctx, "add", func(_ workflow.Context, by int) (int, error) {
			if by < 0 {
				return 0, fmt.Errorf("%d is negative", by)
			}
			n += by
			return n, nil
		})
		workflow.HandleUpdate(ctx, "stop", func(workflow.Context) error { stopped = true; return nil })
		workflow.HandleQuery(ctx, "count", func(ctx workflow.Context, plus int) (string, error) {
			return fmt.Sprintf("%s %d", workflow.Info(ctx).Namespace, n+plus), nil
		})
		workflow.HandleQuery(ctx, "acts", func(ctx workflow.Context) error { return workflow.Sleep(ctx, time.Second) })
		return n, workflow.Until(ctx, func() bool { return stopped })
	})
}

func (a *control) ask(run, name string, args ...any) (string, error) {
	a.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		a.t.Fatal(err)
	}
	q, err := a.Query(a.t.Context(), protocol.QueryRequest{Target: a.target(run), QueryName: name, Input: raw})
	return string(q.Result), err
}

func (a *control) update(run, name string, args ...any) protocol.UpdateResponse {
	a.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		a.t.Fatal(err)
	}
	u, err := a.Update(
		a.t.Context(),
		protocol.UpdateRequest{Target: a.target(run), UpdateName: name, Input: raw, WaitFor: protocol.WaitCompleted},
	)
	if err != nil {
		a.t.Fatal(err)
	}
	return u
}

func (a *control) target(run string) protocol.Target {
	return protocol.Target{WorkflowID: a.events(run)[0].Data.(*history.WorkflowStarted).WorkflowID}
}

func TestUpdatesAndQueriesReachTheCode(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		a.worker("w", counter, nil)
		run := a.begin("counter", 10)
		if u := a.update(run, "add", 5); u.UpdateStatus != "completed" || string(u.Result) != "15" {
			t.Errorf("update: %+v", u)
		}
		if u := a.update(run, "add", -5); u.UpdateStatus != "failed" ||
			!strings.Contains(u.Failure.Message, "-5 is negative") {
			t.Errorf("update: %+v", u)
		}
		before := len(a.events(run))
		got, err := a.ask(run, "count", 1)
		if got != `"default 16"` || err != nil {
			t.Errorf("query: %s, %v", got, err)
		}
		for name, want := range map[string]protocol.Reason{
			"none": protocol.ReasonUnknownQuery, "acts": protocol.ReasonQueryRejected,
		} {
			if _, err := a.ask(run, name); protocol.ReasonOf(err) != want {
				t.Errorf("query %s: got %v, want %s", name, err, want)
			}
		}
		if _, err := a.ask(run, "count", "text"); protocol.ReasonOf(err) != protocol.ReasonQueryArguments {
			t.Errorf("got %v", err)
		}
		if after := len(a.events(run)); after != before {
			t.Errorf("queries wrote %d events", after-before)
		}
		if u := a.update(run, "stop"); u.UpdateStatus != "completed" {
			t.Errorf("update: %+v", u)
		}
		if n := result[int](t, a.end(run)); n != 15 {
			t.Errorf("got %d", n)
		}
		if got, err := a.ask(run, "count", 0); got != `"default 15"` || err != nil {
			t.Errorf("query of a closed run: %s, %v", got, err)
		}
		// A worker that has not run the workflow can answer the query, too.
		a.workers[0].kill()
		a.worker("v", counter, nil)
		if got, err := a.ask(run, "count", 2); got != `"default 17"` || err != nil {
			t.Errorf("query after a restart: %s, %v", got, err)
		}
	})
}

// Queries have separate slots, so workers answer them while all other slots are in use.
func TestQueriesAreAnsweredWhileAllOtherSlotsAreTaken(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		started := make(chan struct{})
		a.worker("w", func(r *worker.Registry) {
			counter(r)
			single(r, "hold", func(ctx context.Context) error { close(started); <-ctx.Done(); return ctx.Err() })
		}, func(o *runner.Options) { o.ActivitySlots, o.WorkflowSlots = 1, 1 })
		run := a.begin("counter", 1)
		held := a.begin("do_hold")
		<-started
		synctest.Wait()
		if got, err := a.ask(run, "count", 0); got != `"default 1"` || err != nil {
			t.Errorf("got %s, %v", got, err)
		}
		if _, err := a.Terminate(t.Context(), protocol.EndRequest{Target: a.target(held)}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestChildRunsConcurrentlyWithItsParent(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var child func(ctx workflow.Context, n int) (int, error)
		child = func(ctx workflow.Context, n int) (int, error) {
			if n == 0 {
				return 0, fmt.Errorf("nothing left")
			}
			if n == 1 {
				return 1, workflow.Sleep(ctx, time.Minute)
			}
			below, err := workflow.ExecuteChild[int](ctx, child, n-1)
			return n * below, err
		}
		a.worker("w", func(r *worker.Registry) {
			r.Workflow("factorial", child)
			r.Workflow("safe", func(ctx workflow.Context) (string, error) {
				_, err := workflow.ExecuteChild[int](ctx, "factorial", 0)
				return err.Error(), nil
			})
		}, nil)
		if n := result[int](t, a.end(a.begin("factorial", 5))); n != 120 {
			t.Errorf("got %d", n)
		}
		if text := result[string](t, a.end(a.begin("safe"))); !strings.Contains(text, "nothing left") {
			t.Errorf("got %q", text)
		}
	})
}

// If the app refuses the commands of a workflow task, the task fails with the reason. It is retried, and corrected code
// continues the run.
func TestRefusedCommandsFailTheWorkflowTask(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var fixed atomic.Bool
		a.worker("w", func(r *worker.Registry) {
			r.Workflow("wrong", func(ctx workflow.Context) error {
				for i := 0; i < 7 && !fixed.Load(); i++ { // each memo entry is within its limit, but their sum is not
					name, value := fmt.Sprintf("entry%d", i), strings.Repeat("x", 10_000)
					if err := workflow.UpsertMemo(ctx, map[string]any{name: value}); err != nil {
						return err
					}
				}
				return nil
			})
		}, nil)
		run := a.begin("wrong")
		synctest.Wait()
		v, err := a.Describe(t.Context(), a.target(run))
		if err != nil {
			t.Fatal(err)
		}
		if v.WaitReason == nil || strings.Contains(*v.WaitReason, "quarantined") ||
			!strings.Contains(*v.WaitReason, "the app refused the commands: memo_size") {
			t.Errorf("got %v", v.WaitReason)
		}
		fixed.Store(true)
		if _, ok := a.end(run).Data.(*history.WorkflowCompleted); !ok {
			t.Errorf("corrected code did not complete the run: %+v", a.last(run))
		}
	})
}
