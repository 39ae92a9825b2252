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
// recorded once and that the activity is retried by its policy; it cannot guarantee that the code runs only once.
// Therefore it accepts a report only for the current delivery, and every end of a delivery without a report allows the
// next delivery.

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
		SessionID: c.SessionID, Headers: c.Headers, Borrow: c.Borrow,
	}
	if c.SessionDefinition != nil {
		d.SessionDefinition = c.SessionDefinition.Name
	}
	if d.ScheduleToClose > 0 {
		// An attempt must not outlast all attempts together, so the deadline that a worker receives is the one that
		// applies.
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
	if c.Borrow != nil {
		d.Activity.Queue = PoolQueue(c.Borrow.Pool)
		st.usesSessions()
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
	// The activity is open at this point, and its failure is an event that the code can handle. If the engine refused
	// the whole completion, the worker would send it again, with the same result.
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
	if c.FailFast {
		sess.setFailFast()
	}
	st.storeSession(sess)
	if store {
		st.storeArguments(sess.ID, c.SessionDefinition.Arguments.Blob)
	}
}

// endedAttempt returns the running attempt of the activity, for the event that ends it. It is empty for an activity
// that was cancelled while it waited.
func (a *Activity) endedAttempt() history.Attempt {
	t := history.Attempt{Number: a.Attempt, Lost: a.Lost}
	if a.State == LeasedState || a.State == Pending {
		t.AttemptID, t.Worker, t.Release = AttemptID(a.RunID, a.Seq, a.Delivery), a.Owner, a.Lease.Release
		t.SessionEpoch, t.StartedAt, t.CodeVersion = a.Epoch, a.LeasedAt, a.CodeVersion
	}
	if a.Pending != nil {
		t.CodeVersion = a.Pending.CodeVersion
	}
	return t
}

// endActivity removes an activity that ends or is retried from the counts of its session. by is true if its worker
// reported: this resets the session's idle timeout if the worker still owns the session under the same epoch and the
// lease is valid. An attempt of an earlier epoch counts as a stale attempt, since it still runs on a former owner.
func (st *step) endActivity(a Activity, by bool) {
	if a.SessionID == "" {
		return
	}
	s, ok := st.session(a.SessionID)
	if !ok {
		return
	}
	if s.Loan != nil && a.State == LeasedState && !by {
		s.Loan = s.Loan.broken()
	}
	switch {
	case a.State == Ready:
		s.subtractReady()
	// The attempt runs under the session's current epoch, so it counts towards the session's limit of running
	// activities.
	case a.State == LeasedState && a.Epoch == s.Epoch:
		s.Active = max(0, s.Active-1)
		if by && s.HeldBy(a.Owner, st.now.Time) {
			s.touch(st.now.Time)
		}
		// An operator moves the session, and this was the last activity in it.
		if e, ok := s.moved(st.now); ok {
			st.storeSession(s, e...)
			return
		}
	case a.State == LeasedState && s.StaleAttempts[a.Epoch] > 0:
		s.staleAttemptEnded(a.Epoch)
	default:
		return
	}
	st.storeSession(s)
}

// endReported removes an attempt from its session after its worker, or a caller with its token, reported that its code
// has returned. It returns how often the worker retried the activity after rebuilding the state of the session.
func (st *step) endReported(a Activity, r *protocol.Recovered) (retries int) {
	retries = st.recordRebuild(a, r)
	st.usedSnapshot(a, r)
	st.endActivity(a, true)
	return retries
}

// undoAttempt undoes an attempt that never reached its worker. If the attempt was the first of the epoch, the next
// attempt becomes the first one: only the first attempt of an epoch makes the worker build the session's state.
func (st *step) undoAttempt(a Activity) {
	if s, ok := st.session(a.SessionID); ok && a.SessionID != "" && s.Epoch == a.Epoch && a.New {
		s.Fresh = true
		st.storeSession(s)
	}
}

// requeueInSession counts an activity that is ready again in its session. If the session has ended, the activity fails
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

// holdsActivity checks a report about an attempt, in the order on which callers rely: the activity exists, the run is
// open, the delivery is the current one, the reporter owns it, the lease has not expired, and the session still has the
// epoch of the attempt. The store's clock decides about the lease, because a worker's clock may be slow.
func (st *step) holdsActivity(seq int64, h Holder, epoch int64) (Activity, error) {
	id := func() string { return StepID(st.ID, seq) } // computed only for refusals, which are rare
	// A number above that of the last command never belonged to a task, in any state of the run.
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
	// The worker reports another epoch of the session than that of the attempt's lease.
	if epoch != 0 && epoch != a.Epoch {
		return Activity{}, protocol.Refuse(
			protocol.ReasonStaleSessionEpoch, "the attempt runs under epoch %d, not %d", a.Epoch, epoch,
		)
	}
	return a, nil
}

// superseded reports whether the epoch of a workflow-scoped session increased during the attempt. The result is then
// refused: the attempt used a state that later activities will not see.
func (st *step) superseded(a Activity) bool {
	s, ok := st.session(a.SessionID)
	return a.SessionID != "" && ok && s.Origin == OriginWorkflow && s.Epoch != a.Epoch
}

// refuseSuperseded releases the task and refuses its late result in the same commit. Without the release, the task
// would stay leased to a worker that no longer runs it.
func (st *step) refuseSuperseded(a Activity) {
	s, _ := st.session(a.SessionID)
	st.release(a, "stale_session_epoch", false)
	st.d.Answer.Refused = protocol.Refuse(
		protocol.ReasonStaleSessionEpoch, "session %s went from epoch %d to %d", s.ID, a.Epoch, s.Epoch,
	).With("session_epoch", s.Epoch).With("can_continue", false)
}

// sessionLost reports whether the attempt runs in a session with options whose owner lost it: the owner's lease
// expired, or another worker acquired the session. Session options limit how many activities run concurrently. If this
// attempt continued, it would run in parallel with the activities of the next owner and exceed that limit. A session of
// soft affinity has no such limit, so its running attempts may finish.
func (st *step) sessionLost(a Activity) bool {
	s, ok := st.session(a.SessionID)
	return a.SessionID != "" && ok && s.Origin == OriginWorker && s.Fallback == 0 && !s.Terminal &&
		(s.Epoch != a.Epoch || !s.HeldBy(a.Owner, st.now.Time))
}

// releaseLostAttempt ends the attempt when its worker sends a heartbeat, and releases the task for the next owner of
// the session. The worker is alive, so this is not a worker loss.
func (st *step) releaseLostAttempt(a Activity) {
	s, _ := st.session(a.SessionID)
	st.release(a, ReasonSessionLost, false)
	st.d.Answer.Refused = protocol.Refuse(
		protocol.ReasonStaleAttempt, "worker %s lost session %s, in which the attempt ran", a.Owner, s.ID,
	).With("can_continue", false)
}

// CompleteActivity is the result of an attempt. The event contains Hash, the hash of the result: a repeated report is
// recognized by it and gets the first response.
type CompleteActivity struct {
	Seq int64
	Holder
	Epoch     int64 // 0: the client did not send it
	Result    string
	Hash      string
	Recovered *protocol.Recovered
	Version   string     // version of the activity's code; empty: not reported
	Eager     *EagerTask // the eager workflow task that the result causes; nil: create an ordinary workflow task
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
	rebuilt := st.endReported(a, in.Recovered)
	a.CodeVersion = in.Version
	var recordedAt history.Time
	if eagerHash != "" && a.SessionID != "" {
		// The event has the time that the code of the eager workflow task saw; the session's idle time counts from now.
		recordedAt = st.now
	}
	st.emitAt(&history.ActivityCompleted{
		Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, Result: in.Result,
		PayloadCodec: codecOf(in.Result),
		BodyHash:     in.Hash, EagerHash: eagerHash, RecordedAt: recordedAt, Recovered: rebuilt,
		Attempt: a.endedAttempt(), Parallel: a.Parallel,
	}, at)
}

// FailActivity reports that an attempt failed. The retry policy with which the activity was scheduled decides whether
// another attempt follows.
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
	st.endReported(a, in.Recovered)
	if in.Executor != nil {
		st.stateLost(a, in.Executor, in.Failure.Message)
		if a.Suspect != nil && in.Executor.Verdict == string(LossBlamed) {
			st.d.Answer.Blamed = a.Suspect.Of
		}
	}
	a.CodeVersion = in.Version
	if st.failAttempt(a, in.Failure, in.Hash); in.Executor != nil && st.d.Answer.Outcome == "failed" {
		st.endedExecutor(a, in.Executor)
	}
	return nil
}

// failAttempt ends an attempt with a reported failure.
func (st *step) failAttempt(a Activity, f protocol.Failure, hash string) {
	// The attempt was asked to stop and reports that it did. An attempt that reports cancellation without a request has
	// failed and may be retried.
	if f.Cancelled && a.Cancel {
		st.emit(&history.ActivityCancelled{
			Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, Reason: f.Message,
			Attempt: a.endedAttempt(), Parallel: a.Parallel,
		})
		st.d.Answer.Outcome, st.d.Answer.Recorded = "cancelled", true
		return
	}
	// the timeout of all attempts allows no other attempt
	if kind := timeoutOf(f); kind == "schedule_to_close" {
		st.timedOut(a, storedFailure(f), kind, hash)
	} else {
		st.retryOrFail(a, storedFailure(f), kind, hash)
	}
	st.d.Answer.Outcome, st.d.Answer.Recorded = "failed", true
}

// timeoutOf returns the kind of the timeout by which a worker ended its attempt, so that history contains the same
// event as if the app had noticed the timeout. Workers usually notice it first. It returns "" for other failures.
func timeoutOf(f protocol.Failure) string {
	if f.Kind == "timeout" {
		switch f.TimeoutType {
		case "start_to_close", "schedule_to_close", "heartbeat":
			return f.TimeoutType
		}
	}
	return ""
}

// storedFailure converts a worker's failure to the form that history stores.
func storedFailure(f protocol.Failure) history.Failure {
	category := "activity"
	switch {
	case f.Kind != "":
		category = f.Kind
	case f.Cancelled:
		category = "cancelled"
	}
	return history.Failure{
		Category: category, Message: f.Message, ExceptionType: f.Type, ExceptionCls: f.Class, Code: f.Code,
		NonRetryable: f.NonRetryable || f.Retryable != nil && !*f.Retryable, Exception: sdkException(f), Stack: stackOf(f),
	}
}

// maxStack is the maximum size of a stored stack trace in bytes, counted from the frame that failed; maxRetryStack
// applies to attempts that are retried, since there may be many of them.
const (
	maxStack      = 16 << 10
	maxRetryStack = 2 << 10
)

// stackOf returns the stack that a worker reported, in the form that is stored.
func stackOf(f protocol.Failure) string { return stack.Clean(f.StackTrace, maxStack) }

// sdkException returns the object from which an SDK of the workflow's language reads the failure, in the format of the
// published SDKs.
func sdkException(f protocol.Failure) json.RawMessage {
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
	reported := "" // only callers of the API repeat a failure after the retry was scheduled
	if st.byToken {
		reported = hash
	}
	st.emit(&history.ActivityRetryScheduled{
		Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, AvailableAt: at, TimeoutKind: timeout,
		BodyHash: reported, Attempt: a.endedAttempt(), Failure: f, Parallel: a.Parallel,
	})
	st.d.Answer.NextTask = StepID(st.ID, a.Seq)
	// Without a backoff the activity is ready now and counts in its session from now on; otherwise it counts when the
	// backoff ends.
	if n, _ := st.Activities.Get(a.Seq); n.State == Ready {
		st.requeueInSession(n)
	}
}

// fail ends an activity with a failure. Its retry policy does not apply.
func (st *step) fail(a Activity, f history.Failure, hash string) {
	f.ID = st.failureID()
	st.emit(&history.ActivityFailed{
		Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, BodyHash: hash, Attempt: a.endedAttempt(),
		Failure: f, Parallel: a.Parallel,
	})
}

// timedOut ends an activity with a timeout. Its retry policy does not apply.
func (st *step) timedOut(a Activity, f history.Failure, kind, hash string) {
	f.ID = st.failureID()
	st.emit(&history.ActivityTimedOut{
		Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, TimeoutKind: kind, BodyHash: hash,
		Attempt: a.endedAttempt(), Failure: f, Parallel: a.Parallel,
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
	a.Loss = nil // the heartbeat shows that the process is alive
	if in.Beat {
		a.HeartbeatAt = st.now
	}
	if len(in.Progress) > 0 {
		a.Progress = in.Progress
	}
	if in.Rebuild != nil && a.SessionID != "" {
		st.reportedSetUp(&a, in.Rebuild)
		a.Rebuild = withShortCause(in.Rebuild)
	}
	st.Activities.Put(a.Seq, a)
	// Work in a session counts as its use: an owner must not lose the session to the idle timeout during a long
	// activity.
	if s, ok := st.session(a.SessionID); ok && a.SessionID != "" && s.Epoch == a.Epoch && s.HeldBy(a.Owner, st.now.Time) {
		s.touch(st.now.Time)
		st.storeSession(s)
	}
	st.d.Answer = Answer{Outcome: "heartbeat_recorded", Recorded: true}
	return nil
}

// ReleaseActivity ends a delivery without an outcome while its worker is alive: it never reached the worker (Undone),
// the worker returned it, or the app released it. For the end of a worker process see Lose.
type ReleaseActivity struct {
	Seq             int64
	Delivery        int64
	Owner           string // the worker that returns the task, which must own it; "": the app releases it
	Why             string
	Undone          bool
	Executor        *protocol.ExecutorLoss // loss of the executor that the attempt ran in; nil: none
	Redeliveries    int64                  // with Undone: the number of redeliveries that the app knew of
	Counts          bool                   // the worker had begun the attempt, so it counts towards MaxDeliveries
	Began           *bool                  // whether the code began: then it counts as an attempt; nil: see began
	Recovered       *protocol.Recovered    // set-up that ran in the attempt; nil: the worker reported none
	UnlessHeartbeat history.Time           // skip the release if the attempt sent a heartbeat since then
}

// decide requires the current delivery and, for a return, that the worker owns it. UnlessHeartbeat prevents a race: the
// app assumed that the worker's heartbeats were missing, but the worker has sent a heartbeat of this attempt meanwhile.
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
	// A worker that returns a task and keeps running was unable to begin it. If a worker returns a task because it
	// drains, this says nothing about the task.
	if in.Owner != "" && !in.Counts && in.Why != ReturnedDraining && in.Why != ReturnedUnstarted {
		st.requeueUnstarted(a, in.Why)
	} else {
		st.release(a, in.Why, in.Undone)
	}
	a, _ = st.Activities.Get(in.Seq)
	st.d.Answer = Answer{Outcome: "returned", Recorded: true, Returned: a.Returned}
	return nil
}

// began reports whether the code of the attempt began. If the worker did not report it, began assumes that it did in
// three cases: the worker drained during the attempt, the worker reports a loss, or the app released the lease (no
// Owner).
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
		st.undoAttempt(a)
	} else {
		st.setUpWithoutOutcome(a)
		a.recordLostDelivery(st.now, why, Finding{})
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
	a.removeLease()
	a.State, a.ReadyAt = Ready, orTime(a.FirstReady, st.now)
	st.Activities.Put(a.Seq, a)
	st.requeueInSession(a)
}

// For the first packagesReturns returns of an activity that waits for packages of its handler, the backoff is limited
// to packagesBackoff instead of a minute, because the installation usually ends soon.
const (
	packagesBackoff = 10 * time.Second
	packagesReturns = 30
)

// requeueUnstarted requeues an activity that its worker could not start: immediately the first time, since another
// worker may be able to start it, and later after a backoff. Such a return does not count towards poison: what is
// missing, such as a file of the handler, may appear later, and until then the wait reason names it.
func (st *step) requeueUnstarted(a Activity, why string) {
	if st.cancelledInstead(a, why) {
		return
	}
	st.endActivity(a, false)
	st.setUpWithoutOutcome(a)
	a.recordLostDelivery(st.now, why, Finding{})
	a.removeLease()
	a.UnstartedReturns++
	a.Returned++
	if a.UnstartedReturns > 1 {
		most := time.Minute
		if r, _ := protocol.ReturnedFor(why); r != protocol.WaitTaskReturned && a.UnstartedReturns <= packagesReturns {
			most = packagesBackoff
		}
		a.startBackoff(st.now, plus(st.now, min(most, time.Second<<min(a.UnstartedReturns-2, 6))))
		st.Activities.Put(a.Seq, a)
		return
	}
	a.State, a.ReadyAt = Ready, orTime(a.FirstReady, st.now)
	st.Activities.Put(a.Seq, a)
	st.requeueInSession(a)
}

// cancelledInstead ends an activity whose delivery has ended and whose cancellation was requested. A retry would start
// work that the workflow has cancelled.
func (st *step) cancelledInstead(a Activity, why string) bool {
	if a.Cancel {
		st.cancelled(a, cancelledByFlow+": "+why)
	}
	return a.Cancel
}

// recordLostDelivery records a delivery that ended without an outcome, so that users can see what happened to it.
func (a *Activity) recordLostDelivery(now history.Time, why string, f Finding) {
	a.Lost = appendLost(slices.Clone(a.Lost), f.addTo(
		history.Lost{
			Delivery: a.Delivery, Worker: a.Owner, Epoch: a.Epoch, At: now, Why: why,
			StartedAt: a.LeasedAt, HeartbeatAt: a.HeartbeatAt, HeartbeatDetails: a.Progress,
		},
	))
}

// removeLease removes the lease of the activity and the state of that delivery. It keeps the heartbeat details, which
// the next attempt receives.
func (a *Activity) removeLease() {
	if len(a.Progress) > 0 {
		a.LastHeartbeat = &protocol.LastHeartbeat{
			Details: protocol.HeartbeatDetails(a.Progress), At: a.HeartbeatAt, Attempt: a.Attempt,
		}
	}
	a.Lease, a.Epoch, a.Progress, a.Rebuild, a.HeartbeatAt, a.Cancel = Lease{}, 0, nil, nil, history.Time{}, false
	a.SetUpAt, a.Pending = history.Time{}, nil
}

// ReasonSessionLost is the reason of an attempt that ended because its worker lost the session, and the session has
// options.
const ReasonSessionLost = "session_lost"

// ReturnedDraining is the reason of a return that says nothing about the task: its worker is shutting down.
// ReturnedUnstarted is the same for a task whose code had not begun.
const (
	ReturnedDraining  = "draining"
	ReturnedUnstarted = "draining_before_start"
)

// DueActivity ends a backoff, an expired lease, or a timeout of an activity.
type DueActivity struct {
	Seq      int64
	Liveness Liveness
}

// decide compares the deadlines with the clock again, because the sweeper's information may be outdated: an outcome or
// the decision of another app may have been committed first.
func (in DueActivity) decide(st *step) error {
	if err := st.mustHaveTasks(); err != nil {
		return err
	}
	a, ok := st.Activities.Get(in.Seq)
	if !ok {
		return errNotDue
	}
	at, what := a.earliestDue()
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
	// The time for all attempts has passed, so the retry policy does not apply.
	case "schedule_to_close":
		st.recordInterruptedRebuild(a)
		st.endActivity(a, false)
		st.timedOut(a, timeout(what), what, "")
	default:
		st.recordInterruptedRebuild(a)
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

// cancelActivity ends an activity that its workflow has cancelled, by the activity's cancellation policy. By default
// the activity ends immediately and its worker is asked to stop; the workflow does not wait for a worker that may have
// died. With the policy wait_cancellation_completed, or UntilEnded in the command, an activity that a worker runs stays
// open until the worker has stopped. With the policy abandon the activity stays open and runs on.
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
	case (a.State == LeasedState || a.State == Pending) && (untilEnded || a.Policy == protocol.CancelWait):
		return cancelRequested
	}
	return cancelDone
}

// activityCancelRequested records that the activity's worker was asked to stop. No other attempt follows.
func (s *Run) activityCancelRequested(d *history.ActivityCancelRequested) {
	if a, ok := s.Activities.Get(d.Target); ok && d.Effect == cancelRequested {
		a.Cancel = true
		s.Activities.Put(d.Target, a)
	}
}

// cancelled ends an activity without a report of its worker. The worker's next renewal is refused, and the refusal
// asks the worker to cancel the attempt.
func (st *step) cancelled(a Activity, why string) {
	st.recordInterruptedRebuild(a)
	st.endActivity(a, false)
	st.emit(&history.ActivityCancelled{
		Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, Reason: why, Attempt: a.endedAttempt(),
		Parallel: a.Parallel,
	})
}
