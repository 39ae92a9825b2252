package shop

import (
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Approval waits twelve hours for a decision, and reminds every four hours. The validator rejects a second decision.
func Approval(ctx workflow.Context, order string) (string, error) {
	decision := ""
	workflow.HandleUpdate(ctx, "decide", func(_ workflow.Context, d string) error {
		decision = d
		return nil
	}, workflow.UpdateOptions{Validate: func(_ workflow.Context, d string) error {
		if decision != "" {
			return errors.New("already " + decision)
		}
		return nil
	}})
	for range 3 {
		if _, err := workflow.Execute[string](within(ctx, time.Minute), Call, "remind", order); err != nil {
			return "", err
		}
		decided, err := workflow.UntilTimeout(ctx, 4*time.Hour, func() bool { return decision != "" })
		if decided || err != nil {
			return decision, err
		}
	}
	return "expired", nil
}
