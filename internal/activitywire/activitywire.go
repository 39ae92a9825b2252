// Package activitywire converts between the values of package activity and the protocol.
package activitywire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/internal/userfunc"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// InfoOf reads the AttemptInfo of a task.
func InfoOf(t *protocol.ActivityTask) activity.AttemptInfo {
	deadline := t.Deadlines.StartToClose.Time
	if d := t.Deadlines.ScheduleToClose.Time; !d.IsZero() && (deadline.IsZero() || d.Before(deadline)) {
		deadline = d
	}
	return activity.AttemptInfo{
		Namespace: t.Namespace, WorkflowID: t.WorkflowID, RunID: t.RunID, TaskID: t.TaskID, ActivityType: t.ActivityType,
		Queue:       t.TaskQueue,
		ExecutionID: t.ExecutionID, AttemptID: t.AttemptID, IdempotencyKey: t.IdempotencyKey, Attempt: t.Attempt,
		WorkerID: t.LeaseOwner,
		Release:  t.Release, Deadline: deadline, HeartbeatEvery: time.Duration(t.HeartbeatEvery) * time.Second,
	}
}

// Invoke decodes the encoded arguments, runs the activity and encodes its result, to which the caller applies the
// codecs. A panic becomes an *activity.Error of TypePanic with the stack. Arguments that do not match the parameters
// become an *activity.Error of TypeArguments, which is not retried.
func Invoke(
	ctx context.Context, d *activity.Definition, args payload.Payload, chain codecs.Chain,
) (result payload.Payload, err error) {
	fn := userfunc.OfActivity(d)
	in, given, err := fn.DecodeGiven(args)
	if takes := d.NumArgs(); err == nil && given < takes {
		// A newer build may have added a parameter to the function after the workflow scheduled the call.
		activity.Logger(ctx).Warn("activity received fewer arguments than it has parameters; the missing ones have zero values",
			"arguments", given, "parameters", takes)
	}
	if err != nil {
		return payload.Payload{}, activity.NewError(activity.TypeArguments, "", activity.NonRetryable, activity.CausedBy(err))
	}
	defer func() {
		if r := recover(); r != nil {
			failed := &activity.Error{Type: activity.TypePanic, Message: fmt.Sprint(r), Stack: stack.OfPanic()}
			if cause, is := r.(error); is {
				failed.Message, failed.Cause = "", cause
			}
			result, err = payload.Payload{}, failed
		}
	}()
	return fn.CallWith(chain.NewValue, ctx, in)
}

// FailureOf converts an error of an activity to the failure that the worker reports. If the details cannot be encoded,
// it omits them and mentions that in the message.
func FailureOf(err error) *protocol.Failure {
	f := &protocol.Failure{Message: err.Error(), Type: activity.TypeOf(err), Class: fmt.Sprintf("%T", err)}
	if typed, ok := errors.AsType[*activity.Error](err); ok {
		f.NonRetryable, f.StackTrace = typed.NonRetryable, typed.Stack
		if err == error(typed) { //nolint:errorlint // not wrapped: only then does the message begin with the type, which has its own member
			f.Message = strings.TrimPrefix(strings.TrimPrefix(f.Message, typed.Type), ": ")
		}
		if details, bad := EncodeDetails(typed.Details); bad != nil {
			f.Message += fmt.Sprintf(" (details omitted: %v)", bad)
		} else {
			f.Details = details
		}
	}
	switch {
	case errors.Is(err, activity.ErrSessionLost):
		f.Kind, f.Type = activity.KindSessionLost, activity.TypeSessionLost
	case errors.Is(err, context.Canceled):
		f.Cancelled = true
	case errors.Is(err, payload.ErrTooLarge):
		f.NonRetryable = true
	}
	return f
}

// EncodeDetails encodes the details of a failure; nil for nil.
func EncodeDetails(details any) (json.RawMessage, error) {
	if details == nil {
		return nil, nil
	}
	p, err := payload.Encode(details)
	if err != nil {
		return nil, err
	}
	return json.Marshal(p)
}
