package httpapi

import "github.com/sojourn-run/sojourn/shared/protocol"

// Clients poll log lines while an activity runs, so each request contains the position of the last line read.

type logsQuery struct {
	Attempt int64 `json:"attempt" minimum:"1"`
	After   int64 `json:"after" minimum:"0"`
}

func activityLogs(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.LogsQuery{
		Namespace: c.NS, TaskID: c.PathValue("task"), Delivery: int64(q.number("attempt", 1, 1<<53)),
		After: int64(q.number("after", 0, 1<<53)),
	}
	if q.err != nil {
		return response{}, q.err
	}
	return ok(a.opt.RunViews.ActivityLogs(c.Ctx, in))
}
