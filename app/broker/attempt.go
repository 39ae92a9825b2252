package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Reading the status of an attempt must not renew its lease. The app therefore evaluates the engine's rule for
// heartbeats and discards the decision, so that the status and a heartbeat always agree.

// AttemptStatus returns the response that a heartbeat of this attempt would get, without renewing the lease or
// resetting the heartbeat timeout.
func (b *Broker) AttemptStatus(ctx context.Context, in protocol.HeartbeatRequest) (protocol.AttemptStatus, error) {
	s := protocol.AttemptStatus{
		HeartbeatResponse: protocol.HeartbeatResponse{TaskID: in.TaskID, AttemptID: in.AttemptID, Owner: in.Owner},
		ExecutionID:       in.TaskID,
		ActivityStatus:    "closed", AttemptState: "closed", TaskStatus: "closed",
	}
	id, seq, ok := engine.ParseStepID(in.TaskID)
	if !ok {
		return s, transaction.TaskNotFound(in.TaskID)
	}
	scope := b.visibilityOf(ctx, transaction.NamespaceOrDefault(in.Namespace), protocol.KindActivity, in.TaskID, in.Owner)
	if err := scope.checkOwner(); err != nil {
		return s, err
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return s, err
	}
	var run *engine.Run
	var world engine.Environment
	err = b.store.View(ctx, func(r store.Reader) (err error) {
		if run, err = r.Step(ctx, id, seq); err != nil {
			return err
		}
		// An attempt in a session is valid only under the session's current epoch.
		if a, ok := run.Activities.Get(seq); ok && a.SessionID != "" {
			sess, err := r.Session(ctx, engine.SessionKey{Namespace: run.Namespace, ID: a.SessionID})
			if err != nil {
				return ignore(err, store.ErrNotFound)
			}
			world.Session = func(string) *engine.Session { return &sess }
		}
		return nil
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && run.Namespace != transaction.NamespaceOrDefault(in.Namespace) {
		return s, transaction.TaskNotFound(in.TaskID)
	}
	if err != nil {
		return s, err
	}
	if err := scope.checkRun(run); err != nil {
		return s, err
	}
	return attemptStatus(s, run, world, seq, in, now, scope.hideDetails)
}

// RecordLogs stores log lines of running attempts.
func (b *Broker) RecordLogs(ctx context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error) {
	return b.logs.Record(ctx, in)
}

// attemptStatus evaluates the engine's rule for heartbeats and discards the decision.
func attemptStatus(
	s protocol.AttemptStatus, run *engine.Run, world engine.Environment, seq int64, in protocol.HeartbeatRequest,
	now time.Time, refused func(error) error,
) (protocol.AttemptStatus, error) {
	s.WorkflowID, s.RunID = run.WorkflowID, run.ID
	s.RunStatus, _, _ = run.Public()
	a, open := run.Activities.Get(seq)
	if open {
		s.ActivityStatus, s.TaskStatus, s.AttemptNumber = string(a.State), string(a.State), &a.Attempt
	}
	delivery, ok := deliveryOf(in.TaskID, in.AttemptID)
	// An attempt ID of another task gets the same response as an attempt that has ended: in both cases the caller must
	// stop.
	err := error(protocol.Refuse(protocol.ReasonStaleAttempt, "%q is not an attempt of task %s", in.AttemptID, in.TaskID))
	if ok {
		var d engine.Decision
		if d, err = engine.DecideRun(run, world, engine.HeartbeatActivity{
			Seq: seq, Holder: engine.Holder{Owner: in.Owner, Delivery: delivery}, Epoch: in.Epoch,
		}, now); err == nil {
			err = d.Answer.Refused
		}
	}
	if err != nil {
		if s.HeartbeatResponse, err = stopResponse(s.HeartbeatResponse, refused(err)); err != nil {
			return protocol.AttemptStatus{}, err
		}
		return s, nil
	}
	s.AttemptState, s.CanContinue, s.CancelRequested = "running", !a.Cancel, a.Cancel
	s.LeaseExpiresAt, s.LastHeartbeatAt = a.Until, a.HeartbeatAt
	return s, nil
}
