package engine

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// suspended returns a session whose lease expired while its worker kept the state, with that worker and the time.
func suspended() (Session, *Worker, time.Time) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := &Worker{
		ID: "a", Incarnation: "a1", Release: "1.0", MaxSessions: 2, ResumesSessions: true, SessionLease: 30_000_000,
		SessionIdle: 300_000_000,
	}
	s := NewSession("default", "s", nil, history.At(now))
	s.acquire(Lessee{Worker: w}, 0, now, "")
	s.move(now)
	s.Fresh = false // an activity has already run in it
	s.Renewals, s.FirstRenewal, s.LastRenewal = 1, history.At(now), history.At(now)
	return s, w, now.Add(40 * time.Second)
}

func resume(s *Session, w *Worker, now time.Time, held int) (SessionChange, error) {
	return DecideSession(s, ResumeSession{Epoch: s.Epoch, Lessee: Lessee{Worker: w, Sessions: held, Counted: true}}, now)
}

func TestASessionIsResumedUnderItsEpoch(t *testing.T) {
	for name, swept := range map[string]bool{"the app has not seen the end of the lease": false, "it has": true} {
		t.Run(name, func(t *testing.T) {
			s, w, now := suspended()
			if swept {
				c, err := DecideSession(&s, DueSession{}, now)
				if err != nil || c.Session.Status != protocol.SessionExpired {
					t.Fatalf("%+v, %v", c, err)
				}
				s = c.Session
			}
			c, err := resume(&s, w, now, 1)
			if err != nil {
				t.Fatal(err)
			}
			if n := c.Session; n.Epoch != s.Epoch || !n.With(w, now.Add(29*time.Second)) || n.Release != "1.0" ||
				len(c.Timeline) != 1 || c.Timeline[0].What != "resumed" {
				t.Errorf("%+v, timeline %+v", n, c.Timeline)
			}
			if n := c.Session; n.Renewals != 0 || !n.FirstRenewal.IsZero() || !n.LastRenewal.IsZero() {
				t.Errorf("the renewals before the expiry are counted again: %+v", n)
			}
			// A task resumes the session, too, and the state is not new.
			a, timeline, _ := LeaseActivity(
				Activity{}, &s, Lessee{Worker: w, Counted: true}, func(string) int64 { return 0 }, now,
			)
			if a.New || a.Epoch != c.Session.Epoch || len(timeline) != 1 || timeline[0].What != "resumed" ||
				!s.With(w, now.Add(29*time.Second)) {
				t.Errorf("the task is %+v, the timeline %+v", a, timeline)
			}
		})
	}
}

func TestASessionIsNotResumedOnceAnythingHappenedToIt(t *testing.T) {
	for name, change := range map[string]func(*Session, *Worker, *time.Time){
		"another worker acquired it": func(s *Session, _ *Worker, now *time.Time) {
			s.acquire(Lessee{Worker: &Worker{ID: "b", Incarnation: "b1", SessionLease: 1}}, 0, *now, "")
			*now = now.Add(time.Minute)
		},
		"another process of the worker":  func(_ *Session, w *Worker, _ *time.Time) { w.Incarnation = "a2" },
		"a worker that does not suspend": func(_ *Session, w *Worker, _ *time.Time) { w.ResumesSessions = false },
		"an executor that died": func(s *Session, _ *Worker, now *time.Time) {
			s.lose(protocol.SessionFailed, "out_of_memory", history.At(*now))
		},
		"made with options": func(s *Session, _ *Worker, _ *time.Time) { s.Origin = OriginWorker },
		"closed": func(s *Session, _ *Worker, now *time.Time) {
			s.endAs(protocol.SessionClosed, "test", history.At(*now))
		},
		"released": func(s *Session, _ *Worker, now *time.Time) { s.release(history.At(*now), "a", "test") },
		"moved to another": func(s *Session, _ *Worker, now *time.Time) {
			s.For = "b"
			s.startReservation(history.At(*now))
		},
		"idle for too long":  func(_ *Session, _ *Worker, now *time.Time) { *now = now.Add(5 * time.Minute) },
		"the worker is full": func(_ *Session, w *Worker, _ *time.Time) { w.MaxSessions = 1 },
		"kept for its release": func(s *Session, w *Worker, _ *time.Time) {
			s.ReleasePolicy, w.Release = PolicyFinish, "2.0"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, w, now := suspended()
			change(&s, w, &now)
			before := s
			if c, err := resume(&s, w, now, 1); err == nil {
				t.Errorf("resumed: %+v", c)
			}
			if s.Epoch != before.Epoch || s.Status != before.Status || s.LeaseUntil != before.LeaseUntil {
				t.Errorf("the refusal changed %+v to %+v", before, s)
			}
		})
	}
	s, w, now := suspended()
	_, err := DecideSession(&s, ResumeSession{Epoch: s.Epoch - 1, Lessee: Lessee{Worker: w, Counted: true}}, now)
	if reasonIn(err) != protocol.ReasonSessionOwner {
		t.Errorf("under another epoch: %v", err)
	}
	_, err = DecideSession(&s, ResumeSession{
		Epoch: s.Epoch, Draining: true, Lessee: Lessee{Worker: w, Counted: true},
	}, now)
	if reasonIn(err) != protocol.ReasonWorkerDraining {
		t.Errorf("of a drained worker: %v", err)
	}
}

// A worker that dropped the state of an epoch releases the epoch, with a valid lease and with an expired one. Its next
// acquisition has a higher epoch, also higher than an epoch that only the worker has seen.
func TestAbandonedEpochIsNotServed(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		known func(epoch int64) int64
		want  func(epoch, next int64) bool
	}{
		"lease lives": {after: 0, want: func(epoch, next int64) bool { return next > epoch }},
		"lease ended": {after: time.Minute, want: func(epoch, next int64) bool { return next > epoch }},
		"a higher epoch is known": {
			known: func(epoch int64) int64 { return epoch + time.Hour.Microseconds() },
			want:  func(epoch, next int64) bool { return next > epoch+time.Hour.Microseconds() },
		},
		"an epoch of next week is not believed": {
			known: func(epoch int64) int64 { return epoch + 7*24*time.Hour.Microseconds() },
			want:  func(epoch, next int64) bool { return next > epoch && next < epoch+24*time.Hour.Microseconds() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, w, _ := suspended()
			now := s.UpdatedAt.Add(c.after)
			in := ReleaseSession{SessionHolder: SessionHolder{Worker: "a", Epoch: s.Epoch}, Why: protocol.ReasonGivenUp}
			if c.known != nil {
				in.KnownEpoch = c.known(s.Epoch)
			}
			changed, err := DecideSession(&s, in, now)
			if err != nil || len(changed.Timeline) != 1 || changed.Timeline[0].Why != protocol.ReasonGivenUp {
				t.Fatalf("%+v, %v", changed, err)
			}
			n := changed.Session
			a, _, _ := LeaseActivity(Activity{}, &n, Lessee{Worker: w, Counted: true}, func(string) int64 { return 0 }, now)
			if !a.New || !c.want(s.Epoch, a.Epoch) {
				t.Errorf("the next task gets epoch %d after %d, new %t", a.Epoch, s.Epoch, a.New)
			}
		})
	}
}

// After a restore no process resumes a session, whether it is held or suspended; a session with no_reacquire is closed,
// and one without an owner does not change.
func TestARestoredSessionIsNotResumed(t *testing.T) {
	for name, after := range map[string]time.Duration{"held": 0, "suspended": time.Minute} {
		s, w, _ := suspended()
		now := s.UpdatedAt.Add(after)
		changed, err := DecideSession(&s, RestoreSession{}, now)
		if err != nil || len(changed.Timeline) != 1 || changed.Session.Owner != "" {
			t.Fatalf("%s: %+v, %v", name, changed, err)
		}
		n := changed.Session
		resume := ResumeSession{Epoch: s.Epoch, Lessee: Lessee{Worker: w, Counted: true}}
		if _, err := DecideSession(&n, resume, now); err == nil {
			t.Errorf("%s: the session is resumed after the restore", name)
		}
		a, _, _ := LeaseActivity(Activity{}, &n, Lessee{Worker: w, Counted: true}, func(string) int64 { return 0 }, now)
		if !a.New || a.Epoch <= s.Epoch {
			t.Errorf("%s: the next task gets epoch %d after %d, new %t", name, a.Epoch, s.Epoch, a.New)
		}
		if _, err := DecideSession(&changed.Session, RestoreSession{}, now); !IsNotDue(err) {
			t.Errorf("%s: a session without an owner is released once more: %v", name, err)
		}
		s.NoReacquire = true
		if changed, err = DecideSession(&s, RestoreSession{}, now); err != nil || !changed.Session.Terminal {
			t.Errorf("%s: a session that must not be acquired again has not ended: %+v, %v", name, changed, err)
		}
	}
}
