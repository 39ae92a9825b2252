// Package curlworker has the workflow whose activity is done by a shell script, worker.sh.
package curlworker

import (
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow is the name of the example; Queue is the task queue of its activity, shout, which the script polls.
const (
	Workflow = "shout"
	Queue    = "shell"
)

// Register offers the workflow. Its activity is offered by worker.sh.
func Register(r *worker.Registry) { r.Workflow(Workflow, Shout) }

// Shout runs the activity shout with a text.
func Shout(ctx workflow.Context, text string) (string, error) {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
		Queue: Queue, StartToClose: time.Minute, Retry: &workflow.RetryPolicy{MaxAttempts: 3},
	})
	return workflow.Execute[string](ctx, "shout", text)
}
