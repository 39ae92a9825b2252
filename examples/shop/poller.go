package shop

import (
	"time"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Parcel asks the carrier every ten minutes until the parcel has arrived, and returns the number of runs. It continues
// as new after four hours, so that the history stays short.
func Parcel(ctx workflow.Context, order string, runs int) (int, error) {
	for range 24 {
		state, err := workflow.Execute[string](within(ctx, time.Minute), Call, "track", order)
		if err != nil || state == "arrived" {
			return runs, err
		}
		if err := workflow.Sleep(ctx, 10*time.Minute); err != nil {
			return runs, err
		}
	}
	return 0, workflow.ContinueAsNew(ctx, order, runs+1)
}
