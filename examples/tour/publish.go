package tour

import (
	"context"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Publication publishes the pages of a book with one activity.
func Publication(ctx workflow.Context, pages []string) error {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
		Heartbeat: 10 * time.Second,
		Retry:     &workflow.RetryPolicy{Backoff: workflow.ExponentialBackoff(time.Second, time.Minute)},
	})
	return workflow.ExecuteActivity(ctx, Publish, pages).Get(ctx, nil)
}

// Publish publishes pages. A retry continues at the page that the attempt before it reported.
func Publish(ctx context.Context, pages []string) error {
	next, _, err := activity.LastHeartbeat[int](ctx) // 0 in the first attempt
	if err != nil {
		return err
	}
	for ; next < len(pages); next++ {
		if err := Send(ctx, pages[next]); err != nil {
			return err
		}
		if err := activity.Heartbeat(ctx, next+1); err != nil {
			return err
		}
	}
	return nil
}

// Send publishes a page.
var Send = func(_ context.Context, page string) error {
	_, err := fmt.Println(page)
	return err
}
