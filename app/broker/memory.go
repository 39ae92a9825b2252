package broker

import (
	"context"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// responseBudget returns the byte budget for the tasks in the response to a request. If the request counts towards the
// app's bytes in flight, the budget reserves memory there before each lease.
func responseBudget(ctx context.Context) *dispatch.Budget {
	if g := budget.From(ctx); g != nil {
		return dispatch.NewBudget(protocol.MaxTaskBytes, taskMemory{g})
	}
	return dispatch.NewBudget(protocol.MaxTaskBytes, nil)
}

// taskMemory is the memory that the tasks of one response have reserved.
type taskMemory struct{ grant *budget.Grant }

func (m taskMemory) Try(bytes int64) bool { return m.grant.Try(budget.LoadFactor * bytes) }
func (m taskMemory) Return(bytes int64)   { m.grant.Return(budget.LoadFactor * bytes) }
func (m taskMemory) Force(bytes int64)    { m.grant.Force(budget.LoadFactor * bytes) }

func (m taskMemory) Grow(ctx context.Context, bytes int64) error {
	return m.grant.Grow(ctx, budget.LoadFactor*bytes)
}
