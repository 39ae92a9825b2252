package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// During a network outage the lease of a session may expire although no other worker needs the session. Its owner still
// has the state in memory. An owner that suspends state (Worker.ResumesSessions) continues under the same epoch, either
// by a heartbeat that requests it or by the next task of the session.
//
// This does not weaken the fence: the epoch identifies one process's state, and a process that has dropped the state
// never starts work under the epoch. It returns the task and releases the epoch, so that the next acquisition has a
// higher one.

// ResumeSession grants a new lease under the same epoch to the process that held the session last.
type ResumeSession struct {
	Epoch    int64
	Lessee   Lessee
	Draining bool // an operator drains the worker
}

func (in ResumeSession) decide(s *Session, now history.Time) (SessionChange, error) {
	w := in.Lessee.Worker
	if err := (SessionHolder{Worker: w.ID, Epoch: in.Epoch}).holds(s); err != nil {
		return SessionChange{}, err
	}
	if s.With(w, now.Time) { // the lease is still valid: the worker's clock ran ahead
		c := SessionChange{Session: *s}
		c.Session.renew(now.Time, s.LeaseLength())
		return c, nil
	}
	if !s.resumable(w, now.Time) {
		return SessionChange{}, protocol.Refuse(
			protocol.ReasonSessionNotActive, "session %s cannot be resumed: it is %s", s.ID, s.Shown(),
		)
	}
	if in.Draining {
		return SessionChange{}, protocol.Refuse(protocol.ReasonWorkerDraining, "worker %s is drained by an operator", w.ID)
	}
	if v := AdmitSession(s, in.Lessee, now.Time, true); !v.OK {
		return SessionChange{}, refusal(v, s, in.Lessee)
	}
	c := SessionChange{Session: *s}
	c.Timeline = append(c.Timeline, c.Session.resume(w, now.Time))
	c.Session.renew(now.Time, s.LeaseLength())
	return c, nil
}

// resumable reports whether the session's lease expired, this process of the worker held it last, and nothing else has
// happened to the session since. A session with options is never resumed: its worker closes the resource when the lease
// has ended by the worker's clock, before another worker may open it.
func (s *Session) resumable(w *Worker, now time.Time) bool {
	expired := s.Status == protocol.SessionExpired || s.Status == protocol.SessionOrphaned ||
		s.Status == protocol.SessionActive && !s.LeaseUntil.After(now)
	return w.ResumesSessions && w.Incarnation != "" && s.Owner == w.ID && s.Incarnation == w.Incarnation &&
		s.Origin != OriginWorker && !s.Terminal && expired && !s.idle(now) && !s.Drained &&
		s.Moving == "" && !s.Yielding && (s.For == "" || s.For == w.ID)
}

// resume restores the holder's ownership of the session under the same epoch. The caller renews the lease.
func (s *Session) resume(w *Worker, now time.Time) protocol.SessionEvent {
	s.Status, s.Reason, s.GivenUp = protocol.SessionActive, "", ""
	s.Release, s.PinnedUntil = w.Release, history.Time{}
	if len(s.Used) == 0 { // the time for which suspended state counts has passed
		s.use(w, s.resourcesAt(w))
	}
	s.For, s.ForUntil, s.Leaving = "", history.Time{}, false
	s.LeaseUntil = history.Time{}
	// the timeline entry of the expiry contains them
	s.Renewals, s.FirstRenewal, s.LastRenewal = 0, history.Time{}, history.Time{}
	s.resetWait()
	return protocol.SessionEvent{
		At: history.At(now), What: "resumed", Worker: s.Owner, Epoch: s.Epoch, By: s.Owner, Release: s.Release,
	}
}

// maxEpochAhead is the maximum difference between an epoch that a worker reports and the database's clock. A higher
// epoch is ignored.
const maxEpochAhead = 24 * time.Hour

// giveUp releases a session whose owner has dropped the state, also if the lease has expired since. The next
// acquisition has a higher epoch, even if the same process acquires the session.
func (in ReleaseSession) giveUp(s *Session, now history.Time) SessionChange {
	c := SessionChange{Session: *s}
	n := &c.Session
	switch {
	case s.NoReacquire:
		n.lose(protocol.SessionExpired, in.Why, now)
		c.Timeline = append(c.Timeline, s.ended(now, "expired", in.Worker, in.Why))
	case s.Held(now.Time):
		c.Timeline = append(c.Timeline, n.release(now, in.Worker, in.Why))
	case s.Status == protocol.SessionActive: // the lease has expired, and no app has recorded that yet
		n.lose(protocol.SessionExpired, ReasonLeaseLost, now)
		n.Owner, n.Incarnation = "", ""
		c.Timeline = append(c.Timeline, s.ended(now, "expired", in.Worker, in.Why))
	default:
		n.Owner, n.Incarnation, n.UpdatedAt = "", "", now
	}
	// The worker has seen an epoch that the database does not contain: the database was restored from a backup.
	if in.KnownEpoch > n.Epoch && !EpochAhead(in.KnownEpoch, now.Time) {
		n.Epoch = in.KnownEpoch
	}
	return c
}

// EpochAhead reports whether an epoch that a worker reports must be ignored, because it is too far ahead of the
// database's clock.
func EpochAhead(epoch int64, now time.Time) bool { return epoch > now.Add(maxEpochAhead).UnixMicro() }

// RestoreSession releases a session after the database was restored from a backup, whichever worker holds it: no
// process may resume it, and the next acquisition has a higher epoch. A session with no_reacquire is closed.
type RestoreSession struct{}

func (RestoreSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil || s.Terminal || s.Owner == "" {
		return SessionChange{}, errNotDue
	}
	return ReleaseSession{Why: ReasonRestored}.giveUp(s, now), nil
}
