package workflowtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
	"github.com/sojourn-run/sojourn/workflowtest"
)

// A cancelled run waits for its open child, and the child waits for its activity, which cleans up for an hour. Each
// receives the cancellation after its parent, and each returns its result.
func TestCancelledStepsAreAwaited(t *testing.T) {
	r := worker.NewRegistry()
	begun := make(chan struct{}, 1)
	r.Activity("work", func(ctx context.Context) (string, error) {
		begun <- struct{}{}
		<-ctx.Done()
		time.Sleep(time.Hour)
		return "half", nil
	})
	r.Workflow("child", func(ctx workflow.Context) (string, error) {
		ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{WaitForCancellation: true})
		return workflow.Execute[string](ctx, "work")
	})
	r.Workflow("parent", func(ctx workflow.Context) (string, error) {
		ctx = workflow.WithChild(ctx, workflow.ChildOptions{
			WaitForCancellation: true, ParentClose: workflow.AskToCancel,
		})
		text, err := workflow.ExecuteChild[string](ctx, "child")
		return text + " of it", err
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		w := env.Start("parent")
		<-begun
		began := time.Now()
		w.RequestCancellation()
		if got, err := workflowtest.Result[string](w); err != nil || got != "half of it" {
			t.Errorf("got %q, %v", got, err)
		}
		if took := time.Since(began); took < time.Hour {
			t.Errorf("the end came after %s, before the activity's", took)
		}
	})
}

// An activity that runs for an hour is dispatched only once: the worker renews its lease, although it sends few
// heartbeats in tests.
func TestALongActivityRunsOnce(t *testing.T) {
	r := worker.NewRegistry()
	runs := 0
	r.Activity("work", func(context.Context) (int, error) {
		runs++
		time.Sleep(time.Hour)
		return runs, nil
	})
	r.Workflow("flow", func(ctx workflow.Context) (int, error) { return workflow.Execute[int](ctx, "work") })
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		if n, err := workflowtest.Result[int](env.Start("flow")); err != nil || n != 1 {
			t.Errorf("the activity ran %d times, %v", n, err)
		}
	})
}
