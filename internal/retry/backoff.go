package retry

import (
	"math/bits"
	"math/rand/v2"
	"time"
)

// Backoff is exponential backoff with full jitter for the tries of one loop: the n-th delay is random between Min and a
// ceiling that doubles from Min up to Max. Many clients that lost the same server therefore do not reconnect at the
// same time. The zero value of Min and Max is 100 ms and 30 s. A Backoff belongs to one goroutine.
type Backoff struct {
	Min, Max time.Duration
	// Random returns a uniformly distributed value in [0, n), n > 0; nil: rand.Int64N of math/rand/v2.
	Random func(n int64) int64

	tries int
}

// Next returns the delay before the next try and counts it.
func (b *Backoff) Next() time.Duration {
	least, most := b.Min, b.Max
	if least <= 0 {
		least = 100 * time.Millisecond
	}
	if most <= 0 {
		most = 30 * time.Second
	}
	most = max(most, least)
	ceiling := most
	// The first ceiling is twice Min, so that the first delay is random, too.
	if shift := b.tries + 1; shift < bits.LeadingZeros64(uint64(least))-1 {
		ceiling = min(least<<shift, most)
	}
	b.tries++
	if ceiling == least {
		return least
	}
	random := b.Random
	if random == nil {
		random = rand.Int64N
	}
	return least + time.Duration(random(int64(ceiling-least)+1))
}

// Tries returns the number of delays since the start or the last Reset.
func (b *Backoff) Tries() int { return b.tries }

// Reset starts again at Min. Call it after a real success: when a connection was used, not when it was only opened.
func (b *Backoff) Reset() { b.tries = 0 }
