package workerapi

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A round trip for each task is what a worker of small tasks waits for most. Batches judge each outcome by itself,
// since one worker reports for many runs, and none of them may suffer for another's mistake.

// pollTasks asks for many tasks of many kinds in one round trip. How it ended is a value here, always with status 200.
func pollTasks(a *API, c *call) (answer, error) {
	var in protocol.PollRequest
	if err := c.Need(&in); err != nil {
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
	if err := c.Need(&in); err != nil {
		return answer{}, a.unread(c, err)
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
			return answer{}, protocol.Beneath("next", err)
		}
		release, err := a.takePlace(c, in.Next)
		if err != nil { // the outcomes count all the same, and what is there can be had
			c.refused, release, in.Next.Timeout = nil, func() {}, new(int64(0))
		}
		defer release()
	}
	out, err := a.opt.Verbs.Complete(c.Ctx, in)
	if out.Next != nil && len(out.Next.Tasks) > 0 {
		c.undelivered = out.Next.Undo
	}
	for i := range out.Items {
		if item := &out.Items[i]; item.Err != nil {
			item.Error = body(httpjson.Refusal(store.Refusal(item.Err)))
			item.Uncertain()
		}
	}
	return answer{http.StatusOK, out}, err
}

// unread looks through a batch that cannot be read, as the single form does: a completion in it that asks for what is
// not offered takes its run out of everybody's hands, and is what the batch is refused for. The others are refused with
// it and their tasks stay where they are.
func (a *API) unread(c *call, err error) error {
	var of struct {
		Items []json.RawMessage `json:"items"`
	}
	raw, _ := c.Body() // it was read above
	if json.Unmarshal(raw, &of) != nil {
		return err
	}
	var req protocol.CompleteRequest
	var places []int // of each of them in the batch
	for i, raw := range of.Items {
		var at struct {
			holder
			Kind      protocol.TaskKind `json:"kind"`
			TaskID    string            `json:"task_id"`
			Namespace string            `json:"namespace"`
		}
		rest, ok := protocol.OutlineOf(raw)
		if !ok || json.Unmarshal(raw, &at) != nil || at.Kind != "" && at.Kind != protocol.KindWorkflow ||
			c.namespace(&at.Namespace) != nil {
			continue
		}
		req.Items, places = append(req.Items, rest.Unreadable(protocol.CompleteItem{
			Namespace: at.Namespace, TaskID: at.TaskID, Owner: at.Owner, Incarnation: at.Incarnation, Attempt: at.Attempt,
		}, err)), append(places, i)
	}
	if len(req.Items) == 0 {
		return err
	}
	out, e := a.opt.Verbs.Complete(c.Ctx, req)
	if e != nil {
		return err
	}
	for i, item := range out.Items {
		if item.Err != nil && item.Err.Error() != err.Error() && protocol.ReasonOf(item.Err) == protocol.ReasonValidation {
			return protocol.Beneath("items."+strconv.Itoa(places[i]), item.Err)
		}
	}
	return err
}

func body(e *protocol.Error) *protocol.ErrorBody {
	return &protocol.ErrorBody{Reason: e.Reason, Message: e.Message, Details: e.Details, Fields: e.Fields}
}
