package workerconn

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// completeTasks records outcomes. It rejects single outcomes of tasks that were not leased to this worker, and values
// above the limit. It also returns an error for a rejected next poll.
func (p *Conn) completeTasks(ctx context.Context, in protocol.CompleteRequest) (protocol.CompleteBatchResponse, error) {
	out := protocol.CompleteBatchResponse{Items: make([]protocol.CompleteResponse, len(in.Items))}
	req := protocol.CompleteRequest{Items: make([]protocol.CompleteItem, 0, len(in.Items))}
	places := make([]int, 0, len(in.Items)) // index in in.Items of each item in req
	process := p.process()
	for i := range in.Items {
		item := in.Items[i]
		item.Namespace, item.Incarnation = p.Namespace, process
		err := p.checkOwner(item.Owner)
		if err == nil {
			err = checkSize(&item)
		}
		if err != nil {
			out.Items[i] = protocol.Rejected(item.TaskID, err)
			continue
		}
		req.Items, places = append(req.Items, item), append(places, i)
	}
	if len(req.Items) == 0 { // a response without a next poll makes the worker send one
		return out, nil
	}
	var refused error
	// A worker that has not registered on this connection has not listed its running tasks yet.
	unregistered := in.Next != nil && !p.isRegistered()
	if in.Next != nil && !unregistered && p.polls.Err() == nil {
		var next protocol.PollRequest
		if next, refused = p.request(ctx, *in.Next); refused == nil {
			req.Next = &next
		} else if protocol.ReasonOf(refused) == protocol.ReasonStaleRegistration {
			return out, refused
		}
	}
	a, err := p.registry.verbs.Complete(ctx, req)
	if err != nil {
		return out, err
	}
	switch out.Next = a.Next; {
	case refused != nil:
		out.Next = protocol.RefusedNext(refusal(refused))
	case unregistered:
		out.Next = &protocol.PollResponse{Status: protocol.PollEmpty, Undo: func() {}}
	}
	for i, r := range a.Items {
		if r.Error != nil {
			p.registry.stale.Add(1)
		}
		if r.Err != nil {
			r.Err = refusal(r.Err)
		}
		out.Items[places[i]] = r
	}
	return out, nil
}

// checkSize rejects values above the size limit. The app checks the values of an eager workflow task itself. Commands
// of a workflow task that are too large are passed on as malformed, so that the task fails with this reason.
func checkSize(item *protocol.CompleteItem) error {
	tooLarge := func(field string, n int) error {
		if n <= payload.MaxBytes {
			return nil
		}
		return protocol.Refuse(
			protocol.ReasonPayloadTooLarge, "%s of %d bytes: one value may have %d", field, n, payload.MaxBytes,
		)
	}
	err := tooLarge("result", len(item.Result.Blob))
	if err == nil && item.Failure != nil {
		err = tooLarge("failure.details", len(item.Failure.Details))
	}
	for i := range item.Commands {
		if cmd := &item.Commands[i]; err == nil {
			err = tooLarge(
				string(cmd.Type), max(len(cmd.Arguments.Blob), len(cmd.Result.Blob), len(cmd.Entries.Blob)),
			)
		}
	}
	if err != nil && item.Kind == protocol.KindWorkflow && item.Failure == nil && item.Returned == "" {
		item.Malformed, err = err, nil
	}
	return err
}
