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

// MaxStep is how far the clock may differ from the time that this process measured before the difference is a jump.
// NTP slews and small steps stay below it.
const MaxStep = time.Minute

// wideReading is how long a reading may take to be compared with later ones: the clock was read at an unknown moment of
// that span.
const wideReading = time.Second

// Clock is the store's time: the process's clock, or what a shared database says. The process's clock does not go back
// by less than MaxStep, not even over a restart. Clock compares every reading with the monotonic clock of this process
// and keeps the sum of the jumps that it finds until they are taken.
type Clock struct {
	Shift func() time.Duration // tests only: time that passed for the store and for this process
	Wall  func() time.Time     // tests only: the clock of this machine; nil: time.Now

	mu     sync.Mutex // guards what follows
	last   int64      // microseconds, of the process's clock
	said   time.Time  // what the database said last
	raw    int64      // the same in microseconds, without a shift
	read   time.Time  // and when
	began  time.Time  // what steady counts from
	ref    reading    // the latest one that later ones are compared with
	jump   time.Duration
	taken  bool          // a jump was taken and is being handled
	jumped chan struct{} // has an entry while jump is not zero
}

// wasSuspended is suspended; tests suspend the machine by it.
var wasSuspended = suspended

// reading is one reading of the clock, with the time of this process before and after it.
type reading struct {
	clock       int64 // microseconds
	sent, heard time.Duration
}

// width is how long the reading took.
func (r reading) width() time.Duration { return r.heard - r.sent }

// Open sets the newest time that is stored. Where the clock is more than MaxStep behind it, the clock went back while
// no app ran. For a clock that is shared, now is what the database says; zero: the process's clock counts.
func (c *Clock) Open(newest int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = newest
	if now.IsZero() {
		return // the first reading compares it
	}
	if by := now.Sub(time.UnixMicro(newest)); by < -MaxStep {
		c.note(by)
	}
}

// Jumped has an entry while there is a jump to take.
func (c *Clock) Jumped() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.channel()
}

func (c *Clock) channel() chan struct{} {
	if c.jumped == nil {
		c.jumped = make(chan struct{}, 1)
	}
	return c.jumped
}

// Pending says whether there is a jump to take, or one that was taken and not settled.
func (c *Clock) Pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jump != 0 || c.taken
}

// Take returns by how much the clock jumped since the last Take, forward or, below zero, back; zero: it did not.
func (c *Clock) Take() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := c.jump
	c.jump, c.taken = 0, by != 0
	return by
}

// Settled ends what Take began. What is left of the jump could not be handled and is to be taken again.
func (c *Clock) Settled(left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken = false
	if left != 0 {
		c.note(left)
	}
}

// note adds a jump; mu is held.
func (c *Clock) note(by time.Duration) {
	c.jump += by
	select {
	case c.channel() <- struct{}{}:
	default:
	}
}

// Steady is the time that this process measured since it began, suspensions of the machine included. Readings are
// compared by it, so it must not follow the clock when that is set.
func (c *Clock) Steady() time.Duration {
	shift := c.shift()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.measured() + shift
}

// measured is Steady without the shift of tests; mu is held.
func (c *Clock) measured() time.Duration {
	if c.began.IsZero() {
		c.began = time.Now()
	}
	return time.Since(c.began) + wasSuspended()
}

func (c *Clock) shift() time.Duration {
	if c.Shift == nil {
		return 0
	}
	return c.Shift()
}

// compare looks whether the clock jumped between the latest reading and this one; mu is held. Between the two at least
// and at most so much time passed as lies between the ends of the one and the ends of the other, so that neither a slow
// response nor a process that was stopped meanwhile looks like a jump.
func (c *Clock) compare(r reading) (jumped bool) {
	if c.ref == (reading{}) {
		c.ref = r
		return false
	}
	passed := time.Duration(r.clock-c.ref.clock) * time.Microsecond
	least, most := r.sent-c.ref.heard, r.heard-c.ref.sent
	switch {
	case passed <= most+MaxStep && passed >= least-MaxStep:
		if r.width() <= max(c.ref.width(), wideReading) {
			c.ref = r
		}
		return false
	case r.sent < c.ref.sent: // it is older than the one it is compared with, and may be from before a jump
		return false
	}
	by := passed - most
	if passed < least {
		by = passed - least
	}
	c.ref = r
	c.note(by)
	return true
}

// Now is the process's clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, shift := time.Now(), c.shift()
	if c.Wall != nil {
		at = c.Wall()
	}
	micros, steady := at.Add(shift).UnixMicro(), c.measured()+shift
	jumped := c.compare(reading{micros, steady, steady})
	switch behind := time.Duration(c.last-micros) * time.Microsecond; {
	case behind > MaxStep && !jumped: // small steps back that added up, or it was set back while no app ran
		c.note(-behind)
		c.last = micros
	case jumped:
		c.last = micros
	}
	c.last = max(c.last, micros)
	return time.UnixMicro(c.last).UTC()
}

// At is what the database says, in microseconds, in response to a question that was sent at a time of Steady.
func (c *Clock) At(micros int64, sent time.Duration) time.Time {
	shift := c.shift()
	t := time.UnixMicro(micros).UTC().Add(shift)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compare(reading{t.UnixMicro(), sent, c.measured() + shift})
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
	return time.UnixMicro(micros).UTC().Add(c.shift()), micros, true
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
