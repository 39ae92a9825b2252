package httpapi

// The metrics of a namespace in the published API are exact, which requires a count; see package view. Programs request
// them rarely, and the dashboard shows other numbers.

// operatorMetrics counts the sessions, workers and runs of a namespace by status, and the backlog of its queues.
func operatorMetrics(a *API, c *call) (response, error) {
	if c.Method == post {
		if err := c.Read(&struct{}{}); err != nil {
			return response{}, err
		}
	}
	o, err := a.opt.System.ExactOverview(c.Ctx, c.NS)
	if err != nil {
		return response{}, err
	}
	sessions := map[string]int{"total": 0, "active": 0, "closed": 0, "expired": 0, "failed": 0, "orphaned": 0}
	for status, n := range o.Counts["sessions"] {
		sessions[status] = n
		sessions["total"] += n
	}
	return ok(metricsResponse{c.NS, sessions, o.Counts["workers"], o.Counts["runs"], o.Queues}, nil)
}
