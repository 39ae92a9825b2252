package sqldb

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
)

// The last batch shows whether a store can write, so this check costs nothing in normal operation. Only after a failure
// it tries a write, one for all callers, so that an unavailable database is not flooded.

// slowBatch is the duration of a running batch after which the store counts as unable to write.
const slowBatch = 2 * time.Second

// health is what the committer knows about its database.
type health struct {
	began  atomic.Int64          // start of the batch in progress, in nanoseconds since 1970; 0: none
	failed atomic.Bool           // the last batch with writes failed
	broken atomic.Pointer[error] // why the database is corrupt; nil: it is not

	mu      sync.Mutex    // guards writing
	writing *writeAttempt // a test write in progress, one for all callers
}

type writeAttempt struct {
	done chan struct{}
	err  error // set before done is closed
}

// Writable reports whether the store accepts writes, by the outcome of the last batch. Only if that batch failed does
// it try a write, and only if there is space for more than this write: a full disk still accepts a small write, but no
// step.
func (s *Store) Writable(ctx context.Context) error {
	select {
	case <-s.quit:
		return store.ErrClosed
	default:
	}
	if err := s.health.permanentError(); err != nil {
		return err
	}
	if began := s.health.began.Load(); began != 0 && time.Since(time.Unix(0, began)) > slowBatch {
		return fmt.Errorf("%w: the current commit takes longer than %v", store.ErrUnavailable, slowBatch)
	}
	if !s.health.failed.Load() {
		return nil
	}
	if s.cfg.Room != nil {
		if err := s.cfg.Room(); err != nil {
			return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		}
	}
	a := s.probeWrite()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return fmt.Errorf("%w: the test write did not finish in time", store.ErrUnavailable)
	}
}

// permanentError returns the reason why the store refuses writes permanently, or nil.
func (h *health) permanentError() error {
	if err := h.broken.Load(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, *err)
	}
	return nil
}

// probeWrite starts a test write that checks whether the store can write, or joins the test write in progress.
func (s *Store) probeWrite() *writeAttempt {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if s.health.writing != nil {
		return s.health.writing
	}
	a := &writeAttempt{done: make(chan struct{})}
	s.health.writing = a
	go func() {
		p := &pending{transaction: &store.Transaction{Decide: func(store.Rows, time.Time) (store.Writes, error) {
			return store.Writes{}, nil
		}}, must: true}
		p.done = make(chan struct{})
		if a.err = s.submit(context.Background(), p); a.err == nil {
			a.err = p.err
		}
		s.health.mu.Lock()
		s.health.writing = nil
		s.health.mu.Unlock()
		close(a.done)
	}()
	return a
}
