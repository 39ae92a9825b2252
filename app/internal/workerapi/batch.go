package workerapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// For small tasks, round trips dominate the time of a worker, so batches exist. Each outcome of a batch is checked
// separately, since a worker reports outcomes of many runs, and an invalid outcome must not affect other runs.

// pollTasks polls for many tasks of several kinds in one round trip. The outcome is a member of the response, always
// with status 200.
func pollTasks(a *API, c *call) (response, error) {
	var in protocol.PollRequest
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	out, err := a.poll(c, &in)
	if err != nil {
		return response{}, pollRefusal(c, err)
	}
	return response{http.StatusOK, out}, nil
}

// completeTasks records many outcomes, each on its own, and may contain the next poll. An item that cannot be decoded
// gets an error in its place, and a rejected next poll gets an error in next: neither affects the other outcomes.
func completeTasks(a *API, c *call) (response, error) {
	in, refused, err := readOutcomes(c)
	if err != nil {
		return response{}, err
	}
	for i := range in.Items {
		item := &in.Items[i]
		if err := c.namespace(&item.Namespace); err != nil && item.Malformed == nil {
			*item = protocol.CompleteItem{
				Namespace: c.NS, Kind: item.Kind, TaskID: item.TaskID, Owner: item.Owner, Attempt: item.Attempt,
				AttemptID: item.AttemptID, Malformed: err,
			}
		}
		item.Namespace = c.NS
		item.SetKind()
	}
	if in.Next != nil {
		if refused = a.prepare(c, in.Next); refused != nil {
			in.Next = nil
		} else {
			place, err := a.reservePoll(c, in.Next, nil) // a canceled poll would lose the response to the outcomes
			if err != nil {                              // the outcomes are recorded, and ready tasks can be leased
				c.refused, in.Next.Timeout = nil, new(int64(0))
			}
			defer place.Release()
		}
	}
	out, err := a.opt.Verbs.Complete(c.Ctx, in)
	if out.Next != nil && len(out.Next.Tasks) > 0 {
		c.undelivered = out.Next.Undo
	}
	if refused != nil {
		out.Next = protocol.RefusedNext(refused)
	}
	for i := range out.Items {
		if item := &out.Items[i]; item.Err != nil {
			item.Error = protocol.BodyOf(httpjson.Refusal(store.Refusal(item.Err)))
			item.Uncertain()
		}
	}
	return response{http.StatusOK, out}, err
}

// readOutcomes decodes a request with outcomes. refused is the reason why its next poll could not be decoded.
func readOutcomes(c *call) (in protocol.CompleteRequest, refused, err error) {
	if err = c.Need(&in); err == nil {
		return in, nil, nil
	}
	raw, _ := c.Body() // cannot fail: Need has read the body
	in = protocol.CompleteRequest{}
	others, why := httpjson.Bundle(raw, err, httpjson.List{
		Name: "items", Most: protocol.MaxItems, Add: httpjson.AppendTo(&in.Items, protocol.UnreadableItem),
	})
	if why != nil || len(in.Items) == 0 {
		return in, nil, err
	}
	if next, has := others["next"]; has {
		if refused = httpjson.Decode(next, &in.Next); refused != nil {
			in.Next = nil
		}
	}
	return in, refused, nil
}
