package workflowtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
	"github.com/sojourn-run/sojourn/workflowtest"
)

// A test of a workflow that reminds a customer after a day. The day takes no real time.
func ExampleRun() {
	reminder := func(ctx workflow.Context, customer string) (string, error) {
		pay := workflow.Signal(ctx, "pay")
		first, err := workflow.Select(ctx, pay, workflow.NewTimer(ctx, 24*time.Hour))
		if err != nil || first == 0 {
			return "paid", err
		}
		return workflow.Execute[string](ctx, "remind", customer)
	}

	_ = func(t *testing.T) { // in a real program, this is a test function
		r := worker.NewRegistry()
		r.Workflow("reminder", reminder)
		r.Activity("remind", func(context.Context, string) (string, error) { return "", errors.New("sends mail") })
		r.ReplaceActivity("remind", func(_ context.Context, name string) (string, error) { return "reminded " + name, nil })
		workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
			late := env.Start("reminder", "Ann")
			punctual := env.Start("reminder", "Bob")
			punctual.Signal("pay")
			if got, err := workflowtest.Result[string](late); err != nil || got != "reminded Ann" {
				t.Errorf("got %q, %v", got, err)
			}
			if got, err := workflowtest.Result[string](punctual); err != nil || got != "paid" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// A test of an update and a query.
func ExampleUpdate() {
	_ = func(t *testing.T) { // in a real program, this is a test function
		r := worker.NewRegistry()
		r.Workflow("basket", func(ctx workflow.Context) error {
			items := 0
			workflow.HandleUpdate(ctx, "add", func(workflow.Context, string) (int, error) {
				items++
				return items, nil
			})
			workflow.HandleQuery(ctx, "items", func(workflow.Context) (int, error) { return items, nil })
			return workflow.Until(ctx, func() bool { return items == 2 })
		})
		workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
			basket := env.Start("basket")
			for range 2 {
				if _, err := workflowtest.Update[int](basket, "add", "milk"); err != nil {
					t.Error(err)
				}
			}
			if n, err := workflowtest.Query[int](basket, "items"); err != nil || n != 2 {
				t.Errorf("got %d, %v", n, err)
			}
		})
	}
}

// The worker that holds a session is killed. The other worker acquires the session, and the workflow completes.
func ExampleRunWith() {
	test := func(t *testing.T) {
		r := worker.NewRegistry()
		r.Activity("frame", func(context.Context) error { return nil })
		r.Workflow("render", func(ctx workflow.Context) error {
			in := workflow.InSession(ctx, "gpu")
			for range 3 {
				if err := workflow.ExecuteActivity(in, "frame").Get(ctx, nil); err != nil {
					return err
				}
				if err := workflow.Sleep(ctx, time.Hour); err != nil {
					return err
				}
			}
			return nil
		})
		o := workflowtest.Options{Workers: []workflowtest.WorkerSpec{{ID: "a"}, {ID: "b"}}}
		workflowtest.RunWith(t, o, r, func(t *testing.T, env *workflowtest.Env) {
			run := env.Start("render")
			time.Sleep(time.Minute)
			if env.Sessions()[0].Worker == "a" {
				env.Worker(0).Kill()
			}
			if _, err := workflowtest.Result[any](run); err != nil {
				t.Error(err)
			}
		})
	}
	_ = test
}

// A test replays exports of production runs with the code of today, so that a change that breaks open runs fails.
func ExampleReplay() {
	test := func(t *testing.T) {
		r := worker.NewRegistry()
		r.Workflow("order", func(workflow.Context) error { return nil })
		workflowtest.Replay(t, r, "testdata/histories/*.json")
	}
	_ = test
}
