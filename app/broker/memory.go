package broker

import (
	"context"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// responseBudget is how many bytes of tasks the response to a request may carry. Their memory is reserved before they
// are leased, in the bytes in flight of the app, if the request is counted there.
func responseBudget(ctx context.Context) *dispatch.Budget {
	if g := budget.From(ctx); g != nil {
		return dispatch.NewBudget(protocol.MaxTaskBytes, taskMemory{g})
	}
	return dispatch.NewBudget(protocol.MaxTaskBytes, nil)
}

// taskMemory is the memory of the tasks of one response.
type taskMemory struct{ grant *budget.Grant }

func (m taskMemory) Try(bytes int64) bool { return m.grant.Try(budget.LoadFactor * bytes) }
func (m taskMemory) Return(bytes int64)   { m.grant.Return(budget.LoadFactor * bytes) }
func (m taskMemory) Force(bytes int64)    { m.grant.Force(budget.LoadFactor * bytes) }

func (m taskMemory) Grow(ctx context.Context, bytes int64) error {
	return m.grant.Grow(ctx, budget.LoadFactor*bytes)
}
