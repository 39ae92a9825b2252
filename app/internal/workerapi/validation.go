package workerapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The workflow's code in a worker decides whether an update is accepted, before anything is written to history. The
// verdict is reported like the outcome of any other task.

func pollValidation(a *API, c *call) (response, error) { return poll(a, c, protocol.KindValidation) }

// verdict returns the decision on an update that waits to be accepted.
func (a *API) verdict(c *call, h holder, attempt int64, failure *protocol.Failure) (response, error) {
	id := c.PathValue("task")
	c.addErrorMember("update_validation_task_id", id)
	c.addErrorMember("update_validation_attempt", attempt)
	c.addErrorMember("outcome", "rejected")
	out, err := a.submit(c, protocol.CompleteItem{
		Namespace: c.NS, Kind: protocol.KindValidation, TaskID: id, Owner: h.Owner, Incarnation: h.Incarnation,
		Attempt: attempt, Failure: failure,
	})
	return response{http.StatusOK, verdictOutcome{id, attempt, out.Outcome, out.Reason}}, err
}

func approveUpdate(a *API, c *call) (response, error) {
	var in approving
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	return a.verdict(c, in.holder, in.Try, nil)
}

func rejectUpdate(a *API, c *call) (response, error) {
	var in rejecting
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	f, err := in.failure(c)
	if err != nil {
		return response{}, err
	}
	return a.verdict(c, in.holder, in.Try, f)
}
