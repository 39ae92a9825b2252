// Package clock reads a store's clock, the process's or the database server's, and detects clock jumps.
package clock

import (
	"sync"
	"time"
)

// One app makes a lease and another one decides when it expires, so all use one clock. For a database of one app it is
// the app's clock; several apps use the database's clock, because the clocks of their machines differ.

// SQL is the SQL expression for the clock of a shared database, in microseconds.
const SQL = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

// MaxStep is the largest difference between the clock and the time measured by this process that does not count as a
// jump. NTP slews and small steps stay below it.
const MaxStep = time.Minute

// wideReading is the maximum duration of a reading that becomes the reference although it took longer than the present
// one. The clock was read at an unknown moment during the reading.
const wideReading = time.Second

// Clock is the store's time: the clock of this process, or the clock of a shared database. The clock of this process
// never goes back by less than MaxStep, not even over a restart. Clock compares every reading with the monotonic clock
// of this process and adds up the detected jumps until Take.
type Clock struct {
	Shift func() time.Duration // tests only: added to the clock and to Steady
	Wall  func() time.Time     // tests only: clock of the machine; nil: time.Now

	mu     sync.Mutex    // guards the fields below
	last   int64         // latest time of the process's clock, in microseconds
	latest time.Time     // latest time that was read from the database
	raw    int64         // the same in microseconds, without Shift
	read   time.Time     // time of the reading
	began  time.Time     // start of Steady
	ref    reading       // reference: the reading that the next one is compared with
	jump   time.Duration // sum of the jumps that TakeJump has not returned
	taken  bool          // TakeJump returned a jump, and JumpHandled was not called yet
	jumped chan struct{} // contains a value while jump is not zero
}

// wasSuspended returns how long the machine was suspended; tests replace it.
var wasSuspended = suspended

// reading is one reading of the clock, with Steady before and after it.
type reading struct {
	clock          int64 // microseconds
	sent, received time.Duration
}

// width returns the duration of the reading.
func (r reading) width() time.Duration { return r.received - r.sent }

// Open initializes the clock with the newest time that the database contains. If the clock is more than MaxStep behind
// it, the clock went back while no app ran. now is the time of a shared database; zero: the clock of this process is
// used.
func (c *Clock) Open(newest int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = newest
	if now.IsZero() {
		return // newest is compared with the first reading
	}
	if by := now.Sub(time.UnixMicro(newest)); by < -MaxStep {
		c.addJump(by)
	}
}

// Jumped returns a channel that receives a value when TakeJump has a jump to return.
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

// Pending reports whether a jump was detected whose handling has not ended; see JumpHandled.
func (c *Clock) Pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jump != 0 || c.taken
}

// TakeJump returns the sum of the jumps since the last call: forward if positive, back if negative; zero: none.
func (c *Clock) TakeJump() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := c.jump
	c.jump, c.taken = 0, by != 0
	return by
}

// JumpHandled ends the handling of a jump that TakeJump returned. left is the part that could not be handled; the next
// TakeJump returns it again.
func (c *Clock) JumpHandled(left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken = false
	if left != 0 {
		c.addJump(left)
	}
}

// addJump adds a jump; the caller holds mu.
func (c *Clock) addJump(by time.Duration) {
	c.jump += by
	select {
	case c.channel() <- struct{}{}:
	default:
	}
}

// Steady returns the time since this process started, including suspensions of the machine. Readings are compared with
// it, so it must not change when the clock is set.
func (c *Clock) Steady() time.Duration {
	shift := c.shift()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.measured() + shift
}

// measured is Steady without Shift; the caller holds mu.
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

// compare reports whether the clock jumped between the reference and this reading; the caller holds mu. The time
// between the two is at least the time from the end of the reference to the start of this reading, and at most the time
// from the start of the reference to the end of this reading. Slow responses and a stopped process are therefore no
// jumps.
func (c *Clock) compare(r reading) (jumped bool) {
	if c.ref == (reading{}) {
		c.ref = r
		return false
	}
	passed := time.Duration(r.clock-c.ref.clock) * time.Microsecond
	least, most := r.sent-c.ref.received, r.received-c.ref.sent
	switch {
	case passed <= most+MaxStep && passed >= least-MaxStep:
		if r.width() <= max(c.ref.width(), wideReading) {
			c.ref = r
		}
		return false
	case r.sent < c.ref.sent: // the reading is older than the reference and may precede a jump
		return false
	}
	by := passed - most
	if passed < least {
		by = passed - least
	}
	c.ref = r
	c.addJump(by)
	return true
}

// Now returns the process's clock.
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
	case behind > MaxStep && !jumped: // the sum of small steps back, or a step back while no app ran
		c.addJump(-behind)
		c.last = micros
	case jumped:
		c.last = micros
	}
	c.last = max(c.last, micros)
	return time.UnixMicro(c.last).UTC()
}

// At converts the clock value of a database's response, in microseconds, to a time. sent is the value of Steady when
// the request was sent.
func (c *Clock) At(micros int64, sent time.Duration) time.Time {
	shift := c.shift()
	t := time.UnixMicro(micros).UTC().Add(shift)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compare(reading{t.UnixMicro(), sent, c.measured() + shift})
	c.latest, c.raw, c.read = t, micros, time.Now()
	return t
}

// LowerBound returns a lower bound of the database's clock, also in microseconds without the shift: the last time read
// plus the time elapsed since. ok is false if the last reading is older than most. A lower bound can only make a lease
// shorter than the server's clock would, never longer.
func (c *Clock) LowerBound(most time.Duration) (now time.Time, micros int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ago := time.Since(c.read)
	if c.latest.IsZero() || ago > most {
		return time.Time{}, 0, false
	}
	micros = c.raw + ago.Microseconds()
	return time.UnixMicro(micros).UTC().Add(c.shift()), micros, true
}

// About returns the database's clock, estimated from the last reading; zero before the first one.
func (c *Clock) About() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest.IsZero() {
		return time.Time{}
	}
	return c.latest.Add(time.Since(c.read))
}
