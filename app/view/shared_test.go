package view

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An app sees many namespaces, and thus many keys, over its lifetime; the cache is bounded and drops the oldest keys.
func TestSharedReadsAreCachedForALimitedNumberOfKeys(t *testing.T) {
	s := shared[int]{pace: displayPace}
	for i := range 4 * sharedKeys {
		_, err := s.get(t.Context(), strconv.Itoa(i), func() uint64 { return 0 }, func(context.Context) (int, error) {
			return i, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := s.entries.Len(); n != sharedKeys {
		t.Errorf("%d readings are kept after %d keys, want %d", n, 4*sharedKeys, sharedKeys)
	}
}

// A shared value is read at most once per second, however many callers and changes there are, and no caller gets a
// value from before a change that was known at the call.
func TestSharedReadRunsOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Uint64
		var reads atomic.Int64
		s := shared[uint64]{pace: displayPace}
		get := func() uint64 {
			v, err := s.get(t.Context(), "default", changes.Load, func(context.Context) (uint64, error) {
				reads.Add(1)
				return changes.Load(), nil
			})
			if err != nil {
				t.Error(err)
			}
			return v
		}
		for range 100 {
			get()
		}
		if n := reads.Load(); n != 1 {
			t.Errorf("read %d times while nothing changed", n)
		}
		from := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for time.Since(from) < 10*time.Second {
					known := changes.Add(1)
					if got := get(); got < known {
						t.Errorf("shown %d, after change %d", got, known)
					}
				}
			})
		}
		all.Wait()
		if n := reads.Load(); n < 9 || n > 13 {
			t.Errorf("20 who look for 10 s while everything changes: read %d times", n)
		}
		time.Sleep(sharedMaxAge)
		before := reads.Load()
		get()
		if reads.Load() != before+1 {
			t.Error("what is old is shown though nobody knows whether it still holds")
		}
	})
}

// After a slow read the value is cached for twenty times the duration of the read, up to a second; a fast value is read
// at most ten times per second.
func TestSharedReadPausesForItsDuration(t *testing.T) {
	for took, most := range map[time.Duration]int64{0: 101, 20 * time.Millisecond: 26, 100 * time.Millisecond: 11} {
		synctest.Test(t, func(t *testing.T) {
			var changes, reads atomic.Uint64
			s := shared[uint64]{pace: programPace}
			for from := time.Now(); time.Since(from) < 10*time.Second; {
				known := changes.Add(1)
				got, err := s.get(t.Context(), "default", changes.Load, func(context.Context) (uint64, error) {
					reads.Add(1)
					now := changes.Load()
					time.Sleep(took)
					return now, nil
				})
				if err != nil || got < known {
					t.Fatalf("shown %d after change %d, %v", got, known, err)
				}
			}
			if n := int64(reads.Load()); n > most || n < most*8/10 {
				t.Errorf("what takes %s was read %d times in 10 s, want %d", took, n, most)
			}
		})
	}
}
