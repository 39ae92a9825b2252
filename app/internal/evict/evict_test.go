package evict

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/engine"
)

// A full worker is forgotten once nothing waits for it, and a closed evictor starts no search.
func TestFullWorkersAreCheckedOnce(t *testing.T) {
	e := New(nil, nil, nil, func() bool { return false }, nil, zerolog.Nop())
	k := engine.WorkerKey{Namespace: "default", ID: "a"}
	e.AtLimit(k, []string{"r"})
	e.AtLimit(k, []string{"r", "s"})
	e.mu.Lock()
	timer, routes := e.timer, len(e.full[k])
	left := time.Until(e.at)
	e.mu.Unlock()
	if timer == nil || routes != 2 || left <= 0 || left > evictAfter {
		t.Errorf("timer %v, %d routes, in %s", timer, routes, left)
	}
	e.Close()
	if timer.Stop() {
		t.Error("the timer goes on after the end")
	}
	e.AtLimit(engine.WorkerKey{Namespace: "default", ID: "b"}, []string{"r"})
	if e.timer != timer {
		t.Error("it looks again after the end")
	}
}
