// Package activity is the API of activity code: information about the attempt, heartbeats, sessions and errors.
package activity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"
)

// AttemptInfo describes a running attempt.
type AttemptInfo struct {
	Namespace    string
	WorkflowID   string
	RunID        string
	TaskID       string
	ActivityType string
	Queue        string
	// ExecutionID identifies the activity and is the same for all its attempts. AttemptID identifies this attempt.
	ExecutionID string
	AttemptID   string
	// IdempotencyKey is the same for all attempts: pass it to external services that reject duplicate requests.
	IdempotencyKey string
	Attempt        int // number of the attempt; 1 for the first one
	WorkerID       string
	Release        string
	Deadline       time.Time     // time at which this attempt times out; zero: no timeout
	HeartbeatEvery time.Duration // maximum time between two calls of Heartbeat; 0: no limit
}

// Runtime runs an attempt. Activity code reaches it through the context. It is safe for concurrent use.
type Runtime interface {
	// Info returns the identifiers, queue and deadline of the attempt.
	Info() AttemptInfo
	// Session returns the session of the attempt; nil for an activity outside any session.
	Session() *SessionInfo
	// State returns the values of the attempt's session and epoch; nil outside a session.
	State() *SessionValues
	// Heartbeat sends a heartbeat with progress, a JSON object or nil. Implementations must not block on the network.
	Heartbeat(progress json.RawMessage)
	// LastHeartbeat returns, as JSON, the last details that an earlier attempt of the activity reported; nil if none
	// did.
	LastHeartbeat() json.RawMessage
	// Headers returns the headers of the activity, which callers must not modify.
	Headers() map[string]string
	// Log writes a line to the activity's log; level is debug, info, warn or error. Implementations must not block on
	// the network.
	Log(level, text string)
}

type runtimeKey struct{}

// NewContext returns a context from which the functions of this package obtain rt.
func NewContext(ctx context.Context, rt Runtime) context.Context {
	return context.WithValue(ctx, runtimeKey{}, rt)
}

// FromContext returns the runtime of the attempt to which ctx belongs; false outside an activity.
func FromContext(ctx context.Context) (Runtime, bool) {
	rt, ok := ctx.Value(runtimeKey{}).(Runtime)
	return rt, ok
}

// Info describes the attempt to which ctx belongs. It is zero outside an activity.
func Info(ctx context.Context) AttemptInfo {
	if rt, ok := FromContext(ctx); ok {
		return rt.Info()
	}
	return AttemptInfo{}
}

// Token returns the token of the attempt, with which a caller outside of the worker reports its outcome if the activity
// returns [ErrPending]. It is the AttemptID of Info: each attempt has its own, and the app refuses the token of an
// attempt that has ended. It is empty outside an activity.
func Token(ctx context.Context) string { return Info(ctx).AttemptID }

// Headers returns a copy of the headers of the command that scheduled the activity, or of the request that started the
// activity run. It is empty if there were none, and outside an activity.
func Headers(ctx context.Context) map[string]string {
	if rt, ok := FromContext(ctx); ok {
		return maps.Clone(rt.Headers())
	}
	return nil
}

// Progress is the content of a heartbeat in a form that the dashboard shows; every member is optional.
type Progress struct {
	Message string  `json:"message,omitempty"`
	Current float64 `json:"current,omitempty"`
	Total   float64 `json:"total,omitempty"`
	Unit    string  `json:"unit,omitempty"`
	Details any     `json:"details,omitempty"`
}

// Heartbeat reports that the attempt is alive. progress is nil, a Progress, or any value with a JSON form, which is
// shown as details. Heartbeat returns an error with the cause if the attempt should stop: it was cancelled, its lease
// was lost, or the worker drains.
//
// The worker renews the attempt's lease even if the activity never calls Heartbeat. An activity with a heartbeat
// timeout must call Heartbeat more often than that timeout.
//
// Heartbeat does not wait for the app. The worker sends the first value immediately and then the latest value once a
// second. If the attempt fails or is returned, the worker sends the latest value first. The next attempt receives the
// last value that the app has stored; see [LastHeartbeat].
func Heartbeat(ctx context.Context, progress any) error {
	rt, ok := FromContext(ctx)
	if !ok {
		return errors.New("activity: heartbeat outside an activity")
	}
	raw, err := encodeProgress(progress)
	if err != nil {
		return err
	}
	rt.Heartbeat(raw)
	return context.Cause(ctx)
}

// LastHeartbeat returns the last value that an earlier attempt of the activity passed to [Heartbeat]; ok is false if no
// earlier attempt reported a value. An attempt uses it to continue where the previous attempt stopped, also if that
// attempt's worker was killed. A value that was passed as a [Progress] is read as a Progress.
//
// The error reports that the value cannot be decoded into a T, or that ctx does not belong to an activity.
func LastHeartbeat[T any](ctx context.Context) (value T, ok bool, err error) {
	rt, inActivity := FromContext(ctx)
	if !inActivity {
		return value, false, errors.New("activity: last heartbeat outside an activity")
	}
	raw := rt.LastHeartbeat()
	if len(raw) == 0 {
		return value, false, nil
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return *new(T), false, fmt.Errorf("last heartbeat: %w", err)
	}
	return value, true, nil
}

func encodeProgress(progress any) (json.RawMessage, error) {
	switch p := progress.(type) {
	case nil:
		return nil, nil
	case Progress, *Progress:
	default:
		progress = Progress{Details: p}
	}
	raw, err := json.Marshal(progress)
	if err != nil {
		return nil, fmt.Errorf("heartbeat progress: %w", err)
	}
	return raw, nil
}
