package httpapi

import (
	"context"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Pools is the part of the broker for pools of sessions.
type Pools interface {
	SetPool(context.Context, protocol.PoolRequest) (protocol.PoolView, error)
	DeletePool(context.Context, protocol.PoolRequest) (protocol.PoolDeleted, error)
}

// PoolViews reads pools of sessions.
type PoolViews interface {
	Pools(ctx context.Context, namespace string) (protocol.PoolList, error)
	Pool(ctx context.Context, namespace, name string) (protocol.PoolView, error)
}

// poolRoutes returns the routes of pools. The broker writes the audit record in the change of a pool.
func poolRoutes(ours lineFunc) []route {
	const one = "/api/sojourn/pools/{pool}"
	return []route{
		ours(get, "/api/sojourn/pools", "list_session_pools", auth.Viewer, listPools),
		ours(get, one, "describe_session_pool", auth.Viewer, describePool),
		ours(methodPut, one, "set_session_pool", auth.Operator, setPool),
		ours(del, one, "delete_session_pool", auth.Operator, deletePool),
	}
}

func listPools(a *API, c *call) (response, error) { return ok(a.opt.PoolViews.Pools(c.Ctx, c.NS)) }

func describePool(a *API, c *call) (response, error) {
	return ok(a.opt.PoolViews.Pool(c.Ctx, c.NS, c.PathValue("pool")))
}

func setPool(a *API, c *call) (response, error) {
	var in protocol.PoolRequest
	if err := c.ReadKnown(&in); err != nil { // a misspelled member would be a missing limit
		return response{}, err
	}
	in.Namespace, in.Name, in.Identity = c.NS, c.PathValue("pool"), c.Principal.Name
	return ok(a.opt.Pools.SetPool(c.Ctx, in))
}

func deletePool(a *API, c *call) (response, error) {
	return ok(a.opt.Pools.DeletePool(c.Ctx, protocol.PoolRequest{
		Namespace: c.NS, Name: c.PathValue("pool"), Identity: c.Principal.Name,
	}))
}
