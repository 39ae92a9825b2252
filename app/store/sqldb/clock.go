package sqldb

import (
	"sync"
	"time"
)

// Leases are made by one machine and judged by another, so there has to be one clock. For a database of one app
// it is that app's own; several apps go by the database's, because their machines never quite agree.

// clockSQL asks a shared database for its clock.
const clockSQL = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

// clock is the store's time: the process's clock, which never goes back, not even over a restart, or what a
// shared database says.
type clock struct {
	shift func() time.Duration

	mu   sync.Mutex // guards what follows
	last int64      // microseconds
	said time.Time  // what the database said last
	raw  int64      // the same in microseconds, without a shift
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
	c.said, c.raw, c.read = t, micros, time.Now()
	return t
}

// least is a time that the database's clock has passed for certain, also in microseconds of its own: what it
// said last, and what has gone by since that was heard. There is none when that is longer ago than most. An
// early time makes a lease shorter than the server's own would be, never longer.
func (c *clock) least(most time.Duration) (now time.Time, micros int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ago := time.Since(c.read)
	if c.said.IsZero() || ago > most {
		return time.Time{}, 0, false
	}
	micros = c.raw + ago.Microseconds()
	now = time.UnixMicro(micros).UTC()
	if c.shift != nil {
		now = now.Add(c.shift())
	}
	return now, micros, true
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
