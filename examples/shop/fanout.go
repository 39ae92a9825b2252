package shop

import (
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Import imports all products, at most atOnce at a time, and reports how many failed.
func Import(ctx workflow.Context, products []string, atOnce int64) (string, error) {
	ctx = within(ctx, 10*time.Minute)
	places, all, failed := workflow.NewSemaphore(ctx, atOnce), workflow.NewWaitGroup(ctx), 0
	for _, product := range products {
		if err := places.Acquire(ctx, 1); err != nil {
			return "", err
		}
		all.Go(ctx, func(ctx workflow.Context) {
			defer places.Release(1)
			if _, err := workflow.Execute[string](ctx, Call, "import", product); err != nil {
				failed++
			}
		})
	}
	err := all.Wait(ctx)
	return fmt.Sprintf("%d imported, %d failed", len(products)-failed, failed), err
}
