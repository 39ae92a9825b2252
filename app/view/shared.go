package view

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// sharedKeys is how many keys are kept, those looked at last. Namespaces come and go: what nobody looks at any more
// must not stay for as long as the app runs.
const sharedKeys = 256

// How long something that was read once for all who look may be shown.
const (
	sharedFor  = time.Second     // while things change: the shortest time between two readings
	sharedMost = 5 * time.Second // while nothing is known to change, since some things age without a commit
)

// shared reads something once for everybody who looks at it, at most once a second for each key. What it gives was read
// after the last change that this app knew of when it was asked.
type shared[T any] struct {
	mu   sync.Mutex // guards kept
	kept *simplelru.LRU[string, *reading[T]]
}

type reading[T any] struct {
	turn  chan struct{} // held by who looks at the rest
	value T
	at    time.Time
	seen  uint64 // changes this app knew of before it was read
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
	if !r.at.IsZero() && (r.at.After(asked) || r.seen == changes() && age < sharedMost) {
		return r.value, nil
	}
	if !r.at.IsZero() && age < sharedFor {
		select {
		case <-time.After(sharedFor - age):
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
	return value, nil
}
