// Package sandbox runs activities in child processes (executors) and keeps one executor per session.
//
// A [Pool] belongs to a worker. Handlers in other languages, and Go handlers of the [Native] registry, run in
// executors: processes without the worker's secrets. When the worker exits or crashes, a supervisor process kills the
// executors and their children. The state of a session is in the memory of its executor: each call of the session sees
// the state that earlier calls stored. After the executor has ended, the next call fails with [SessionLost], which has
// the cause.
//
// Executors are started from the program's own binary, so main (and TestMain) must call [Main] before anything else.
package sandbox

import (
	"context"
	"io/fs"
	"time"

	lib "github.com/sojourn-run/sojourn/sandbox/internal/executor"
	"github.com/sojourn-run/sojourn/sandbox/internal/shim"
)

// These types are shared by executors and workers; package executor defines them.
type (
	// Invocation is a call of an activity in an executor for one attempt.
	Invocation = lib.Invocation
	// Session is the session to which a call belongs, with its epoch.
	Session = lib.Session
	// Handler runs one call.
	Handler = lib.Handler
	// Handlers are the handlers of an executor by activity name.
	Handlers = lib.Handlers
	// Error is the typed failure of one call.
	Error = lib.Error
	// ErrorType is the kind of error with which a call ended.
	ErrorType = lib.ErrorType
	// Call reports the progress and the log lines of one invocation from code in an executor.
	Call = lib.Call
	// SessionLost reports that the state of a session is missing.
	SessionLost = lib.SessionLost
	// Cause is the reason for the loss of a session's state.
	Cause = lib.Cause
)

// These are the types of [Error]; package executor describes them.
const (
	UserError        = lib.UserError
	Cancelled        = lib.Cancelled
	DeadlineExceeded = lib.DeadlineExceeded
	OutOfMemory      = lib.OutOfMemory
	QuotaExceeded    = lib.QuotaExceeded
	ForbiddenSyscall = lib.ForbiddenSyscall
	Crashed          = lib.Crashed
	ProtocolError    = lib.ProtocolError
	Unavailable      = lib.Unavailable

	// Callers of Invoke never receive these: the pool responds to the first by sending the code, and converts the
	// second to a [*SessionLost].
	needCode    = lib.NeedCode
	sessionLost = lib.Lost
)

// These are the causes of [SessionLost].
const (
	CauseCrash           = lib.CauseCrash
	CauseOutOfMemory     = lib.CauseOutOfMemory
	CauseQuota           = lib.CauseQuota
	CauseDeadline        = lib.CauseDeadline
	CauseProtocolError   = lib.CauseProtocolError
	CauseEvictedIdle     = lib.CauseEvictedIdle
	CauseEvictedTTL      = lib.CauseEvictedTTL
	CauseEvictedPressure = lib.CauseEvictedPressure
	CauseDrained         = lib.CauseDrained
	CauseClosed          = lib.CauseClosed
	CauseWorkerLost      = lib.CauseWorkerLost
	CauseNeverHere       = lib.CauseNeverHere
	CauseDeclared        = lib.CauseDeclared
)

// Native contains the Go handlers that may run in an executor of this binary, by activity name. Fill it before [Main]
// is called and do not change it afterwards; worker and executor must have the same content.
var Native = Handlers{}

// Types are type declarations of handlers, for editors and type checkers. No executor reads them.
var Types fs.FS = shim.Types

// TSConfig is a tsconfig.json for a folder of handlers that has none.
var TSConfig = shim.TSConfig

// Result is the result of a call. Usage and logs are also set if the call failed.
type Result struct {
	Output        []byte // the encoded result, which the caller owns
	Usage         Usage
	Logs          []LogLine
	LogsTruncated int    // bytes of log that exceeded the limit and were dropped; OnLog is not called for them
	LinesLeftOut  int64  // number of these lines
	Version       string // version of the handler that ran; empty for native handlers
}

// Usage is the resource usage of a call, as far as it is known. Calls that overlap in one executor each count the usage
// of all of them.
type Usage struct {
	CPU  time.Duration // processor time
	RSS  int64         // maximum resident bytes of the executor so far
	Wall time.Duration // time from the assignment of the executor to the call's end
}

// LogLine is a line that a handler logged or printed. Text is valid UTF-8 without control characters.
type LogLine struct {
	Time   time.Time `json:"time"`
	Level  string    `json:"level"`  // debug, info, warn, error
	Source string    `json:"source"` // log, stdout, stderr
	Text   string    `json:"text"`
}

// Hooks are callbacks for a running call. The goroutine that reads from the executor calls them one after another, so
// they must be quick and must not call the pool. Any hook may be nil.
type Hooks struct {
	// OnBegin is called when the executor is ready, just before the call is sent to it. If it returns an error, the
	// call is not sent and Invoke returns the error. Callers use it to check their lease, which may have expired while
	// the executor started.
	OnBegin     func() error
	OnHeartbeat func()            // at most about ten per second
	OnProgress  func(json []byte) // at most about ten per second
	OnLog       func(LogLine)
}

// ExecutorInfo describes one executor for people.
type ExecutorInfo struct {
	SandboxID        string    `json:"sandbox_id"`
	SessionID        string    `json:"session_id,omitempty"`
	Epoch            int64     `json:"epoch,omitempty"`
	Busy             bool      `json:"busy"`
	Calls            int       `json:"calls"` // calls that it served
	MemoryUsageBytes int64     `json:"memory_usage_bytes"`
	Runtime          string    `json:"runtime"`
	Level            Level     `json:"level"`
	Since            time.Time `json:"since"`
	PID              int       `json:"pid"`
}

// CallOf returns the call that an executor is running with ctx, or nil outside an executor.
func CallOf(ctx context.Context) *Call { return lib.From(ctx) }

// DeniedPath returns the path in an error of the operating system that the sandbox may have caused, or "".
func DeniedPath(err error) string { return lib.DeniedPath(err) }
