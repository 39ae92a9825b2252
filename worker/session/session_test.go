package session_test

import (
	"context"
	"errors"
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

// lease is one of 30 s that was made just then.
func lease(at time.Time) session.Lease {
	return session.Lease{Sent: at, Store: at, End: at.Add(30 * time.Second)}
}

// state notes its end.
type state struct{ closed bool }

func (s *state) Close() { s.closed = true }

// set is a worker's sessions and what they told.
type set struct {
	*session.Sessions
	mu     sync.Mutex
	ended  []string // session: reason
	failed []string // session: cause
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
		&protocol.SessionAffinity{SessionID: id, Epoch: epoch, Door: "implicit", Lease: 30}, lease(time.Now()),
	)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// renew plays the heartbeat for d: everything due is renewed, when the app says held.
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
		if n := s.renew(250*time.Second, true); n < 9 || n > 13 {
			t.Errorf("%d calls in 250 s for two sessions, want about one every 25 s", n)
		}
		if !a.Held() || !b.Held() {
			t.Error("lost though renewed")
		}
	})
}

func TestIdleSessionIsRenewedNoMoreAndDroppedWhenItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		h := s.enter(t, "s", 1)
		h.Leave()
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

func TestSessionOfAnotherDoorIsNeverIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		h, err := s.Enter(&protocol.SessionAffinity{SessionID: "s", Epoch: 1, Door: "workflow", Lease: 30}, lease(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		h.Leave()
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
		h.Leave()
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
		old.Leave()
		fresh := s.enter(t, "s", 6)
		synctest.Wait()
		if old.Held() || !old.State.(*state).closed || !fresh.Held() || fresh.State == old.State {
			t.Error("the older epoch's state lives on")
		}
		_, err := s.Enter(&protocol.SessionAffinity{SessionID: "s", Epoch: 5}, lease(time.Now()))
		var superseded *session.SupersededError
		if !errors.As(err, &superseded) || superseded.Held != 6 {
			t.Errorf("got %v", err)
		}
	})
}

func TestLostAnswerIsAskedAgainAndTheLeaseIsNeverBelievedLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		h := s.enter(t, "s", 1)
		h.Leave()
		tries := 0
		for range 40 {
			time.Sleep(time.Second)
			now := time.Now()
			due, _ := s.Due(now)
			if len(due) > 0 {
				tries++
			}
			s.Renewed(now, now, due, nil, errors.New("no connection"))
		}
		if tries < 3 || h.Held() {
			t.Errorf("%d tries, held: %v after a lease without an answer", tries, h.Held())
		}
	})
}

func TestSessionWhoseExecutorDiedIsGivenUpAsFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		idle := s.enter(t, "idle", 1)
		idle.Leave()
		s.Died("idle", 1, "crash", "as it was")
		busy := s.enter(t, "busy", 1)
		s.Died("busy", 1, "out_of_memory", "as it was")
		rebuilt := s.enter(t, "rebuilt", 1)
		s.Died("rebuilt", 1, "crash", "as it was")
		if err := rebuilt.Rebuild(t.Context(), 0, true, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		rebuilt.Leave()
		synctest.Wait()
		if got := strings.Join(s.failed, ", "); got != "idle: crash" || !busy.Held() {
			t.Errorf("failed: %s; one with a running attempt may still be rebuilt", got)
		}
		busy.Leave()
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
