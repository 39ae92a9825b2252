package engine

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Only a mere id in which nothing runs or waits, idle for ten seconds, gives way, and only from who holds it and has no
// room.
func TestWhatGivesWay(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := now.Add(YieldIdle)
	held := NewSession("default", "s", nil, history.At(now))
	held.claim(Lessee{Worker: &Worker{ID: "a", SessionLease: 30_000_000, SessionIdle: 300_000_000}}, 0, now, "")
	held.move(now)
	in := YieldSession{SessionHolder: SessionHolder{Worker: "a", Epoch: held.Epoch}, Held: 10, Most: 10}
	for _, c := range []struct {
		name   string
		change func(s *Session, in *YieldSession, at *time.Time)
		gives  bool
	}{
		{"idle for ten seconds", func(*Session, *YieldSession, *time.Time) {}, true},
		{"idle for less", func(_ *Session, _ *YieldSession, at *time.Time) { *at = at.Add(-time.Microsecond) }, false},
		{"its tasks know of later work", func(s *Session, _ *YieldSession, _ *time.Time) {
			s.Lately = history.At(now.Add(1))
		}, true},
		{"its tasks know of much later work", func(s *Session, _ *YieldSession, _ *time.Time) {
			s.Lately = history.At(now.Add(time.Second))
		}, false},
		{"something runs", func(s *Session, _ *YieldSession, _ *time.Time) { s.Active = 1 }, false},
		{"something of an earlier holding runs", func(s *Session, _ *YieldSession, _ *time.Time) {
			s.Strays = map[int64]int{1: 1}
		}, false},
		{"something is queued", func(s *Session, _ *YieldSession, _ *time.Time) { s.Ready = 1 }, false},
		{"made by options", func(s *Session, _ *YieldSession, _ *time.Time) { s.Door = DoorWorker }, false},
		{"started by a workflow", func(s *Session, _ *YieldSession, _ *time.Time) { s.Door = DoorWorkflow }, false},
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
		if err == nil &&
			(d.Session.Owner != "" || d.Session.Held(at) || d.Session.Terminal || len(d.Timeline) != 1 ||
				d.Timeline[0].Why != ReasonEvictedCap) {
			t.Errorf("%s: %+v", c.name, d)
		}
		if in.Held < in.Most || s.Owner != "a" || s.Epoch != held.Epoch || !s.Held(at) {
			continue
		}
		// The holder's own word is judged the same.
		_, err = DecideSession(&s, ReleaseSession{SessionHolder: in.SessionHolder, Why: ReasonEvictedCap}, at)
		if gives := err == nil; gives != c.gives || err != nil && reasonIn(err) != protocol.ReasonValidation {
			t.Errorf("%s: its holder's release: %v", c.name, err)
		}
	}

	// Who claims it soon after is told.
	d, err := DecideSession(&held, in, at)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]string{12 * time.Second: "evicted_cap 12 s before", EvictedLately: ""} {
		s := d.Session
		e := s.claim(Lessee{Worker: &Worker{ID: "b"}}, 0, at.Add(after), "")
		if len(e) != 1 || e[0].What != "reclaimed" || e[0].Why != want || !s.EvictedAt.IsZero() {
			t.Errorf("claimed %s later: %+v", after, e)
		}
	}
}
