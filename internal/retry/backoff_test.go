package retry

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestBackoffCeilingDoublesUpToMax(t *testing.T) {
	highest := func(n int64) int64 { return n - 1 }
	lowest := func(int64) int64 { return 0 }
	b := Backoff{Min: time.Second, Max: 10 * time.Second, Random: highest}
	for i, want := range []time.Duration{2, 4, 8, 10, 10} {
		if got := b.Next(); got != want*time.Second {
			t.Errorf("try %d: got %v, want %v", i, got, want*time.Second)
		}
	}
	if b.Tries() != 5 {
		t.Errorf("got %d tries", b.Tries())
	}
	b.Reset()
	if got := b.Next(); got != 2*time.Second || b.Tries() != 1 {
		t.Errorf("after reset: got %v, %d tries", got, b.Tries())
	}
	b.Random = lowest
	if got := b.Next(); got != time.Second {
		t.Errorf("lowest: got %v", got)
	}
}

func TestBackoffAlwaysStaysWithinItsBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, b := range []Backoff{
		{},
		{Min: time.Nanosecond, Max: math.MaxInt64},
		{Min: 7 * time.Second, Max: time.Second}, // Max below Min counts as Min
		{Min: math.MaxInt64, Max: math.MaxInt64},
		{Min: -1, Max: -1},
	} {
		b.Random = random.Int64N
		least, most := b.Min, max(b.Max, b.Min)
		if least <= 0 {
			least, most = 100*time.Millisecond, 30*time.Second
		}
		for range 200 {
			if got := b.Next(); got < least || got > most {
				t.Fatalf("%v to %v: got %v", least, most, got)
			}
		}
	}
}

func TestBackoffSpreadsEvenTheFirstTry(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 50 {
		var b Backoff
		seen[b.Next()] = true
	}
	if len(seen) < 40 {
		t.Errorf("50 clients chose only %d moments of 100 million", len(seen))
	}
}
