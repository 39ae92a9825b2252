package broker

import (
	"context"
	"errors"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The response to a report may be lost, and its worker repeats it, at any app. The app recognizes a repetition by its
// hash and attempt, and returns the first response.

// firstResponse returns the first response to an outcome that was accepted before. It also returns the event that ended
// the activity, if it had to read that event.
func (b *Broker) firstResponse(
	ctx context.Context, in protocol.CompleteItem, hash string, refusal error, budget *dispatch.Budget,
) (_ protocol.CompleteResponse, ended history.Event, repeated bool) {
	var e *protocol.Error
	if !errors.As(refusal, &e) {
		return protocol.CompleteResponse{}, ended, false
	}
	reason := string(protocol.ReasonAlreadyCompleted)
	a := protocol.CompleteResponse{
		TaskID: in.TaskID, Attempt: in.Attempt, AttemptID: in.AttemptID, Outcome: "completed", Reason: &reason,
	}
	if in.Kind == protocol.KindWorkflow {
		return repeatedWorkflowOutcome(a, e), ended, e.Reason == protocol.ReasonAlreadyCompleted
	}
	switch e.Reason {
	// Each of these reasons may be a consequence of the first report, which ended the attempt or closed the run.
	case protocol.ReasonStaleAttempt, protocol.ReasonRunClosed, protocol.ReasonRunCancelled, protocol.ReasonRunTerminated:
	default:
		return a, ended, false
	}
	run, seq, _ := engine.ParseStepID(in.TaskID)
	pending := in.Failure != nil && in.Failure.Type == protocol.TypePending
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		if pending {
			delivery, _ := deliveryOf(in.TaskID, in.AttemptID)
			ended, err = r.AttemptEnd(ctx, run, seq, delivery)
		} else {
			ended, err = r.Completion(ctx, run, seq)
		}
		return err
	})
	switch {
	case hash == "" || errors.Is(err, store.ErrNotFound):
		return a, ended, false
	case err != nil: // the first report may have been accepted, so the response has no reason
		a.Reason = nil
		return b.refusedResponse(a, err), ended, true
	}
	a.RunID = run
	if pending { // the outcome arrived before the worker reported that it is pending
		_, by := history.EndedAttempt(ended.Data)
		a.Outcome = "pending"
		return a, ended, by.Worker == in.Owner
	}
	// The hash alone is not sufficient: two attempts may report the same outcome, and only one was accepted.
	same := func(attempt, worker, body string) bool {
		return attempt == in.AttemptID && worker == in.Owner && sameOutcome(&in, body, hash)
	}
	switch d := ended.Data.(type) {
	case *history.ActivityCompleted:
		if !same(d.AttemptID, d.Worker, d.BodyHash) {
			return a, ended, false
		}
		if a.Eager, err = b.acceptedBefore(ctx, in, ended, d.EagerHash, budget); err != nil {
			// it is unknown whether the report was accepted, so the worker must retry
			return b.refusedResponse(a, err), ended, true
		}
		return a, ended, true
	case *history.ActivityFailed:
		a.Outcome = "failed"
		return a, ended, same(d.AttemptID, d.Worker, d.BodyHash)
	case *history.ActivityTimedOut: // a timeout that the worker reported
		a.Outcome = "failed"
		return a, ended, same(d.AttemptID, d.Worker, d.BodyHash)
	}
	return a, ended, false
}

// repeatedWorkflowOutcome returns the first response to the outcome of a workflow task, which the details of the
// refusal contain.
func repeatedWorkflowOutcome(a protocol.CompleteResponse, refusal *protocol.Error) protocol.CompleteResponse {
	a.RunID, _ = refusal.Details["run_id"].(string)
	a.CreatedTaskIDs, _ = refusal.Details["created_task_ids"].([]string)
	a.Outcome, _ = refusal.Details["outcome"].(string)
	a.RunStatus, _ = refusal.Details["run_status"].(string)
	next, _ := refusal.Details["next_task_id"].(string)
	a.NextTaskID = protocol.OrNil(next)
	return a
}
