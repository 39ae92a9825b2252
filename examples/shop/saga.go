package shop

import (
	"errors"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Order reserves, charges and ships. After a failure or a cancellation it undoes the steps in reverse order.
func Order(ctx workflow.Context, order string) error {
	ctx = within(ctx, 10*time.Minute)
	var undo []string
	for _, step := range []struct{ do, undo string }{{"reserve", "release"}, {"charge", "refund"}, {"ship", "recall"}} {
		undo = append(undo, step.undo) // before the step, whose outcome may stay unknown
		_, err := workflow.Execute[string](ctx, Call, step.do, order)
		if err == nil {
			continue
		}
		cleanup := workflow.WithoutCancel(ctx)
		for _, service := range slices.Backward(undo) {
			if _, failed := workflow.Execute[string](cleanup, Call, service, order); failed != nil {
				err = errors.Join(err, failed)
			}
		}
		return err
	}
	return nil
}
