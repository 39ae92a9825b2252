package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// The state of a session with a definition exists before code runs in the session. The first attempt of an epoch runs
// the set-up within its own lease; attempts that arrive meanwhile wait for it (singleflight, as for rebuilds). The app
// suspends the timeouts of these attempts while the worker reports that they wait for a set-up.

// settingUp is middleware that sets the session up by its definition, unless its state exists. If the code reports that
// the state is lost and has no recovery policy, it sets the session up again and repeats the code once.
func settingUp(a *attempt, next call) call {
	return func(ctx context.Context) (payload.Payload, error) {
		s := a.task.Session
		def, ok := a.r.opt.Definitions.FindSession(s.Definition)
		if !ok { // the app dispatches the task only to workers with the definition
			return payload.Payload{}, &unavailable{"session definition " + s.Definition + " is not registered here"}
		}
		if s.OnLost == protocol.OnLostFail && s.LastEnd != "" && a.session.ShowLoss() {
			return payload.Payload{}, activity.SessionLost(
				"the previous acquisition of the session ended: " + protocol.ErrorText(s.LastEnd),
			)
		}
		reason := ""
		if s.LastEnd != "" {
			reason = protocol.LostReason(s.LastEnd)
		}
		if a.session.Rebuilds() == 0 {
			if err := a.setUpSession(ctx, def, 0, reason); err != nil {
				return payload.Payload{}, err
			}
		}
		seen := a.session.Rebuilds()
		code := func() (payload.Payload, error) {
			defer runtime{a}.State().Use()()
			return next(ctx)
		}
		result, err := code()
		if !errors.Is(err, activity.ErrSessionLost) || ctx.Err() != nil || a.policy(ctx) != nil {
			return result, err
		}
		if failed := a.setUpSession(ctx, def, seen, a.lostReason()); failed != nil {
			return payload.Payload{}, failed
		}
		return code()
	}
}

// setUpSession runs the set-up of the session, or waits for the set-up of another attempt. seen is the number of
// rebuilds of the session before the caller found the state missing.
func (a *attempt) setUpSession(ctx context.Context, def *SessionDefinition, seen int, reason string) error {
	began := time.Now()
	most := def.timeout
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// ScheduleToClose also limits the set-up: no attempt runs longer
	if end := a.task.Deadlines.ScheduleToClose; !end.IsZero() {
		at := a.r.localTime(a.task, a.received.sentAt(), end.Time)
		timer := time.AfterFunc(time.Until(at), func() { cancel(&timeoutError{kind: "schedule_to_close", at: at}) })
		defer timer.Stop()
	}
	report := &protocol.Recovered{Reason: reason, SetUp: &protocol.SetUp{
		Definition: def.Name, Outcome: protocol.RebuildRunning, Timeout: int64((most + time.Second - 1) / time.Second),
		Waited: a.session.Rebuilding(seen),
	}}
	a.recovered = report
	stop := a.reportWaiting(most / 2)
	own, policy := false, def.policy
	failed := a.session.Rebuild(ctx, seen, true, func(ctx context.Context) error {
		own = true
		setUp := func() error { return a.runSetUp(ctx, def, stop) }
		if err := setUp(); err != nil {
			return err
		}
		return a.restoreState(ctx, def, setUp)
	})
	stop()
	done := *report.SetUp
	done.Seconds, done.Waited, done.Outcome = time.Since(began).Seconds(), !own, protocol.Rebuilt
	if done.RestoreFailed = a.restoreFailed; done.RestoreFailed != "" {
		reason = protocol.ReasonRestoreFailed
	}
	final := &protocol.Recovered{Reason: reason, SetUp: &done}
	a.recovered = final
	if failed == nil {
		a.reportRebuild(final)
		a.restartDeadline()
		if own {
			a.log.Info().Str("session_id", a.session.ID).Int64("epoch", a.session.Epoch).Str("definition", def.Name).
				Float64("set_up_seconds", done.Seconds).Msg("session set up")
		}
		return nil
	}
	if f, ok := errors.AsType[*setUpFailure](failed); ok {
		policy, failed = f.policy, f.err
	}
	if handBack, ok := errors.AsType[*unavailable](failed); ok {
		return handBack
	}
	done.Outcome, final.Cause = protocol.RebuildFailed, protocol.ErrorText(failed.Error())
	if cause := context.Cause(ctx); cause != nil {
		done.Outcome = protocol.RebuildCancelled
		var out *timeoutError
		if errors.As(cause, &out) {
			failed = out
		}
		return failed
	}
	if own {
		a.log.Warn().Str("error", final.Cause).Str("session_id", a.session.ID).Int64("epoch", a.session.Epoch).
			Str("definition", def.Name).Msg("failed to set up a session")
	}
	if policy == activity.TryAnotherWorker && a.restoreFailed == "" {
		return a.passOn(ctx, own, failed)
	}
	return failed
}

// runSetUp runs the set-up function when fewer than the worker's maximum of set-ups run, and stores its result.
func (a *attempt) runSetUp(ctx context.Context, def *SessionDefinition, begun func()) error {
	select {
	case a.r.setUps <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-a.r.setUps }()
	if err := a.confirmLease(ctx); err != nil {
		return err
	}
	begun()
	if def.entry != "" {
		with, err := a.fileOptions(ctx, def)
		if err != nil {
			return err
		}
		def = with
		report, setUp := *a.recovered, *a.recovered.SetUp
		setUp.Timeout = int64((def.timeout + time.Second - 1) / time.Second)
		report.SetUp = &setUp
		a.recovered = &report
	}
	a.reportRebuild(a.recovered) // the timeout counts from here
	args, err := a.r.opt.Codecs.DecodeArgs(payload.Payload{Blob: a.session.SetUpArguments()})
	if err != nil {
		return &unavailable{err.Error()}
	}
	if a.setUpElsewhere(def) {
		if err := a.setUpInExecutor(ctx, def, args); err != nil {
			return &setUpFailure{err, def.policy}
		}
		return nil
	}
	inner, cancel := context.WithTimeout(ctx, def.timeout)
	defer cancel()
	log, id, epoch := a.r.log, a.session.ID, a.session.Epoch
	err = def.SetUp(
		activity.NewContext(inner, runtime{a}), args, runtime{a}.State(),
		func(err error) {
			log.Warn().Str("error", protocol.ErrorText(err.Error())).Str("session_id", id).Int64("epoch", epoch).
				Str("definition", def.Name).Msg("failed to tear down a session")
		},
	)
	if err != nil && ctx.Err() == nil && inner.Err() != nil && isContextError(inner, err) {
		err = def.timedOut()
	}
	return err
}

// setUpFailure is the failure of a set-up with the policy that its file exports, for all attempts that waited for it.
type setUpFailure struct {
	err    error
	policy activity.SetUpFailurePolicy
}

func (f *setUpFailure) Error() string { return f.err.Error() }

func (f *setUpFailure) Unwrap() error { return f.err }

// setUpElsewhere reports whether the set-up of a definition runs in an executor.
func (a *attempt) setUpElsewhere(def *SessionDefinition) bool {
	return def.entry != "" || def.Isolated() && !a.r.opt.InProcess
}

// fileOptions returns the definition with the options that its file exports.
func (a *attempt) fileOptions(ctx context.Context, def *SessionDefinition) (*SessionDefinition, error) {
	if a.r.opt.Executors == nil {
		return nil, &unavailable{"session definition " + def.Name + " needs an executor, and this worker has none"}
	}
	var raw []byte
	err := a.untilAvailable(ctx, func() (err error) {
		raw, err = a.r.opt.Executors.Exported(ctx, def.handler, "options")
		return err
	})
	if err != nil || raw == nil {
		return def, a.executorError(err)
	}
	with := *def
	if err := with.parseOptions(raw); err != nil {
		return nil, activity.NewError(
			typeInvalidOptions, "session definition "+def.Name+": "+err.Error(), activity.NonRetryable,
		)
	}
	return &with, nil
}

// setUpInExecutor calls the set-up function in the executor of the session.
func (a *attempt) setUpInExecutor(ctx context.Context, def *SessionDefinition, args payload.Payload) error {
	if a.r.opt.Executors == nil {
		return &unavailable{"session definition " + def.Name + " needs an executor, and this worker has none"}
	}
	deadline := a.info.Deadline
	defer func() { a.entry, a.rebuild, a.began, a.info.Deadline = "", false, false, deadline }()
	// The executor may start with new state under an epoch whose state was lost, since the set-up creates it.
	a.entry, a.rebuild, a.info.Deadline = def.entry, true, time.Now().Add(def.timeout)
	_, err := a.invoke(ctx, def.handler, args)
	var e *sandbox.Error
	if errors.As(err, &e) && e.Type == sandbox.DeadlineExceeded {
		return def.timedOut()
	}
	return err
}

// passOn releases the session after a failed set-up and returns the task, so that another worker tries it.
func (a *attempt) passOn(ctx context.Context, own bool, failed error) error {
	why := protocol.ReturnedSetUpFailed + ": " + protocol.ErrorText(failed.Error())
	if own {
		id, epoch := a.session.ID, a.session.Epoch
		if release := a.r.opt.ReleaseSession; release != nil {
			// The attempt may lose its lease with the session, before it is returned: then history has the last report.
			a.beats.awaitRebuildReport(ctx, *a.recovered)
			if err := release(ctx, id, epoch, protocol.ReturnedSetUpFailed); err != nil {
				a.log.Warn().Err(err).Str("session_id", id).Int64("epoch", epoch).Msg("failed to release a session")
				return failed // this worker still holds the session, so no other worker could run the task
			}
		}
		a.r.opt.Sessions.Drop(id, epoch, protocol.ReturnedSetUpFailed)
	}
	return &unavailable{why}
}

// reportWaiting reports, immediately and then at intervals, that the attempt waits for a set-up. Call stop to end it.
func (a *attempt) reportWaiting(every time.Duration) (stop func()) {
	now := a.recovered // copy it, because the attempt replaces it when the set-up ends
	a.reportRebuild(now)
	done := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() {
		tick := time.NewTicker(max(every, time.Second))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				a.reportRebuild(now)
			case <-done:
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		reporting.Wait()
	})
}

// restartDeadline restarts the start_to_close timeout.
func (a *attempt) restartDeadline() {
	d := a.task.Deadlines
	if d.StartToClose.IsZero() || a.task.LeaseExpiresAt.IsZero() {
		return
	}
	length := d.StartToClose.Sub(a.task.LeaseExpiresAt.Add(-a.r.leases.timingOf(a.task).length))
	a.info.Deadline = time.Now().Add(length)
	if !d.ScheduleToClose.IsZero() {
		if end := a.r.localTime(a.task, a.received.sentAt(), d.ScheduleToClose.Time); end.Before(a.info.Deadline) {
			a.info.Deadline = end
		}
	}
}
