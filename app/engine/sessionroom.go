package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// YieldIdle is how long a session must have been idle before it gives way to another that waits for room at its holder.
const YieldIdle = 10 * time.Second

// EvictedLately is within what time after it gave way a session's next claim says so: it was given up too early.
const EvictedLately = time.Minute

// YieldsAt is from when the session may give way to another that waits for room at its holder. Only a mere id does,
// since whoever uses one says nothing of how it is kept, and only while nothing of it runs or is ready; ok is false for
// all others.
func (s *Session) YieldsAt() (at history.Time, ok bool) {
	if s.Door != DoorImplicit || s.Terminal || s.Moving != "" || s.Ready > 0 || s.Many || s.running() > 0 {
		return history.Time{}, false
	}
	return plus(s.lastActivity(), YieldIdle), true
}

// yields says whether it may do so now.
func (s *Session) yields(now history.Time) bool {
	at, ok := s.YieldsAt()
	return ok && !at.After(now.Time)
}

// YieldSession takes a session that may give way from a holder that holds as many as it may. Held is how many it holds
// now, and Most how many it may: with room at it there is nothing to do, for another has given way already.
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

// inUse refuses a holder's word that it gives a session up for want of room, while that is used: its state would be
// lost for nothing.
func (s *Session) inUse(now history.Time) error {
	if s.yields(now) {
		return nil
	}
	return protocol.Invalid("reason", "session %s does not give way: it is in use, or no mere id", s.ID)
}
