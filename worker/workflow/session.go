package workflow

import (
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// SessionOptions are the options of a session that a workflow starts. The zero value is a session on the run's task
// queue that allows as many concurrent activities as its worker has slots.
type SessionOptions struct {
	Queue         string   // task queue; empty: the run's
	Requirements  []string // capabilities that the worker must have
	MaxActivities int      // concurrent activities; 0: the worker's Concurrency, by default 2 × its cores
	// ReleasePolicy is applied when the session's worker is replaced by one of another release: "migrate" (default),
	// "finish" or "fail".
	ReleasePolicy string
	// Fallback makes the affinity soft: once an activity has waited so long for the session's worker, because that
	// worker is offline, draining or full, another worker may acquire the session, and its state is lost. 0: the affinity
	// is hard, and the activity waits as long as the worker holds the session.
	Fallback time.Duration
	// Pinned keeps the session at its worker when the worker has reached its maximum of sessions and other sessions wait
	// for it. The worker releases idle sessions that are not pinned.
	Pinned bool
	// Definition sets the session up, by a definition that its workers have registered; nil: none.
	Definition *SessionDefinition
}

// Session is a handle of a session. It is plain data and may be an argument, including one of ContinueAsNew. A session
// belongs to its workflow ID and lives until it is ended or the last run of that ID closes. It stays at one worker and
// moves only when that worker is offline.
type Session struct {
	ID string `json:"session_id"`
}

// StartSession starts a session. A worker acquires it when the first activity in it is dispatched.
func StartSession(ctx Context, o SessionOptions) (*Session, error) {
	c := ctx.inner()
	c.m.currentBranch()
	if c.scope.cancelled {
		return nil, ErrCancelled
	}
	switch {
	case o.MaxActivities < 0:
		return nil, fmt.Errorf("%w: MaxActivities is negative", ErrInvalidOptions)
	case o.ReleasePolicy != "" && o.ReleasePolicy != "migrate" && o.ReleasePolicy != "finish" && o.ReleasePolicy != "fail":
		return nil, fmt.Errorf("%w: unknown release policy %q", ErrInvalidOptions, o.ReleasePolicy)
	}
	affinity, after, err := fallback(o.Fallback)
	if err != nil {
		return nil, err
	}
	definition, err := o.Definition.wire()
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	id := c.m.stepID(c.m.sequence + 1)
	cmd := &protocol.Command{
		Type: protocol.StartSession, SessionID: id, Requirements: o.Requirements, SessionDefinition: definition,
	}
	if o.Queue != "" || o.MaxActivities > 0 || o.ReleasePolicy != "" || after > 0 || o.Pinned {
		cmd.WorkerSession = &protocol.SessionOptions{
			SessionID: id, Queue: o.Queue, MaxActivities: protocol.Count(o.MaxActivities), ReleasePolicy: o.ReleasePolicy,
			Affinity: affinity, FallbackAfter: after, Pinned: o.Pinned,
		}
	}
	if err := c.m.check(cmd); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	c.m.issue(cmd)
	return &Session{ID: id}, nil
}

// fallback converts the option for soft affinity to its protocol form.
func fallback(after time.Duration) (affinity string, seconds int64, err error) {
	if seconds, err = wholeSeconds("Fallback", after); err != nil || seconds == 0 {
		return "", 0, err
	}
	return "soft", seconds, nil
}

// Execute schedules an activity in the session.
func (s *Session) Execute(ctx Context, nameOrFunc any, args ...any) Future {
	return ExecuteActivity(InSession(ctx, s.ID), nameOrFunc, args...)
}

// ExecuteIn runs an activity in a session and waits for its result.
func ExecuteIn[T any](ctx Context, s *Session, nameOrFunc any, args ...any) (T, error) {
	return Await[T](ctx, s.Execute(ctx, nameOrFunc, args...))
}

// End ends the session: it cancels the session's running activities, refuses their late results, and fails activities
// that are scheduled in it later. A second call does nothing. End also works with a cancelled context. Ending a session
// that this workflow ID never started does nothing either; the worker logs a warning.
func (s *Session) End(ctx Context) error {
	m := ctx.inner().m
	m.currentBranch()
	if s.ID == "" {
		return fmt.Errorf("%w: the session has no ID", ErrInvalidOptions)
	}
	cmd := &protocol.Command{Type: protocol.EndSession, SessionID: s.ID}
	if err := m.check(cmd); err != nil {
		return fmt.Errorf("end of session %q: %w", s.ID, err)
	}
	m.issue(cmd)
	return nil
}
