package shop

import (
	"context"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Payment waits for the bank, which may need hours, without a worker.
func Payment(ctx workflow.Context, order string, amount int) (string, error) {
	return workflow.Execute[string](workflow.WithActivity(ctx, workflow.ActivityOptions{
		StartToClose: 12 * time.Hour,
		Retry:        &workflow.RetryPolicy{MaxAttempts: 3, Backoff: []time.Duration{time.Minute}},
	}), Pay, order, amount)
}

// Pay asks the bank to charge the customer. The bank reports the outcome with the token.
func Pay(ctx context.Context, order string, amount int) (string, error) {
	if err := AskBank(ctx, order, amount, activity.Token(ctx)); err != nil {
		return "", err
	}
	return "", activity.ErrPending
}

// AskBank sends a request to the bank.
var AskBank = func(_ context.Context, order string, amount int, token string) error {
	fmt.Printf("charge %d for %s: sojourn activity complete %s\n", amount, order, token)
	return nil
}

// BankCalls handles a callback of the bank, which may arrive twice.
func BankCalls(ctx context.Context, app *client.Client, token, receipt, declined string) error {
	if declined != "" {
		return app.FailActivity(ctx, token, activity.NewError("Declined", declined, activity.NonRetryable))
	}
	return app.CompleteActivity(ctx, token, receipt)
}
