package httpapi

import (
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A query only makes its caller wait for a worker. It adds no event to the history, so there is no receipt.

// queryWorkflow runs a query on a worker of the workflow type, and waits until the worker responds or the query times
// out.
func queryWorkflow(a *API, c *call) (response, error) {
	var in protocol.QueryRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Target, in.QueryName, in.Identity = c.target(), c.PathValue("name"), c.Principal.Name
	return ok(a.opt.Runs.Query(c.Ctx, in))
}
