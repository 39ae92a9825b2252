package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// AttemptStatus says what a heartbeat of this attempt would be told, without renewing its lease or moving its heartbeat timeout. It only reads.
func (b *Broker) AttemptStatus(ctx context.Context, in protocol.HeartbeatRequest) (protocol.AttemptStatus, error) {
	s := protocol.AttemptStatus{
		HeartbeatAnswer: protocol.HeartbeatAnswer{TaskID: in.TaskID, AttemptID: in.AttemptID, Owner: in.Owner}, ExecutionID: in.TaskID,
		ActivityStatus: "closed", AttemptState: "closed", TaskStatus: "closed",
	}
	id, seq, ok := engine.ParseStepID(in.TaskID)
	if !ok {
		return s, noTask(in.TaskID)
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return s, err
	}
	var run *engine.Run
	err = b.store.View(ctx, func(r store.Reader) (err error) {
		run, err = r.Run(ctx, id)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && run.Namespace != namespace(in.Namespace) {
		return s, noTask(in.TaskID)
	}
	if err != nil {
		return s, err
	}
	return attemptStatus(s, run, seq, in, now)
}

// attemptStatus asks the engine what it would say to a heartbeat, and keeps none of it.
func attemptStatus(s protocol.AttemptStatus, run *engine.Run, seq int64, in protocol.HeartbeatRequest, now time.Time) (protocol.AttemptStatus, error) {
	s.WorkflowID, s.RunID = run.WorkflowID, run.ID
	s.RunStatus, _, _ = protocol.PublicRun(run.Status, run.LeasedEver, run.Task != nil)
	a, open := run.Activities.Get(seq)
	if open && run.Status.Open() {
		s.ActivityStatus, s.TaskStatus, s.AttemptNumber = string(a.State), string(a.State), &a.Attempt
	}
	delivery, ok := deliveryOf(in.TaskID, in.AttemptID)
	err := error(protocol.Refuse(protocol.ReasonStaleAttempt, "%q is no attempt of task %s", in.AttemptID, in.TaskID))
	if ok {
		_, err = engine.DecideRun(run, engine.World{}, engine.HeartbeatActivity{
			Seq: seq, Holder: engine.Holder{Owner: in.Owner, Delivery: delivery}, Epoch: in.Epoch,
		}, now)
	}
	if err != nil {
		s.HeartbeatAnswer, err = over(s.HeartbeatAnswer, err)
		return s, err
	}
	s.AttemptState, s.CanContinue, s.CancelRequested = "running", !a.Cancel, a.Cancel
	s.LeaseExpiresAt, s.LastHeartbeatAt = a.Until, a.HeartbeatAt
	return s, nil
}
