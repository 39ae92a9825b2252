package clock

import (
	"context"
	"sync"
	"time"
)

// Ticks samples the clocks every second. If more than gap passes between two samples, the process was paused.
const (
	every = time.Second
	gap   = 2 * time.Second
)

// Ticks detects pauses of this process, such as a suspended laptop or a migrated virtual machine.
type Ticks struct {
	mu      sync.Mutex // guards last and gone
	last    time.Time  // time of the last sample
	lastGap time.Time  // end of the latest gap; zero: there was none
}

// NewTicks returns Ticks with a first sample.
func NewTicks() *Ticks { return &Ticks{last: time.Now()} }

// Run samples the clocks every second until ctx ends. It calls woke, which may be nil, with the length of each gap.
func (t *Ticks) Run(ctx context.Context, woke func(time.Duration)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if d := t.sample(time.Now()); d > 0 && woke != nil {
				woke(d)
			}
		}
	}
}

// sample records a sample at now and returns the length of the gap before it; 0: there was none.
func (t *Ticks) sample(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := Between(t.last, now)
	t.last = now
	if e.Longest() <= gap && e.Agree() {
		return 0
	}
	t.lastGap = now
	return e.Longest()
}

// PausedSince reports whether, between then and now, the process was paused or its clocks diverged. It also detects a
// pause that no sample has recorded yet.
func (t *Ticks) PausedSince(since, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := Between(t.last, now)
	return e.Longest() > gap || !e.Agree() || !t.lastGap.IsZero() && !t.lastGap.Before(since)
}
