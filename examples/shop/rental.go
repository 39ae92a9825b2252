package shop

import (
	"time"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Rental charges every hour until cancellation is requested, and then takes the bicycle back.
func Rental(ctx workflow.Context, customer string) error {
	for range 12 {
		if _, err := workflow.Execute[string](within(ctx, time.Minute), Call, "charge", customer); err != nil {
			return err
		}
		if err := workflow.Sleep(ctx, time.Hour); err != nil {
			cleanup := within(workflow.WithoutCancel(ctx), time.Minute)
			return workflow.ExecuteActivity(cleanup, Call, "return", customer).Get(cleanup, nil)
		}
	}
	return workflow.ContinueAsNew(ctx, customer)
}
