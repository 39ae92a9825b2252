package workflow

import (
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// SessionOptions are the options of a session that a workflow starts. With the zero value the session is on the run's
// task queue and runs as many activities concurrently as its worker has slots.
type SessionOptions struct {
	Queue        string   // task queue; empty: the run's
	Requirements []string // capabilities that the session's worker must have
	// maximum number of concurrent activities; 0: the worker's Concurrency, by default 2 × its cores
	MaxActivities int
	// ReleasePolicy applies when a worker of another release replaces the session's worker: "migrate" (default),
	// "finish" or "fail".
	ReleasePolicy string
	// Fallback makes the affinity soft: once an activity has waited this long for the session's worker, because that
	// worker is offline, draining or full, another worker may acquire the session, and its state is lost. 0: the
	// affinity is hard, and the activity waits as long as the worker holds the session.
	Fallback time.Duration
	// Pinned prevents the worker from releasing the session while the session is idle. A worker at its maximum number
	// of sessions releases idle sessions that are not pinned when other sessions wait for it.
	Pinned bool
	// FailFast limits the leases of the session and of its activities to 10 s, so that another worker acquires it within
	// 12 s after its worker was killed. A network gap of 10 s costs the session if another worker can acquire it.
	FailFast bool
	// Resources are amounts of the resources of workers that the session needs, as quantities: {"gpu_mem": "24GiB"}. A
	// worker acquires the session only while it has them free.
	Resources map[string]string
	// Definition names a session definition, registered by the workers, that sets the session up; nil: none.
	Definition *SessionDefinition
}

// Session is a handle of a session. It is plain data and may be an argument, including an argument of ContinueAsNew. A
// session belongs to its workflow ID and lives until it is ended or the last run of that ID closes. It stays on one
// worker and moves only if that worker is offline.
type Session struct {
	ID string `json:"session_id"`
}

// StartSession starts a session. A worker acquires it when the session's first activity is dispatched.
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
	resources, err := quantities(o.Resources)
	if err != nil {
		return nil, err
	}
	id := c.m.openedID(c.m.sequence + 1)
	cmd := &protocol.Command{
		Type: protocol.StartSession, SessionID: id, Requirements: o.Requirements, SessionDefinition: definition,
	}
	if o.Queue != "" || o.MaxActivities > 0 || o.ReleasePolicy != "" || after > 0 || o.Pinned || o.FailFast ||
		len(resources) > 0 {
		cmd.WorkerSession = &protocol.SessionOptions{
			SessionID: id, Queue: o.Queue, MaxActivities: protocol.Count(o.MaxActivities), ReleasePolicy: o.ReleasePolicy,
			Affinity: affinity, FallbackAfter: after, Pinned: o.Pinned, FailFast: o.FailFast,
			Resources: resources,
		}
	}
	if err := c.m.check(cmd); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	c.m.issue(cmd)
	return &Session{ID: id}, nil
}

// quantities returns resources in the form of the protocol.
func quantities(of map[string]string) (protocol.Resources, error) {
	all, err := protocol.ReadResources(of)
	if err != nil {
		return nil, fmt.Errorf("%w: Resources: %w", ErrInvalidOptions, err)
	}
	return all, nil
}

// fallback returns the members of the protocol for the option Fallback.
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
// that are scheduled in the session later. A second call has no effect. End also works with a cancelled context. Ending
// a session that this workflow ID never started has no effect either; the worker logs a warning.
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
