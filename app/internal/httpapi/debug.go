package httpapi

import (
	"github.com/sojourn-run/sojourn/app/auth"
)

// The reason of a wait can be requested by task ID as well as by run ID, because worker logs contain task IDs.

// debugRoutes returns the routes that diagnose runs and tasks.
func debugRoutes(ours lineFunc) []route {
	return []route{
		ours(get, "/api/tasks/{task}/why", "why_task", auth.Viewer, whyTask),
		ours(get, "/api/tasks/{task}/logs", "activity_logs", auth.Viewer, activityLogs),
	}
}

func debugRun(a *API, c *call) (response, error) { return ok(a.opt.RunViews.Debug(c.Ctx, c.target())) }

func whyTask(a *API, c *call) (response, error) {
	return ok(a.opt.RunViews.TaskWhy(c.Ctx, c.NS, c.PathValue("task")))
}

// archive has an audit record, since it adds no history event.
func archive(a *API, c *call) (response, error) { return endRun(c, a.opt.Runs.Archive) }
