package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Renewals are the most frequent write of a busy fleet. Still they cannot be answered from memory: after a crash of the
// app, a worker would rely on a lease that was not stored, while another worker begins the same task. So each response
// follows a commit.

// HeartbeatTask renews the lease of one attempt and returns whether the worker should continue. The renewal is stored
// before HeartbeatTask returns. For an attempt that has ended, the response says so; an unknown attempt ID, and a task
// that another worker has leased, are errors.
func (b *Broker) HeartbeatTask(ctx context.Context, in protocol.HeartbeatRequest) (protocol.HeartbeatResponse, error) {
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	a := protocol.HeartbeatResponse{TaskID: in.TaskID, AttemptID: in.AttemptID, Attempt: in.Attempt, Owner: in.Owner}
	if in.Kind == protocol.KindWorkflow {
		return b.heartbeatWorkflow(ctx, in, a)
	}
	run, seq, ok := engine.ParseStepID(in.TaskID)
	if !ok {
		return a, transaction.TaskNotFound(in.TaskID)
	}
	scope := b.visibilityOf(ctx, in.Namespace, in.Kind, in.TaskID, in.Owner)
	delivery, ok := deliveryOf(in.TaskID, in.AttemptID)
	if !ok {
		return stopResponse(
			a,
			scope.hideDetails(protocol.Refuse(
				protocol.ReasonStaleAttempt, "%q is not an attempt of task %s", in.AttemptID, in.TaskID,
			)),
		)
	}
	beat := engine.HeartbeatActivity{
		Seq: seq, Holder: engine.Holder{Owner: in.Owner, Delivery: delivery}, Epoch: in.Epoch, Beat: in.Beat,
		Progress: in.Progress,
		Rebuild:  in.Rebuild.Cleaned(),
	}
	needs := store.Keys{Runs: []string{run}, Activities: []int64{seq}}
	type renewed struct {
		act     engine.Activity
		sess    *engine.Session
		by      engine.Lease
		refused error // set if this heartbeat ended the attempt
	}
	beaten, err := scope.guard(transaction.UpdateRun(in.Namespace, run, needs, beat))
	if err != nil {
		return a, err
	}
	beaten.Recall = true
	// The result of the step does not contain the session after the heartbeat, so take the session from the decision.
	decideStep := beaten.Decide
	beaten.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
		w, err := decideStep(rows, now)
		if err != nil {
			return w, err
		}
		d := w.Runs[0]
		r := renewed{by: w.Answer.(transaction.Outcome).By, refused: d.Answer.Refused}
		r.act, _ = d.Next.Activities.Get(seq)
		if r.act.SessionID != "" {
			r.sess = rows.Session(engine.SessionKey{Namespace: in.Namespace, ID: r.act.SessionID})
			for i := range d.Sessions {
				r.sess = &d.Sessions[i].Session
			}
		}
		w.Answer = r
		return w, nil
	}
	r, err := transaction.Commit[renewed](ctx, b.store, beaten)
	if err == nil {
		b.workers.RecordHolderHeartbeat(ctx, engine.WorkerKey{Namespace: in.Namespace, ID: in.Owner}, r.by.Incarnation)
		err = r.refused
	}
	if err != nil {
		return stopResponse(a, scope.hideDetails(err))
	}
	// Renew the lease also of an attempt that was asked to stop: its code may need time to clean up, and no other
	// attempt may begin meanwhile.
	a.Renewed, a.CanContinue, a.LeaseExpiresAt, a.LastHeartbeatAt = true, !r.act.Cancel, r.act.Until, r.act.HeartbeatAt
	a.CancelRequested = r.act.Cancel
	// The heartbeat also extends the session's lease, by which the owner decides whether it may start more tasks in the
	// session.
	if r.sess != nil {
		a.Session = affinity(r.sess, r.act.Queue, false)
	}
	return a, nil
}

// heartbeatWorkflow renews the lease of a workflow task, which has neither progress details nor a session.
func (b *Broker) heartbeatWorkflow(
	ctx context.Context, in protocol.HeartbeatRequest, a protocol.HeartbeatResponse,
) (protocol.HeartbeatResponse, error) {
	run, n, ok := engine.ParseTaskID(in.TaskID)
	if !ok {
		return a, transaction.TaskNotFound(in.TaskID)
	}
	scope := b.visibilityOf(ctx, in.Namespace, in.Kind, in.TaskID, in.Owner)
	c, err := scope.guard(transaction.UpdateRun(in.Namespace, run, store.Keys{Runs: []string{run}}, engine.HeartbeatTask{
		Number: n, Holder: engine.Holder{Owner: in.Owner, Delivery: in.Attempt},
	}))
	if err != nil {
		return a, err
	}
	o, err := transaction.Commit[transaction.Outcome](ctx, b.store, c)
	if err != nil {
		return a, scope.hideDetails(err)
	}
	b.workers.RecordHolderHeartbeat(ctx, engine.WorkerKey{Namespace: in.Namespace, ID: in.Owner}, o.By.Incarnation)
	a.Renewed, a.CanContinue, a.LeaseExpiresAt, a.RunStatus = true, true, o.Run.Task.Until, "running"
	return a, nil
}

// stopResponse converts errors that mean "stop" into a heartbeat response that says so.
func stopResponse(a protocol.HeartbeatResponse, err error) (protocol.HeartbeatResponse, error) {
	var e *protocol.Error
	if !errors.As(err, &e) {
		return a, err
	}
	switch e.Reason {
	// These errors are mistakes of the caller. All other refusals report something that the caller could not know, so
	// they are part of a response.
	case protocol.ReasonTaskNotFound, protocol.ReasonLeaseOwnerMismatch:
		return a, err
	}
	reason := string(e.Reason)
	a.Reason = &reason
	a.CancelRequested, _ = e.Details["cancel_requested"].(bool)
	if closed, ok := e.Details["run_closed_reason"].(string); ok {
		a.RunClosedReason = &closed
	}
	if at, ok := e.Details["run_closed_at"].(history.Time); ok {
		a.RunClosedAt = at
	}
	return a, nil
}

// renewLease renews one lease of a worker's heartbeat; the response contains its error.
func (b *Broker) renewLease(ctx context.Context, in protocol.HeartbeatRequest) protocol.HeartbeatResponse {
	if in.Malformed != nil { // this does not end an attempt: the lease is unchanged
		reason := string(protocol.ReasonOf(in.Malformed))
		return protocol.HeartbeatResponse{
			TaskID: in.TaskID, AttemptID: in.AttemptID, Attempt: in.Attempt, Owner: in.Owner, CanContinue: true, Reason: &reason,
		}
	}
	a, err := b.HeartbeatTask(ctx, in)
	if err != nil {
		reason := string(protocol.ReasonOf(err))
		if reason == "" {
			// The store is unavailable. This does not end the attempt: its worker continues until the lease that it has
			// expires.
			reason = string(protocol.ReasonBackendUnavailable)
			a.CanContinue = true
		}
		a.Reason = &reason
	}
	return a
}
