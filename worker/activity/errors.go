package activity

import (
	"context"
	"errors"
	"reflect"
	"strings"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// These are types of failures that Sojourn creates for activities; retry policies may name them.
const (
	TypeSessionLost = "SessionLost"
	TypePanic       = "Panic"
	TypeCancelled   = "Cancelled"
	TypeArguments   = "InvalidArguments"
)

// KindSessionLost marks a failure as lost session state.
const KindSessionLost = "session_lost"

// ErrSessionLost matches, with errors.Is, every error that reports that the session's state is not in this process: the
// session moved to this worker, or its executor ended.
var ErrSessionLost = errors.New("session state is lost")

// TypePending is the type of [ErrPending].
const TypePending = "ActivityPending"

// ErrPending is returned by an activity whose outcome a caller outside of the worker reports: a person, a webhook, or
// the end of a job in another system. The activity passes [Token] to that system and returns ErrPending. The attempt
// then stays open without a worker: it uses no slot, no lease and no place in its session. It ends when the outcome
// arrives, at its StartToClose or ScheduleToClose timeout, or when no heartbeat arrives for its heartbeat timeout; its
// retry policy then applies. See client.CompleteActivity.
//
// An app that does not support this records a failure of the type ActivityPending, which is not retried. Local steps,
// and functions that set up or rebuild the state of a session, fail if they return ErrPending.
var ErrPending error = &Error{
	Type: TypePending, NonRetryable: true, Message: "the outcome is reported with the token of the attempt",
}

// Error is a failure with a type, by which workflow code and retry policies can tell failures apart.
type Error struct {
	Type         string
	Message      string
	NonRetryable bool // true: no further attempt, even if the retry policy allows one
	Details      any  // any value with an encoding; the workflow decodes it
	Stack        string
	Cause        error
	lost         bool
}

// NewError returns a failure of a type, like activity.NewError("card_declined", "no credit", activity.NonRetryable,
// activity.Details(v)).
func NewError(typ, message string, opts ...ErrorOption) *Error {
	e := &Error{Type: typ, Message: message}
	for _, o := range opts {
		o(e)
	}
	return e
}

// ErrorOption sets an optional field of an Error.
type ErrorOption func(*Error)

// NonRetryable prevents further attempts.
func NonRetryable(e *Error) { e.NonRetryable = true }

// Details attaches a value for the workflow to decode.
func Details(v any) ErrorOption { return func(e *Error) { e.Details = v } }

// CausedBy sets the cause of the error, for errors.Is and errors.As in this process. The text of the cause is appended
// to the message.
func CausedBy(err error) ErrorOption { return func(e *Error) { e.Cause = err } }

// SessionLost returns an error that reports that the session state which this activity needs is not in this process.
// cause is the reason. The error matches ErrSessionLost.
func SessionLost(cause string) *Error {
	return &Error{Type: TypeSessionLost, Message: cause, lost: true}
}

// Error returns the type, the message and the cause.
func (e *Error) Error() string {
	var parts []string
	for _, part := range []string{e.Type, e.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if e.Cause != nil {
		parts = append(parts, e.Cause.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether e reports lost session state and target is ErrSessionLost.
func (e *Error) Is(target error) bool { return target == ErrSessionLost && e.lost }

// TypeOf returns the failure type under which the worker reports an error: the type of an *Error in its chain, the
// reason of a payload error, Cancelled, the name of the error's Go type, or Error.
func TypeOf(err error) string {
	if typed, ok := errors.AsType[*Error](err); ok && typed.Type != "" {
		return typed.Type
	}
	if reason := payload.Reason(err); reason != "" {
		return reason
	}
	if errors.Is(err, context.Canceled) {
		return TypeCancelled
	}
	for ; err != nil; err = errors.Unwrap(err) {
		t := reflect.TypeOf(err)
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Name() != "" && t.PkgPath() != "errors" && t.PkgPath() != "fmt" {
			return t.Name()
		}
	}
	return "Error"
}
