package channel

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/socketio"
)

// completeJob ends one job or many and may hand over the next.
func (c *Channel) completeJob(
	ctx context.Context, p *Peer, in protocol.ChannelComplete,
) (protocol.ChannelCompleteAnswer, error) {
	many := in.Items != nil
	outcomes := in.Items
	if !many {
		outcomes = []protocol.JobOutcome{in.JobOutcome}
	}
	if err := attach(ctx, outcomes, many); err != nil {
		return protocol.ChannelCompleteAnswer{}, err
	}
	out := protocol.ChannelCompleteAnswer{Many: many, Items: make([]protocol.JobReceipt, len(outcomes))}
	req := protocol.CompleteRequest{Items: make([]protocol.CompleteItem, 0, len(outcomes))}
	places := make([]int, 0, len(outcomes)) // of each item among the outcomes
	for i, o := range outcomes {
		item, err := c.item(p, o)
		if err != nil {
			if !many {
				return out, err
			}
			out.Items[i] = protocol.JobReceipt{
				ID: o.ID, Outcome: "rejected", Reason: string(protocol.ReasonOf(err)), Error: errorBody(err),
			}
			continue
		}
		req.Items, places = append(req.Items, item), append(places, i)
	}
	if in.Next != nil && p.polls.Err() == nil {
		next, err := c.pollRequest(ctx, p, *in.Next)
		if err != nil {
			return out, err
		}
		req.Next = &next
	}
	if len(req.Items) == 0 {
		// All were refused above: nothing reaches the app, and an empty answer tells the worker to poll.
		return out, nil
	}
	a, err := c.verbs.Complete(ctx, req)
	if err != nil {
		return out, err
	}
	if a.Next != nil {
		next := c.handOver(ctx, *a.Next, in.Next.Max > 0)
		out.Next = &next
	}
	for i, r := range a.Items {
		if r.Error != nil {
			c.counts.staleCompletions.Add(1)
		}
		out.Items[places[i]] = r.Receipt(req.Items[i].TaskID)
	}
	if !many && a.Items[0].Err != nil {
		return out, a.Items[0].Err
	}
	return out, nil
}

// attach makes bytes of what came as attachments in results, wherever in them it stood: as text it would be text for
// whoever reads the result.
func attach(ctx context.Context, outcomes []protocol.JobOutcome, many bool) error {
	args, ok := socketio.Attached(ctx)
	if !ok || len(args) == 0 {
		return nil
	}
	call, _ := args[0].(map[string]any)
	body, _ := call["payload"].(map[string]any)
	said := []any{body}
	if many {
		said, _ = body["items"].([]any)
	}
	for i := range outcomes {
		if i >= len(said) || outcomes[i].Response == nil || !outcomes[i].Response.Result.Plain() {
			continue
		}
		outcome, _ := said[i].(map[string]any)
		response, _ := outcome["response"].(map[string]any)
		p, err := payload.Encode(response["result"])
		if err != nil {
			return protocol.RefusePayload("result", err)
		}
		outcomes[i].Response.Result = protocol.Value{Payload: p}
	}
	return nil
}

func errorBody(err error) *protocol.ErrorBody {
	return &protocol.ErrorBody{Reason: protocol.ReasonOf(err), Message: err.Error()}
}

// item is an outcome in the app's words.
func (c *Channel) item(p *Peer, o protocol.JobOutcome) (protocol.CompleteItem, error) {
	g, err := taskToken(p, o.JobRef)
	if err != nil {
		return protocol.CompleteItem{}, err
	}
	item, err := o.Item(g)
	item.Namespace, item.Incarnation = p.Namespace, p.currentIncarnation()
	if err != nil || o.Response == nil {
		return item, err
	}
	if err = fits(o.Response); err != nil && item.Kind == protocol.KindWorkflow && item.Failure == nil &&
		item.Returned == "" {
		item.Malformed, err = err, nil // refused for that, unless the run would lose something besides
	}
	return item, err
}

// unreadCompletion looks through a completion that cannot be read, as the HTTP routes do: one of a workflow job that
// asks for what is not offered takes its run out of everybody's hands, and is what the call is refused for. Other jobs
// of the call stay with their worker.
func (c *Channel) unreadCompletion(ctx context.Context, raw json.RawMessage, why error) error {
	p, err := c.caller(ctx)
	if err != nil {
		return refusal(err)
	}
	var of struct {
		Items []json.RawMessage `json:"items"`
	}
	_ = json.Unmarshal(raw, &of) // without a list that can be read it is about one job
	many := of.Items != nil
	if !many {
		of.Items = []json.RawMessage{raw}
	}
	var req protocol.CompleteRequest
	var places []int // of each of them in the call
	for i, raw := range of.Items {
		if item, ok := outline(p, raw, protocol.Refuse(protocol.ReasonMalformedPayload, "%s", why.Error())); ok {
			req.Items, places = append(req.Items, item), append(places, i)
		}
	}
	if len(req.Items) == 0 {
		return why
	}
	a, err := c.verbs.Complete(p.calls(ctx), req)
	if err != nil {
		return why
	}
	for i, r := range a.Items {
		if err := r.Err; protocol.ReasonOf(err) == protocol.ReasonValidation {
			if many {
				err = protocol.Beneath("items."+strconv.Itoa(places[i]), err)
			}
			return refusal(err)
		}
	}
	return why
}

// outline is what can be made out of an outcome that cannot be read; false when nothing could be lost with it.
func outline(p *Peer, raw json.RawMessage, why error) (protocol.CompleteItem, bool) {
	var o struct {
		protocol.JobRef
		Status   protocol.JobStatus `json:"status"`
		Returned string             `json:"returned"`
		Response json.RawMessage    `json:"response"`
	}
	if json.Unmarshal(raw, &o) != nil || o.Status != protocol.JobOK || o.Returned != "" {
		return protocol.CompleteItem{}, false
	}
	g, err := taskToken(p, o.JobRef)
	rest, ok := protocol.OutlineOf(o.Response)
	if err != nil || !ok || g.Kind != protocol.KindWorkflow {
		return protocol.CompleteItem{}, false
	}
	return rest.Unreadable(protocol.CompleteItem{
		Namespace: p.Namespace, TaskID: o.ID, Owner: g.Owner, Incarnation: p.currentIncarnation(), Attempt: g.Attempt(),
	}, why), true
}

// fits refuses values that are too large to be kept. Of those in a turn the app sees to it by itself.
func fits(r *protocol.JobResponse) error {
	tooLarge := func(field string, n int) error {
		if n <= payload.MaxBytes {
			return nil
		}
		return protocol.Refuse(
			protocol.ReasonPayloadTooLarge, "%s of %d bytes: one value may have %d", field, n, payload.MaxBytes,
		)
	}
	if err := tooLarge("result", max(len(r.Result.Payload.Blob), len(r.ResultEnvelope.Blob))); err != nil {
		return err
	}
	if r.Failure != nil {
		if err := tooLarge("failure.details", len(r.Failure.Details)); err != nil {
			return err
		}
	}
	for _, cmd := range r.Commands {
		if err := tooLarge(
			string(cmd.Type), max(len(cmd.Arguments.Blob), len(cmd.Result.Blob), len(cmd.Entries.Blob)),
		); err != nil {
			return err
		}
	}
	return nil
}

// returnJob hands a job back.
func (c *Channel) returnJob(ctx context.Context, p *Peer, in protocol.JobReturn) (*protocol.JobReceipt, error) {
	if in.Reason == "" {
		in.Reason = "returned"
	}
	_, err := c.completeJob(
		ctx, p, protocol.ChannelComplete{JobOutcome: protocol.JobOutcome{JobRef: in.JobRef, Returned: in.Reason}},
	)
	return nil, err
}
