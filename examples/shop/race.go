package shop

import (
	"time"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Quote asks all carriers and takes the first offer. It cancels the other requests.
func Quote(ctx workflow.Context, order string, carriers []string) (string, error) {
	racing, cancel := workflow.WithCancel(within(ctx, time.Hour))
	defer cancel()
	var offers []workflow.Awaitable
	var futures []workflow.Future
	for _, carrier := range carriers {
		f := workflow.ExecuteActivity(racing, Call, carrier, order)
		offers, futures = append(offers, f), append(futures, f)
	}
	first, err := workflow.Select(ctx, offers...)
	if err != nil {
		return "", err
	}
	return workflow.Await[string](ctx, futures[first])
}
