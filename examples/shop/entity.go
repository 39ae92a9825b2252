package shop

import "github.com/sojourn-run/sojourn/worker/workflow"

// Cart is one customer's cart: a run with state, updates and a query. After 100 changes it continues as new, when no
// handler runs.
func Cart(ctx workflow.Context, items map[string]int) (map[string]int, error) {
	if items == nil {
		items = map[string]int{}
	}
	changes, ordered := 0, false
	workflow.HandleUpdate(ctx, "add", func(_ workflow.Context, product string, n int) (int, error) {
		changes++
		items[product] += n
		return items[product], nil
	})
	workflow.HandleUpdate(ctx, "order", func(workflow.Context) error { ordered = true; return nil })
	workflow.HandleQuery(ctx, "items", func(workflow.Context) (map[string]int, error) { return items, nil })
	if err := workflow.Until(ctx, func() bool {
		return (ordered || changes >= 100) && workflow.AllHandlersFinished(ctx)
	}); err != nil {
		return nil, err
	}
	if ordered {
		return items, nil
	}
	return nil, workflow.ContinueAsNew(ctx, items)
}
