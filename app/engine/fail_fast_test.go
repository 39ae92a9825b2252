package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker without the capability does not acquire a fail-fast session, and the wait reason names the capability. An
// owner keeps its lease length until the next acquisition.
func TestFailFastAppliesFromTheNextAcquisition(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	lessee := func(id string, capabilities ...string) Lessee {
		return Lessee{Counted: true, Worker: &Worker{
			Namespace: "default", ID: id, MaxSessions: 5, SessionLease: 30_000_000, AttemptLease: 30_000_000,
			Capabilities: append(capabilities, CapSessions),
		}}
	}
	plain, able := lessee("plain"), lessee("able", protocol.CapFailFast)
	s := NewSession("default", "s", nil, history.At(now))
	s.acquire(plain, 0, now, "")
	s.move(now)
	s.setFailFast()
	s.setFailFast()
	if s.FailFast || s.LeaseLength() != 30*time.Second || !AdmitSession(&s, plain, now, true).OK {
		t.Errorf("the current owner has a lease of %s, fail-fast %t", s.LeaseLength(), s.FailFast)
	}
	now = now.Add(time.Minute)
	v := AdmitSession(&s, plain, now, true)
	if v.OK || v.Wait == nil || !slices.Equal(v.Wait.Missing, []string{protocol.CapFailFast}) {
		t.Errorf("a worker without the capability: %+v", v)
	}
	if v := AdmitSession(&s, able, now, true); !v.OK {
		t.Errorf("a worker with the capability: %+v", v)
	}
	a, _, acquired := LeaseActivity(Activity{RunID: "r", Seq: 1, SessionID: "s"}, &s, able, noWatermark, now)
	if !acquired || s.LeaseLength() != 10*time.Second || a.Until.Sub(now) != 10*time.Second ||
		s.LeaseUntil.Sub(now) != 10*time.Second {
		t.Errorf("the leases end at %s (attempt) and %s (session)", a.Until, s.LeaseUntil)
	}
	if !slices.Contains(s.NeededCapabilities(), protocol.CapFailFast) {
		t.Errorf("the session needs %v", s.NeededCapabilities())
	}
}
