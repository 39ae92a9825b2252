package engine

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A session of any kind is evicted if none of its tasks runs or waits, it has been idle for ten seconds, and its owner
// holds its maximum of sessions. A pinned session and one with no_reacquire are never evicted.
func TestEvictableSessions(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := now.Add(YieldIdle)
	held := NewSession("default", "s", nil, history.At(now))
	held.acquire(Lessee{Worker: &Worker{ID: "a", SessionLease: 30_000_000, SessionIdle: 300_000_000}}, 0, now, "")
	held.move(now)
	in := YieldSession{SessionHolder: SessionHolder{Worker: "a", Epoch: held.Epoch}, Held: 10, Limit: 10}
	for _, c := range []struct {
		name   string
		change func(s *Session, in *YieldSession, at *time.Time)
		gives  bool
	}{
		{"idle for ten seconds", func(*Session, *YieldSession, *time.Time) {}, true},
		{"idle for less", func(_ *Session, _ *YieldSession, at *time.Time) { *at = at.Add(-time.Microsecond) }, false},
		{"its tasks know of later work", func(s *Session, _ *YieldSession, _ *time.Time) {
			s.RecentActivity = history.At(now.Add(1))
		}, true},
		{"its tasks know of much later work", func(s *Session, _ *YieldSession, _ *time.Time) {
			s.RecentActivity = history.At(now.Add(time.Second))
		}, false},
		{"something runs", func(s *Session, _ *YieldSession, _ *time.Time) { s.Active = 1 }, false},
		{"something of an earlier holding runs", func(s *Session, _ *YieldSession, _ *time.Time) {
			s.StaleAttempts = map[int64]int{1: 1}
		}, false},
		{"something is queued", func(s *Session, _ *YieldSession, _ *time.Time) { s.Ready = 1 }, false},
		{"made by options", func(s *Session, _ *YieldSession, _ *time.Time) { s.Origin = OriginWorker }, true},
		{"started by a workflow", func(s *Session, _ *YieldSession, _ *time.Time) { s.Origin = OriginWorkflow }, true},
		{"pinned", func(s *Session, _ *YieldSession, _ *time.Time) { s.Pinned = true }, false},
		{"never acquired again", func(s *Session, _ *YieldSession, _ *time.Time) { s.NoReacquire = true }, false},
		{"being moved", func(s *Session, _ *YieldSession, _ *time.Time) { s.Moving = "o" }, false},
		{"its lease is over", func(_ *Session, _ *YieldSession, at *time.Time) { *at = at.Add(time.Minute) }, false},
		{"another holds it", func(s *Session, _ *YieldSession, _ *time.Time) { s.Owner = "b" }, false},
		{"under another epoch", func(s *Session, _ *YieldSession, _ *time.Time) { s.Epoch++ }, false},
		{"its holder has room", func(_ *Session, in *YieldSession, _ *time.Time) { in.Held = 9 }, false},
	} {
		s, in, at := held, in, at
		c.change(&s, &in, &at)
		d, err := DecideSession(&s, in, at)
		if gives := err == nil; gives != c.gives {
			t.Errorf("%s: %v", c.name, err)
		}
		if marked := s.Origin != OriginImplicit; err == nil && marked {
			if !d.Session.Yielding || !d.Session.Held(at) || d.Session.Owner != "a" || len(d.Timeline) != 0 {
				t.Errorf("%s: %+v, want a marked session that is held until its lease ends", c.name, d)
			}
		} else if err == nil &&
			(d.Session.Owner != "" || d.Session.Held(at) || d.Session.Terminal || len(d.Timeline) != 1 ||
				d.Timeline[0].Why != ReasonEvictedCap) {
			t.Errorf("%s: %+v", c.name, d)
		}
		if in.Held < in.Limit || s.Owner != "a" || s.Epoch != held.Epoch || !s.Held(at) {
			continue
		}
		// A release by the owner for the same reason follows the same rules.
		_, err = DecideSession(&s, ReleaseSession{SessionHolder: in.SessionHolder, Why: ReasonEvictedCap}, at)
		if gives := err == nil; gives != c.gives || err != nil && reasonIn(err) != protocol.ReasonValidation {
			t.Errorf("%s: its holder's release: %v", c.name, err)
		}
	}

	// An acquisition soon after the eviction is recorded in the timeline.
	d, err := DecideSession(&held, in, at)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]string{12 * time.Second: "evicted_cap 12 s before", EvictedLately: ""} {
		s := d.Session
		e := s.acquire(Lessee{Worker: &Worker{ID: "b"}}, 0, at.Add(after), "")
		if len(e) != 1 || e[0].What != "reclaimed" || e[0].Why != want || !s.EvictedAt.IsZero() {
			t.Errorf("claimed %s later: %+v", after, e)
		}
	}
}

// The lease of a session that is marked for eviction is not renewed, and the session moves when the lease ends. A task
// or an explicit heartbeat clears the mark.
func TestAMarkedSessionMovesWhenItsLeaseEnds(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := &Worker{
		ID: "a", Incarnation: "a1", SessionLease: 30_000_000, MaxSessions: 1, AttemptLease: 30_000_000, ResumesSessions: true,
	}
	s := NewSession("default", "s", nil, history.At(now))
	s.Origin = OriginWorkflow
	s.acquire(Lessee{Worker: a}, 0, now, "")
	s.move(now)
	holder := SessionHolder{Worker: "a", Epoch: s.Epoch}
	step := func(s *Session, in SessionInput, at time.Time) Session {
		t.Helper()
		c, err := DecideSession(s, in, at)
		if err != nil {
			t.Fatalf("%T: %v", in, err)
		}
		return c.Session
	}
	marked := step(&s, YieldSession{SessionHolder: holder, Held: 1, Limit: 1}, now.Add(10*time.Second))
	if _, err := DecideSession(
		&marked, YieldSession{SessionHolder: holder, Held: 1, Limit: 1}, now.Add(11*time.Second),
	); !IsNotDue(err) {
		t.Errorf("the session is marked twice: %v", err)
	}
	renewed := step(&marked, RenewSession{SessionHolder: holder}, now.Add(20*time.Second))
	if !renewed.Yielding || renewed.LeaseUntil != s.LeaseUntil {
		t.Errorf("a renewal moved the lease to %s, want %s", renewed.LeaseUntil, s.LeaseUntil)
	}
	if used := step(&marked, RenewSession{SessionHolder: holder, Touch: true}, now.Add(20*time.Second)); used.Yielding ||
		!used.LeaseUntil.After(s.LeaseUntil.Time) {
		t.Errorf("after a heartbeat by verb: %+v, want no mark and a renewed lease", used)
	}
	used := marked
	LeaseActivity(
		Activity{RunID: "r", Seq: 1, State: Ready, SessionID: "s"}, &used, Lessee{Worker: a}, func(string) int64 { return 0 },
		now.Add(20*time.Second),
	)
	if used.Yielding || used.Epoch != s.Epoch {
		t.Errorf("after a task: %+v, want no mark and epoch %d", used, s.Epoch)
	}
	if released := step(
		&marked, ReleaseSession{SessionHolder: holder, Why: ReasonEvictedCap}, now.Add(20*time.Second),
	); released.Owner != "" || released.Yielding {
		t.Errorf("released by its holder: %+v", released)
	}

	over := s.LeaseUntil.Time
	c, err := DecideSession(&marked, DueSession{}, over)
	if err != nil || len(c.Timeline) != 1 || c.Timeline[0].What != "released" || c.Timeline[0].Why != ReasonEvictedCap ||
		c.Session.Owner != "" || c.Session.Yielding || c.Session.Terminal {
		t.Errorf("after the end of its lease: %+v, %v", c, err)
	}
	resume := ResumeSession{Epoch: s.Epoch, Lessee: Lessee{Worker: a, Counted: true}}
	if _, err := DecideSession(&marked, resume, over); err == nil {
		t.Error("the holder resumed the session after the end of its lease")
	}
	other := marked
	e := other.acquire(Lessee{Worker: &Worker{ID: "b"}}, 0, over, "")
	if len(e) != 2 || e[0].What != "released" || e[0].Why != ReasonEvictedCap || e[1].What != "reclaimed" ||
		other.Yielding {
		t.Errorf("acquired before an app recorded the end of the lease: %+v", e)
	}
}
