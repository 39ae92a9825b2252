package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker holds a limited number of sessions. If it holds the maximum and another session waits for it, an idle
// session is evicted; otherwise the waiting session would wait although nothing runs.

// YieldIdle is how long a session must be idle before it can be evicted for another session. It is short for the
// waiting session, and long enough that a pause between two steps does not cost the state.
const YieldIdle = 10 * time.Second

// EvictedLately is how soon after an eviction an acquisition counts as too soon: the timeline then records that the
// session was evicted too early, which shows operators that the worker's maximum of sessions is too low.
const EvictedLately = time.Minute

// YieldsAt returns the time from which the session may be evicted for another session of its owner. ok is false while a
// task of the session runs or is ready, and if the session is pinned, has no_reacquire, or is being moved.
func (s *Session) YieldsAt() (at history.Time, ok bool) {
	if s.Pinned || s.NoReacquire || s.Terminal || s.Moving != "" || s.Ready > 0 || s.MoreReady || s.running() > 0 {
		return history.Time{}, false
	}
	return plus(s.lastActivity(), YieldIdle), true
}

// mayBeEvicted reports whether the session may be evicted now.
func (s *Session) mayBeEvicted(now history.Time) bool {
	at, ok := s.YieldsAt()
	return ok && !at.After(now.Time)
}

// YieldSession evicts a session that its owner has not released. Held is the number of sessions that the worker holds,
// and Limit its maximum. If the worker is below its maximum again, and not short of resources, nothing changes.
//
// An implicit session is released. A session with options or of a workflow is only marked (Yielding): its owner may use
// the resource of the session until the lease ends, so no other worker may acquire the session before that.
type YieldSession struct {
	SessionHolder
	Held, Limit int
	Short       bool // the worker lacks resources, which this session uses, for the session that waits
}

func (in YieldSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if in.holds(s) != nil || !s.Held(now.Time) || in.Held < in.Limit && !in.Short || s.Yielding || !s.mayBeEvicted(now) {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	if s.Origin == OriginImplicit {
		c.Timeline = append(c.Timeline, c.Session.leave(now, "", ReasonEvictedCap))
		return c, nil
	}
	c.Session.Yielding, c.Session.UpdatedAt = true, now
	return c, nil
}

// inUse refuses the release of a session for another one while the session is in use: the session would lose its state
// without need.
func (s *Session) inUse(now history.Time) error {
	if s.mayBeEvicted(now) {
		return nil
	}
	return protocol.Invalid(
		"reason", "session %s cannot be moved: it is in use or pinned, or it forbids to be acquired again", s.ID,
	)
}
