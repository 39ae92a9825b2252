package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ClockJump is the amount by which the store's clock was set: forward if positive, back if negative. Leases and
// backoffs are durations that are stored as end times, so their end times are adjusted: after a jump back, none ends
// later than its full length from now; after a jump forward, each keeps its remaining time. Timers, start delays, and
// the deadlines of runs and activities are absolute times that users wait for; they are not adjusted.
//
// Another app that detects the same jump may apply the rules again: that changes nothing, or renews a lease once, for
// at most its length.
type ClockJump time.Duration

// backward reports whether the clock was set back.
func (j ClockJump) backward() bool { return j < 0 }

// adjustPeriod adjusts a period that began at made and ends at until; length is its maximum length.
func (j ClockJump) adjustPeriod(made, until *history.Time, length time.Duration, now history.Time) (moved bool) {
	if made.IsZero() || until.IsZero() || length <= 0 {
		return false
	}
	wasMade, wasUntil := *made, *until
	latestEnd, before := plus(now, length), plus(now, -time.Duration(j))
	switch {
	case j.backward():
		*made, *until = earliest(*made, now), earliest(*until, latestEnd)
	case !made.After(before.Time) && until.After(before.Time): // the period had begun and not ended before the jump
		*made = earliest(plus(*made, time.Duration(j)), now)
		*until = latest(*until, earliest(plus(*until, time.Duration(j)), latestEnd))
	}
	return *made != wasMade || *until != wasUntil
}

// clampEvent adjusts the time of an event. After a jump back, it may be later than the clock, and a period that is
// counted from it would end too late.
func (j ClockJump) clampEvent(t *history.Time, now history.Time) (moved bool) {
	if j.backward() && t.After(now.Time) {
		*t, moved = now, true
	}
	return moved
}

// adjustTime adjusts a time within a period that span has adjusted.
func (j ClockJump) adjustTime(t *history.Time, now history.Time) {
	if !t.IsZero() {
		*t = earliest(plus(*t, time.Duration(j)), now)
	}
}

// lease adjusts a lease and the time of the last heartbeat under it.
func (j ClockJump) lease(l *Lease, heartbeat *history.Time, now history.Time) (moved bool) {
	moved = j.adjustPeriod(&l.LeasedAt, &l.Until, time.Duration(l.Length)*time.Microsecond, now)
	if moved && !j.backward() {
		j.adjustTime(heartbeat, now)
	}
	return j.clampEvent(heartbeat, now) || moved
}

// backoff adjusts the end of a backoff. An earlier build stored backoffs without their beginning (zero); they are not
// adjusted.
func (j ClockJump) backoff(since, until *history.Time, now history.Time) (moved bool) {
	if !j.backward() || since.IsZero() || !since.After(now.Time) {
		return false
	}
	*until, *since = plus(now, until.Sub(since.Time)), now
	return true
}

// suspicion adjusts the time of the last loss.
func (j ClockJump) suspicion(s *Suspicion, now history.Time) (_ *Suspicion, moved bool) {
	if s == nil || !j.backward() || !s.Since.After(now.Time) {
		return s, false
	}
	next := *s
	next.Since = now
	return &next, true
}

// FollowClock adjusts the leases and back-offs of a run to a jump of the store's clock.
type FollowClock struct{ Jump ClockJump }

func (in FollowClock) decide(st *step) error {
	if err := st.mustHaveTasks(); err != nil {
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
		moved = j.clampEvent(&t.ReadyAt, now)
	}
	suspect, other := j.suspicion(t.Suspect, now)
	t.Suspect = suspect
	return moved || other
}

func (j ClockJump) activity(a *Activity, now history.Time) (moved bool) {
	switch a.State {
	case LeasedState:
		moved = j.lease(&a.Lease, &a.HeartbeatAt, now)
	case Pending:
		moved = j.pending(a, now)
	case Delayed:
		moved = j.backoff(&a.DelayedAt, &a.ReadyAt, now)
	case Ready:
		moved = j.clampEvent(&a.ReadyAt, now)
	}
	moved = j.clampEvent(&a.FirstReady, now) || moved
	// without DelayedAt, this may be the delayed start of an activity run
	if a.State != Delayed || !a.DelayedAt.IsZero() {
		moved = j.clampEvent(&a.ScheduledAt, now) || moved
	}
	suspect, other := j.suspicion(a.Suspect, now)
	a.Suspect = suspect
	return moved || other
}

// FollowClockSession adjusts the lease, the idle time and the TTL of a session to a jump of the store's clock.
type FollowClockSession struct{ Jump ClockJump }

func (in FollowClockSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil || s.Terminal {
		return SessionChange{}, errNotDue
	}
	j, c := in.Jump, SessionChange{Session: *s}
	n := &c.Session
	length := max(s.LeaseUntil.Sub(s.RenewedAt.Time), s.LeaseLength())
	moved := s.Status == protocol.SessionActive && s.Owner != "" &&
		j.adjustPeriod(&n.RenewedAt, &n.LeaseUntil, length, now)
	if moved && !j.backward() {
		for _, t := range []*history.Time{&n.LastActivity, &n.WaitingSince} {
			j.adjustTime(t, now)
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
		moved = j.clampEvent(t, now) || moved
	}
	if j.backward() {
		for _, d := range []struct {
			until  *history.Time
			length time.Duration
		}{{&n.TTLUntil, seconds(s.TTL)}, {&n.ForUntil, ReservationTime}, {&n.PinnedUntil, PinCheck}} {
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

// FollowClock returns the worker's row after a jump of the store's clock: it adjusts until when the worker counts as
// alive and the time of its last heartbeat.
func (w *Worker) FollowClock(j ClockJump, now time.Time) (next Worker, moved bool) {
	next = *w
	at := history.At(now)
	moved = j.adjustPeriod(&next.HeartbeatAt, &next.AliveUntil, next.AliveUntil.Sub(next.HeartbeatAt.Time), at)
	moved = j.clampEvent(&next.HeartbeatAt, at) || moved
	moved = j.clampEvent(&next.RegisteredAt, at) || moved
	if moved {
		// each app stores its entry again with the next heartbeat; AliveUntil covers the time until then
		next.AliveByApp = nil
	}
	return next, moved
}

// FollowClock returns the queue's row, adjusted to a jump of the store's clock: the deadlines of its drains.
func (q *Queue) FollowClock(j ClockJump, now time.Time) (next Queue, moved bool) {
	next = *q
	next.Drains = append([]Drain(nil), q.Drains...)
	for i := range next.Drains {
		d := &next.Drains[i]
		moved = j.adjustPeriod(&d.At, &d.Deadline, d.Deadline.Sub(d.At.Time), history.At(now)) || moved
	}
	return next, moved
}
