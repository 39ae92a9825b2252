// Package approval is an example of a workflow that waits for a decision from outside: an awakeable.
package approval

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Register registers the workflow and its activity.
func Register(r *worker.Registry) {
	r.Workflow("expense", Expense)
	r.Activity("ask_manager", AskManager)
}

// Decision is the result of the awakeable.
type Decision struct {
	Approved bool
	By       string
}

// Expense sends the ID of an awakeable to a manager and waits for the decision for at most three days.
func Expense(ctx workflow.Context, amount int) (string, error) {
	decision := workflow.Awakeable[Decision](ctx, 72*time.Hour)
	asking := workflow.WithActivity(ctx, workflow.ActivityOptions{StartToClose: time.Minute})
	if _, err := workflow.Execute[any](asking, AskManager, amount, decision.ID); err != nil {
		return "", err
	}
	d, err := decision.Result(ctx)
	switch rejected, ok := errors.AsType[*workflow.AwakeableError](err); {
	case errors.Is(err, workflow.ErrTimedOut):
		return "no decision in three days", nil
	case ok && rejected.Type == "Rejected":
		return "rejected: " + rejected.Message, nil
	case err != nil:
		return "", err
	}
	return fmt.Sprintf("approved: %t, by %s", d.Approved, d.By), nil
}

// AskManager sends a message with the ID to the manager.
func AskManager(_ context.Context, amount int, awakeable string) error {
	fmt.Printf("%d to approve: sojourn awakeable complete %s\n", amount, awakeable)
	return nil
}

// Decide delivers the decision. It may be repeated after an error.
func Decide(ctx context.Context, app *client.Client, awakeable string, d Decision) error {
	err := app.CompleteAwakeable(ctx, awakeable, d)
	if client.ReasonOf(err) == client.ReasonAwakeableClosed {
		return errors.New("the decision came too late")
	}
	return err
}

// Reject makes the wait of the workflow fail.
func Reject(ctx context.Context, app *client.Client, awakeable, why string) error {
	return app.FailAwakeable(ctx, awakeable, activity.NewError("Rejected", why))
}
