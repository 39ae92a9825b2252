package engine

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A renewal may request a lease of another length. This does not change the options of the session, with which later
// users compare theirs.
func TestARenewalOfAnotherLengthLeavesTheOptions(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	options := protocol.SessionOptions{SessionID: "s", Lease: 60, TTL: 600}
	s := NewSession("default", "s", &options, history.At(now))
	s.acquire(Lessee{Worker: &Worker{ID: "a"}}, 0, now, "")
	s.touch(now)
	renew := func(at time.Time, length int64, want time.Time) {
		t.Helper()
		c, err := RenewSession{SessionHolder: SessionHolder{Worker: "a"}, Lease: length, Touch: true}.decide(
			&s, history.At(at),
		)
		if err != nil {
			t.Fatal(err)
		}
		s = c.Session
		if !s.LeaseUntil.Equal(want) {
			t.Errorf(
				"renewed for %d s at +%s: the lease ends at +%s, want +%s", length, at.Sub(now), s.LeaseUntil.Sub(now),
				want.Sub(now),
			)
		}
		if want := NewSession("default", "s", &options, history.At(now)); !s.fits(&options) || s.numbers() != want.numbers() {
			t.Errorf("renewed for %d s: the options changed to %+v", length, s)
		}
	}
	renew(now.Add(10*time.Second), 90, now.Add(100*time.Second))
	renew(now.Add(20*time.Second), 0, now.Add(100*time.Second))
	renew(now.Add(30*time.Second), 5, now.Add(100*time.Second))
	renew(now.Add(50*time.Second), 0, now.Add(110*time.Second))
	renew(now.Add(60*time.Second), 3600, now.Add(600*time.Second))
}
