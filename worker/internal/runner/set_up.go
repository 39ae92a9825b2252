package runner

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// The state of a session with a definition exists before code runs in the session. The first attempt of an epoch runs
// the set-up within its own lease; attempts that arrive meanwhile wait for it (singleflight, as for rebuilds). The app
// suspends the timeouts of these attempts while the worker reports that they wait for a set-up.

// setUpTimeout is the default timeout of a set-up.
const setUpTimeout = 10 * time.Minute

// tearDownTime is the timeout of a tear-down.
const tearDownTime = 10 * time.Second

// typeSetUpTimeout is the failure type of an attempt whose set-up timed out.
const typeSetUpTimeout = "SessionSetUpTimeout"

// SessionDefinition is a registered session definition.
type SessionDefinition struct {
	Name     string
	timeout  time.Duration
	policy   activity.SetUpFailurePolicy
	setUp    reflect.Value
	args     *activity.Func
	tearDown reflect.Value // zero: none
	handler  string        // name of the handler file that contains the definition; empty: the definition is in Go
	entry    string        // name of the set-up function in that file
}

// setUpEntries are the names of the set-up function in handler files, by runtime.
var setUpEntries = map[string]string{sandbox.RuntimeNode: "setUp", sandbox.RuntimePython: "set_up"}

// HandlerSession returns the session definition in a handler file. Its functions run in the executor of the session,
// which keeps the state and runs the tear-down.
func HandlerSession(name, handler, runtime string) *SessionDefinition {
	return &SessionDefinition{Name: name, timeout: setUpTimeout, handler: handler, entry: setUpEntries[runtime]}
}

// NewSessionDefinition checks the functions of a definition and returns the definition.
func NewSessionDefinition(name string, d activity.SessionDefinition) (*SessionDefinition, error) {
	bad := func(format string, args ...any) (*SessionDefinition, error) {
		return nil, fmt.Errorf("session definition %q: %w", name, fmt.Errorf(format, args...))
	}
	if name == "" {
		return nil, errors.New("a session definition has no name")
	}
	if len(name) > maxDefinitionName {
		return bad("the name is longer than %d bytes", maxDefinitionName)
	}
	args, err := activity.NewFunc(d.SetUp, reflect.TypeFor[context.Context]())
	if err != nil {
		return bad("SetUp: %w", err)
	}
	def := &SessionDefinition{
		Name: name, timeout: d.SetUpTimeout, policy: d.OnFailure, setUp: reflect.ValueOf(d.SetUp), args: args,
	}
	result := def.setUp.Type()
	if result.NumOut() != 2 {
		return bad("SetUp: %s returns no state; want func(context.Context, args…) (T, error)", result)
	}
	if d.TearDown != nil {
		def.tearDown = reflect.ValueOf(d.TearDown)
		if err := checkTearDown(def.tearDown.Type(), result.Out(0)); err != nil {
			return bad("TearDown: %w", err)
		}
	}
	switch {
	case d.SetUpTimeout < 0:
		return bad("SetUpTimeout is negative")
	case d.SetUpTimeout == 0:
		def.timeout = setUpTimeout
	}
	switch d.OnFailure {
	case "", activity.FailActivity, activity.TryAnotherWorker:
	default:
		return bad("unknown OnFailure %q", d.OnFailure)
	}
	return def, nil
}

// maxDefinitionName is the maximum length of the name of a definition, as in protocol.SessionDefinition.
const maxDefinitionName = 200

// checkTearDown returns an error if t is not a function that releases a value of type state.
func checkTearDown(t, state reflect.Type) error {
	ok := t.Kind() == reflect.Func && t.NumIn() == 2 && t.In(0) == reflect.TypeFor[context.Context]() &&
		state.AssignableTo(t.In(1)) && !t.IsVariadic() &&
		(t.NumOut() == 0 || t.NumOut() == 1 && t.Out(0) == reflect.TypeFor[error]())
	if !ok {
		return fmt.Errorf("got %s, want func(context.Context, %s) error", t, state)
	}
	return nil
}

// run calls the set-up function. It returns a panic as an error of type TypePanic, as for an activity.
func (d *SessionDefinition) run(ctx context.Context, args payload.Payload) (state any, err error) {
	if args.IsZero() {
		if args, err = payload.EncodeArgs(); err != nil {
			return nil, err
		}
	}
	in, err := d.args.Decode(args)
	if err != nil {
		return nil, activity.NewError(activity.TypeArguments, "", activity.NonRetryable, activity.CausedBy(err))
	}
	defer func() {
		if r := recover(); r != nil {
			state, err = nil, &activity.Error{Type: activity.TypePanic, Message: fmt.Sprint(r), Stack: stack.OfPanic()}
		}
	}()
	in[0] = reflect.ValueOf(ctx)
	out := d.setUp.Call(in)
	if err, _ := out[1].Interface().(error); err != nil {
		return nil, err
	}
	return out[0].Interface(), nil
}

// release calls the tear-down function.
func (d *SessionDefinition) release(state any) (err error) {
	if !d.tearDown.IsValid() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), tearDownTime)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	value := reflect.ValueOf(state)
	if !value.IsValid() { // SetUp returned a nil interface
		value = reflect.Zero(d.tearDown.Type().In(1))
	}
	if out := d.tearDown.Call([]reflect.Value{reflect.ValueOf(ctx), value}); len(out) > 0 {
		err, _ = out[0].Interface().(error)
	}
	return err
}

// settingUp is the hook that sets the session up by its definition, unless the state exists. If the activity has no
// recovery policy and reports that the state is lost, the hook sets the session up again and repeats the activity once.
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
	own := false
	failed := a.session.Rebuild(ctx, seen, true, func(ctx context.Context) error {
		own = true
		return a.runSetUp(ctx, def, stop)
	})
	stop()
	done := *report.SetUp
	done.Seconds, done.Waited, done.Outcome = time.Since(began).Seconds(), !own, protocol.Rebuilt
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
	if def.policy == activity.TryAnotherWorker {
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
	a.reportRebuild(a.recovered) // the set-up starts now, and so does its timeout
	if def.handler != "" {
		return a.setUpInExecutor(ctx, def)
	}
	values := runtime{a}.State()
	values.TearDown() // release a state that the code reported as lost, once no other activity uses it
	inner, cancel := context.WithTimeout(ctx, def.timeout)
	defer cancel()
	state, err := def.run(activity.NewContext(inner, runtime{a}), payload.Payload{Blob: a.session.SetUpArguments()})
	if err != nil {
		if ctx.Err() == nil && inner.Err() != nil && isContextError(inner, err) {
			err = def.timedOut()
		}
		return err
	}
	log, id, epoch := a.r.log, a.session.ID, a.session.Epoch
	values.SetUp(state, func() {
		if err := def.release(state); err != nil {
			log.Warn().Str("error", protocol.ErrorText(err.Error())).Str("session_id", id).Int64("epoch", epoch).
				Str("definition", def.Name).Msg("failed to tear down a session")
		}
	})
	return nil
}

// setUpInExecutor calls the set-up function of a file in the executor of the session.
func (a *attempt) setUpInExecutor(ctx context.Context, def *SessionDefinition) error {
	if a.r.opt.Executors == nil {
		return &unavailable{"session definition " + def.Name + " needs an executor, and this worker has none"}
	}
	deadline := a.info.Deadline
	defer func() { a.entry, a.rebuild, a.began, a.info.Deadline = "", false, false, deadline }()
	// The executor may start with new state under an epoch whose state was lost, since the set-up creates it.
	a.entry, a.rebuild, a.info.Deadline = def.entry, true, time.Now().Add(def.timeout)
	_, err := a.invoke(ctx, def.handler, payload.Payload{Blob: a.session.SetUpArguments()})
	var e *sandbox.Error
	if errors.As(err, &e) && e.Type == sandbox.DeadlineExceeded {
		return def.timedOut()
	}
	return err
}

func (d *SessionDefinition) timedOut() error {
	return activity.NewError(
		typeSetUpTimeout, fmt.Sprintf("the set-up of session definition %s did not end within %s", d.Name, d.timeout),
	)
}

// passOn releases the session after a failed set-up and returns the task, so that another worker runs the set-up.
func (a *attempt) passOn(ctx context.Context, own bool, failed error) error {
	why := protocol.ReturnedSetUpFailed + ": " + protocol.ErrorText(failed.Error())
	if own {
		id, epoch := a.session.ID, a.session.Epoch
		if release := a.r.opt.ReleaseSession; release != nil {
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
	length := d.StartToClose.Sub(a.task.LeaseExpiresAt.Add(-a.r.opt.AttemptLease))
	a.info.Deadline = time.Now().Add(length)
	if !d.ScheduleToClose.IsZero() {
		if end := a.r.localTime(a.task, a.received.sentAt(), d.ScheduleToClose.Time); end.Before(a.info.Deadline) {
			a.info.Deadline = end
		}
	}
}
