package sojourn_test

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A program with one workflow and one activity. Started without arguments it prints its commands; "dev" runs an app on
// SQLite and a worker.
func ExampleMain() {
	sojourn.Main(func(r *worker.Registry) {
		r.Activity("greet", func(_ context.Context, name string) (string, error) { return "Hello, " + name + "!", nil })
		r.Workflow("greeting", func(ctx workflow.Context, name string) (string, error) {
			if err := workflow.Sleep(ctx, time.Minute); err != nil {
				return "", err
			}
			return workflow.Execute[string](ctx, "greet", name)
		})
	})
}
