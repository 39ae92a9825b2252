// Package keepalive holds an idle session with its worker by a heartbeat now and then.
package keepalive

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow is the name of the example.
const Workflow = "keepalive"

// Pause is the duration of the workflow's pause, and the interval in which it uses its session meanwhile.
type Pause struct {
	Seconds int `json:"seconds"`
	Every   int `json:"every"` // seconds; 0: never
}

// Held has the epochs before and after the pause. They are equal if the session did not move.
type Held struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// Register registers the workflow and its activity.
func Register(r *worker.Registry) {
	r.Workflow(Workflow, Wait)
	r.Activity("keepalive.touch", Touch)
}

// Wait uses a session, pauses, and uses it again.
func Wait(ctx workflow.Context, p Pause) (h Held, err error) {
	inside := workflow.InSession(ctx, "keepalive-"+workflow.NewID(ctx))
	if h.Before, err = workflow.Execute[int64](inside, Touch); err != nil {
		return h, err
	}
	if p.Every > 0 {
		branch, stop := workflow.WithCancel(inside)
		defer stop()
		workflow.Go(branch, func(ctx workflow.Context) {
			for workflow.Sleep(ctx, time.Duration(p.Every)*time.Second) == nil {
				if workflow.ExecuteActivity(ctx, Touch).Get(ctx, nil) != nil {
					return
				}
			}
		})
	}
	if err = workflow.Sleep(ctx, time.Duration(p.Seconds)*time.Second); err != nil {
		return h, err
	}
	h.After, err = workflow.Execute[int64](inside, Touch)
	return h, err
}

// Touch is a heartbeat: that it ran is all it is for.
func Touch(ctx context.Context) (int64, error) { return activity.SessionEpoch(ctx), nil }
