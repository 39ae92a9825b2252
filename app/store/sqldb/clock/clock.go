// Package clock is the time of a store.
package clock

import (
	"sync"
	"time"
)

// Leases are made by one machine and judged by another, so there has to be one clock. For a database of one app
// it is that app's own; several apps go by the database's, because their machines never quite agree.

// SQL asks a shared database for its clock.
const SQL = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

// Clock is the store's time: the process's clock, which never goes back, not even over a restart, or what a
// shared database says.
type Clock struct {
	Shift func() time.Duration

	mu   sync.Mutex // guards what follows
	Last int64      // microseconds
	said time.Time  // what the database said last
	raw  int64      // the same in microseconds, without a shift
	read time.Time  // and when
}

// Now is the process's clock.
func (c *Clock) Now() time.Time {
	at := time.Now()
	if c.Shift != nil {
		at = at.Add(c.Shift())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Last = max(c.Last, at.UnixMicro())
	return time.UnixMicro(c.Last).UTC()
}

// At is what the database says, in microseconds.
func (c *Clock) At(micros int64) time.Time {
	t := time.UnixMicro(micros).UTC()
	if c.Shift != nil {
		t = t.Add(c.Shift())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said, c.raw, c.read = t, micros, time.Now()
	return t
}

// Least is a time that the database's clock has passed for certain, also in microseconds of its own: what it
// said last, and what has gone by since that was heard. There is none when that is longer ago than most. An
// early time makes a lease shorter than the server's own would be, never longer.
func (c *Clock) Least(most time.Duration) (now time.Time, micros int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ago := time.Since(c.read)
	if c.said.IsZero() || ago > most {
		return time.Time{}, 0, false
	}
	micros = c.raw + ago.Microseconds()
	now = time.UnixMicro(micros).UTC()
	if c.Shift != nil {
		now = now.Add(c.Shift())
	}
	return now, micros, true
}

// About is what the database would say now, counted from what it said last; zero before that.
func (c *Clock) About() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said.IsZero() {
		return time.Time{}
	}
	return c.said.Add(time.Since(c.read))
}
