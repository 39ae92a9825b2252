package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker holds only so many sessions. When all of them idle and another waits, somebody has to give way, or
// the one too many would wait until another is given up, though nothing runs in any of them.

// YieldIdle is how long a session must have been idle before it gives way to another that waits for room at its
// holder. It is short enough for somebody who waits, and long enough that a pause between two steps does not
// cost the state.
const YieldIdle = 10 * time.Second

// EvictedLately is for how long after it gave way a session that is claimed again says so in its timeline, because it
// was given up too early. An operator sees by that that the worker's cap is too low.
const EvictedLately = time.Minute

// YieldsAt is from when on the session may give way to another that waits for room at its holder. Only a mere
// id does: whoever uses one has said nothing about how it is to be kept. And only while nothing of it runs or
// is ready. ok is false for all others.
func (s *Session) YieldsAt() (at history.Time, ok bool) {
	if s.Door != DoorImplicit || s.Terminal || s.Moving != "" || s.Ready > 0 || s.Many || s.running() > 0 {
		return history.Time{}, false
	}
	return plus(s.lastActivity(), YieldIdle), true
}

// yields says whether it may give way now.
func (s *Session) yields(now history.Time) bool {
	at, ok := s.YieldsAt()
	return ok && !at.After(now.Time)
}

// YieldSession takes a session that may give way from a holder that holds as many as it may. Held is how many
// it holds now, and Most how many it may hold. If there is room by now, another session has given way already
// and nothing is done.
type YieldSession struct {
	SessionHolder
	Held, Most int
}

func (in YieldSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if in.holds(s) != nil || !s.Held(now.Time) || in.Held < in.Most || !s.yields(now) {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	c.Timeline = append(c.Timeline, c.Session.release(now, "", ReasonEvictedCap))
	return c, nil
}

// inUse refuses a holder's word that it gives a session up for want of room while the session is in use: its
// state would be lost for nothing.
func (s *Session) inUse(now history.Time) error {
	if s.yields(now) {
		return nil
	}
	return protocol.Invalid("reason", "session %s does not give way: it is in use, or no mere id", s.ID)
}
