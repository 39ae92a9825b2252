package membership

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
)

// At default settings: a worker with a heartbeat in the second half of an expired lease is alive; a worker that renewed
// its lease and died is not.
func TestLeaseExpiryIsALossOnlyWithoutLaterHeartbeats(t *testing.T) {
	for name, c := range map[string]struct {
		lease, silence time.Duration
		process        string
		lives          bool
	}{
		"an HTTP client that polls":                {300 * time.Second, 45 * time.Second, "p", true},
		"an HTTP client that died":                 {300 * time.Second, 61 * time.Second, "p", false},
		"a worker that sends heartbeats":           {30 * time.Second, 10 * time.Second, "p", true},
		"a worker that died after its last one":    {30 * time.Second, 20 * time.Second, "p", false},
		"another process of that name, which asks": {300 * time.Second, 0, "q", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const alive = 60 * time.Second
				ws := &Workers{Registry: New(Options{Alive: alive}), opt: Options{Alive: alive}}
				w := &engine.Worker{Namespace: "default", ID: "w", Incarnation: c.process}
				ws.Put(w)
				ws.RecordHeartbeat(w.Key())
				time.Sleep(c.silence)
				l := engine.Lease{Owner: "w", Incarnation: "p", Length: c.lease.Microseconds()}
				if got := ws.hasRecentHeartbeat("default", l); got != c.lives {
					t.Errorf("lives: %t, want %t", got, c.lives)
				}
				if ws.hasRecentHeartbeat("other", l) {
					t.Error("a worker of another namespace counts")
				}
			})
		})
	}
}
