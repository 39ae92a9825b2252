package shop

import (
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Refund asks the bank for a refund and waits for its webhook. The bank gets the ID of an awakeable; the receiver of
// the webhook passes it to client.CompleteAwakeable.
func Refund(ctx workflow.Context, order string) (string, error) {
	outcome := workflow.Awakeable[string](ctx, 8*time.Hour)
	if _, err := workflow.Execute[string](within(ctx, time.Minute), Call, "refund", outcome.ID); err != nil {
		return "", err
	}
	text, err := outcome.Result(ctx)
	if errors.Is(err, workflow.ErrTimedOut) {
		return "the bank did not respond in eight hours", nil
	}
	return text, err
}
