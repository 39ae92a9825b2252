package httpapi

import (
	"context"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Diagnostics is what of the broker tells why something is as it is.
type Diagnostics interface {
	Debug(context.Context, protocol.Target) (protocol.DebugView, error)
	TaskWhy(ctx context.Context, namespace, task string) (protocol.TaskWhy, error)
}

// whys are the routes that answer for what waits.
func whys(ours lineFunc) []route {
	return []route{ours(get, "/api/tasks/{task}/why", "why_task", auth.Viewer, whyTask)}
}

func debugRun(a *API, c *call) (answer, error) { return ok(a.opt.Broker.Debug(c.ctx, c.target())) }

func whyTask(a *API, c *call) (answer, error) {
	return ok(a.opt.Broker.TaskWhy(c.ctx, c.ns, c.PathValue("task")))
}

// archive is noted as an operator's action, since no history tells of it.
func archive(a *API, c *call) (answer, error) { return end(c, a.opt.Broker.Archive) }
