package broker

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// History contains the outcome of an update as an event, and the response is made from history alone. So a caller can
// wait at any app, can repeat the request after its connection broke, and can follow the workflow through runs that
// continue as new.

// These are the default and the maximum time that a caller waits for the outcome of an update.
const (
	defaultUpdateWait = 30 * time.Second
	maxUpdateWait     = 60 * time.Second
)

// Update sends an update to the current run of a workflow and waits for the requested stage. If the wait times out,
// Update returns the current stage without an error, and the update continues. If the run closes first, the update
// fails.
func (b *Broker) Update(ctx context.Context, in protocol.UpdateRequest) (protocol.UpdateResponse, error) {
	if err := protocol.CheckLimits(in); err != nil {
		return protocol.UpdateResponse{}, err
	}
	value, err := Arguments("input", in.Input)
	if err != nil {
		return protocol.UpdateResponse{}, err
	}
	size := len(value) + in.Headers.Size()
	if err := b.delayLargePayload(ctx, transaction.NamespaceOrDefault(in.Namespace), size); err != nil {
		return protocol.UpdateResponse{}, err
	}
	r, err := b.acceptUpdate(ctx, in, value, nil)
	if err != nil {
		return protocol.UpdateResponse{}, err
	}
	return b.awaitAccepted(ctx, in, r)
}

// awaitAccepted waits until an update that was accepted with the receipt r has reached the requested stage.
func (b *Broker) awaitAccepted(
	ctx context.Context, in protocol.UpdateRequest, r protocol.CommandReceipt,
) (protocol.UpdateResponse, error) {
	in.WaitFor = cmp.Or(in.WaitFor, protocol.WaitAccepted)
	wait := defaultUpdateWait
	if in.WaitTimeout != nil {
		wait = min(secs(min(*in.WaitTimeout, 3600)), maxUpdateWait)
	}
	f := followedUpdate{id: r.UpdateID, run: r.RunID, answer: protocol.UpdateResponse{
		Outcome: r.Outcome, WorkflowID: r.WorkflowID, RunID: r.RunID, WorkflowType: r.WorkflowType, UpdateID: r.UpdateID,
		UpdateName:   in.UpdateName,
		UpdateStatus: "accepted", CommandID: r.CommandID, CommandStatus: r.Status, WaitFor: in.WaitFor,
		WaitTimeout: int64(wait / time.Second),
		Retained:    r.Retained,
	}}
	// Follow the update from the event that accepted it, which its ID names, and not from the beginning of a history
	// that may be long.
	f.after = acceptedAt(r.UpdateID) - 1
	return b.awaitUpdate(ctx, f, in.WaitFor == protocol.WaitCompleted, wait)
}

// acceptedAt returns the number of the event that accepted an update; the update's ID ends with it. For an ID of
// another form it returns 0, so that the search begins at the first event and finds nothing.
func acceptedAt(update string) int64 {
	seq, err := strconv.ParseInt(update[strings.LastIndexByte(update, 'u')+1:], 10, 64)
	if err != nil {
		return 1
	}
	return seq
}

// followedUpdate is an update for which a caller waits: the position in its history, and its known state.
type followedUpdate struct {
	id, run string
	after   int64
	done    bool
	answer  protocol.UpdateResponse
}

// awaitUpdate reads the state of an update. With wait it continues until the update has completed, through runs that
// continue as new.
func (b *Broker) awaitUpdate(
	ctx context.Context, f followedUpdate, wait bool, most time.Duration,
) (protocol.UpdateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		next, err := b.followRun(ctx, &f, wait)
		switch {
		// After the timeout the last read may have failed because of it; return the state that was read before.
		case err != nil && ctx.Err() == nil:
			return f.answer, err
		case f.done || next == "":
			f.answer.WaitTimedOut = wait && !f.done
			return f.answer, nil
		}
		// The update moved to the next run of the chain, so continue to wait there.
		f.run, f.after = next, 0
		f.answer.RunID = next
	}
}

// followRun reads one run until the update has completed, the time is up, or the run has continued as next.
func (b *Broker) followRun(ctx context.Context, f *followedUpdate, wait bool) (next string, err error) {
	// Subscribe before reading: otherwise an event in between would be missed.
	changed, round, stop := b.view.RunChanges(f.run)
	defer stop()
	for {
		var events []history.Event
		err := b.store.View(ctx, func(r store.Reader) (err error) {
			events, err = r.Events(ctx, f.run, f.after, 0, transaction.MaxPage, transaction.MaxPageSize)
			return err
		})
		if err != nil {
			return "", err
		}
		for _, e := range events {
			f.after = e.Seq
			if next := f.apply(e); next != "" || f.done {
				return next, nil
			}
		}
		if len(events) == transaction.MaxPage {
			continue
		}
		if !wait {
			return "", nil
		}
		select {
		case <-changed:
		case <-round:
		// The app drains: it returns the update's state as read last, and the caller repeats the request at another app.
		case <-b.drained:
			return "", nil
		case <-ctx.Done():
			return "", nil
		}
	}
}

// apply applies one event to the state of the update; next is the run to which the update moved, if it did.
func (f *followedUpdate) apply(e history.Event) (next string) {
	a := &f.answer
	switch d := e.Data.(type) {
	case *history.UpdateAccepted:
		if d.UpdateID == f.id && a.AcceptedAt.IsZero() {
			a.AcceptedAt = e.At
		}
	case *history.UpdateApplied:
		if d.UpdateID == f.id {
			a.AppliedAt, a.Sequence = e.At, &d.Sequence
		}
	case *history.UpdateCompleted:
		if d.UpdateID != f.id {
			return ""
		}
		f.done, a.ClosedAt = true, e.At
		if d.Failed {
			a.Outcome, a.UpdateStatus = "update_failed", "failed"
			a.FailureID, a.FailureMessage, a.Failure = protocol.OrNil(d.ID), &d.Message, &d.Failure
			return ""
		}
		a.Outcome, a.UpdateStatus = "update_completed", "completed"
		if d.Result != "" {
			a.ResultEnvelope, a.Result = view.Envelope(d.Result)
		}
	case *history.WorkflowContinuedAsNew:
		return d.NewRunID
	case *history.WorkflowTerminated:
		return d.NewRunID // by a reset
	}
	return ""
}
