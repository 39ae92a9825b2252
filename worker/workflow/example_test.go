package workflow_test

import (
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A workflow that runs three steps on one worker and waits for a person's signal with a timeout.
func Example() {
	research := func(ctx workflow.Context, path string) (string, error) {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{Requirements: []string{"gpu"}})
		if err != nil {
			return "", err
		}
		defer s.End(workflow.WithoutCancel(ctx))
		ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
			StartToClose: time.Minute,
			Retry:        &workflow.RetryPolicy{MaxAttempts: 3, Backoff: workflow.ExponentialBackoff(time.Second, time.Minute)},
		})

		if err := s.Execute(ctx, "index", path).Get(ctx, nil); err != nil { // builds the model, in memory
			return "", err
		}
		a, b := s.Execute(ctx, "ask", "why?"), s.Execute(ctx, "ask", "how?") // both use it
		if err := workflow.Join(ctx, a, b); err != nil {
			return "", err
		}

		approve := workflow.Signal(ctx, "approve")
		if i, err := workflow.Select(ctx, approve, workflow.NewTimer(ctx, 24*time.Hour)); err != nil {
			return "", err
		} else if i == 1 {
			return "", errors.New("nobody approved")
		}
		var by string
		if err := approve.Receive(ctx, &by); err != nil {
			return "", err
		}
		return workflow.Await[string](ctx, a)
	}
	_, _ = workflow.NewDefinition("research", research) // a worker's registry does this
}
