package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// SessionInput is something that happens to a session beside the runs that use it. The set is closed.
type SessionInput interface {
	decide(s *Session, now history.Time) (SessionChange, error)
}

// DecideSession says what becomes of the session s, which is nil when there is no row. It only reads s.
func DecideSession(s *Session, in SessionInput, now time.Time) (SessionChange, error) {
	return in.decide(s, history.At(now))
}

// CreateSession claims a session by verb. Outcome, of the answer, is created, reused or reacquired.
type CreateSession struct {
	Namespace string
	Options   protocol.SessionOptions
	Lessee    Lessee
	Floor     int64
	Outcome   *string // set by the decision
}

func (in CreateSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil {
		if o := in.Options; o.Create != nil && !*o.Create {
			return SessionChange{}, protocol.Refuse(protocol.ReasonSessionMissing, "session %s does not exist and may not be made", o.SessionID)
		}
		fresh := NewSession(in.Namespace, in.Options.SessionID, &in.Options, now)
		s = &fresh
	} else if s.Claimed && !s.Terminal && !s.sameOptions(&in.Options, now) {
		return SessionChange{}, protocol.Refuse(protocol.ReasonInvalidSession, "session %s exists with other options", s.ID)
	}
	if v := AdmitSession(s, in.Lessee, now.Time, true); !v.OK {
		return SessionChange{}, refusal(v, s, in.Lessee)
	}
	c := SessionChange{Session: *s}
	if s.HeldBy(in.Lessee.Worker.ID, now.Time) && s.Incarnation == in.Lessee.Worker.Incarnation {
		*in.Outcome = "reused"
		c.Session.touch(now.Time)
		return c, nil
	}
	*in.Outcome = "created"
	if s.Claimed {
		*in.Outcome = "reacquired"
	}
	c.Timeline = append(c.Timeline, c.Session.claim(in.Lessee, in.Floor, now.Time, ""))
	c.Session.touch(now.Time)
	return c, nil
}

func refusal(v Verdict, s *Session, l Lessee) error {
	e := protocol.Refuse(v.Reason, "%s", v.Text)
	switch v.Reason {
	case protocol.ReasonSessionRequirements:
		e.With("missing_requirements", Missing(s.Requirements, l.Worker.Capabilities))
	case protocol.ReasonSessionLimit:
		e.With("max_concurrent_worker_sessions", l.Worker.MaxSessions)
	case protocol.ReasonSessionActivityLimit:
		e.With("max_concurrent_activities", s.MaxActivities)
	}
	return e
}

// SessionHolder is who claims to hold a session. Epoch 0: the client did not say.
type SessionHolder struct {
	Worker string
	Epoch  int64
}

func (h SessionHolder) holds(s *Session, now history.Time) error {
	switch {
	case s == nil:
		return protocol.Refuse(protocol.ReasonSessionNotFound, "no such session")
	case s.Owner != h.Worker:
		return protocol.Refuse(protocol.ReasonSessionOwner, "session %s is not held by %s", s.ID, h.Worker)
	case h.Epoch != 0 && h.Epoch != s.Epoch:
		return protocol.Refuse(protocol.ReasonSessionOwner, "session %s is at epoch %d, not %d", s.ID, s.Epoch, h.Epoch).With("epoch", s.Epoch)
	}
	return nil
}

// RenewSession moves the lease of a held session forward. An expired lease is never revived. Worker-side idleness shows by not being renewed; the
// store refuses too what has been idle for longer than the session allows.
type RenewSession struct {
	SessionHolder
	Lease int64 // seconds, of this renewal alone; 0: the session's own
	Touch bool  // an explicit heartbeat by verb moves the idle clock
}

func (in RenewSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if err := in.holds(s, now); err != nil {
		return SessionChange{}, err
	}
	if !s.Held(now.Time) {
		return SessionChange{}, protocol.Refuse(protocol.ReasonSessionNotActive, "session %s lost its lease at %s", s.ID, s.LeaseUntil.Format(time.RFC3339))
	}
	if s.Idle > 0 && !in.Touch && now.Sub(s.LastActivity.Time) >= time.Duration(s.Idle)*time.Microsecond {
		return SessionChange{}, protocol.Refuse(protocol.ReasonSessionNotActive, "session %s has been idle since %s", s.ID, s.LastActivity.Format(time.RFC3339))
	}
	c := SessionChange{Session: *s}
	if in.Touch {
		c.Session.LastActivity = now
	}
	length := time.Duration(s.Lease) * time.Microsecond
	if in.Lease > 0 && s.Door == DoorWorker {
		length = seconds(in.Lease)
	}
	c.Session.renew(now.Time, length)
	return c, nil
}

// ReleaseSession gives a session up without ending it: a clean shutdown, or, with Failed, an executor that ended uncleanly.
type ReleaseSession struct {
	SessionHolder
	Why    string
	Failed string
}

func (in ReleaseSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if err := in.holds(s, now); err != nil {
		return SessionChange{}, err
	}
	if s.Terminal {
		return SessionChange{}, protocol.Refuse(protocol.ReasonSessionNotActive, "session %s has ended: %s", s.ID, s.Reason)
	}
	if in.Why == "shutdown" && s.NoReacquire {
		return CloseSession{SessionHolder: in.SessionHolder, Why: "worker_shutdown"}.decide(s, now)
	}
	c := SessionChange{Session: *s}
	n := &c.Session
	e := protocol.SessionEvent{At: now, What: "released", Worker: s.Owner, Epoch: s.Epoch, Why: in.Why}
	n.Status, n.Reason = protocol.SessionActive, ReasonReleased
	if in.Failed != "" {
		e.What, e.Why = "failed", in.Failed
		n.Status, n.Reason = protocol.SessionFailed, in.Failed
	}
	n.Owner, n.Incarnation, n.Release, n.Active = "", "", "", 0
	n.LeaseUntil, n.UpdatedAt = now, now
	c.Timeline = append(c.Timeline, e)
	return c, nil
}

// CloseSession ends a session for good. Operators close without holding it: then SessionHolder is empty and Operator names them.
type CloseSession struct {
	SessionHolder
	Why      string
	Operator string
}

func (in CloseSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil {
		return SessionChange{}, protocol.Refuse(protocol.ReasonSessionNotFound, "no such session")
	}
	if in.Operator == "" {
		if err := in.holds(s, now); err != nil {
			return SessionChange{}, err
		}
	}
	c := SessionChange{Session: *s}
	if s.Terminal {
		return c, nil
	}
	why := in.Why
	if why == "" {
		why = ReasonClosed
	}
	if in.Operator != "" {
		why += " by " + in.Operator
	}
	c.Session.end(protocol.SessionClosed, why, now)
	c.Timeline = append(c.Timeline, protocol.SessionEvent{At: now, What: "closed", Worker: s.Owner, Epoch: s.Epoch, Why: why})
	return c, nil
}

// DueSession moves a session forward in time: its TTL, which ends it, and its lease, after which anybody may claim it. Stale says that the holder's
// registration is: then it was orphaned rather than left to expire.
type DueSession struct{ Stale bool }

func (in DueSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil || s.Terminal {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	n := &c.Session
	e := protocol.SessionEvent{At: now, Worker: s.Owner, Epoch: s.Epoch}
	switch {
	case !s.TTLUntil.IsZero() && !s.TTLUntil.After(now.Time):
		n.end(protocol.SessionExpired, ReasonTTL, now)
		e.What, e.Why = "expired", ReasonTTL
	case s.Status == protocol.SessionActive && s.Owner != "" && !s.LeaseUntil.After(now.Time):
		n.Status, n.Reason, n.UpdatedAt, n.Active = protocol.SessionExpired, ReasonLeaseLost, now, 0
		e.What, e.Why = "expired", ReasonLeaseLost
		switch {
		case in.Stale:
			n.Status, n.Reason = protocol.SessionOrphaned, ReasonOrphaned
			e.What, e.Why = "orphaned", ReasonOrphaned
		case s.Idle > 0 && now.Sub(s.LastActivity.Time) >= time.Duration(s.Idle)*time.Microsecond:
			e.What, e.Why = "idle_unpinned", "idle since "+s.LastActivity.Format(time.RFC3339)
		}
	default:
		return SessionChange{}, errNotDue
	}
	c.Timeline = append(c.Timeline, e)
	return c, nil
}

// OrphanSession takes a session from a holder whose registration went stale before the lease did.
type OrphanSession struct{ Worker, Incarnation string }

func (in OrphanSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil || !s.Held(now.Time) || s.Owner != in.Worker || s.Incarnation != in.Incarnation {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	c.Session.Status, c.Session.Reason = protocol.SessionOrphaned, ReasonOrphaned
	c.Session.LeaseUntil, c.Session.UpdatedAt, c.Session.Active = now, now, 0
	c.Timeline = append(c.Timeline, protocol.SessionEvent{At: now, What: "orphaned", Worker: s.Owner, Epoch: s.Epoch, Why: ReasonOrphaned})
	return c, nil
}

// CleanUp removes the row of a session that ended or lapsed and has no work.
type CleanUp struct{ Kept time.Time }

func (in CleanUp) decide(s *Session, now history.Time) (SessionChange, error) {
	switch {
	case s == nil, s.Held(now.Time), s.Ready > 0, s.Active > 0 && !s.Terminal:
		return SessionChange{}, errNotDue
	case s.Terminal && s.UpdatedAt.After(in.Kept), s.Door == DoorWorkflow && !s.Terminal:
		return SessionChange{}, errNotDue
	}
	return SessionChange{Session: *s, Delete: true, Timeline: []protocol.SessionEvent{{At: now, What: "cleaned_up", Worker: s.Owner, Epoch: s.Epoch}}}, nil
}
