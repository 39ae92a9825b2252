package workerapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// pollTasks asks for many tasks of many kinds in one round trip. How it ended is a value here, always with status 200.
func pollTasks(a *API, c *call) (answer, error) {
	var in protocol.PollRequest
	if err := c.read(&in); err != nil {
		return answer{}, err
	}
	out, err := a.poll(c, &in)
	if err != nil {
		return answer{}, pollRefused(c, err)
	}
	return answer{http.StatusOK, out}, nil
}

// completeTasks takes many outcomes, each judged on its own, and may carry the next poll.
func completeTasks(a *API, c *call) (answer, error) {
	var in protocol.CompleteRequest
	if err := httpjson.Read(c.w, c.Request, httpjson.MaxBatchBody, &in); err != nil {
		return answer{}, err
	}
	for i := range in.Items {
		item := &in.Items[i]
		if err := c.namespace(&item.Namespace); err != nil {
			return answer{}, err
		}
		if item.Kind == "" {
			item.Kind = protocol.KindWorkflow // a query says its kind
			if item.AttemptID != "" {
				item.Kind = protocol.KindActivity
			}
		}
	}
	if in.Next != nil {
		if err := a.prepare(c, in.Next); err != nil {
			return answer{}, beneath("next", err)
		}
	}
	out, err := a.opt.Broker.Complete(c.ctx, in)
	if out.Next != nil && len(out.Next.Tasks) > 0 {
		c.undelivered = out.Next.Undo
	}
	for i := range out.Items {
		if item := &out.Items[i]; item.Err != nil {
			item.Error = body(httpjson.Refusal(store.Refusal(item.Err)))
		}
	}
	return answer{http.StatusOK, out}, err
}

func body(e *protocol.Error) *protocol.ErrorBody {
	return &protocol.ErrorBody{Reason: e.Reason, Message: e.Message, Details: e.Details, Fields: e.Fields}
}
