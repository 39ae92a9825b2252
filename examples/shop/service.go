package shop

import (
	"context"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Call asks a service of the shop to do something for an order, and returns the response.
func Call(_ context.Context, service, order string) (string, error) {
	fmt.Printf("%s %s\n", service, order)
	return "done", nil
}

// within returns a context whose activities have this timeout.
func within(ctx workflow.Context, d time.Duration) workflow.Context {
	return workflow.WithActivity(ctx, workflow.ActivityOptions{StartToClose: d})
}
