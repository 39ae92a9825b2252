package channel

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// completeJob ends one job or many and may hand over the next.
func (c *Channel) completeJob(ctx context.Context, p *Peer, in protocol.ChannelComplete) (protocol.ChannelCompleteAnswer, error) {
	many := in.Items != nil
	outcomes := in.Items
	if !many {
		outcomes = []protocol.JobOutcome{in.JobOutcome}
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
			out.Items[i] = protocol.JobReceipt{ID: o.ID, Outcome: "rejected", Reason: string(protocol.ReasonOf(err)), Error: errorBody(err)}
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

func errorBody(err error) *protocol.ErrorBody {
	return &protocol.ErrorBody{Reason: protocol.ReasonOf(err), Message: err.Error()}
}

// item is an outcome in the app's words.
func (c *Channel) item(p *Peer, o protocol.JobOutcome) (protocol.CompleteItem, error) {
	g, err := grip(p, o.Token)
	if err != nil {
		return protocol.CompleteItem{}, err
	}
	if o.ID == "" {
		return protocol.CompleteItem{}, protocol.Invalid("jobId", "is missing")
	}
	item, err := o.Item(g)
	item.Namespace, item.Incarnation = p.Namespace, p.currentIncarnation()
	if err != nil || o.Response == nil {
		return item, err
	}
	return item, fits(o.Response)
}

// fits refuses values that are too large to be kept.
func fits(r *protocol.JobResponse) error {
	tooLarge := func(field string, n int) error {
		if n <= payload.MaxBytes {
			return nil
		}
		return protocol.Refuse(protocol.ReasonPayloadTooLarge, "%s of %d bytes: one value may have %d", field, n, payload.MaxBytes)
	}
	if err := tooLarge("result", max(len(r.Result.Blob), len(r.ResultEnvelope.Blob))); err != nil {
		return err
	}
	if r.Failure != nil {
		if err := tooLarge("failure.details", len(r.Failure.Details)); err != nil {
			return err
		}
	}
	for _, cmd := range r.Commands {
		if err := tooLarge(string(cmd.Type), max(len(cmd.Arguments.Blob), len(cmd.Result.Blob), len(cmd.Entries.Blob))); err != nil {
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
	_, err := c.completeJob(ctx, p, protocol.ChannelComplete{JobOutcome: protocol.JobOutcome{JobRef: in.JobRef, Returned: in.Reason}})
	return nil, err
}
