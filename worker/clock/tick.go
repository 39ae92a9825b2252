package clock

import (
	"context"
	"sync"
	"time"
)

// The process looks at its clocks every second. When the next look is later than gap it was paused.
const (
	every = time.Second
	gap   = 2 * time.Second
)

// Ticks notices when the process was paused.
type Ticks struct {
	mu   sync.Mutex // guards what follows
	last time.Time  // look
	gone time.Time  // end of the latest gap; zero: there was none
}

// NewTicks looks for the first time.
func NewTicks() *Ticks { return &Ticks{last: time.Now()} }

// Run looks every second until ctx ends. woke hears of each gap and how long it was.
func (t *Ticks) Run(ctx context.Context, woke func(time.Duration)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if d := t.look(time.Now()); d > 0 && woke != nil {
				woke(d)
			}
		}
	}
}

// look notes a look at now, and returns how long the gap before it was, if there was one.
func (t *Ticks) look(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := Between(t.last, now)
	t.last = now
	if e.Longest() <= gap && e.Agree() {
		return 0
	}
	t.gone = now
	return e.Longest()
}

// StoodSince says whether the process was paused, or its clocks went apart, at any time between then and now: also when
// no look has noticed yet.
func (t *Ticks) StoodSince(then, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := Between(t.last, now)
	return e.Longest() > gap || !e.Agree() || !t.gone.IsZero() && !t.gone.Before(then)
}
