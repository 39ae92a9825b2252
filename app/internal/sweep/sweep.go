// Package sweep processes rows when they are due (timers, leases, timeouts, clean-up) and sleeps until the next one.
//
// Every app runs a sweeper; there is no leader. The transaction that it submits checks again that the row is due, so
// two sweepers on one row cost one refused transaction. An idle sweeper sends no statement between two due times.
package sweep

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// Store is the part of the store that a sweeper reads.
type Store interface {
	View(ctx context.Context, fn func(store.Reader) error) error
	Now(ctx context.Context) (time.Time, error)
}

// Options tunes a Sweeper. The zero value works for a database that only this process uses.
type Options struct {
	Limit    int           // maximum number of due entries per read; default 500
	Parallel int           // number of entries that are applied at a time, so that they share commits; default 64
	Shared   bool          // other processes write to the same database: read due work at least every Rounds
	Rounds   time.Duration // 30 s
	// Backoff is the wait before an entry is retried that failed or is still due after it was applied. It doubles with
	// each retry up to BackoffMax. The defaults are 100 ms and 30 s.
	Backoff, BackoffMax time.Duration
	// Remove deletes ended sessions. Nil: no cleanup.
	Remove    func(context.Context, []engine.SessionKey) error
	Cleanup   time.Duration // between two cleanups; 5 min
	Retention time.Duration // how long ended sessions are kept; default 24 h
	Log       zerolog.Logger
}

func (o Options) defaults() Options {
	number := func(n *int, standard int) {
		if *n <= 0 {
			*n = standard
		}
	}
	length := func(d *time.Duration, standard time.Duration) {
		if *d <= 0 {
			*d = standard
		}
	}
	number(&o.Limit, 500)
	number(&o.Parallel, 64)
	length(&o.Rounds, 30*time.Second)
	length(&o.Backoff, 100*time.Millisecond)
	length(&o.BackoffMax, 30*time.Second)
	length(&o.Cleanup, 5*time.Minute)
	length(&o.Retention, 24*time.Hour)
	return o
}

// Sweeper applies due work in one process.
type Sweeper struct {
	store  Store
	apply  func(context.Context, store.Due) error
	opt    Options
	wake   chan struct{} // the planned wake-up has changed
	moved  atomic.Bool   // sessions moved since the last clean-up
	jumped atomic.Bool   // the store's clock jumped since the last round

	mu      sync.Mutex // guards pulse and planned
	pulse   time.Time  // earliest Pulse since the due times were read, by the store's clock; zero: none
	planned time.Time  // wake-up, by the store's clock; zero: none

	// The fields below are used by Run only.
	offset  time.Duration       // the store's clock minus this process's clock
	tried   map[key]*retryState // due entries that were applied and may still be due
	stuck   int                 // number of entries that are still due after an attempt
	broken  int                 // rounds in a row that the store failed
	rested  bool                // a sweep has been completed
	failing bool                // an error was logged, and no round without errors followed
	clean   time.Time           // next clean-up, by this process's clock; zero: none
	empty   bool                // no ended session exists that a clean-up would ever remove
}

// New creates a sweeper. apply applies due work if it is still due; several calls run concurrently. An error is logged,
// and the work is retried.
func New(s Store, apply func(context.Context, store.Due) error, o Options) *Sweeper {
	return &Sweeper{store: s, apply: apply, opt: o.defaults(), wake: make(chan struct{}, 1), tried: map[key]*retryState{}}
}

// Pulse reports that something will be due at a time of the store's clock. It never blocks.
func (s *Sweeper) Pulse(at time.Time) {
	if at.IsZero() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pulse.IsZero() || at.Before(s.pulse) {
		s.pulse = at
		if s.planned.IsZero() || at.Before(s.planned) {
			s.wakeUp()
		}
	}
}

// SessionsChanged reports that sessions changed, so that a cleanup may find sessions to delete. It never blocks.
func (s *Sweeper) SessionsChanged() {
	if s.opt.Remove != nil && !s.moved.Swap(true) {
		s.wakeUp()
	}
}

// ClockJumped makes the sweeper read the due times again, since the planned wake-up may be too late after a jump of the
// store's clock. It never blocks.
func (s *Sweeper) ClockJumped() {
	s.jumped.Store(true)
	s.wakeUp()
}

func (s *Sweeper) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run sweeps until ctx ends. It finishes the work that is being applied.
func (s *Sweeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		s.round(ctx)
		s.sleep(ctx)
	}
}

// round applies due work and schedules the next wake-up.
func (s *Sweeper) round(ctx context.Context) {
	next, err := s.sweep(ctx)
	if err != nil && ctx.Err() == nil {
		s.broken++
		wait := s.opt.backoff(s.broken)
		s.logFailure(err, "failed to read due work; retrying")
		next = s.now().Add(wait)
	} else {
		s.broken = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned = next
	if s.broken > 0 {
		s.pulse = time.Time{} // the next round reads everything: a pulse must not cut the back-off short
	}
}

// sleep waits for the planned wake-up, an earlier pulse or the next clean-up, which it does.
func (s *Sweeper) sleep(ctx context.Context) {
	for ctx.Err() == nil {
		if s.jumped.Swap(false) {
			s.rested = false // the next round reads the due times
			clear(s.tried)   // retries were planned with the clock before the jump
			s.stuck = 0
			return
		}
		cleanup := s.nextCleanup(ctx)
		s.mu.Lock()
		at := s.planned
		if at.IsZero() || (!s.pulse.IsZero() && s.pulse.Before(at)) {
			at = s.pulse
		}
		s.mu.Unlock()
		wait := time.Duration(-1)
		if !at.IsZero() {
			wait = at.Sub(s.now())
			if wait <= 0 {
				return
			}
		}
		if s.opt.Shared && (wait < 0 || wait > s.opt.Rounds) {
			wait = s.opt.Rounds
		}
		var timer, tidy <-chan time.Time
		if wait >= 0 {
			timer = time.After(wait)
		}
		if !cleanup.IsZero() {
			tidy = time.After(time.Until(cleanup))
		}
		select {
		case <-timer:
			return
		case <-tidy:
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// now returns the store's time, computed from this process's clock.
func (s *Sweeper) now() time.Time { return time.Now().Add(s.offset) }

func (o Options) backoff(n int) time.Duration {
	if n > 16 {
		return o.BackoffMax
	}
	return min(o.BackoffMax, o.Backoff<<(n-1))
}

// logFailure logs the first of a series of consecutive errors.
func (s *Sweeper) logFailure(err error, what string) {
	if !s.failing && !errors.Is(err, context.Canceled) {
		s.failing = true
		store.Warn(&s.opt.Log, err).Msg(what)
	}
}
