package workflow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// Errors of this package, for errors.Is.
var (
	// ErrCancelled reports that the context was cancelled, and with it an activity, a timer or a wait.
	ErrCancelled = errors.New("cancelled")
	// ErrTimedOut reports that one of the timeouts of an activity or a child workflow ended it.
	ErrTimedOut = errors.New("timed out")
	// ErrSessionLost reports that an activity needed session state that was lost.
	ErrSessionLost = activity.ErrSessionLost
	// ErrSessionClosed reports that the activity's session has ended.
	ErrSessionClosed = errors.New("session has ended")
	// ErrSessionResources reports that no live worker has the resources that the activity's session needs.
	ErrSessionResources = errors.New("no live worker has the resources of the session")
	// ErrSessionMissing reports that the activity's session was never started.
	ErrSessionMissing = errors.New("session does not exist")
	// ErrPoison reports that an activity was blamed for the loss of its worker process too often.
	ErrPoison = errors.New("activity failed as poison: its worker processes were lost too often")
	// ErrInvalidOptions reports options that are not allowed.
	ErrInvalidOptions = errors.New("invalid options")
)

const (
	typeCancelled = activity.TypeCancelled
	typeInput     = "WorkflowInput"
)

// Categories and types of failures in the history.
const (
	categoryPoison      = "poison"
	categorySessionLost = "session_lost"
)

// ActivityError reports why an activity has no result.
type ActivityError struct {
	ActivityType string
	ExecutionID  string
	Sequence     int64  // number of the command that scheduled the activity
	Type         string // type of the activity's error
	Message      string
	details      payload.Payload
	Attempts     int    // number of the last attempt
	TimeoutKind  string // schedule_to_start, start_to_close, schedule_to_close or heartbeat; empty: no timeout

	Local          bool // true for a local step; see Do
	Cancelled      bool
	TimedOut       bool
	NonRetryable   bool
	SessionLost    bool
	SessionClosed  bool
	SessionMissing bool
	// SessionResources: no live worker of the queue has, even without sessions, the resources of the session.
	SessionResources bool
	Poison           bool
}

// Error returns the activity type, and the type and message of its failure.
func (e *ActivityError) Error() string {
	what := "activity"
	if e.Local {
		what = "local step"
	}
	return explain(what, e.ActivityType, e.Type, e.Message)
}

// Is implements errors.Is for the Err values of this package.
func (e *ActivityError) Is(target error) bool {
	switch target {
	case ErrCancelled:
		return e.Cancelled
	case ErrTimedOut:
		return e.TimedOut
	case ErrSessionLost:
		return e.SessionLost
	case ErrSessionClosed:
		return e.SessionClosed
	case ErrSessionMissing:
		return e.SessionMissing
	case ErrSessionResources:
		return e.SessionResources
	case ErrPoison:
		return e.Poison
	}
	return false
}

// DecodeDetails decodes the value that activity.Details attached. It leaves out unchanged if there is none.
func (e *ActivityError) DecodeDetails(out any) error { return decodeDetails(e.details, out) }

// activityError returns the error for an event that ends an activity without a result.
func activityError(f *future, execution string, a history.Attempt, d history.Failure) *ActivityError {
	e := &ActivityError{
		ActivityType: f.name, ExecutionID: execution, Sequence: f.seq, Type: d.ExceptionType, Message: d.Message,
		Attempts:     a.Number,
		NonRetryable: d.NonRetryable,
	}
	ex := readException(d.Exception)
	e.Type, e.Message, e.details = cmp.Or(e.Type, ex.Type), cmp.Or(e.Message, ex.Message), ex.Details
	e.Poison = d.Category == categoryPoison || e.Type == categoryPoison
	e.SessionLost = d.Category == categorySessionLost || ex.Kind == activity.KindSessionLost ||
		e.Type == activity.TypeSessionLost
	e.SessionClosed = e.Type == string(protocol.ReasonSessionClosed)
	e.SessionMissing = e.Type == string(protocol.ReasonSessionMissing)
	e.SessionResources = e.Type == string(protocol.ReasonSessionResources)
	e.Cancelled = d.Category == "cancelled"
	return e
}

// exception is the part of a failure in which the worker describes the original error.
type exception struct {
	Type    string          `json:"type"`
	Message string          `json:"message"`
	Kind    string          `json:"kind"`
	Details payload.Payload `json:"details"`
}

// readException decodes an exception. The result is empty if raw is empty or has an unknown format.
func readException(raw []byte) exception {
	var ex exception
	if len(raw) == 0 || json.Unmarshal(raw, &ex) != nil {
		return exception{}
	}
	return ex
}

// explain returns the text of a failure: the failed step, its type unless the message contains it, and the message.
func explain(what, name, typ, message string) string {
	return fmt.Sprintf("%s %q: %s", what, name, history.Failure{ExceptionType: typ, Message: message}.Text())
}

func decodeDetails(p payload.Payload, out any) error {
	if p.IsZero() {
		return nil
	}
	return payload.Decode(p, out)
}

// NonDeterminismError reports that the replayed code issued a command other than the recorded one.
type NonDeterminismError struct {
	RunID     string
	EventSeq  int64 // number of the event that records the other command; 0: none
	EventType string
	Command   int64  // number of the command; 0 for commands without a number, such as the completion of an update
	Recorded  string // recorded command
	Issued    string // command that the code issued
	At        string // file and line of the call that issued the command; empty: unknown
	Around    string // neighbouring recorded commands; empty: none

	RecordedArguments string // shortened arguments of an activity or a child; empty: not available
	IssuedArguments   string
}

// Error returns the event, the recorded command and the issued command. It contains no arguments.
func (e *NonDeterminismError) Error() string {
	history, code := "the history has ", "the code"
	if e.EventSeq > 0 {
		history = fmt.Sprintf("event %d (%s) is ", e.EventSeq, e.EventType)
	}
	if e.EventSeq > 0 && e.Command > 0 {
		history = fmt.Sprintf("event %d (%s, command %d) is ", e.EventSeq, e.EventType, e.Command)
	}
	if e.At != "" {
		code += " (" + e.At + ")"
	}
	text := fmt.Sprintf("non-deterministic workflow code: %s%s, but %s now has %s", history, e.Recorded, code, e.Issued)
	if e.Around != "" {
		text += "; " + e.Around
	}
	if !strings.Contains(e.Recorded+e.Issued, " in session ") {
		text = strings.ReplaceAll(text, " without a session", "")
	}
	return text
}

// Explain returns the error text with the arguments. Arguments are user data and must not be logged.
func (e *NonDeterminismError) Explain() string {
	text := e.Error()
	if e.RecordedArguments != "" {
		text += "; arguments recorded: " + e.RecordedArguments
	}
	if e.IssuedArguments != "" {
		text += "; arguments of the code: " + e.IssuedArguments
	}
	return text
}

// PanicError is a panic of workflow code. It fails the workflow task, not the run: with corrected code the run
// continues.
type PanicError struct {
	Value any
	Stack string
}

// Error returns the value of the panic, and the line of code if it is known.
func (e *PanicError) Error() string {
	if at := path.Base(stack.Place(e.Stack)); at != "." && e.Value != any(errForeignGoroutine) {
		return fmt.Sprintf("workflow code panicked (%s): %v", at, e.Value)
	}
	return fmt.Sprintf("workflow code panicked: %v", e.Value)
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// DeadlockError reports that workflow code ran too long without blocking in this package: it loops or blocks elsewhere.
type DeadlockError struct {
	After time.Duration
	Stack string
}

// Error returns how long the code ran without blocking in this package.
func (e *DeadlockError) Error() string {
	return fmt.Sprintf(
		"workflow code did not yield within %s: it loops or blocks outside package workflow", e.After,
	)
}

// InputError reports that the run's arguments do not match the parameters of the workflow function.
type InputError struct {
	WorkflowType string
	Err          error
}

// Error returns the workflow type and the decoding error.
func (e *InputError) Error() string {
	return fmt.Sprintf("cannot decode start input of workflow %q: %v", e.WorkflowType, e.Err)
}

// Unwrap returns the cause.
func (e *InputError) Unwrap() error { return e.Err }

// VersionError reports that a run uses a version of its workflow that this worker has not registered.
type VersionError struct {
	WorkflowType string
	Version      int
	Registered   []int
}

// Error returns the version that the run needs and the registered versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf(
		"the run needs version %d of workflow %q; this worker has registered %v", e.Version, e.WorkflowType, e.Registered,
	)
}

// UnregisteredError reports that the code calls a function that its worker has not registered. It fails the workflow
// task, not the run: a worker that has registered the function continues the run.
type UnregisteredError struct{ Err error }

// Error returns the text of Err.
func (e *UnregisteredError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnregisteredError) Unwrap() error { return e.Err }

// taskFailure returns the failure with which a workflow task ends when machine.Apply returned err.
func taskFailure(err error) *protocol.Failure {
	f := &protocol.Failure{Message: err.Error(), Type: "WorkflowTaskFailed"}
	var (
		mismatch *NonDeterminismError
		panicked *PanicError
		stuck    *DeadlockError
		input    *InputError
		version  *VersionError
		unknown  *UnregisteredError
	)
	switch {
	case errors.As(err, &mismatch):
		f.Type, f.Sequence, f.Message = "NonDeterminism", mismatch.Command, mismatch.Explain()
	case errors.As(err, &panicked):
		f.Type, f.StackTrace = "WorkflowPanic", panicked.Stack
	case errors.As(err, &stuck):
		f.Type, f.StackTrace = "WorkflowDeadlock", stuck.Stack
	case errors.As(err, &input):
		f.Type = typeInput
	case errors.As(err, &version):
		f.Type = "WorkflowVersion"
	case errors.As(err, &unknown):
		f.Type = "FunctionNotRegistered"
	}
	return f
}
