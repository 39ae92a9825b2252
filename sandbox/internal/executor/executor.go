// Package executor is the library inside an executor process: it serves calls to Go handlers and keeps the state of a
// session.
//
// A separate executor program calls [Serve] from main; the worker starts it with the control socket on file descriptor
// 3. Values that handlers store in [State] live in the memory of the process and are never serialized.
package executor

import (
	"context"
	"time"
)

// Invocation is a call of an activity in an executor for one attempt.
type Invocation struct {
	ID       string // unique among the calls in flight; for logs
	Activity string // name of the activity, which selects the handler
	Entry    string // function within the handler; empty means main
	// If set, the executor returns the value that the handler's file exports under this name, null for none.
	Export   string
	Hash     string    // content hash of the handler's code; empty: the current code
	Session  *Session  // the session that the call runs in; nil: none
	Attempt  int       // from 1
	Deadline time.Time // deadline of the call; zero: none
	// activity_execution_id, attempt_id, run_id and workflow_id, from which a handler builds idempotency keys
	Keys  map[string]string
	Input []byte // the arguments: one encoded array; must not be modified
	// LastHeartbeat has the heartbeat details of an earlier attempt, as JSON {details, at, attempt_number}; nil: none.
	LastHeartbeat []byte
	Headers       []byte // headers of the activity as a JSON object; nil: none
	Fresh         bool   // outside sessions: run the call in a new process
	// the call may start with new state under an epoch whose state was lost; set only for rebuilds
	Rebuild bool
	// Suspect reports that an executor ended while an earlier attempt of this call and other calls ran in it.
	Suspect bool
}

// Session is the session to which a call belongs, with its epoch.
type Session struct {
	ID    string
	Epoch int64
	// Prepares: the worker does not hold the session, and Epoch is that of the owner. Code sees no epoch.
	Prepares bool
	Pinned   bool // never evicted under memory pressure (sessions that belong to a workflow)
}

// IdempotencyKey returns the same key for every attempt of one activity execution.
func (inv *Invocation) IdempotencyKey() string { return inv.Keys["activity_execution_id"] }

// Handler runs one call. Its context ends when the call is cancelled or its deadline passes; [From] returns the call
// with session, progress and logging. The handler returns the encoded result. An error becomes a retryable UserError
// unless it is (or wraps) an [*Error].
type Handler = func(ctx context.Context, inv Invocation) ([]byte, error)

// Handlers are the handlers of an executor by activity name.
type Handlers map[string]Handler

type callKey struct{}

// From returns the call to which ctx belongs, or nil if ctx is not the context of a handler.
func From(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}
