package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// Each attempt decides where its activity runs: Go code runs in this process unless it is isolated; all other code runs
// in an executor. If the worker cannot run it, the activity does not fail: the worker returns the task, and another
// worker may run it.

// execute runs the attempt's code: in an executor if it is isolated or not in Go, otherwise in this process.
func (a *attempt) execute(ctx context.Context) (payload.Payload, error) {
	result, err := a.run(ctx, a.task.ActivityType, a.def, a.task.Arguments)
	a.pending = isPending(err)
	return result, a.whyLost(err)
}

// whyLost adds to an error about missing state the reason why the previous epoch of the session ended. It adds nothing
// if the state was lost in this epoch, because the executor ended or after the state was rebuilt.
func (a *attempt) whyLost(err error) error {
	s, here := a.task.Session, a.lost != "" && a.lost != string(sandbox.CauseDeclared)
	here = here || a.rebuilds > 0 || a.recovered != nil
	if s == nil || s.LastEnd == "" || here || !errors.Is(err, activity.ErrSessionLost) {
		return err
	}
	// any other reason means that an operator or the owner released the session
	a.lost = cmp.Or(protocol.LostReason(s.LastEnd), "released")
	why := fmt.Sprintf(" (the previous acquisition of the session ended: %s)", s.LastEnd)
	if plain, ok := err.(*activity.Error); ok { //nolint:errorlint // not wrapped: its type and class stay
		detailed := *plain
		detailed.Message += why
		return &detailed
	}
	return fmt.Errorf("%w%s", err, why)
}

// run runs one activity, the attempt's own or a rebuild activity, within this attempt.
func (a *attempt) run(
	ctx context.Context, name string, def *activity.Definition, args payload.Payload,
) (payload.Payload, error) {
	if err := a.confirmLease(ctx); err != nil {
		return payload.Payload{}, err
	}
	if def != nil && (!def.Options.Isolated || a.r.opt.InProcess) {
		a.began = true
		return activitywire.Invoke(activity.NewContext(ctx, runtime{a}), def, args, a.r.opt.Codecs)
	}
	if a.r.opt.Executors == nil {
		return payload.Payload{}, &unavailable{"activity " + name + " needs an executor, and this worker has none"}
	}
	if _, ok := a.r.opt.Executors.Has(name); !ok && def == nil {
		return payload.Payload{}, &unavailable{"handler " + name + " is not there: its file or its runtime is missing"}
	}
	return a.invoke(ctx, name, args)
}

// KeyRebuild marks a call to an executor as a rebuild. The call has the arguments of the activity that needs the state.
const KeyRebuild = "rebuild"

// KeyDefinition is the name of the session's definition, for code that requires one.
const KeyDefinition = "session_definition"

// invoke runs an activity in an executor.
func (a *attempt) invoke(ctx context.Context, name string, args payload.Payload) (payload.Payload, error) {
	t := a.task
	inv := sandbox.Invocation{
		ID: t.AttemptID, Activity: name, Entry: a.entry, Attempt: t.Attempt, Deadline: a.info.Deadline, Input: args.Text(),
		Rebuild: a.rebuild, Suspect: t.Suspect,
		Keys: map[string]string{
			"activity_execution_id": t.ExecutionID, "attempt_id": t.AttemptID, "run_id": t.RunID, "workflow_id": t.WorkflowID,
			"task_id": t.TaskID, "task_queue": t.TaskQueue, "namespace": t.Namespace, "worker_id": t.LeaseOwner,
		},
	}
	if t.LastHeartbeat != nil {
		raw, err := json.Marshal(t.LastHeartbeat)
		if err != nil {
			return payload.Payload{}, err
		}
		inv.LastHeartbeat = raw
	}
	if len(t.Headers) > 0 {
		raw, err := json.Marshal(t.Headers)
		if err != nil {
			return payload.Payload{}, err
		}
		inv.Headers = raw
	}
	if a.rebuild {
		inv.Keys[KeyRebuild] = "true"
	}
	if t.Session != nil && t.Session.Definition != "" {
		inv.Keys[KeyDefinition] = t.Session.Definition
	}
	if a.session != nil {
		inv.Session = &sandbox.Session{
			ID: a.session.ID, Epoch: a.session.Epoch, Prepares: a.prepares,
			Pinned: t.Session.Origin == "workflow" || !t.Session.Reacquire,
		}
	}
	if len(inv.Input) == 0 {
		none, err := payload.EncodeArgs()
		if err != nil {
			return payload.Payload{}, err
		}
		inv.Input = none.Text()
	}
	var late error // why the attempt must not begin the call although an executor is ready
	hooks := sandbox.Hooks{
		OnBegin: func() error {
			late = a.confirmLease(ctx)
			return late
		},
		OnHeartbeat: func() { a.beats.add(nil) },
		OnProgress: func(value []byte) {
			if raw := bytes.TrimSpace(value); json.Valid(raw) {
				a.beats.add(append(json.RawMessage(nil), raw...))
			}
		},
		OnLog: a.line,
	}
	var output []byte
	err := a.untilAvailable(ctx, func() error {
		res, err := a.r.opt.Executors.Invoke(ctx, inv, hooks)
		if late != nil {
			return late
		}
		if !a.outside {
			a.r.logs.addDropped(&a.activityLog, res.LinesLeftOut)
		}
		// To rebuild lost session state, the attempt also calls a rebuild handler; record only the version of the
		// activity's own handler.
		if name == t.ActivityType {
			a.version = res.Version
		}
		a.began, output = a.began || codeBegan(err), res.Output
		return err
	})
	if err != nil {
		return payload.Payload{}, a.executorError(err)
	}
	return payload.OfText(output), nil
}

// untilAvailable calls an executor. It repeats the call, for a while, when no executor is available.
func (a *attempt) untilAvailable(ctx context.Context, call func() error) error {
	back := retry.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	for began := time.Now(); ; {
		err := call()
		// Only a call that never began is repeated here. After any other error the code may have run, and the retry
		// policy of the activity decides whether it runs again.
		if err == nil || !isUnavailable(err) || a.r.stopped.Load() || time.Since(began) > patienceWith(err) {
			return err
		}
		if why, _ := lacksPackages(err); why == "" && back.Tries() == 0 {
			a.log.Warn().Err(err).Msg("failed to start an executor; retrying")
		}
		// The call never began. If the worker returned the task immediately, it would receive it again at once while
		// all executors are busy.
		t := time.NewTimer(back.Next())
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if err := a.confirmLease(ctx); err != nil {
			return err
		}
	}
}

// These are the maximum times that an attempt waits for an executor before the worker returns the task. If packages of
// its handler are missing, which may take long, the worker returns it sooner: the slot becomes free, and the app
// reports what the task waits for.
const (
	executorPatience = 20 * time.Second
	packagesPatience = time.Second
)

func patienceWith(err error) time.Duration {
	if why, _ := lacksPackages(err); why != "" {
		return packagesPatience
	}
	return executorPatience
}

// lacksPackages returns the wait reason of a task whose handler lacks packages.
func lacksPackages(err error) (r protocol.WaitReason, why string) {
	var e *sandbox.Error
	if errors.As(err, &e) && e.Type == sandbox.Unavailable {
		switch e.Class {
		case sandbox.ClassInstalling:
			return protocol.WaitInstalling, e.Message
		case sandbox.ClassNotInstalled:
			return protocol.WaitNoPackages, e.Message
		}
	}
	return "", ""
}

// codeBegan reports whether the called code began, according to the error of a call to an executor. It did not begin if
// no executor was available, or if the state of the session was lost before the call. It began if the code itself
// reported the loss.
func codeBegan(err error) bool {
	var lost *sandbox.SessionLost
	if errors.As(err, &lost) {
		return lost.Cause == sandbox.CauseDeclared
	}
	return !isUnavailable(err)
}

// isUnavailable reports whether no executor was available.
func isUnavailable(err error) bool {
	var e *sandbox.Error
	return errors.As(err, &e) && e.Type == sandbox.Unavailable
}

// line adds a line of the code's log or output to the activity log.
func (a *attempt) line(l sandbox.LogLine) {
	if !a.outside { // otherwise no activity has a log
		a.r.logs.add(&a.activityLog, l)
	}
	a.log.Info().Str("source", l.Source).Str("level_of_line", l.Level).Msg(l.Text)
}

// executorError converts an error of an executor: after lost state the recovery policy applies, and a call for which no
// executor was available never began.
func (a *attempt) executorError(err error) error {
	var ended *sandbox.ExecutorEnded
	if errors.As(err, &ended) {
		a.executorEnded = ended
		return err
	}
	var lost *sandbox.SessionLost
	if errors.As(err, &lost) {
		if lost.Cause.ExecutorEnded() { // the executor ended before this call began
			a.executorEnded = &sandbox.ExecutorEnded{
				Cause: lost.Cause, Err: &sandbox.Error{Type: sandbox.Crashed, Message: lost.Message, Retryable: true},
			}
		}
		a.lost = string(lost.Cause)
		detailed := activity.SessionLost(lost.Error())
		detailed.Stack = lost.Stack
		return detailed
	}
	if r, why := lacksPackages(err); r != "" {
		return &unavailable{r.Returned(why)}
	}
	if isUnavailable(err) {
		return &unavailable{"executor unavailable: " + err.Error()}
	}
	return err
}

// failureOfExecutor converts an error of an executor to a failure that the app accepts; nil for other errors.
func failureOfExecutor(err error) *protocol.Failure {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return nil
	}
	f := &protocol.Failure{
		Message: e.Message, Type: string(e.Type), Class: e.Class, StackTrace: e.Stack, NonRetryable: !e.Retryable,
	}
	switch e.Type {
	case sandbox.UserError:
		if e.Class != "" {
			f.Type = e.Class
		}
	case sandbox.OutOfMemory:
		f.Type = "out_of_memory"
	case sandbox.DeadlineExceeded:
		f.Type, f.Kind = history.TypeActivityTimeout, "timeout"
	case sandbox.Cancelled:
		f.Type, f.Cancelled, f.NonRetryable = activity.TypeCancelled, true, false
	}
	var envelope payload.Payload
	if len(e.Details) > 0 && bytes.HasPrefix(e.Details, []byte(`{"codec":`)) && envelope.UnmarshalJSON(e.Details) == nil {
		f.Details = e.Details
	} else if len(e.Details) > 0 {
		if p, bad := payload.FromJSON(e.Details); bad == nil {
			f.Details, _ = json.Marshal(p)
		}
	}
	return f
}
