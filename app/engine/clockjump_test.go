package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// After any jump a lease ends at most its length from now; after a jump forward it keeps its remaining time. If another
// app detects the same jump later, nothing changes after a jump back, and the lease is renewed at most once after a
// jump forward.
func TestALeaseFollowsAnyJumpOnceAndTwice(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	was := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for range 20_000 {
		length := time.Duration(1+r.Int64N(600)) * time.Second
		ago := time.Duration(r.Int64N(int64(2 * length)))
		j := ClockJump(time.Minute + time.Duration(r.Int64N(int64(2*time.Hour))))
		if r.IntN(2) == 0 {
			j = -j
		}
		before := Lease{
			LeasedAt: history.At(was.Add(-ago)), Until: history.At(was.Add(length - ago)), Length: length.Microseconds(),
		}
		now := history.At(was.Add(time.Duration(j)))
		l, heartbeatAt := before, before.LeasedAt
		j.lease(&l, &heartbeatAt, now)
		left, over := before.Until.Sub(was), !before.Until.After(was)
		switch got := l.Until.Sub(now.Time); {
		case got > length:
			t.Fatalf("%s: a lease of %s with %s left now has %s left", time.Duration(j), length, left, got)
		case !j.backward() && !over && got != left:
			t.Fatalf("%s: a lease of %s with %s left now has %s left", time.Duration(j), length, left, got)
		case !j.backward() && over && l != before:
			t.Fatalf("%s: an expired lease changed", time.Duration(j))
		case heartbeatAt.After(now.Time), l.LeasedAt.After(now.Time):
			t.Fatalf("%s: leased at %s, heartbeat at %s: ahead of the clock, which is at %s", time.Duration(j), l.LeasedAt,
				heartbeatAt, now)
		}
		second, later := l, history.At(now.Add(time.Duration(r.Int64N(int64(30*time.Second)))))
		j.lease(&second, &heartbeatAt, later)
		if second.Until.Sub(later.Time) > length || second.Until.Before(l.Until.Time) || j.backward() && second != l {
			t.Fatalf("%s: the second app moves a lease of %s from %s to %s", time.Duration(j), length, l.Until, second.Until)
		}
	}
}

// After a jump back the times of back-offs, suspects, sessions, workers and drains are adjusted; a delayed start is
// not.
func TestStoredTimesAfterAClockSetBack(t *testing.T) {
	now := history.At(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	in := func(d time.Duration) history.Time { return plus(now, d) }
	const j = ClockJump(-time.Hour)
	delayed := Activity{
		State: Delayed, DelayedAt: in(time.Hour), ReadyAt: in(70 * time.Minute), ScheduledAt: in(50 * time.Minute),
	}
	if !j.activity(&delayed, now) || delayed.ReadyAt != in(10*time.Minute) || delayed.ScheduledAt != now {
		t.Errorf("a back-off of ten minutes: %+v", delayed)
	}
	start := Activity{State: Delayed, ReadyAt: in(70 * time.Minute), ScheduledAt: in(70 * time.Minute)}
	if j.activity(&start, now) {
		t.Errorf("a delayed start moved to %s", start.ReadyAt)
	}
	suspicion := Suspicion{Since: in(time.Hour), Losses: 1}
	ready := Activity{State: Ready, ReadyAt: in(time.Hour), ScheduledAt: in(time.Hour), Suspect: &suspicion}
	if !j.activity(&ready, now) || ready.ReadyAt != now || ready.Suspect.Since != now || suspicion.Since == now {
		t.Errorf("a ready suspect: %+v, %+v", ready, ready.Suspect)
	}
	s := Session{
		Status: protocol.SessionActive, Owner: "w", Lease: time.Minute.Microseconds(), RenewedAt: in(time.Hour), TTL: 600,
		LeaseUntil: in(61 * time.Minute), LastActivity: in(time.Hour), TTLUntil: in(65 * time.Minute), Idle: 1,
	}
	c, err := DecideSession(&s, FollowClockSession{j}, now.Time)
	if n := c.Session; err != nil || n.LeaseUntil != in(time.Minute) || n.LastActivity != now ||
		n.TTLUntil != in(10*time.Minute) {
		t.Errorf("a session: %+v, %v", n, err)
	}
	if _, err := DecideSession(&c.Session, FollowClockSession{j}, now.Time); !IsNotDue(err) {
		t.Errorf("a session, adjusted again: %v", err)
	}
	w := Worker{HeartbeatAt: in(time.Hour), RegisteredAt: in(time.Hour), AliveUntil: in(61 * time.Minute)}
	if next, moved := w.FollowClock(j, now.Time); !moved || next.AliveUntil != in(time.Minute) || next.HeartbeatAt != now {
		t.Errorf("a worker: %+v", next)
	}
	q := Queue{Drains: []Drain{
		{At: in(time.Hour), Deadline: in(70 * time.Minute)}, {At: in(-time.Minute), Deadline: in(time.Minute)},
	}}
	next, moved := q.FollowClock(j, now.Time)
	if !moved || next.Drains[0].Deadline != in(10*time.Minute) || next.Drains[1] != q.Drains[1] ||
		q.Drains[0].At != in(time.Hour) {
		t.Errorf("drains: %+v", next.Drains)
	}
}
