package httpapi

import (
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A query costs its caller the wait for a worker, and nothing else: it is in no history, so there is no receipt to come
// back for.

// ask runs a query on a worker of the workflow type, and waits until the worker responds or the query times out.
func ask(a *API, c *call) (answer, error) {
	var in protocol.QueryRequest
	if err := c.Read(&in); err != nil {
		return answer{}, err
	}
	in.Target, in.QueryName, in.Identity = c.target(), c.PathValue("name"), c.Who.Name
	return ok(a.opt.Runs.Query(c.Ctx, in))
}
