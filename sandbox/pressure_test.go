package sandbox_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// scarce opens a pool whose executors share mib MiB. Sessions to be evicted are sent to asked, and the eviction is
// allowed.
func scarce(t *testing.T, mib int64, asked chan string) *Bench {
	var b *Bench
	b = native(t, sandbox.Options{
		MaxExecutors: 16, Memory: mib << 20, IdleEvictable: time.Hour,
		// executors must not reach their own limit first
		Limits: map[string]sandbox.Limits{sandbox.RuntimeNative: {Memory: 1 << 30, Data: -1}},
		OnEvict: func(_ context.Context, l sandbox.SessionLost) bool {
			here := slices.ContainsFunc(b.Snapshot(), func(e sandbox.ExecutorInfo) bool { return e.SessionID == l.Session })
			if !here || l.Cause != sandbox.CauseEvictedPressure {
				t.Errorf("asked about %+v, whose executor is here: %t", l, here)
			}
			asked <- l.Session
			return true
		},
	})
	return b
}

func pinned(inv sandbox.Invocation) sandbox.Invocation { inv.Session.Pinned = true; return inv }

// If memory is scarce, idle sessions are evicted, least recently used first, after their owner has agreed. Sessions
// with running calls and pinned sessions stay, even if no other candidate is left.
func TestScarceMemoryEvictsIdleSessionsOldestFirst(t *testing.T) {
	asked := make(chan string, 10)
	b := scarce(t, 300, asked)
	for _, id := range []string{"younger", "older", "younger"} {
		b.Run(In(id, 1, b.Call("count")))
	}
	cancel, ended := hold(t, b, In("busy", 1, b.Call("wait")))
	for _, id := range []string{"p1", "p2", "p3", "p4"} { // with the memory of the Go runtime this exceeds the limit
		b.Run(pinned(In(id, 1, b.Call("fill", 80))))
	}
	for _, want := range []string{"older", "younger"} {
		if got := Receive(t, "a session is evicted", asked); got != want {
			t.Fatalf("%s was evicted, want %s", got, want)
		}
	}
	Eventually(t, "they have ended", func() bool {
		return !slices.ContainsFunc(b.Snapshot(), func(e sandbox.ExecutorInfo) bool {
			return e.SessionID == "older" || e.SessionID == "younger"
		})
	})
	WantLost(t, b.Fail(In("older", 1, b.Call("count"))), sandbox.CauseEvictedPressure)
	cancel()
	WantType(t, Receive(t, "the end of the call", ended), sandbox.Cancelled)
	if got := Receive(t, "a session is evicted once nothing runs in it", asked); got != "busy" {
		t.Errorf("%s was evicted, want busy", got)
	}
	for _, id := range []string{"p1", "p2", "p3", "p4"} {
		if got := Got[int](t, b.Run(pinned(In(id, 1, b.Call("count"))))); got != 1 {
			t.Errorf("pinned session %s counted %d", id, got)
		}
	}
}

// An owner that failed to report an eviction, or that expects a call, keeps its session.
func TestAnOwnerMayRefuseAnEviction(t *testing.T) {
	asked := make(chan struct{}, 100)
	b := native(t, sandbox.Options{Memory: 1, OnEvict: func(context.Context, sandbox.SessionLost) bool {
		asked <- struct{}{}
		return false
	}})
	b.Run(In("s", 1, b.Call("count")))
	Receive(t, "the owner is asked", asked)
	if got := Got[int](t, b.Run(In("s", 1, b.Call("count")))); got != 2 {
		t.Errorf("counted %d", got)
	}
}

// A later holding on the same worker learns why its state is missing, until it was rebuilt.
func TestNextLeaseReportsTheEviction(t *testing.T) {
	asked := make(chan string, 10)
	b := scarce(t, 1, asked)
	b.Run(In("s", 1, b.Call("set_model", "warm")))
	Receive(t, "it is evicted", asked)
	Eventually(t, "it has ended", func() bool { return len(b.Snapshot()) == 0 })
	WantLost(t, b.Fail(In("s", 2, b.Call("require_model"))), sandbox.CauseEvictedPressure)
}
