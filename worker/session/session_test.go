package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lease returns a lease of 30 s that the app granted at the given time.
func lease(at time.Time) session.Lease {
	return session.Lease{Sent: at, Store: at, End: at.Add(30 * time.Second)}
}

// state records that it was closed.
type state struct{ closed bool }

func (s *state) Close() { s.closed = true }

// The app requests a snapshot while an outdated one is taken: the worker must take another one.
func TestARequestDuringASnapshotIsNotLost(t *testing.T) {
	s := open(t)
	h, err := s.Enter(&protocol.SessionAffinity{SessionID: "s", Epoch: 1}, lease(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	h.EndAttempt()
	for _, again := range []bool{true, false} {
		if _, ok := s.BeginSnapshot(t.Context(), "s", 1, false); !ok {
			t.Fatal("the session is not held")
		}
		if again {
			if _, ok := s.BeginSnapshot(t.Context(), "s", 1, false); ok {
				t.Error("two snapshots are taken at once")
			}
		}
		if got := h.EndSnapshot(); got != again {
			t.Errorf("requested again: %t, want %t", got, again)
		}
	}
}

// set records the ends and failures that the sessions of a worker reported.
type set struct {
	*session.Sessions
	mu     sync.Mutex
	ended  []string // elements are "session: reason"
	failed []string // elements are "session: cause"
}

func open(t *testing.T) *set {
	t.Helper()
	s := &set{}
	var err error
	s.Sessions, err = session.New(session.Options{
		NewState: func() session.State { return &state{} },
		End: func(_ context.Context, id string, _ int64, reason string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ended = append(s.ended, id+": "+reason)
		},
		Failed: func(_ context.Context, id string, _ int64, cause, _ string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.failed = append(s.failed, id+": "+cause)
		},
	}, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *set) enter(t *testing.T, id string, epoch int64) *session.Holding {
	t.Helper()
	h, err := s.Enter(
		&protocol.SessionAffinity{SessionID: id, Epoch: epoch, Origin: "implicit", Lease: 30}, lease(time.Now()),
	)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// renew acts as the heartbeats of a period d: it renews all sessions that are due. With held, the app reports each
// session as held.
func (s *set) renew(d time.Duration, held bool) (calls int) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		now := time.Now()
		due, _ := s.Due(now)
		if len(due) == 0 {
			continue
		}
		calls++
		states := make([]protocol.SessionState, len(due))
		for i, r := range due {
			states[i] = protocol.SessionState{
				SessionID: r.SessionID, Epoch: r.Epoch, Held: held, Reason: "another holds it",
				LeaseExpiresAt: history.At(now.Add(30 * time.Second)),
			}
		}
		s.Renewed(now, now, due, states, nil)
	}
	return calls
}

func TestHeldSessionsAreRenewedTogetherBeforeTheirLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		a := s.enter(t, "a", 1)
		time.Sleep(time.Second)
		b := s.enter(t, "b", 1)
		if n := s.renew(250*time.Second, true); n < 23 || n > 26 {
			t.Errorf("%d calls in 250 s for two sessions, want about one every 10 s", n)
		}
		if !a.Held() || !b.Held() {
			t.Error("a renewed session was lost")
		}
	})
}

func TestIdleSessionIsRenewedNoMoreAndDroppedWhenItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		h := s.enter(t, "s", 1)
		h.EndAttempt()
		s.renew(299*time.Second, true)
		if !h.Held() {
			t.Fatal("dropped before it was idle")
		}
		s.renew(40*time.Second, true)
		synctest.Wait()
		if h.Held() || !h.State.(*state).closed {
			t.Error("still held, five and a half minutes after its last activity")
		}
	})
}

func TestBusySessionIsNeverIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		h := s.enter(t, "s", 1)
		s.renew(time.Hour, true)
		if !h.Held() {
			t.Error("dropped while an attempt runs")
		}
	})
}

func TestSessionOfAnotherOriginIsNeverIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		affinity := &protocol.SessionAffinity{SessionID: "s", Epoch: 1, Origin: "workflow", Lease: 30}
		h, err := s.Enter(affinity, lease(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		h.EndAttempt()
		s.renew(time.Hour, true)
		if !h.Held() {
			t.Error("dropped")
		}
	})
}

func TestSessionThatIsNotHeldIsDroppedAndClosedOnceItsAttemptsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		h := s.enter(t, "s", 1)
		s.renew(30*time.Second, false)
		synctest.Wait()
		if h.Held() {
			t.Error("still held")
		}
		if h.State.(*state).closed {
			t.Error("closed under a running attempt")
		}
		h.EndAttempt()
		synctest.Wait()
		if !h.State.(*state).closed || len(s.ended) != 1 || s.ended[0] != "s: another holds it" {
			t.Errorf("closed: %v, ended: %v", h.State.(*state).closed, s.ended)
		}
	})
}

func TestNewerEpochEndsTheOlderAndAnOlderIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		old := s.enter(t, "s", 5)
		old.EndAttempt()
		fresh := s.enter(t, "s", 6)
		synctest.Wait()
		if old.Held() || !old.State.(*state).closed || !fresh.Held() || fresh.State == old.State {
			t.Error("the state of the older epoch was not closed")
		}
		_, err := s.Enter(&protocol.SessionAffinity{SessionID: "s", Epoch: 5}, lease(time.Now()))
		var superseded *session.SupersededError
		if !errors.As(err, &superseded) || superseded.Held != 6 {
			t.Errorf("got %v", err)
		}
	})
}

func TestLostResponseIsRepeatedAndNeverExtendsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		h := s.enter(t, "s", 1)
		h.EndAttempt()
		tries, renewals := 0, 0
		for range 40 {
			time.Sleep(time.Second)
			now := time.Now()
			due, _ := s.Due(now)
			if len(due) > 0 {
				tries++
			}
			for _, r := range due {
				if !r.Resume {
					renewals++
				}
			}
			s.Renewed(now, now, due, nil, errors.New("no connection"))
		}
		if tries < 3 || renewals > 20 {
			t.Errorf("%d tries, %d of them to renew a lease of 30 s", tries, renewals)
		}
	})
}

func TestSessionWhoseExecutorDiedEndsAsFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		idle := s.enter(t, "idle", 1)
		idle.EndAttempt()
		s.Died("idle", 1, "crash", "as it was")
		busy := s.enter(t, "busy", 1)
		s.Died("busy", 1, "out_of_memory", "as it was")
		rebuilt := s.enter(t, "rebuilt", 1)
		s.Died("rebuilt", 1, "crash", "as it was")
		if err := rebuilt.Rebuild(t.Context(), 0, true, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		rebuilt.EndAttempt()
		synctest.Wait()
		if got := strings.Join(s.failed, ", "); got != "idle: crash" || !busy.Held() {
			t.Errorf("failed: %s; one with a running attempt may still be rebuilt", got)
		}
		busy.EndAttempt()
		synctest.Wait()
		if got := strings.Join(s.failed, ", "); got != "idle: crash, busy: out_of_memory" || !rebuilt.Held() {
			t.Errorf("failed: %s", got)
		}
	})
}

func TestIdleTimeShorterThanRenewalIsRefused(t *testing.T) {
	_, err := session.New(session.Options{Idle: 20 * time.Second}, 30*time.Second)
	if err == nil || !strings.Contains(err.Error(), "20 s") || !strings.Contains(err.Error(), "30 s") {
		t.Errorf("got %v", err)
	}
	if _, err := session.New(session.Options{Idle: 31 * time.Second}, 30*time.Second); err != nil {
		t.Error(err)
	}
}

func TestCancelledRebuildIsTakenOverByTheNextWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		h := s.enter(t, "s", 1)
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			first <- h.Rebuild(ctx, 0, true, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		}()
		synctest.Wait()
		second, ran := make(chan error, 1), false
		go func() {
			second <- h.Rebuild(t.Context(), 0, true, func(context.Context) error { ran = true; return nil })
		}()
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("first: %v", err)
		}
		if err := <-second; err != nil || !ran || h.Rebuilds() != 1 {
			t.Errorf("second: %v, ran: %v, rebuilds: %d", err, ran, h.Rebuilds())
		}
	})
}

// asked returns the session renewal that the next heartbeat contains.
func (s *set) asked(t *testing.T) protocol.SessionRenewal {
	t.Helper()
	due, _ := s.Due(time.Now())
	if len(due) != 1 {
		t.Fatalf("the heartbeat renews %+v", due)
	}
	return due[0]
}

func (s *set) answer(r protocol.SessionRenewal, held bool) {
	now := time.Now()
	s.Renewed(now, now, []protocol.SessionRenewal{r}, []protocol.SessionState{{
		SessionID: r.SessionID, Epoch: r.Epoch, Held: held, LeaseExpiresAt: history.At(now.Add(30 * time.Second)),
	}}, nil)
}

func TestIdleStateIsSuspendedWhenTheLeaseEndsAndResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		h := s.enter(t, "s", 1)
		h.EndAttempt()
		time.Sleep(60 * time.Second)
		r := s.asked(t)
		if !r.Resume || !h.Held() || h.State.(*state).closed {
			t.Fatalf("after the end of the lease the heartbeat has %+v, held %t", r, h.Held())
		}
		s.answer(r, true)
		if due, _ := s.Due(time.Now()); len(due) > 0 {
			t.Errorf("after the session was resumed the heartbeat has %+v", due)
		}
		time.Sleep(60 * time.Second)
		if h2 := s.enter(t, "s", 1); h2 != h { // a task under the suspended epoch resumes the session
			t.Error("a task under the suspended epoch found other state")
		}
		h.EndAttempt()
		if due, _ := s.Due(time.Now()); len(due) > 0 {
			t.Errorf("after a task the heartbeat has %+v", due)
		}
	})
}

// A dropped epoch is reported until an app has responded, and no activity starts under it.
func TestADroppedEpochIsReleasedAndNeverServed(t *testing.T) {
	for name, drop := range map[string]func(*set, protocol.SessionRenewal){
		"refused": func(s *set, r protocol.SessionRenewal) { s.answer(r, false) },
		"suspended for too long": func(s *set, _ protocol.SessionRenewal) {
			time.Sleep(session.Suspended)
			s.Due(time.Now())
		},
		"memory pressure": func(s *set, r protocol.SessionRenewal) {
			if !s.Evict(r.SessionID, r.Epoch, "evicted_pressure", func() error { return errors.New("no connection") }) {
				panic("not evicted")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t)
				first := &protocol.SessionAffinity{SessionID: "s", Epoch: 7, Origin: "workflow", Lease: 30}
				h, err := s.Enter(first, lease(time.Now()))
				if err != nil {
					t.Fatal(err)
				}
				h.EndAttempt()
				time.Sleep(60 * time.Second)
				drop(s, s.asked(t))
				synctest.Wait()
				if h.Held() || !h.State.(*state).closed {
					t.Fatal("the state was not dropped")
				}
				r := s.asked(t)
				if !r.GivenUp || r.Epoch != 7 {
					t.Fatalf("the next heartbeat has %+v", r)
				}
				s.Renewed(time.Now(), time.Now(), []protocol.SessionRenewal{r}, nil, errors.New("no connection"))
				time.Sleep(2 * time.Second)
				if second := s.asked(t); second != r {
					t.Errorf("after a heartbeat without a response the next one has %+v", second)
				}
				s.answer(r, false)
				if due, _ := s.Due(time.Now()); len(due) > 0 {
					t.Errorf("after the response the next heartbeat has %+v", due)
				}
				affinity := &protocol.SessionAffinity{SessionID: "s", Epoch: 7, Origin: "workflow", Lease: 30}
				_, err = s.Enter(affinity, lease(time.Now()))
				var dropped *session.DroppedError
				if !errors.As(err, &dropped) || dropped.Epoch != 7 {
					t.Errorf("a task under the dropped epoch: %v", err)
				}
				s.Refused(t.Context(), affinity, err)
				if r := s.asked(t); !r.GivenUp {
					t.Errorf("after the task was returned the heartbeat has %+v", r)
				}
				affinity.Epoch = 6 // the database was restored from a backup
				_, err = s.Enter(affinity, lease(time.Now()))
				var superseded *session.SupersededError
				if !errors.As(err, &superseded) || superseded.Held != 7 {
					t.Errorf("a task under a lower epoch: %v", err)
				}
				affinity.Epoch = 8
				if _, err = s.Enter(affinity, lease(time.Now())); err != nil {
					t.Errorf("a task under a higher epoch: %v", err)
				}
			})
		})
	}
}

// A session with options is not suspended, because another worker may open its resource as soon as the lease has ended.
func TestASessionWithOptionsIsNotSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		h, err := s.Enter(&protocol.SessionAffinity{SessionID: "s", Epoch: 1, Origin: "worker", Lease: 30}, lease(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		h.EndAttempt()
		time.Sleep(60 * time.Second)
		r := s.asked(t)
		synctest.Wait()
		if !r.GivenUp || h.Held() || !h.State.(*state).closed {
			t.Errorf("the heartbeat has %+v, held %t", r, h.Held())
		}
	})
}

// The worker closes the resource of a session with options before it releases the session at the app, and gives the
// epoch up if the app refuses the release. State in memory stays until the app has confirmed the release.
func TestEvictedSessionIsClosedBeforeItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		enter := func(id, origin string) *session.Holding {
			t.Helper()
			h, err := s.Enter(&protocol.SessionAffinity{SessionID: id, Epoch: 1, Origin: origin}, lease(time.Now()))
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		closed := func(h *session.Holding) bool { return h.State.(*state).closed }
		refused := errors.New("refused")
		for _, c := range []struct {
			origin string
			err    error
			before bool // the state is closed before the release
			held   bool // the session is held after Yield
			gives  int  // number of epochs that the next heartbeat gives up
		}{
			{"worker", nil, true, false, 0},
			{"worker", refused, true, false, 1},
			{"workflow", nil, false, false, 0},
			{"workflow", refused, false, true, 0},
			{"implicit", nil, false, false, 0},
			{"implicit", refused, false, true, 0},
		} {
			id := fmt.Sprint(c.origin, " ", c.err)
			h := enter(id, c.origin)
			s.Yield(id, 1, "evicted_cap", func() error { t.Errorf("%s: released while in use", id); return nil })
			h.EndAttempt()
			calls := 0
			s.Yield(id, 1, "evicted_cap", func() error {
				if calls++; closed(h) != c.before {
					t.Errorf("%s: closed %t when it is released, want %t", id, closed(h), c.before)
				}
				return c.err
			})
			synctest.Wait()
			if calls != 1 || h.Held() != c.held || closed(h) == c.held {
				t.Errorf("%s: %d releases, held %t, closed %t", id, calls, h.Held(), closed(h))
			}
			gives := 0
			renew, _ := s.Due(time.Now().Add(session.Interval(30*time.Second, 5*time.Second)))
			for _, r := range renew {
				if r.GivenUp && r.SessionID == id {
					gives++
				}
			}
			if gives != c.gives {
				t.Errorf("%s: %d epochs are given up, want %d", id, gives, c.gives)
			}
		}
		s.DropAll("test")
		s.Wait(t.Context())
	})
}

func TestTheFirstTaskOfAHandedOverSessionHasThePreparedState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		p := s.Prepare(&protocol.SessionAffinity{SessionID: "s"}, 5)
		if !p.SetUp() {
			t.Fatal("the preparation was discarded")
		}
		h, err := s.Enter(
			&protocol.SessionAffinity{SessionID: "s", Epoch: 6, PreparedFor: 5}, lease(time.Now()),
		)
		if err != nil {
			t.Fatal(err)
		}
		if h.State != p.State || h.Epoch != 6 {
			t.Errorf("the task of epoch %d does not have the prepared state", h.Epoch)
		}
		h.EndAttempt()
		s.DropAll("closed")
		s.Wait(t.Context())
		if !p.State.(*state).closed {
			t.Error("the state was not closed")
		}
	})
}
