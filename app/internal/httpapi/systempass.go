package httpapi

import (
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The app also does the work of the passes in the background. The passes exist for tools of the contract and for
// operators who do not want to wait, so each has an audit record and counts as a long request.

// systemRoutes returns the routes below /api/system, except those of retention.
func systemRoutes(contract lineFunc) []route {
	repair := audited("system.repair", contract(post, "/system/repair/pass", "repair_pass", auth.Admin, repairPass))
	timeouts := audited(
		"system.activity_timeouts",
		contract(post, "/system/activity-timeouts/pass", "activity_timeout_pass", auth.Admin, timeoutPass),
	)
	repair.Limit, timeouts.Limit = serve.Held, serve.Held
	return []route{
		contract(get, "/system/health", "system_health", auth.Viewer, health),
		limitedSearch(contract(get, "/system/metrics", "system_metrics", auth.Viewer, operatorMetrics)),
		limitedSearch(contract(post, "/system/metrics", "read_system_metrics", auth.Admin, operatorMetrics)),
		contract(get, "/system/prometheus-metrics", "system_prometheus_metrics", auth.Viewer, systemMetrics),
		contract(get, "/system/repair", "repair_status", auth.Viewer, repairStatus),
		contract(get, "/system/activity-timeouts", "activity_timeouts", auth.Viewer, timeoutStatus),
		repair, timeouts,
	}
}

// systemMetrics returns the metrics of a route of the published API: of one namespace, and of the process.
func systemMetrics(a *API, c *call) (response, error) {
	return a.metrics(c, func(namespace string) bool { return namespace == c.NS })
}

func repairStatus(a *API, c *call) (response, error) {
	return ok(a.opt.System.RepairStatus(c.Ctx, c.NS))
}

func repairPass(a *API, c *call) (response, error) {
	var in protocol.RepairRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Namespace, in.Identity, c.about = c.NS, c.Principal.Name, c.NS
	return ok(a.opt.Operations.RepairPass(c.Ctx, in))
}

func timeoutStatus(a *API, c *call) (response, error) {
	return ok(a.opt.System.ActivityTimeouts(c.Ctx, c.NS))
}

func timeoutPass(a *API, c *call) (response, error) {
	var in protocol.TimeoutRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Namespace, c.about = c.NS, c.NS
	return ok(a.opt.Operations.ActivityTimeoutPass(c.Ctx, in))
}
