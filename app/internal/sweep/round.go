package sweep

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// key identifies due work independently of its time.
type key struct {
	kind     store.DueKind
	run      string
	seq      int64
	session  engine.SessionKey
	schedule engine.ScheduleKey
}

func keyOf(d store.Due) key { return key{d.Kind, d.Run, d.Seq, d.Session, d.Schedule} }

// retryState counts the attempts to apply due work that is still due, and holds the time of the next attempt, by the
// store's clock. Failing work delays no other work.
type retryState struct {
	at      time.Time // time at which it was due; with another due time it is another entry
	times   int
	retryAt time.Time
}

// maxStuck limits the number of entries that stay due after they were applied and that a read skips.
const maxStuck = 10_000

// sweep applies the due work and returns the time of the next sweep, zero for never.
func (s *Sweeper) sweep(ctx context.Context) (time.Time, error) {
	if next, rest, err := s.idleUntil(ctx); rest || err != nil {
		s.failing = s.failing && err != nil
		return next, err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	s.offset = time.Until(now)
	s.forgetPulse()
	limit := s.opt.Limit + min(s.stuck, maxStuck)
	var due []store.Due
	var next time.Time
	err = s.store.View(ctx, func(r store.Reader) error {
		var err error
		if due, err = r.Due(ctx, now, limit); err != nil || len(due) > 0 {
			return err
		}
		next, _, err = r.NextDue(ctx, now)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	stuck := s.stuck
	ready, later := s.pick(due, now)
	if len(due) == 0 {
		s.failing = false
		return next, nil
	}
	if err := s.applyAll(ctx, ready); err != nil {
		return time.Time{}, err
	}
	if len(due) == limit && (len(ready) > 0 || s.stuck > stuck) {
		return now, nil // more entries may follow
	}
	return s.next(ctx, now, earliest(later, s.retryTime(ready)))
}

// idleUntil reports, with one statement, whether nothing is due, and when something will be, as far as the store knows.
// It is used only if this is likely: no planned or notified work is due, and this is a periodic check for work of other
// processes.
func (s *Sweeper) idleUntil(ctx context.Context) (next time.Time, rest bool, err error) {
	s.mu.Lock()
	first := earliest(s.planned, s.pulse)
	s.mu.Unlock()
	expected := s.rested && (first.IsZero() || first.After(s.now()))
	s.rested = true
	if !expected {
		return next, false, nil
	}
	s.forgetPulse()
	var now time.Time
	err = s.store.View(ctx, func(r store.Reader) (err error) {
		next, now, err = r.NextDue(ctx, time.Unix(0, 0))
		return err
	})
	if err != nil {
		return next, false, err
	}
	s.offset = time.Until(now)
	return next, next.IsZero() || next.After(now), nil
}

// pick selects the work to apply now, and returns the time of the first other entry. An entry that was tried and is no
// longer listed is done: due lists the oldest entries, and its limit leaves room for all stuck ones.
func (s *Sweeper) pick(due []store.Due, now time.Time) (ready []store.Due, later time.Time) {
	still := make(map[key]*retryState, len(s.tried))
	for _, d := range due {
		k := keyOf(d)
		t := s.tried[k]
		if t == nil || !t.at.Equal(d.At) {
			ready = append(ready, d)
			continue
		}
		still[k] = t
		if t.retryAt.After(now) {
			later = earliest(later, t.retryAt)
		} else {
			ready = append(ready, d)
		}
	}
	s.tried, s.stuck = still, len(still)
	return ready, later
}

// next reads the time of the next due work. retry is the time of the next attempt of work that may still be due.
func (s *Sweeper) next(ctx context.Context, now time.Time, retry time.Time) (time.Time, error) {
	var next time.Time
	err := s.store.View(ctx, func(r store.Reader) error {
		var err error
		if next, _, err = r.NextDue(ctx, time.Unix(0, 0)); err != nil || next.IsZero() || next.After(now) {
			return err
		}
		if next, _, err = r.NextDue(ctx, now); err != nil {
			return err
		}
		next = earliest(next, retry)
		return nil
	})
	return next, err
}

// applyAll applies several entries at a time. It records failed entries; it returns an error only if the store is
// unavailable.
func (s *Sweeper) applyAll(ctx context.Context, ready []store.Due) error {
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex // guards first, away and at
		first error
		away  error
		at    int
	)
	for range min(s.opt.Parallel, len(ready)) {
		wait.Go(func() {
			for {
				mu.Lock()
				i := at
				at++
				stop := away != nil || ctx.Err() != nil
				mu.Unlock()
				if stop || i >= len(ready) {
					return
				}
				if err := s.apply(ctx, ready[i]); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrClosed) {
						away = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	if away != nil {
		return away
	}
	for _, d := range ready {
		if d.Kind == store.DueSession {
			s.moved.Store(true)
		}
		s.recordFailure(d)
	}
	if first != nil {
		s.logFailure(first, "failed to process due work; retrying")
	} else if s.stuck == 0 {
		s.failing = false
	}
	return nil
}

// recordFailure counts a failed attempt.
func (s *Sweeper) recordFailure(d store.Due) {
	k := keyOf(d)
	t := s.tried[k]
	if t == nil || !t.at.Equal(d.At) {
		t = &retryState{at: d.At}
		s.tried[k] = t
	}
	t.times++
	t.retryAt = s.now().Add(s.opt.backoff(t.times))
}

// retryTime returns the time of the first retry of these entries.
func (s *Sweeper) retryTime(ready []store.Due) time.Time {
	var first time.Time
	for _, d := range ready {
		if t := s.tried[keyOf(d)]; t != nil {
			first = earliest(first, t.retryAt)
		}
	}
	return first
}

// forgetPulse must be called before a read of due work: work that was notified before has committed, so the read sees
// it.
func (s *Sweeper) forgetPulse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulse = time.Time{}
}

// earliest returns the earlier of two times; a zero time does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
