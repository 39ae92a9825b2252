package view

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// sharedKeys is how many keys are kept, those looked at last. Namespaces come and go: what nobody looks at any more
// must not stay as long as the app runs.
const sharedKeys = 256

// How long something that was read once for all who look may be shown.
const (
	sharedFor  = time.Second     // while things change: the longest time that who looks waits for the next reading
	sharedMost = 5 * time.Second // while nothing is known to change, since some things age without a commit
)

// pace is how often something is read for all who look. The rest after a reading is restShare times as long as the
// reading took, within its bounds: what is small is read as it changes, what is large takes at most a twentieth of a
// processor from those who work.
type pace struct {
	least time.Duration // the shortest time between two readings; the longest is sharedFor
	most  time.Duration // the longest time that what was read is shown
}

const restShare = 20

// The paces: of what people look at, and of what programs ask for too, who act on the answer.
var (
	leisurely = pace{least: sharedFor, most: sharedMost}
	promptly  = pace{least: 100 * time.Millisecond, most: sharedFor}
)

// shared reads something once for everybody who looks at it, for each key at its pace. What it gives was read after the
// last change that this app knew of when it was asked.
type shared[T any] struct {
	pace
	mu   sync.Mutex // guards kept
	kept *simplelru.LRU[string, *reading[T]]
}

type reading[T any] struct {
	turn  chan struct{} // held by who looks at the rest
	value T
	at    time.Time
	rest  time.Duration
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
