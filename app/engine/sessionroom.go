package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker holds a limited number of sessions. If all of them are idle and another session waits for room, an idle
// session is evicted; otherwise the waiting session would wait although nothing runs.

// YieldIdle is how long a session must be idle before it can be evicted for another session that waits for room at its
// holder. It is short for the waiting session, and long enough that a pause between two steps does not cost the state.
const YieldIdle = 10 * time.Second

// EvictedLately is the time after an eviction in which an acquisition records the eviction in the timeline: the session
// was evicted too early. It shows an operator that the worker's limit of sessions is too low.
const EvictedLately = time.Minute

// YieldsAt returns the time from which the session may give way to a session that waits for a place at its holder. ok
// is false while a task of the session runs or is ready, and if the session is pinned, must not be acquired again, or
// is being moved.
func (s *Session) YieldsAt() (at history.Time, ok bool) {
	if s.Pinned || s.NoReacquire || s.Terminal || s.Moving != "" || s.Ready > 0 || s.MoreReady || s.running() > 0 {
		return history.Time{}, false
	}
	return plus(s.lastActivity(), YieldIdle), true
}

// yields reports whether the session may be evicted now.
func (s *Session) yields(now history.Time) bool {
	at, ok := s.YieldsAt()
	return ok && !at.After(now.Time)
}

// YieldSession evicts a session that its holder has not released. Held is the number of sessions that the worker holds,
// and Most its limit. If the worker is below its limit again, nothing changes.
//
// An implicit session is released. A session with options or of a workflow is only marked (Yielding): its holder may
// use the resource of the session until the lease ends, so no other worker may acquire the session before.
type YieldSession struct {
	SessionHolder
	Held, Limit int
}

func (in YieldSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if in.holds(s) != nil || !s.Held(now.Time) || in.Held < in.Limit || s.Yielding || !s.yields(now) {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	if s.Origin == OriginImplicit {
		c.Timeline = append(c.Timeline, c.Session.release(now, "", ReasonEvictedCap))
		return c, nil
	}
	c.Session.Yielding, c.Session.UpdatedAt = true, now
	return c, nil
}

// inUse refuses the release of a session by a holder at its cap while the session is in use: the session would lose its
// state without need.
func (s *Session) inUse(now history.Time) error {
	if s.yields(now) {
		return nil
	}
	return protocol.Invalid(
		"reason", "session %s cannot be moved: it is in use or pinned, or it forbids to be acquired again", s.ID,
	)
}
