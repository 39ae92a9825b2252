package shop

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Export writes all rows of a table, and tries again after the loss of a worker.
func Export(ctx workflow.Context, rows int) (int, error) {
	return workflow.Execute[int](workflow.WithActivity(ctx, workflow.ActivityOptions{
		StartToClose: time.Hour, Heartbeat: time.Minute, Retry: &workflow.RetryPolicy{MaxAttempts: 5},
	}), WriteRows, rows)
}

// WriteRows writes rows and reports its progress. The next attempt begins at the last reported row. It returns the
// number of rows that this attempt wrote.
func WriteRows(ctx context.Context, rows int) (int, error) {
	from, _, err := activity.LastHeartbeat[int](ctx)
	if err != nil {
		return 0, err
	}
	for row := from; row < rows; row++ {
		time.Sleep(time.Second) // simulates the write
		if err := activity.Heartbeat(ctx, row+1); err != nil {
			return 0, err
		}
	}
	return rows - from, nil
}
