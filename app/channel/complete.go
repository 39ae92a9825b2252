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
	ctx context.Context, p *worker, in protocol.ChannelComplete,
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
		item, err := itemOf(o)
		if err != nil {
			if !many {
				return out, err
			}
			out.Items[i] = protocol.Rejected(o.ID, err).Receipt(o.ID)
			continue
		}
		req.Items, places = append(req.Items, item), append(places, i)
	}
	if len(req.Items) == 0 {
		// All were refused above: nothing reaches the app, and an empty answer tells the worker to poll.
		return out, nil
	}
	if in.Next != nil {
		next := pollRequest(*in.Next)
		req.Next = &next
	}
	a, err := p.Complete(ctx, req)
	if err != nil {
		return out, err
	}
	if a.Next != nil {
		next := c.handOver(ctx, *a.Next, in.Next.Max > 0)
		out.Next = &next
	}
	for i, r := range a.Items {
		out.Items[places[i]] = r.Receipt(req.Items[i].TaskID)
	}
	if !many && a.Items[0].Err != nil {
		return out, a.Items[0].Err
	}
	return out, nil
}

// itemOf is an outcome in the app's words.
func itemOf(o protocol.JobOutcome) (protocol.CompleteItem, error) {
	g, err := taskToken(o.JobRef)
	if err != nil {
		return protocol.CompleteItem{}, err
	}
	return o.Item(g)
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

// unreadCompletion looks through a completion that cannot be read, as the HTTP routes do: one of a workflow job that
// asks for what is not offered takes its run out of everybody's hands, and is what the call is refused for. Other jobs
// of the call stay with their worker.
func (c *Channel) unreadCompletion(ctx context.Context, raw json.RawMessage, why error) error {
	p, err := caller(ctx)
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
		if item, ok := outline(raw, protocol.Refuse(protocol.ReasonMalformedPayload, "%s", why.Error())); ok {
			req.Items, places = append(req.Items, item), append(places, i)
		}
	}
	if len(req.Items) == 0 {
		return why
	}
	a, err := p.Complete(ctx, req)
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
func outline(raw json.RawMessage, why error) (protocol.CompleteItem, bool) {
	var o struct {
		protocol.JobRef
		Status   protocol.JobStatus `json:"status"`
		Returned string             `json:"returned"`
		Response json.RawMessage    `json:"response"`
	}
	if json.Unmarshal(raw, &o) != nil || o.Status != protocol.JobOK || o.Returned != "" {
		return protocol.CompleteItem{}, false
	}
	g, err := taskToken(o.JobRef)
	rest, ok := protocol.OutlineOf(o.Response)
	if err != nil || !ok || g.Kind != protocol.KindWorkflow {
		return protocol.CompleteItem{}, false
	}
	return rest.Unreadable(protocol.CompleteItem{TaskID: o.ID, Owner: g.Owner, Attempt: g.Attempt()}, why), true
}

// returnJob hands a job back.
func (c *Channel) returnJob(ctx context.Context, p *worker, in protocol.JobReturn) (*protocol.JobReceipt, error) {
	if in.Reason == "" {
		in.Reason = "returned"
	}
	_, err := c.completeJob(
		ctx, p, protocol.ChannelComplete{JobOutcome: protocol.JobOutcome{JobRef: in.JobRef, Returned: in.Reason}},
	)
	return nil, err
}
