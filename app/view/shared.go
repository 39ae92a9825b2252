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

// How long a shared read may be served.
const (
	sharedFor  = time.Second     // with changes: the longest time that a caller waits for the next read
	sharedMost = 5 * time.Second // without known changes, since some values age without a commit
)

// pace is the rate of shared reads. After a read, the next one waits restShare times as long as the read took, within
// these bounds. So a small result is read whenever it changes, and a large one costs at most one twentieth of a CPU.
type pace struct {
	least time.Duration // minimum time between two reads; the maximum is sharedFor
	most  time.Duration // maximum age of a served result
}

const restShare = 20

// leisurely is the pace of reads for people, promptly the pace of reads for programs, which act on the result.
var (
	leisurely = pace{least: sharedFor, most: sharedMost}
	promptly  = pace{least: 100 * time.Millisecond, most: sharedFor}
)

// shared serves one read per key to all callers, at its pace. The result was read after the last change that this app
// knew of at the time of the request.
type shared[T any] struct {
	pace
	mu   sync.Mutex // guards kept
	kept *simplelru.LRU[string, *reading[T]]
}

type reading[T any] struct {
	turn  chan struct{} // semaphore that guards the fields below
	value T
	at    time.Time
	rest  time.Duration
	seen  uint64 // number of changes that this app knew of before the read
}

func (s *shared[T]) get(
	ctx context.Context, key string, changes func() uint64, read func(context.Context) (T, error),
) (T, error) {
	s.mu.Lock()
	if s.kept == nil {
		s.kept, _ = simplelru.NewLRU[string, *reading[T]](sharedKeys, nil) // fails for a size below one only
	}
	r, ok := s.kept.Get(key)
	if !ok {
		r = &reading[T]{turn: make(chan struct{}, 1)}
		s.kept.Add(key, r)
	}
	s.mu.Unlock()
	var none T
	asked := time.Now()
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	age := time.Since(r.at)
	if !r.at.IsZero() && (r.at.After(asked) || r.seen == changes() && age < s.most) {
		return r.value, nil
	}
	if !r.at.IsZero() && age < r.rest {
		select {
		case <-time.After(r.rest - age):
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
	seen, at := changes(), time.Now()
	value, err := read(ctx)
	if err != nil {
		return none, err
	}
	r.value, r.seen, r.at = value, seen, at
	r.rest = min(max(restShare*time.Since(at), s.least), sharedFor)
	return value, nil
}
