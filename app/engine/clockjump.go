package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ClockJump is by how much the store's clock was set while apps ran: forward, or back below zero. Leases and
// back-offs are lengths that are stored as the times of their ends, so those follow the clock: after a jump back
// nothing ends later than its own length from now, and after a jump forward what had not ended keeps the rest of its
// length. Timers, start delays, and the deadlines of runs and activities are times that users wait for; they stay as
// they are.
//
// The rules may be applied again, by another app that noticed the same jump: the second time changes nothing, or renews
// a lease once for at most its length.
type ClockJump time.Duration

// back says whether the clock went back.
func (j ClockJump) back() bool { return j < 0 }

// span moves something that was made at a time and ends at another, at most length after it was made.
func (j ClockJump) span(made, until *history.Time, length time.Duration, now history.Time) (moved bool) {
	if made.IsZero() || until.IsZero() || length <= 0 {
		return false
	}
	wasMade, wasUntil := *made, *until
	latestEnd, before := plus(now, length), plus(now, -time.Duration(j))
	switch {
	case j.back():
		*made, *until = earliest(*made, now), earliest(*until, latestEnd)
	case !made.After(before.Time) && until.After(before.Time): // it was made before the jump, and not over then
		*made = earliest(plus(*made, time.Duration(j)), now)
		*until = latest(*until, earliest(plus(*until, time.Duration(j)), latestEnd))
	}
	return *made != wasMade || *until != wasUntil
}

// past moves a time at which something happened: after a jump back it may be ahead of the clock, and whatever counts
// from it would count too late.
func (j ClockJump) past(t *history.Time, now history.Time) (moved bool) {
	if j.back() && t.After(now.Time) {
		*t, moved = now, true
	}
	return moved
}

// with moves a time that belongs to a span which moved.
func (j ClockJump) with(t *history.Time, now history.Time) {
	if !t.IsZero() {
		*t = earliest(plus(*t, time.Duration(j)), now)
	}
}

// lease moves a lease; the time of a heartbeat under it goes along.
func (j ClockJump) lease(l *Lease, heartbeat *history.Time, now history.Time) (moved bool) {
	if moved = j.span(&l.LeasedAt, &l.Until, time.Duration(l.Length)*time.Microsecond, now); moved && !j.back() {
		j.with(heartbeat, now)
	}
	return j.past(heartbeat, now) || moved
}

// backoff moves the end of a back-off that began at a time; one that is not known was stored by an earlier build.
func (j ClockJump) backoff(since, until *history.Time, now history.Time) (moved bool) {
	if !j.back() || since.IsZero() || !since.After(now.Time) {
		return false
	}
	*until, *since = plus(now, until.Sub(since.Time)), now
	return true
}

// suspicion moves the time of the loss that it counts from.
func (j ClockJump) suspicion(s *Suspicion, now history.Time) (_ *Suspicion, moved bool) {
	if s == nil || !j.back() || !s.Since.After(now.Time) {
		return s, false
	}
	next := *s
	next.Since = now
	return &next, true
}

// FollowClock moves the leases and back-offs of a run after a jump of the store's clock.
type FollowClock struct{ Jump ClockJump }

func (in FollowClock) decide(st *step) error {
	if err := st.mustBeOpen(); err != nil {
		return err
	}
	moved := st.Task != nil && in.Jump.task(st.Task, st.now)
	for seq, a := range st.Activities.All() {
		if in.Jump.activity(&a, st.now) {
			st.Activities.Put(seq, a)
			moved = true
		}
	}
	if !moved {
		return errNotDue
	}
	return nil
}

func (j ClockJump) task(t *Task, now history.Time) (moved bool) {
	switch t.State {
	case LeasedState:
		moved = j.lease(&t.Lease, &history.Time{}, now)
	case Delayed:
		moved = j.backoff(&t.DelayedAt, &t.ReadyAt, now)
	case Ready:
		moved = j.past(&t.ReadyAt, now)
	}
	suspect, other := j.suspicion(t.Suspect, now)
	t.Suspect = suspect
	return moved || other
}

func (j ClockJump) activity(a *Activity, now history.Time) (moved bool) {
	switch a.State {
	case LeasedState:
		moved = j.lease(&a.Lease, &a.HeartbeatAt, now)
	case Delayed:
		moved = j.backoff(&a.DelayedAt, &a.ReadyAt, now)
	case Ready:
		moved = j.past(&a.ReadyAt, now)
	}
	moved = j.past(&a.FirstReady, now) || moved
	if a.State != Delayed || !a.DelayedAt.IsZero() { // the start of an activity run may be delayed until then
		moved = j.past(&a.ScheduledAt, now) || moved
	}
	suspect, other := j.suspicion(a.Suspect, now)
	a.Suspect = suspect
	return moved || other
}

// FollowClockSession is FollowClock for a session: its lease, its idle time and its TTL.
type FollowClockSession struct{ Jump ClockJump }

func (in FollowClockSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil || s.Terminal {
		return SessionChange{}, errNotDue
	}
	j, c := in.Jump, SessionChange{Session: *s}
	n := &c.Session
	length := max(s.LeaseUntil.Sub(s.RenewedAt.Time), time.Duration(s.Lease)*time.Microsecond)
	moved := s.Status == protocol.SessionActive && s.Owner != "" && j.span(&n.RenewedAt, &n.LeaseUntil, length, now)
	if moved && !j.back() {
		for _, t := range []*history.Time{&n.LastActivity, &n.WaitingSince} {
			j.with(t, now)
		}
		if !n.TTLUntil.IsZero() {
			n.TTLUntil = earliest(plus(n.TTLUntil, time.Duration(j)), plus(now, seconds(s.TTL)))
			n.TTLUntil = latest(s.TTLUntil, n.TTLUntil)
			n.LeaseUntil = earliest(n.LeaseUntil, n.TTLUntil)
		}
	}
	for _, t := range []*history.Time{
		&n.LastActivity, &n.WaitingSince, &n.EvictedAt, &n.RenewedAt, &n.FirstRenewal, &n.LastRenewal, &n.CreatedAt,
		&n.UpdatedAt,
	} {
		moved = j.past(t, now) || moved
	}
	if j.back() {
		for _, d := range []struct {
			until  *history.Time
			length time.Duration
		}{{&n.TTLUntil, seconds(s.TTL)}, {&n.ForUntil, KeptFor}, {&n.PinnedUntil, PinCheck}} {
			if end := plus(now, d.length); d.until.After(end.Time) {
				*d.until, moved = end, true
			}
		}
	}
	if !moved {
		return SessionChange{}, errNotDue
	}
	n.UpdatedAt = now
	return c, nil
}

// FollowClock returns the worker's row after a jump of the store's clock: until when it is believed alive, and when it
// was heard last.
func (w *Worker) FollowClock(j ClockJump, now time.Time) (next Worker, moved bool) {
	next = *w
	at := history.At(now)
	moved = j.span(&next.HeartbeatAt, &next.AliveUntil, next.AliveUntil.Sub(next.HeartbeatAt.Time), at)
	moved = j.past(&next.HeartbeatAt, at) || moved
	moved = j.past(&next.RegisteredAt, at) || moved
	return next, moved
}

// FollowClock returns the row of a queue after a jump of the store's clock: the deadlines of drains are lengths.
func (q *Queue) FollowClock(j ClockJump, now time.Time) (next Queue, moved bool) {
	next = *q
	next.Drains = append([]Drain(nil), q.Drains...)
	for i := range next.Drains {
		d := &next.Drains[i]
		moved = j.span(&d.At, &d.Deadline, d.Deadline.Sub(d.At.Time), history.At(now)) || moved
	}
	return next, moved
}
