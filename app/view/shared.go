package view

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// sharedKeys is the number of cached keys; the least recently used key is evicted. Namespaces that no caller reads any
// more must not stay in memory until the app stops.
const sharedKeys = 256

// These are limits for the time for which a shared read is served.
const (
	sharedFor    = time.Second     // if there are changes: the longest time that a caller waits for the next read
	sharedMaxAge = 5 * time.Second // without known changes, since some values change without a commit
)

// pace is the rate of shared reads. After a read, the next one waits pauseShare times as long as the read took, within
// these bounds. So a small result is read whenever it changes, and a large one costs at most one twentieth of a CPU.
type pace struct {
	minAge time.Duration // minimum time between two reads; the maximum is sharedFor
	maxAge time.Duration // maximum age of a served result
}

const pauseShare = 20

// leisurely is the pace of reads for display, promptly the pace of reads for programs, which act on the result.
var (
	displayPace = pace{minAge: sharedFor, maxAge: sharedMaxAge}
	programPace = pace{minAge: 100 * time.Millisecond, maxAge: sharedFor}
)

// shared serves one read per key to all callers, at its pace. The result was read after the last change that this app
// knew of at the time of the request.
type shared[T any] struct {
	pace
	mu      sync.Mutex // guards kept
	entries *simplelru.LRU[string, *reading[T]]
}

type reading[T any] struct {
	sem     chan struct{} // semaphore that guards the fields below
	value   T
	at      time.Time
	pause   time.Duration
	changes uint64 // number of changes that this app knew of before the read
}

func (s *shared[T]) get(
	ctx context.Context, key string, changes func() uint64, read func(context.Context) (T, error),
) (T, error) {
	s.mu.Lock()
	if s.entries == nil {
		s.entries, _ = simplelru.NewLRU[string, *reading[T]](sharedKeys, nil) // fails for a size below one only
	}
	r, ok := s.entries.Get(key)
	if !ok {
		r = &reading[T]{sem: make(chan struct{}, 1)}
		s.entries.Add(key, r)
	}
	s.mu.Unlock()
	var none T
	asked := time.Now()
	select {
	case r.sem <- struct{}{}:
		defer func() { <-r.sem }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	age := time.Since(r.at)
	if !r.at.IsZero() && (r.at.After(asked) || r.changes == changes() && age < s.maxAge) {
		return r.value, nil
	}
	if !r.at.IsZero() && age < r.pause {
		select {
		case <-time.After(r.pause - age):
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
	seen, at := changes(), time.Now()
	value, err := read(ctx)
	if err != nil {
		return none, err
	}
	r.value, r.changes, r.at = value, seen, at
	r.pause = min(max(pauseShare*time.Since(at), s.minAge), sharedFor)
	return value, nil
}
