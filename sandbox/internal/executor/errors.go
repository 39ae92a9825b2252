package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// ErrorType is the kind of error with which a call ended.
type ErrorType string

// The types of [Error].
const (
	UserError        ErrorType = "UserError"        // the handler failed
	Cancelled        ErrorType = "Cancelled"        // the call was cancelled, and the handler or its process ended
	DeadlineExceeded ErrorType = "DeadlineExceeded" // the call's deadline passed
	OutOfMemory      ErrorType = "OutOfMemory"      // the executor exceeded its memory limit
	QuotaExceeded    ErrorType = "QuotaExceeded"    // the executor exceeded its limit of files, bytes or processes
	ForbiddenSyscall ErrorType = "ForbiddenSyscall" // the kernel refused an operation of the handler
	Crashed          ErrorType = "Crashed"          // the executor ended unexpectedly
	ProtocolError    ErrorType = "ProtocolError"    // the executor broke the protocol and was killed
	// the executor no longer has the code; the pool sends it again, callers never see this
	NeedCode ErrorType = "NeedCode"
	// no executor is available: the pool is full or drains, or the runtime or the handler does not exist
	Unavailable ErrorType = "Unavailable"
	Lost        ErrorType = "SessionLost" // in the protocol only: Go callers receive a [*SessionLost]
)

// Error is the typed failure of one call.
type Error struct {
	Type      ErrorType       `json:"type"`
	Class     string          `json:"class,omitempty"` // for a UserError: the name of the exception, such as TypeError
	Message   string          `json:"message"`
	Stack     string          `json:"stack,omitempty"`
	Retryable bool            `json:"retryable"`
	Details   json.RawMessage `json:"details,omitempty"` // attached by the handler, or facts such as {"exit_code":3}
	// path to which access was denied; the worker determines whether its isolation denied it
	Denied string `json:"-"`
}

func (e *Error) Error() string {
	if e.Class != "" {
		return fmt.Sprintf("%s: %s: %s", e.Type, e.Class, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Type, e.Message)
}

// DeniedPath returns the path of an EACCES error in the chain of err, or an empty string.
func DeniedPath(err error) string {
	if !errors.Is(err, syscall.EACCES) {
		return ""
	}
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Path
	case errors.As(err, &link):
		return link.New
	}
	return ""
}

// Cause is the reason for the loss of a session's state.
type Cause string

// The causes of [SessionLost].
const (
	CauseCrash       Cause = "crash"
	CauseOutOfMemory Cause = "out_of_memory"
	CauseQuota       Cause = "quota"
	// a call ran over its deadline, or ignored its cancellation, and the process was killed
	CauseDeadline        Cause = "deadline"
	CauseProtocolError   Cause = "protocol_error"
	CauseEvictedIdle     Cause = "evicted_idle"
	CauseEvictedTTL      Cause = "evicted_ttl"
	CauseEvictedPressure Cause = "evicted_pressure"
	CauseDrained         Cause = "drained"
	CauseClosed          Cause = "closed"
	CauseWorkerLost      Cause = "worker_lost"
	CauseNeverHere       Cause = "never_here"
	CauseDeclared        Cause = "declared" // the handler found that its state is missing
)

// ExecutorEnded reports whether the cause is the end of an executor that the worker did not request.
func (c Cause) ExecutorEnded() bool {
	switch c {
	case CauseCrash, CauseOutOfMemory, CauseQuota, CauseDeadline, CauseProtocolError:
		return true
	}
	return false
}

// SessionLost reports that the state of a session is missing.
type SessionLost struct {
	Session        string
	EpochRequested int64     // epoch of the call
	EpochNow       int64     // the current epoch; 0 if there is none
	Cause          Cause     // reason for the loss
	When           time.Time // time at which the state was lost
	Message        string    // text for display, such as the exit of a crash or the missing key; may be empty
	Stack          string    // stack at which the handler reported the loss
}

func (e *SessionLost) Error() string {
	s := "session " + e.Session + " lost: "
	switch {
	case e.Message == "":
		return s + string(e.Cause)
	case e.Cause == CauseDeclared: // the name of the missing state is sufficient
		return s + e.Message
	}
	return s + string(e.Cause) + ": " + e.Message
}
