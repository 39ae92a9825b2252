// Package look has sample workflows that `sojourn dev` starts for the dashboard: one waits for an approval, one retries
// a failing activity, and one holds a session.
package look

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow types, in the order in which they are started. The dashboard shows a hint for each of them
// (web/src/runs/Samples.tsx).
const (
	Approval = "sample.approval"
	Retry    = "sample.retry"
	Session  = "sample.session"
)

// Register offers the workflows and their activities.
func Register(r *worker.Registry) {
	r.Workflow(Approval, Approve)
	r.Workflow(Retry, Deliver)
	r.Workflow(Session, Desk)
	r.Activity("sample.deliver", deliver)
	r.Activity("sample.note", note)
}

// Approve waits for the signal "approve", however long that takes.
func Approve(ctx workflow.Context, order string) (string, error) {
	err := workflow.Signal(ctx, "approve").Receive(ctx)
	return order + " is approved", err
}

// Deliver has an activity that fails. It is retried after 20 seconds, then after longer delays, up to half an hour.
func Deliver(ctx workflow.Context, address string) error {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
		StartToClose: time.Minute,
		Retry: &workflow.RetryPolicy{
			Backoff: []time.Duration{20 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute},
		},
	})
	return workflow.ExecuteActivity(ctx, "sample.deliver", address).Get(ctx, nil)
}

// Desk keeps a session open: each note that a signal brings uses the state of the first activity, until a note says
// "close".
func Desk(ctx workflow.Context, name string) (int, error) {
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
	if err != nil {
		return 0, err
	}
	notes := 0
	for text := "opened by " + name; text != "close"; {
		if err := s.Execute(ctx, "sample.note", text).Get(ctx, &notes); err != nil {
			return notes, err
		}
		if text, err = workflow.ReceiveSignal[string](ctx, "note"); err != nil {
			return notes, err
		}
	}
	return notes, s.End(ctx)
}

func deliver(_ context.Context, address string) error {
	return activity.NewError("nobody_home", "nobody opens the door at "+address)
}

// note adds a line to the session's state and returns the number of lines.
func note(ctx context.Context, text string) (int, error) {
	lines, err := activity.GetOrCreate(ctx, "notes", func(context.Context) (*[]string, error) { return &[]string{}, nil })
	if err != nil {
		return 0, err
	}
	*lines = append(*lines, text)
	return len(*lines), nil
}
