// Command hello is a whole Sojourn of your own: app, worker, dashboard and command line in one binary, with one
// workflow inside.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func main() {
	sojourn.Main(func(r *worker.Registry) {
		r.Workflow("hello", Hello)
		r.Activity("greet", Greet)
	})
}

// Hello greets, sleeps for a second with a durable timer, and greets again.
func Hello(ctx workflow.Context, name string) ([]string, error) {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
		StartToClose: 10 * time.Second,
		Retry:        &workflow.RetryPolicy{MaxAttempts: 3, Backoff: []time.Duration{time.Second}},
	})
	var lines []string
	for _, word := range []string{"Hello", "Goodbye"} {
		line, err := workflow.Execute[string](ctx, Greet, word, name)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// Greet is an activity: it may have side effects, and it may be retried.
func Greet(_ context.Context, word, name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("%s whom?", word)
	}
	return fmt.Sprintf("%s, %s!", word, name), nil
}
