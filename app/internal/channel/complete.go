package channel

import (
	"context"
	"encoding/json"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// completeJob records the outcome of one job or of many and may contain the next poll. With items, a rejected item gets
// an error in its place; a rejected next poll gets an error in next.
func (c *Channel) completeJob(
	ctx context.Context, p *worker, in protocol.ChannelComplete,
) (protocol.ChannelCompleteResponse, error) {
	many := in.Items != nil
	outcomes := in.Items
	if !many {
		outcomes = []protocol.JobOutcome{in.JobOutcome}
	}
	ctx, release := c.counted(ctx, p)
	defer release()
	attach(ctx, outcomes, many)
	out := protocol.ChannelCompleteResponse{Many: many, Items: make([]protocol.JobReceipt, len(outcomes))}
	req := protocol.CompleteRequest{Items: make([]protocol.CompleteItem, 0, len(outcomes))}
	places := make([]int, 0, len(outcomes)) // index of each item in the outcomes
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
		// All items were rejected before this point: the broker is not called, and the empty response lets the worker
		// poll.
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
	if in.NextMalformed != nil {
		a.Next = protocol.RefusedNext(in.NextMalformed)
	}
	if a.Next != nil {
		next := c.pollResponse(ctx, *a.Next, in.Next != nil && in.Next.Max > 0 || many && a.Next.Error != nil)
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

// itemOf converts an outcome of the channel to the broker's type.
func itemOf(o protocol.JobOutcome) (protocol.CompleteItem, error) {
	g, err := taskToken(o.JobRef)
	if err != nil {
		if o.Malformed != nil {
			err = o.Malformed
		}
		return protocol.CompleteItem{}, err
	}
	return o.Item(g)
}

// attach replaces the attachments in results, at any position, by bytes. A result with an attachment that cannot be
// encoded makes only its outcome malformed.
func attach(ctx context.Context, outcomes []protocol.JobOutcome, many bool) {
	args, ok := socketio.Attached(ctx)
	if !ok || len(args) == 0 {
		return
	}
	call, _ := args[0].(map[string]any)
	body, _ := call["payload"].(map[string]any)
	envelope := []any{body}
	if many {
		envelope, _ = body["items"].([]any)
	}
	for i := range outcomes {
		if i >= len(envelope) || outcomes[i].Response == nil || !outcomes[i].Response.Result.Plain() {
			continue
		}
		outcome, _ := envelope[i].(map[string]any)
		response, _ := outcome["response"].(map[string]any)
		p, err := payload.Encode(response["result"])
		if err != nil {
			outcomes[i].Malformed = protocol.RefusePayload("result", err)
			continue
		}
		outcomes[i].Response.Result = protocol.Value{Payload: p}
	}
}

// readCompletion decodes a completion item by item if it cannot be decoded as a whole. The other jobs of the call are
// not affected by a malformed one, nor by a malformed next poll.
func readCompletion(raw json.RawMessage, why error) (in protocol.ChannelComplete, err error) {
	others, err := httpjson.Bundle(raw, why, httpjson.List{
		Name: "items", Most: protocol.MaxItems,
		Add: func(raw json.RawMessage) { in.Items = append(in.Items, readOutcome(raw)) },
	})
	if err != nil {
		return in, err
	}
	if in.Items == nil {
		in.JobOutcome = readOutcome(raw)
	}
	if next, has := others["next"]; has {
		if in.NextMalformed = httpjson.Decode(next, &in.Next); in.NextMalformed != nil {
			in.Next = nil
		}
	}
	return in, nil
}

// readOutcome decodes one outcome. If that fails, it keeps the job's name and, for a workflow job, an outline of its
// commands, because an unsupported command quarantines the run in any form.
func readOutcome(raw json.RawMessage) (o protocol.JobOutcome) {
	err := json.Unmarshal(raw, &o)
	if err != nil {
		err = httpjson.DecodeError(raw, &o, err)
	} else {
		withoutNUL(&o)
		err = httpjson.WithoutNUL(raw, &o)
	}
	if err == nil {
		return o
	}
	o = protocol.JobOutcome{Malformed: err}
	var returned string
	var response json.RawMessage
	protocol.ReadMembers(raw, map[string]any{
		"jobId": &o.ID, "token": &o.Token, "status": &o.Status, "returned": &returned, "response": &response,
	})
	if outline, ok := protocol.OutlineOf(response); ok && o.Status == protocol.JobOK && returned == "" {
		o.Outline = &outline
	}
	return o
}

// returnJob returns a job to its queue.
func (c *Channel) returnJob(ctx context.Context, p *worker, in protocol.JobReturn) (*protocol.JobReceipt, error) {
	if in.Reason == "" {
		in.Reason = "returned"
	}
	_, err := c.completeJob(
		ctx, p, protocol.ChannelComplete{
			JobOutcome: protocol.JobOutcome{JobRef: in.JobRef, Returned: in.Reason, Began: in.Began},
		},
	)
	return nil, err
}
