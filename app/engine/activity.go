package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An activity has side effects, and its worker may die while it runs. The engine guarantees that the outcome is
// recorded once and that the activity is retried by its policy; it cannot guarantee that the code runs only once. So a
// report is accepted only for the current delivery, and every end of a delivery without a report allows the next one.

// scheduleActivity opens an activity. If the activity's session has ended or cannot be created, the activity fails in
// the same step: an open activity would wait forever for a session that no worker can acquire.
func (st *step) scheduleActivity(c protocol.Command, seq int64) {
	d := &history.ActivityScheduled{
		Sequence: seq, ExecutionID: StepID(st.ID, seq), ActivityType: c.ActivityType, Arguments: c.Arguments.Blob,
		PayloadCodec: codecOf(c.Arguments.Blob), Requirements: c.Requirements, Priority: st.Priority,
		FairnessKey: strings.ToLower(c.FairnessKey), FairnessWeight: c.FairnessWeight,
		Activity:     &history.ActivitySnapshot{Queue: c.Queue, RetryPolicy: c.RetryPolicy.Recorded()},
		StartToClose: int64(c.StartToClose), ScheduleToStart: int64(c.ScheduleToStart),
		ScheduleToClose: int64(c.ScheduleToClose), Heartbeat: int64(c.Heartbeat),
		MaxBlamed: c.MaxBlamedLosses, CancellationPolicy: c.CancellationPolicy, Parallel: c.Parallel,
		SessionID: c.SessionID,
	}
	if c.SessionDefinition != nil {
		d.SessionDefinition = c.SessionDefinition.Name
	}
	if d.ScheduleToClose > 0 {
		// No attempt outlasts them all, so a deadline that is shown to an attempt is one that holds.
		d.StartToClose = min(d.StartToClose, d.ScheduleToClose)
	}
	// Without a task queue, the activity uses the queue of its session, or else the queue of the run.
	if d.Activity.Queue == "" {
		d.Activity.Queue = st.Queue
		if c.WorkerSession != nil && c.WorkerSession.Queue != "" {
			d.Activity.Queue = c.WorkerSession.Queue
		}
	}
	if c.Priority != nil {
		d.Priority = *c.Priority
	}
	if c.WorkerSession != nil {
		d.SessionID, d.Session = c.WorkerSession.SessionID, raw(c.WorkerSession)
	}
	if d.SessionID == "" {
		st.emit(d)
		return
	}
	sess, refused := st.sessionFor(d.SessionID, d.Activity.Queue, c.WorkerSession)
	store := false
	if refused == nil {
		store, d.SessionWarning, refused = sess.define(c.SessionDefinition)
	}
	st.emit(d)
	st.usesSessions()
	// The activity is open at this point, and its failure is an event like any other, which the code can
	// handle. A refusal of the whole completion would be tried again and again with the same outcome.
	if refused != nil {
		a, _ := st.Activities.Get(seq)
		st.fail(a, history.Failure{
			Category: "session", Message: refused.Message, ExceptionType: string(refused.Reason), NonRetryable: true,
		}, "")
		return
	}
	// The worker that held the session was drained, and the release policy requires the loss of the session's state to
	// fail a task. This activity fails, and the session becomes free for the next one. Other activities that wait for
	// the session fail as well.
	if sess.Drained {
		sess.Drained = sess.Ready > 0
		st.storeSession(sess)
		a, _ := st.Activities.Get(seq)
		st.fail(a, stateDrained(&sess), "")
		return
	}
	sess.queued(d.Activity.Queue, st.now)
	sess.setAffinity(c.Affinity, c.FallbackAfter)
	st.storeSession(sess)
	if store {
		st.storeArguments(sess.ID, c.SessionDefinition.Arguments.Blob)
	}
}

// outcome returns the running attempt of the activity, for the event that ends it. An activity that was cancelled while
// it waited has no attempt and no worker.
func (a *Activity) outcome() history.Attempt {
	t := history.Attempt{Number: a.Attempt, Lost: a.Lost}
	if a.State == LeasedState {
		t.AttemptID, t.Worker, t.Release = AttemptID(a.RunID, a.Seq, a.Delivery), a.Owner, a.Lease.Release
		t.SessionEpoch, t.StartedAt, t.CodeVersion = a.Epoch, a.LeasedAt, a.CodeVersion
	}
	return t
}

// endActivity removes the activity from its session's counts, because it ends or is retried. by is true if its holder
// reported: this resets the session's idle timeout if the holder still owns the session under the same epoch and the
// lease is valid. An attempt of an earlier epoch counts among the stale attempts, since it still runs at a former
// holder.
func (st *step) endActivity(a Activity, by bool) {
	if a.SessionID == "" {
		return
	}
	s, ok := st.session(a.SessionID)
	if !ok {
		return
	}
	switch {
	case a.State == Ready:
		s.unready()
	// The attempt runs under the session's current epoch, so it counts towards the session's limit of running
	// activities.
	case a.State == LeasedState && a.Epoch == s.Epoch:
		s.Active = max(0, s.Active-1)
		if by && s.HeldBy(a.Owner, st.now.Time) {
			s.touch(st.now.Time)
		}
		// An operator moves the session, and this was the last activity in it.
		if e, ok := s.moved(st.now); ok {
			st.storeSession(s, e)
			return
		}
	case a.State == LeasedState && s.StaleAttempts[a.Epoch] > 0:
		s.staleAttemptEnded(a.Epoch)
	default:
		return
	}
	st.storeSession(s)
}

// unran undoes an attempt that never reached its worker. If this attempt was the first of the epoch, the next attempt
// becomes the first: only the first attempt of an epoch carries the flag that the worker must build the session's
// state.
func (st *step) unran(a Activity) {
	if s, ok := st.session(a.SessionID); ok && a.SessionID != "" && s.Epoch == a.Epoch && a.New {
		s.Fresh = true
		st.storeSession(s)
	}
}

// requeueInSession counts the activity, which is ready again, in its session. In a session that has ended it fails
// instead, since it would wait forever.
func (st *step) requeueInSession(a Activity) {
	s, ok := st.session(a.SessionID)
	switch {
	case !ok || a.SessionID == "":
	case s.Terminal:
		st.fail(a, sessionEndedFailure(&s), "")
	default:
		s.queued(a.Queue, st.now)
		st.storeSession(s)
	}
}

// holdsActivity checks a report about an attempt, in the order callers rely on: the activity exists, the run is
// open, the delivery is live, the reporter is its owner, the lease has not run out, the session's epoch is the
// one it ran under. The lease is judged by the store's clock: a worker whose own clock is slow may believe it
// still holds.
func (st *step) holdsActivity(seq int64, h Holder, epoch int64) (Activity, error) {
	id := func() string { return StepID(st.ID, seq) } // of refusals, which are rare
	// A number that no command has had was never a task, whatever the run is now.
	if seq > st.CommandSeq {
		return Activity{}, protocol.Refuse(protocol.ReasonTaskNotFound, "task %s does not exist", id())
	}
	a, ok := st.Activities.Get(seq)
	if !ok && !st.Status.Open() {
		err := runClosed(&st.Head)
		switch st.Status {
		case protocol.RunCancelled:
			err.Reason = protocol.ReasonRunCancelled
		case protocol.RunTerminated:
			err.Reason = protocol.ReasonRunTerminated
		}
		return Activity{}, err.With("cancel_requested", true)
	}
	// If the activity no longer exists, its workflow or a timeout ended it, so the refusal also asks the worker to
	// cancel.
	if !ok || a.State != LeasedState || a.Delivery != h.Delivery {
		return Activity{}, protocol.Refuse(
			protocol.ReasonStaleAttempt, "attempt %s has ended", AttemptID(st.ID, seq, h.Delivery),
		).With("can_continue", false).With("cancel_requested", !ok)
	}
	if a.Owner != h.Owner || h.Incarnation != "" && h.Incarnation != a.Incarnation {
		return Activity{}, protocol.Refuse(protocol.ReasonLeaseOwnerMismatch, "task %s is leased to %s", id(), a.Owner).
			With("lease_owner", a.Owner)
	}
	if !a.Until.After(st.now.Time) {
		return Activity{}, protocol.Refuse(protocol.ReasonStaleAttempt, "the lease of attempt %s ended at %s", AttemptID(
			st.ID, seq, h.Delivery,
		),
			a.Until.Format(time.RFC3339)).With("can_continue", false)
	}
	// The worker reports another epoch of the session than the epoch in which its attempt was leased.
	if epoch != 0 && epoch != a.Epoch {
		return Activity{}, protocol.Refuse(
			protocol.ReasonStaleSessionEpoch, "the attempt runs under epoch %d, not %d", a.Epoch, epoch,
		)
	}
	return a, nil
}

// superseded reports whether a workflow-scoped session got another epoch during the attempt. The result is then
// refused: the attempt used a state that the next activities will not see.
func (st *step) superseded(a Activity) bool {
	s, ok := st.session(a.SessionID)
	return a.SessionID != "" && ok && s.Origin == OriginWorkflow && s.Epoch != a.Epoch
}

// refuseSuperseded releases the task and refuses its late result in the same commit. A refusal alone would leave the
// task leased to a worker that has stopped it.
func (st *step) refuseSuperseded(a Activity) {
	s, _ := st.session(a.SessionID)
	st.release(a, "stale_session_epoch", false)
	st.d.Answer.Refused = protocol.Refuse(
		protocol.ReasonStaleSessionEpoch, "session %s went from epoch %d to %d", s.ID, a.Epoch, s.Epoch,
	).With("session_epoch", s.Epoch).With("can_continue", false)
}

// sessionLost reports whether the attempt runs in a session that was created by session options and whose holder lost
// it: the holder's lease expired, or another worker acquired the session. Session options limit how many activities run
// at once, and if this attempt continued, it would run in parallel with those of the next holder and exceed that limit.
// A session of soft affinity has no such limit, so its running attempts may finish.
func (st *step) sessionLost(a Activity) bool {
	s, ok := st.session(a.SessionID)
	return a.SessionID != "" && ok && s.Origin == OriginWorker && s.Fallback == 0 && !s.Terminal &&
		(s.Epoch != a.Epoch || !s.HeldBy(a.Owner, st.now.Time))
}

// releaseLostAttempt ends the attempt at its heartbeat and releases the task for the next owner of the session. The
// worker is alive, so nothing counts as lost with it.
func (st *step) releaseLostAttempt(a Activity) {
	s, _ := st.session(a.SessionID)
	st.release(a, ReasonSessionLost, false)
	st.d.Answer.Refused = protocol.Refuse(
		protocol.ReasonStaleAttempt, "worker %s lost session %s, in which the attempt ran", a.Owner, s.ID,
	).With("can_continue", false)
}

// CompleteActivity is the result of an attempt. Hash is the hash of the result: the event contains it, so that a
// repeated report is recognized and gets the first response.
type CompleteActivity struct {
	Seq int64
	Holder
	Epoch     int64 // 0: not sent by the client
	Result    string
	Hash      string
	Recovered *protocol.Recovered
	Version   string     // of its code; empty: not reported
	Eager     *EagerTask // the eager workflow task that the result causes; nil: an ordinary workflow task is created
}

func (in CompleteActivity) decide(st *step) error {
	a, err := st.holdsActivity(in.Seq, in.Holder, in.Epoch)
	if err != nil {
		return err
	}
	if st.superseded(a) {
		st.refuseSuperseded(a)
		return nil
	}
	st.recordResult(a, in, st.now, "")
	st.d.Answer.Outcome, st.d.Answer.Recorded = "completed", true
	return nil
}

// recordResult records the result at a given time, with the hash of its eager workflow task.
func (st *step) recordResult(a Activity, in CompleteActivity, at history.Time, eagerHash string) {
	rebuilt := st.recovered(a, in.Recovered)
	st.endActivity(a, true)
	a.CodeVersion = in.Version
	var recordedAt history.Time
	if eagerHash != "" && a.SessionID != "" {
		// The event has the time at which the eager workflow task was decided; the session's idle time counts from when the
		// result was taken.
		recordedAt = st.now
	}
	st.emitAt(&history.ActivityCompleted{
		Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, Result: in.Result,
		PayloadCodec: codecOf(in.Result),
		BodyHash:     in.Hash, EagerHash: eagerHash, RecordedAt: recordedAt, Recovered: rebuilt,
		Attempt: a.outcome(), Parallel: a.Parallel,
	}, at)
}

// FailActivity is an attempt that failed. Whether another follows is decided by the retry policy that the
// activity was scheduled with.
type FailActivity struct {
	Seq int64
	Holder
	Epoch     int64
	Failure   protocol.Failure
	Hash      string
	Recovered *protocol.Recovered
	Version   string
	Executor  *protocol.ExecutorLoss // loss of the executor that the attempt ran in; nil: none
}

func (in FailActivity) decide(st *step) error {
	a, err := st.holdsActivity(in.Seq, in.Holder, in.Epoch)
	if err != nil {
		return err
	}
	if st.superseded(a) {
		st.refuseSuperseded(a)
		return nil
	}
	st.recovered(a, in.Recovered)
	st.endActivity(a, true)
	if in.Executor != nil {
		st.stateLost(a, in.Executor, in.Failure.Message)
		if a.Suspect != nil && in.Executor.Verdict == string(LossBlamed) {
			st.d.Answer.Blamed = a.Suspect.Of
		}
	}
	a.CodeVersion = in.Version
	// The holder was asked to stop and says that it has. An attempt that claims to be cancelled unasked has
	// failed like any other and may be tried again.
	if in.Failure.Cancelled && a.Cancel {
		st.emit(&history.ActivityCancelled{
			Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, Reason: in.Failure.Message,
			Attempt: a.outcome(), Parallel: a.Parallel,
		})
		st.d.Answer.Outcome, st.d.Answer.Recorded = "cancelled", true
		return nil
	}
	if kind := timeoutOf(in.Failure); kind == "schedule_to_close" { // there is no time for another attempt
		st.timedOut(a, reported(in.Failure), kind, in.Hash)
	} else {
		st.retryOrFail(a, reported(in.Failure), kind, in.Hash)
	}
	if in.Executor != nil {
		st.endedExecutor(a, in.Executor)
	}
	st.d.Answer.Outcome, st.d.Answer.Recorded = "failed", true
	return nil
}

// timeoutOf returns the type of the timeout by which a worker ended its attempt, so that history records the same event
// as for a timeout that the app noticed. Workers usually notice a timeout first. It returns "" for other failures.
func timeoutOf(f protocol.Failure) string {
	if f.Kind == "timeout" {
		switch f.TimeoutType {
		case "start_to_close", "schedule_to_close", "heartbeat":
			return f.TimeoutType
		}
	}
	return ""
}

// reported converts a worker's failure to the form that history stores.
func reported(f protocol.Failure) history.Failure {
	category := "activity"
	switch {
	case f.Kind != "":
		category = f.Kind
	case f.Cancelled:
		category = "cancelled"
	}
	return history.Failure{
		Category: category, Message: f.Message, ExceptionType: f.Type, ExceptionCls: f.Class, Code: f.Code,
		NonRetryable: f.NonRetryable || f.Retryable != nil && !*f.Retryable, Exception: exception(f), Stack: stackOf(f),
	}
}

// maxStack is the maximum size of a stored stack trace in bytes, from the frame that failed. It is maxRetryStack for an
// attempt that is retried, since there may be many.
const (
	maxStack      = 16 << 10
	maxRetryStack = 2 << 10
)

// stackOf returns the stack that a worker reported, in the form that is stored.
func stackOf(f protocol.Failure) string { return stack.Clean(f.StackTrace, maxStack) }

// exception returns the object from which an SDK in the workflow's language reads a failure, in the shape that the
// published SDKs expect.
func exception(f protocol.Failure) json.RawMessage {
	e := struct {
		Type         string          `json:"type,omitempty"`
		Class        string          `json:"class,omitempty"`
		Message      string          `json:"message"`
		Code         json.RawMessage `json:"code,omitempty"`
		NonRetryable bool            `json:"non_retryable,omitempty"`
		Details      json.RawMessage `json:"details,omitempty"`
		Codec        string          `json:"details_payload_codec,omitempty"`
		Diagnostics  json.RawMessage `json:"diagnostics,omitempty"`
	}{
		Type: f.Type, Class: f.Class, Message: f.Message, Code: f.Code, NonRetryable: f.NonRetryable,
		Details: f.Details, Diagnostics: f.Diagnostics,
	}
	if len(f.Details) > 0 {
		e.Codec = payload.Codec
	}
	return raw(e)
}

// retryOrFail ends an attempt with a failure or a timeout. The activity is retried if its retry policy allows it and no
// cancellation was requested; otherwise the activity ends.
func (st *step) retryOrFail(a Activity, f history.Failure, timeout, hash string) {
	delay, retry := a.Retry.Next(a.Failures+1, f.ExceptionType, f.NonRetryable)
	if !retry || a.Cancel {
		if timeout != "" {
			st.timedOut(a, f, timeout, hash)
			return
		}
		st.fail(a, f, hash)
		return
	}
	at := plus(st.now, delay)
	f.Stack = stack.Shorten(f.Stack, maxRetryStack)
	st.emit(&history.ActivityRetryScheduled{
		Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, AvailableAt: at, TimeoutKind: timeout,
		Attempt: a.outcome(), Failure: f, Parallel: a.Parallel,
	})
	st.d.Answer.NextTask = StepID(st.ID, a.Seq)
	// Without a back-off the task is ready at once and is counted in its session here; otherwise that happens when the
	// back-off has ended.
	if n, _ := st.Activities.Get(a.Seq); n.State == Ready {
		st.requeueInSession(n)
	}
}

// fail ends an activity with a failure. Its retry policy does not apply.
func (st *step) fail(a Activity, f history.Failure, hash string) {
	f.ID = st.failureID()
	st.emit(&history.ActivityFailed{
		Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, BodyHash: hash, Attempt: a.outcome(),
		Failure: f, Parallel: a.Parallel,
	})
}

// timedOut ends an activity with a timeout. Its retry policy does not apply.
func (st *step) timedOut(a Activity, f history.Failure, kind, hash string) {
	f.ID = st.failureID()
	st.emit(&history.ActivityTimedOut{
		Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, TimeoutKind: kind, BodyHash: hash,
		Attempt: a.outcome(), Failure: f, Parallel: a.Parallel,
	})
}

// HeartbeatActivity renews the lease of an attempt and of the session that the attempt runs in. Beat means that the
// activity's code sent the heartbeat; the worker's own renewals are sent without Beat. The heartbeat timeout can
// therefore detect code that hangs in a healthy process.
type HeartbeatActivity struct {
	Seq int64
	Holder
	Epoch    int64
	Beat     bool
	Progress json.RawMessage
	Rebuild  *protocol.Recovered // progress of a rebuild of the session's state; nil: unchanged
}

func (in HeartbeatActivity) decide(st *step) error {
	a, err := st.holdsActivity(in.Seq, in.Holder, in.Epoch)
	if err != nil {
		return err
	}
	switch {
	case st.superseded(a):
		st.refuseSuperseded(a)
		return nil
	case st.sessionLost(a):
		st.releaseLostAttempt(a)
		return nil
	}
	a.Until = plus(st.now, time.Duration(a.Length)*time.Microsecond)
	a.Loss = nil // the process lives
	if in.Beat {
		a.HeartbeatAt = st.now
	}
	if len(in.Progress) > 0 {
		a.Progress = in.Progress
	}
	if in.Rebuild != nil && a.SessionID != "" {
		st.reportedSetUp(&a, in.Rebuild)
		a.Rebuild = clipped(in.Rebuild)
	}
	st.Activities.Put(a.Seq, a)
	// Work in a session keeps it. A holder in the middle of a long activity must not lose the session to its
	// idle time.
	if s, ok := st.session(a.SessionID); ok && a.SessionID != "" && s.Epoch == a.Epoch && s.HeldBy(a.Owner, st.now.Time) {
		s.touch(st.now.Time)
		st.storeSession(s)
	}
	st.d.Answer = Answer{Outcome: "heartbeat_recorded", Recorded: true}
	return nil
}

// ReleaseActivity ends a delivery without an outcome while its worker lives: undone (it never reached the worker),
// handed back, or failed by the worker itself. The end of a worker process is a Lose.
type ReleaseActivity struct {
	Seq             int64
	Delivery        int64
	Owner           string // the worker that hands it back, which must hold it; "": it is taken back
	Why             string
	Undone          bool
	Executor        *protocol.ExecutorLoss // loss of the executor that the attempt ran in; nil: none
	Redeliveries    int64                  // with Undone: the redeliveries of which the holder had been notified then
	Counts          bool                   // the worker had begun the attempt, so it counts towards MaxDeliveries
	Began           *bool                  // whether the code began: then it counts as an attempt; nil: see began
	Recovered       *protocol.Recovered    // set-up that ran in the attempt; nil: the worker reported none
	UnlessHeartbeat history.Time           // skip the release if the attempt sent a heartbeat since then
}

// decide requires the current delivery, and for a return that the worker is its owner. UnlessHeartbeat prevents a race:
// a worker whose heartbeats seemed to be missing may have sent a heartbeat of this attempt meanwhile.
func (in ReleaseActivity) decide(st *step) error {
	a, ok := st.Activities.Get(in.Seq)
	if !ok || a.State != LeasedState || a.Delivery != in.Delivery {
		return protocol.Refuse(protocol.ReasonStaleAttempt, "attempt %s has ended", AttemptID(st.ID, in.Seq, in.Delivery))
	}
	if in.Undone && in.Redeliveries != a.Redeliveries {
		return errRedelivered
	}
	if in.Owner != "" && in.Owner != a.Owner {
		return protocol.Refuse(protocol.ReasonLeaseOwnerMismatch, "task %s is leased to %s", StepID(st.ID, in.Seq), a.Owner).
			With("lease_owner", a.Owner)
	}
	if !in.UnlessHeartbeat.IsZero() && a.HeartbeatAt.After(in.UnlessHeartbeat.Time) {
		return errNotDue
	}
	if !in.began() && !a.Cancel {
		a.Attempt--
	}
	if in.Recovered != nil && in.Recovered.SetUp != nil {
		st.reportedSetUp(&a, in.Recovered)
		a.Rebuild = in.Recovered
	}
	if in.Executor != nil {
		st.executorLost(a, in.Executor, in.Why)
		st.d.Answer = Answer{Outcome: "returned", Recorded: true}
		return nil
	}
	// A worker that returns a task and continues to run could not begin it. A worker that returns a task because it
	// drains implies nothing about the task.
	if in.Owner != "" && !in.Counts && in.Why != ReturnedDraining && in.Why != ReturnedUnstarted {
		st.requeueUnstarted(a, in.Why)
	} else {
		st.release(a, in.Why, in.Undone)
	}
	a, _ = st.Activities.Get(in.Seq)
	st.d.Answer = Answer{Outcome: "returned", Recorded: true, Returned: a.Returned}
	return nil
}

// began reports whether the code of the attempt began. If the worker did not report it, began assumes that the code
// began only if the worker drained during the attempt or reports a loss, or if the app released the lease (no Owner).
func (in ReleaseActivity) began() bool {
	switch {
	case in.Undone:
		return false
	case in.Began != nil:
		return *in.Began
	}
	return in.Owner == "" || in.Counts || in.Executor != nil || in.Why == ReturnedDraining
}

// release requeues a leased activity whose worker is alive, or fails it as poison after MaxDeliveries deliveries
// without an outcome. A drain does not count.
func (st *step) release(a Activity, why string, undone bool) {
	if st.cancelledInstead(a, why) {
		return
	}
	st.endActivity(a, false)
	if undone || why == ReturnedUnstarted {
		a.Returned++
	} else {
		a.FirstReady, a.Returned = history.Time{}, 0
	}
	if undone {
		st.unran(a)
	} else {
		st.setUpWithoutOutcome(a)
		a.lost(st.now, why, Finding{})
		if why != ReturnedDraining && why != ReturnedUnstarted {
			a.Returns++
		}
	}
	if a.Returns >= MaxDeliveries {
		st.fail(a, history.Failure{
			Category: "poison", ExceptionType: "poison", NonRetryable: true,
			Message: fmt.Sprintf("given up after %d deliveries without an outcome: %s", a.Returns, why),
		}, "")
		return
	}
	a.unlease()
	a.State, a.ReadyAt = Ready, orTime(a.FirstReady, st.now)
	st.Activities.Put(a.Seq, a)
	st.requeueInSession(a)
}

// If an activity waits for packages of its handler, its back-off is limited to packagesBackoff instead of a minute for
// the first packagesReturns returns: the installation ends soon, or the operator corrects a wrong package name.
const (
	packagesBackoff = 10 * time.Second
	packagesReturns = 30
)

// requeueUnstarted requeues an activity whose worker could not start it: at once the first time, since another worker
// may be able to start it, and later after a backoff. The return does not count towards poison: the missing part, such
// as a file of the handler, may appear later, and until then the wait shows what the worker lacks.
func (st *step) requeueUnstarted(a Activity, why string) {
	if st.cancelledInstead(a, why) {
		return
	}
	st.endActivity(a, false)
	st.setUpWithoutOutcome(a)
	a.lost(st.now, why, Finding{})
	a.unlease()
	a.UnstartedReturns++
	a.Returned++
	if a.UnstartedReturns > 1 {
		most := time.Minute
		if r, _ := protocol.ReturnedFor(why); r != protocol.WaitTaskReturned && a.UnstartedReturns <= packagesReturns {
			most = packagesBackoff
		}
		a.delay(st.now, plus(st.now, min(most, time.Second<<min(a.UnstartedReturns-2, 6))))
		st.Activities.Put(a.Seq, a)
		return
	}
	a.State, a.ReadyAt = Ready, orTime(a.FirstReady, st.now)
	st.Activities.Put(a.Seq, a)
	st.requeueInSession(a)
}

// cancelledInstead ends a leased activity whose cancellation was requested and that no worker runs now. A retry would
// begin work that its workflow has cancelled.
func (st *step) cancelledInstead(a Activity, why string) bool {
	if a.Cancel {
		st.cancelled(a, cancelledByFlow+": "+why)
	}
	return a.Cancel
}

// lost records a delivery that ended without an outcome, to show later where the attempts went.
func (a *Activity) lost(now history.Time, why string, f Finding) {
	a.Lost = appendLost(slices.Clone(a.Lost), f.lost(
		history.Lost{
			Delivery: a.Delivery, Worker: a.Owner, Epoch: a.Epoch, At: now, Why: why,
			StartedAt: a.LeasedAt, HeartbeatAt: a.HeartbeatAt, HeartbeatDetails: a.Progress,
		},
	))
}

// unlease removes the lease of the activity and all state of that delivery, except its heartbeat details: the next
// attempt receives them.
func (a *Activity) unlease() {
	if len(a.Progress) > 0 {
		a.LastHeartbeat = &protocol.LastHeartbeat{
			Details: protocol.HeartbeatDetails(a.Progress), At: a.HeartbeatAt, Attempt: a.Attempt,
		}
	}
	a.Lease, a.Epoch, a.Progress, a.Rebuild, a.HeartbeatAt, a.Cancel = Lease{}, 0, nil, nil, history.Time{}, false
	a.SetUpAt = history.Time{}
}

// ReasonSessionLost is the reason of an attempt that ended because its worker lost the session, which session options
// created.
const ReasonSessionLost = "session_lost"

// ReturnedDraining is the reason of a return that implies nothing about the task: its worker is shutting down.
// ReturnedUnstarted is the same for a task whose code had not begun.
const (
	ReturnedDraining  = "draining"
	ReturnedUnstarted = "draining_before_start"
)

// DueActivity moves an activity forward in time: back-off, lease, the four timeouts.
type DueActivity struct {
	Seq      int64
	Liveness Liveness
}

// decide judges anew what is due: the sweeper's notice may be old, and a report or another app may have come
// first.
func (in DueActivity) decide(st *step) error {
	if err := st.mustHaveTasks(); err != nil {
		return err
	}
	a, ok := st.Activities.Get(in.Seq)
	if !ok {
		return errNotDue
	}
	at, what := a.due()
	if at.IsZero() || at.After(st.now.Time) {
		return errNotDue
	}
	switch what {
	case "retry":
		a.State, a.ReadyAt, a.DelayedAt = Ready, orTime(a.FirstReady, st.now), history.Time{}
		a.Suspect = a.Suspect.ready(st.now)
		st.Activities.Put(a.Seq, a)
		st.requeueInSession(a)
	case "freed":
		a.Suspect = a.Suspect.free()
		st.Activities.Put(a.Seq, a)
	case "cleared":
		a.Suspect = nil
		st.Activities.Put(a.Seq, a)
	case "lease":
		died, err := in.Liveness.died(st.Namespace, a.Lease)
		if err != nil {
			return err
		}
		if !died {
			st.release(a, LeaseExpired, false)
			return nil
		}
		f, err := in.Liveness.finding(st.Namespace, a.Lease)
		if err != nil {
			return err
		}
		st.lose(a, LeaseExpired, f)
	// The whole activity is out of time, so no policy is asked.
	case "schedule_to_close":
		st.interrupted(a)
		st.endActivity(a, false)
		st.timedOut(a, timeout(what), what, "")
	default:
		st.interrupted(a)
		st.endActivity(a, false)
		st.retryOrFail(a, timeout(what), what, "")
	}
	return nil
}

// timeout returns the failure of an attempt that exceeded one of its timeouts.
func timeout(kind string) history.Failure {
	return history.Failure{
		Category: "timeout", Message: "activity timed out: " + kind, ExceptionType: history.TypeActivityTimeout,
	}
}

// cancelledByFlow is the reason of an activity that its workflow cancelled.
const cancelledByFlow = "cancelled by the workflow"

// cancelActivity ends an activity that its workflow has cancelled, by the activity's cancellation policy. By
// default the activity ends at once and its worker is asked to stop; the workflow does not wait for a worker that
// may have died. With the policy wait_cancellation_completed, or UntilEnded in the command, an activity that a
// worker runs stays open until the worker has stopped. With the policy abandon it stays as it is.
func (st *step) cancelActivity(c protocol.Command, seq int64) {
	a, ok := st.Activities.Get(c.Target)
	d := &history.ActivityCancelRequested{CommandSequence: seq, Target: c.Target, Effect: cancelTooLate}
	if ok {
		d.Effect = a.cancelEffect(c.UntilEnded)
	}
	st.emit(d)
	if d.Effect == cancelDone {
		st.cancelled(a, cancelledByFlow)
	}
}

// cancelEffect returns the effect of a cancellation of the open activity; see ActivityCancelRequested.
func (a *Activity) cancelEffect(untilEnded bool) string {
	switch {
	case a.Policy == protocol.CancelAbandon:
		return cancelAbandoned
	case a.State == LeasedState && (untilEnded || a.Policy == protocol.CancelWait):
		return cancelRequested
	}
	return cancelDone
}

// activityCancelRequested records that the holder of an activity was asked to stop. No other attempt follows.
func (s *Run) activityCancelRequested(d *history.ActivityCancelRequested) {
	if a, ok := s.Activities.Get(d.Target); ok && d.Effect == cancelRequested {
		a.Cancel = true
		s.Activities.Put(d.Target, a)
	}
}

// cancelled ends an activity without a report of its worker. The worker's next renewal is refused, and the refusal asks
// it to cancel.
func (st *step) cancelled(a Activity, why string) {
	st.interrupted(a)
	st.endActivity(a, false)
	st.emit(&history.ActivityCancelled{
		Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, Reason: why, Attempt: a.outcome(),
		Parallel: a.Parallel,
	})
}
