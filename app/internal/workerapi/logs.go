package workerapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Log lines must never affect a task: each chunk is accepted or refused on its own, and a refused chunk is dropped
// without an error for the task.

// recordLogs stores log lines of running attempts, one chunk at a time.
func recordLogs(a *API, c *call) (response, error) {
	var in protocol.LogsRequest
	if err := c.Need(&in); err != nil {
		raw, _ := c.Body() // cannot fail: Need has read the body
		in = protocol.LogsRequest{}
		if _, why := httpjson.Bundle(raw, err, httpjson.List{
			Name: "items", Most: protocol.MaxItems, Add: httpjson.AppendTo(&in.Items, protocol.UnreadableLogs),
		}); why != nil || len(in.Items) == 0 {
			return response{}, err
		}
	}
	for i := range in.Items {
		item := &in.Items[i]
		if err := c.namespace(&item.Namespace); err != nil && item.Malformed == nil {
			item.Malformed = err
		}
		item.Namespace = c.NS
	}
	out, err := a.opt.Verbs.RecordLogs(c.Ctx, in)
	return response{http.StatusOK, out}, err
}
