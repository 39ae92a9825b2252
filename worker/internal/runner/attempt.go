package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/internal/userfunc"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/session"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// One attempt of an activity passes through hooks. Each hook implements one guarantee around the code: the lease, the
// deadline, the session, the recovery. Their order matters, since each hook receives the outcome of the inner ones.

// attempt is one attempt of an activity.
type attempt struct {
	r             *Runner
	task          *protocol.ActivityTask
	def           *activity.Definition // nil: the activity runs in an executor
	received      arrival
	lease         *lease
	info          activity.AttemptInfo
	session       *session.Holding // nil outside a session
	beats         *beats
	activityLog   attemptLog
	recovered     *protocol.Recovered
	version       string                 // version of the handler that ran; empty for an activity in Go
	lost          string                 // why the session's executor ended; empty: it runs, as far as the worker knows
	executorEnded *sandbox.ExecutorEnded // the executor that ended during the attempt or before its call; nil: none
	began         bool                   // the code of the activity, or of its rebuild activity, has begun
	pending       bool                   // the code of the activity returned activity.ErrPending
	entry         string                 // function of the handler to call; empty: main
	rebuilds      int                    // number of rebuilds of the session's state before the attempt began
	prepares      bool                   // no attempt: the set-up of a session that another worker owns
	outside       bool                   // no attempt: a function of the session's definition outside of any attempt
	restoreFailed string                 // why the snapshot of the session could not be restored; empty: it did not fail
	rebuild       bool                   // the executor may start with new state under an epoch whose state was lost
	log           zerolog.Logger
}

// call runs the next hook or the activity's code.
type call func(ctx context.Context) (payload.Payload, error)

// hook wraps a call; the first hook is the outermost.
type hook func(a *attempt, next call) call

// hooks wrap an activity's code, outermost first: each hook receives the outcome of the inner ones.
var hooks = []hook{logged, leased, deadlined, begun, inSession, intercepted, recovering}

// hooksWithSetUp are the hooks of an attempt in a session with a definition. The deadline begins after the set-up.
var hooksWithSetUp = []hook{logged, leased, begun, inSession, settingUp, deadlined, intercepted, recovering}

// unavailable is an error that returns the task to the app: its code has not begun.
type unavailable struct{ why string }

func (e *unavailable) Error() string { return e.why }

// activity runs one attempt and reports its outcome. It returns true if the attempt's slot stays reserved for the next
// activity.
func (r *Runner) activity(t *protocol.ActivityTask, received arrival) (slotHeld bool) {
	a := &attempt{
		r: r, task: t, received: received, info: activitywire.InfoOf(t), activityLog: attemptLog{task: t},
		log: r.log.With().Str("run_id", t.RunID).Str("task_id", t.TaskID).Int("attempt", t.Attempt).Str(
			"activity_type", t.ActivityType,
		).Logger(),
	}
	// The app's clock and this worker's clock may differ by minutes. A deadline by the wrong clock would end the code
	// immediately, or never.
	a.info.Deadline = r.localTime(t, received.sentAt(), a.info.Deadline)
	a.def, _ = r.opt.Definitions.FindActivity(t.ActivityType)
	run, around := a.execute, hooks
	if err := a.decodeArguments(); err != nil {
		run = func(context.Context) (payload.Payload, error) {
			return payload.Payload{}, &unavailable{err.Error()} // another worker may have the codec and the key
		}
	}
	if t.Session != nil && t.Session.Definition != "" {
		around = hooksWithSetUp
	}
	for i := len(around) - 1; i >= 0; i-- {
		run = around[i](a, run)
	}
	ctx, cancel := context.WithCancelCause(r.life)
	defer cancel(nil)
	a.lease = r.leases.holdActivity(t, received, cancel)
	// Keep the lease until the outcome is queued. Otherwise it could expire, and the app would dispatch the task to
	// another worker.
	defer r.leases.release(a.lease)
	result, err := run(ctx)
	item, ok := a.outcome(ctx, result, err)
	item.Lines = r.logs.endAttempt(&a.activityLog)
	if !ok {
		r.dropped(item, context.Cause(ctx).Error())
		return false
	}
	eager := r.runEager(a, &item)
	until := r.leases.until(a.lease)
	// Return the task even if it is late: that makes the task ready before its lease expires.
	if item.Returned != "" {
		until = later(until, time.Now().Add(handBackTime))
	}
	r.report.add(entry{a.task.FairnessClass, item, until, eager, a.task.WorkflowID})
	return eager.holdsSlot()
}

// localTime converts a time of the app's clock to the local clock. It derives the offset from the start of the lease,
// which is the time when the app sent the task.
func (r *Runner) localTime(t *protocol.ActivityTask, received, at time.Time) time.Time {
	if at.IsZero() || t.LeaseExpiresAt.IsZero() {
		return at
	}
	return received.Add(at.Sub(t.LeaseExpiresAt.Add(-r.leases.timingOf(t).length)))
}

// decodeArguments decodes the arguments of the task.
func (a *attempt) decodeArguments() error {
	args, err := a.r.opt.Codecs.DecodeArgs(a.task.Arguments)
	if err == nil && args != a.task.Arguments {
		decoded := *a.task // an app in the same process may use the task too
		decoded.Arguments = args
		a.task = &decoded
	}
	return err
}

// outcome returns the report of an attempt for the app. It returns false if nothing must be reported, because the app
// would reject the outcome.
func (a *attempt) outcome(ctx context.Context, result payload.Payload, err error) (protocol.CompleteItem, bool) {
	item := itemOf(a.task)
	item.Recovered, item.CodeVersion = a.recovered, a.version
	cause := context.Cause(ctx)
	var handBack *unavailable
	var superseded *session.SupersededError
	var executor *sandbox.ExecutorEnded
	item.Executor = a.executorLoss(err)
	var dropped *session.DroppedError
	if err == nil {
		result, err = a.r.opt.Codecs.EncodeValue(result)
	}
	switch {
	// This check must be first: if the lease is lost, another worker may run the task, and the outcome of this code is
	// invalid.
	case rejectsOutcome(cause):
		return item, false
	case err == nil && len(result.Blob) > payload.MaxBytes:
		err = activity.NewError(string(
			protocol.ReasonPayloadTooLarge,
		), fmt.Sprintf("the result is %.1f MiB encoded; the limit is %.1f MiB",
			float64(len(result.Blob))/(1<<20), float64(payload.MaxBytes)/(1<<20)), activity.NonRetryable)
		item.Failure = activitywire.FailureOf(err)
	case err == nil:
		item.Result = result
	case errors.As(err, &handBack):
		item.Returned = handBack.why
	case errors.As(err, &executor) && executor.Verdict != sandbox.VerdictBlamed:
		item.Returned = protocol.ReturnedExecutorEnded + ": " + executor.Err.Message
	case errors.As(err, &superseded):
		item.Returned = "session_superseded"
	case errors.As(err, &dropped):
		item.Returned = "session_given_up"
	case a.pending && isPending(err): // also during a drain: the code has passed the token on
		item.Failure = protocol.PendingFailure()
	case errors.Is(cause, ErrDraining): // the drain cancelled the code; its error does not count
		item.Returned = "draining"
	default:
		item.Failure = a.failure(cause, err)
	}
	if item.Returned != "" {
		item.Began = new(a.began)
	}
	if item.Failure, err = a.r.opt.Codecs.EncodeFailure(item.Failure); err != nil {
		item.Failure = activitywire.FailureOf(err)
	}
	return item, true
}

// executorLoss returns the report about an executor that ended during the attempt; nil if the attempt ended for another
// reason.
func (a *attempt) executorLoss(err error) *protocol.ExecutorLoss {
	var ended *sandbox.ExecutorEnded
	if !errors.As(err, &ended) {
		return nil
	}
	loss := &protocol.ExecutorLoss{Executor: ended.Executor, Calls: ended.Calls, Verdict: string(ended.Verdict)}
	// The session stays with this worker if another attempt rebuilds its state.
	if a.session != nil && !a.session.Rebuilding(a.rebuilds) {
		loss.StateLost = string(ended.Cause)
	}
	return loss
}

// isContextError reports whether err says only that the context ended.
func isContextError(ctx context.Context, err error) bool {
	return ctx.Err() != nil &&
		(errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Cause(ctx)))
}

// failure returns the failure that the worker reports for an error. If the code was cancelled or timed out, the failure
// is a cancellation or a timeout, and the error does not count.
func (a *attempt) failure(cause, err error) *protocol.Failure {
	var timeout *timeoutError
	switch {
	case errors.As(err, &timeout):
		return &protocol.Failure{
			Message: timeout.Error(), Type: history.TypeActivityTimeout, Kind: "timeout", TimeoutType: timeout.kind,
		}
	case errors.Is(cause, ErrCancelled):
		return &protocol.Failure{Message: err.Error(), Type: activity.TypeCancelled, Cancelled: true}
	}
	f := failureOfExecutor(err)
	if f == nil {
		f = activitywire.FailureOf(err)
	} else if f.Kind == "timeout" {
		f.TimeoutType = a.deadlineKind()
	}
	if f.Type == protocol.TypePending { // the app would keep the attempt open
		f.Type = protocol.TypeInvalidPending
		f.Message = "only the code of an activity may return activity.ErrPending, not a set-up or a rebuild of its session"
	}
	return f
}

// isPending reports whether the code, in this process or in an executor, made its attempt pending.
func isPending(err error) bool {
	e, ok := errors.AsType[*sandbox.Error](err)
	return errors.Is(err, activity.ErrPending) || ok && e.Type == sandbox.UserError && e.Class == protocol.TypePending
}

// panicError returns a recovered panic as an error. Call it in a deferred function.
func panicError(recovered any) *activity.Error {
	return &activity.Error{Type: activity.TypePanic, Message: fmt.Sprint(recovered), Stack: stack.OfPanic()}
}

// logged is the outermost hook. It logs the result of the attempt and recovers panics of all other hooks.
func logged(a *attempt, next call) call {
	return func(ctx context.Context) (result payload.Payload, err error) {
		began := time.Now()
		defer func() {
			if p := recover(); p != nil {
				err = panicError(p)
			}
			e := a.log.Debug()
			if a.pending && isPending(err) {
				e = e.Bool("pending", true)
			} else if err != nil {
				f := a.failure(nil, err)
				// a panic is a bug in the code, so log it even if the activity is retried
				if e = a.log.Info(); f.Type == activity.TypePanic {
					e = a.log.Warn()
				}
				if e = e.Str("error", protocol.ErrorText(err.Error())); f.StackTrace != "" {
					e = e.Str("stack", stack.Clean(f.StackTrace, protocol.MaxErrorText))
				}
			}
			if a.session != nil {
				e = e.Str("session_id", a.session.ID).Int64("epoch", a.session.Epoch)
			}
			e.Dur("took", time.Since(began)).Msg("activity ended")
		}()
		return next(ctx)
	}
}

// leased is the hook for the heartbeats of the code; leaseRenewer renews the lease. If another attempt may follow, the
// hook sends the last heartbeat value of the code to the app before the outcome.
func leased(a *attempt, next call) call {
	return func(ctx context.Context) (result payload.Payload, err error) {
		a.beats = newBeats(ctx, a)
		done := false
		defer func() {
			cause := context.Cause(ctx)
			again := err != nil || !done // err is nil and done is false after a panic
			a.beats.close(again && !rejectsOutcome(cause) && !errors.Is(cause, ErrCancelled))
		}()
		result, err = next(ctx)
		done = true
		return result, err
	}
}

// timeoutError reports that an attempt exceeded a timeout.
type timeoutError struct {
	kind string
	at   time.Time
}

// Error returns the same text as the app does for its timeouts, so that the text does not depend on which of the two
// detected the timeout.
func (e *timeoutError) Error() string { return "activity timed out: " + e.kind }

// deadlineKind returns the kind of the timeout that expires first.
func (a *attempt) deadlineKind() string {
	d := a.task.Deadlines
	if !d.ScheduleToClose.IsZero() && (d.StartToClose.IsZero() || d.ScheduleToClose.Before(d.StartToClose.Time)) {
		return "schedule_to_close"
	}
	return "start_to_close"
}

// deadlined is the hook that ends the code at the attempt's deadline.
func deadlined(a *attempt, next call) call {
	return func(ctx context.Context) (payload.Payload, error) {
		if a.info.Deadline.IsZero() {
			return next(ctx)
		}
		out := &timeoutError{kind: a.deadlineKind(), at: a.info.Deadline}
		inner, cancel := context.WithDeadlineCause(ctx, a.info.Deadline, out)
		defer cancel()
		result, err := next(inner)
		if err != nil && ctx.Err() == nil && isContextError(inner, err) {
			err = out
		}
		return result, err
	}
}

// inSession is the hook that counts the attempt as running in its session.
func inSession(a *attempt, next call) call {
	return func(ctx context.Context) (payload.Payload, error) {
		s := a.task.Session
		if s == nil {
			return next(ctx)
		}
		h, err := a.r.opt.Sessions.Enter(s, a.r.leases.sessionOf(a.lease))
		if err != nil {
			a.r.opt.Sessions.Refused(ctx, s, err)
			return payload.Payload{}, err
		}
		defer h.EndAttempt()
		a.session = h
		return next(ctx)
	}
}

// intercepted is the hook that runs the attempt inside the interceptors of the worker, including a rebuild of its
// session's state. An interceptor cannot hide that the attempt could not begin, or that its executor or the state of
// its session was lost.
func intercepted(a *attempt, next call) call {
	all := a.r.opt.Definitions.Interceptors()
	if len(all) == 0 {
		return next
	}
	return func(ctx context.Context) (result payload.Payload, err error) {
		var inner error
		err = userfunc.Around(activity.NewContext(ctx, runtime{a}), all, func(
			i workflow.Interceptor, ctx context.Context, next func(context.Context) error,
		) error {
			return i.InterceptActivity(ctx, &workflow.Call{
				Operation: workflow.OpExecuteActivity, Name: a.task.ActivityType, WorkflowID: a.task.WorkflowID,
				Headers: a.task.Headers.Copy(),
			}, next)
		}, func(ctx context.Context) error {
			result, inner = next(ctx)
			return inner
		})
		if hides(err, inner) {
			return payload.Payload{}, inner
		}
		return result, err
	}
}

// hides reports whether err, by which an interceptor replaced inner, lacks the information from which the runner
// determines the outcome of the attempt.
func hides(err, inner error) bool {
	if _, ok := errors.AsType[*unavailable](inner); ok {
		return true
	}
	if _, ok := errors.AsType[*sandbox.ExecutorEnded](inner); ok {
		_, ok := errors.AsType[*sandbox.ExecutorEnded](err)
		return !ok
	}
	return errors.Is(inner, activity.ErrSessionLost) && !errors.Is(err, activity.ErrSessionLost)
}

// runtime implements activity.Runtime for activity code in this process.
type runtime struct{ *attempt }

// Info returns the running attempt.
func (r runtime) Info() activity.AttemptInfo { return r.info }

// Session returns the attempt's session, or nil if it has none.
func (r runtime) Session() *activity.SessionInfo {
	if r.session == nil {
		return nil
	}
	if r.prepares { // the worker has not acquired the session, so no epoch exists that could fence its writes
		return &activity.SessionInfo{ID: r.session.ID, IsNew: true}
	}
	return &activity.SessionInfo{ID: r.session.ID, Epoch: r.session.Epoch, IsNew: r.task.Session.IsNew}
}

// State returns the state of the session in this process.
func (r runtime) State() *activity.SessionValues {
	if r.session == nil {
		return nil
	}
	state, _ := r.session.State.(*activity.SessionValues)
	return state
}

// SetUpElsewhere returns an error text if the set-up of the session ran in its executor; empty otherwise.
func (r runtime) SetUpElsewhere() string {
	if r.task.Session == nil {
		return ""
	}
	def, ok := r.r.opt.Definitions.FindSession(r.task.Session.Definition)
	if !ok || !r.setUpElsewhere(def) {
		return ""
	}
	return "the state of session definition " + def.Name + " is in an executor; only isolated activities find it"
}

// Log adds a line to the activity's log.
func (r runtime) Log(level, text string) {
	r.line(sandbox.LogLine{Time: time.Now(), Level: level, Source: "log", Text: text})
}

// Heartbeat sends a heartbeat.
func (r runtime) Heartbeat(progress json.RawMessage) { r.beats.add(progress) }

// Headers returns the headers of the activity.
func (r runtime) Headers() map[string]string { return r.task.Headers }

// LastHeartbeat returns the heartbeat details of an earlier attempt, which are part of the task.
func (r runtime) LastHeartbeat() json.RawMessage {
	if r.task.LastHeartbeat == nil {
		return nil
	}
	return r.task.LastHeartbeat.Details
}
