package httpapi

import (
	"context"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The app applies retention in the background. The pass is for operators who cannot wait and for tests. It runs until
// all expired runs are deleted, so it counts as a long request.

// Retention is the part of the broker that deletes expired runs.
type Retention interface {
	Retention(ctx context.Context, namespace string) (protocol.RetentionStatus, error)
	RetentionPass(context.Context, protocol.RetentionRequest) (protocol.RetentionPass, error)
}

func retentionRoutes(contract lineFunc) []route {
	pass := audited(
		"system.retention", contract(post, "/system/retention/pass", "retention_pass", auth.Admin, retentionPass),
	)
	pass.Limit = serve.Held
	return []route{contract(get, "/system/retention", "retention", auth.Viewer, retention), pass}
}

func retention(a *API, c *call) (response, error) { return ok(a.opt.Retention.Retention(c.Ctx, c.NS)) }

func retentionPass(a *API, c *call) (response, error) {
	var in protocol.RetentionRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Namespace, c.about = c.NS, c.NS
	return ok(a.opt.Retention.RetentionPass(c.Ctx, in))
}
