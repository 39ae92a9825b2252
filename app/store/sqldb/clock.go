package sqldb

import (
	"sync"
	"time"
)

// clock is the store's time: the process's clock, which never goes back, not even over a restart, or what a shared
// database says.
type clock struct {
	shift func() time.Duration

	mu   sync.Mutex // guards what follows
	last int64      // microseconds
	said time.Time  // what the database said last
	read time.Time  // and when
}

// now is the process's clock.
func (c *clock) now() time.Time {
	at := time.Now()
	if c.shift != nil {
		at = at.Add(c.shift())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, at.UnixMicro())
	return time.UnixMicro(c.last).UTC()
}

// at is what the database says, in microseconds.
func (c *clock) at(micros int64) time.Time {
	t := time.UnixMicro(micros).UTC()
	if c.shift != nil {
		t = t.Add(c.shift())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said, c.read = t, time.Now()
	return t
}

// about is what the database would say now, counted from what it said last; zero before that.
func (c *clock) about() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said.IsZero() {
		return time.Time{}
	}
	return c.said.Add(time.Since(c.read))
}
