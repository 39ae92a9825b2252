package workerapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Lines are sent beside the work and must never decide about it: each chunk is judged by itself, and one that is
// refused is lost without a word to the task.

// recordLogs takes lines of running attempts, each chunk judged on its own.
func recordLogs(a *API, c *call) (answer, error) {
	var in protocol.LogsRequest
	if err := c.Need(&in); err != nil {
		return answer{}, err
	}
	for i := range in.Items {
		if err := c.namespace(&in.Items[i].Namespace); err != nil {
			return answer{}, err
		}
	}
	out, err := a.opt.Verbs.RecordLogs(c.Ctx, in)
	return answer{http.StatusOK, out}, err
}
