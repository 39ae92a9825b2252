package workerapi

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The answer of a query goes to a waiting caller and is stored nowhere. So a late answer is rejected with the state of
// the query task.

func pollQuery(a *API, c *call) (response, error) { return poll(a, c, protocol.KindQuery) }

// queryItem starts the outcome of a query task; from here on an error contains the task and the attempt.
func queryItem(c *call, h holder, attempt int64) protocol.CompleteItem {
	id := c.PathValue("task")
	c.addErrorMember("query_task_id", id)
	c.addErrorMember("query_task_attempt", attempt)
	c.addErrorMember("outcome", "rejected")
	return protocol.CompleteItem{
		Namespace: c.NS, Kind: protocol.KindQuery, TaskID: id, Owner: h.Owner, Incarnation: h.Incarnation, Attempt: attempt,
	}
}

// completeQueryItem passes the outcome of a query to its caller.
func (a *API) completeQueryItem(c *call, item protocol.CompleteItem) (response, error) {
	out, err := a.submit(c, item)
	return response{http.StatusOK, queryOutcome{item.TaskID, item.Attempt, out.Outcome, out.Reason}}, err
}

// completeQuery stores a query's answer. The envelope is exact where plain JSON is not, so it takes precedence if both
// are present.
func completeQuery(a *API, c *call) (response, error) {
	var in queryCompleting
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	item := queryItem(c, in.holder, in.Try)
	var err error
	if e := bytes.TrimSpace(in.Envelope); len(e) > 0 && !bytes.Equal(e, []byte("null")) {
		var p payload.Payload
		if err = json.Unmarshal(e, &p); err != nil {
			return response{}, protocol.RefusePayload("result_envelope", err)
		}
		item.Result = p
	} else if item.Result, err = in.result(); err != nil {
		return response{}, err
	}
	return a.completeQueryItem(c, item)
}

func failQuery(a *API, c *call) (response, error) {
	var in queryFailing
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	item := queryItem(c, in.holder, in.Try)
	var err error
	if item.Failure, err = in.failure(c); err != nil {
		return response{}, err
	}
	return a.completeQueryItem(c, item)
}
