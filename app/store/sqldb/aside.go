// Package sqldb implements the store for SQLite and PostgreSQL: group commit, loading, writing and claims. Package
// record defines the tables, package db executes the statements, and package read runs the read-only queries.
package sqldb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
)

// Changes of rows that another app has locked are deferred and retried separately from all others, so that an app that
// is paused in a transaction does not block the other apps.

// Bounds of the retry interval of deferred changes: first the usual time of a commit, later longer.
const (
	firstRetry = 2 * time.Millisecond
	lastRetry  = 100 * time.Millisecond
)

// mostAside is how long a change may be deferred before its caller gets an error. By then the lock is held by a
// transaction that does not belong to an app and cannot be terminated.
const mostAside = 10 * time.Second

// patience is how long a lock may block a change before the store looks for paused lock owners; asked is the interval
// between these checks.
const (
	patience = time.Second
	asked    = 250 * time.Millisecond
)

// mostAlone is the maximum number of changes that one round tries one by one, since each of them costs a transaction.
const mostAlone = 16

var errStillLocked = errors.New("its rows are locked by a transaction that does not end")

// setAside keeps items for a later batch, because other transactions have locked what they need.
func (s *Store) setAside(items []*pending) {
	if len(items) == 0 {
		return
	}
	now := time.Now()
	for _, p := range items {
		if p.since.IsZero() {
			p.since = now
		}
		switch met := now.Sub(p.since); {
		case met > mostAside:
			s.refuse([]*pending{p}, fmt.Errorf("%w: %w", store.ErrUnavailable, errStillLocked))
			continue
		case met > patience:
			s.clear(now)
		}
		p.again = now.Add(after(p.tries))
		p.tries++
		s.aside = append(s.aside, p)
	}
}

// after returns the delay before the next try, with jitter: apps that were in conflict must not retry at the same time.
func after(tries int) time.Duration {
	d := min(firstRetry<<min(tries, 16), lastRetry)
	return d/2 + rand.N(d)
}

// retry runs the deferred changes that are due again. A change that is tried alone gets its own batch, because the
// store does not know which of its rows was locked.
func (s *Store) retry() (rest []*pending) {
	if len(s.aside) == 0 {
		return nil
	}
	now := time.Now()
	var kept, due, alone []*pending
	for _, p := range s.aside {
		switch {
		case p.again.After(now):
			kept = append(kept, p)
		case p.alone && len(alone) < mostAlone:
			alone = append(alone, p)
		case !p.alone && len(due) < mostChanges:
			due = append(due, p)
		default:
			kept = append(kept, p)
		}
	}
	s.aside = kept
	for _, p := range alone {
		rest = append(rest, s.run([]*pending{p})...)
	}
	if len(due) > 0 {
		rest = append(rest, s.run(due)...)
	}
	return rest
}

// lookback is a queue in which claims skipped locked tasks. The store claims again, because no notice may follow when
// the locks are released.
type lookback struct {
	since, again time.Time
	tries        int
	told         bool // the dispatcher was notified, and no claim has followed
}

// look records in which queues the claims of a batch skipped tasks.
func (s *Store) look(b *batch) {
	if !s.cfg.Dialect.Shared {
		return
	}
	now := time.Now()
	for _, p := range b.items {
		if p.claim == nil {
			continue
		}
		q := QueueKey{p.claim.Namespace, p.claim.Queue, p.claim.Kind}
		l := s.again[q]
		// A claim that skipped nothing has read all ready tasks, so the queue needs no other claim.
		if !b.skipped[q] {
			if l != nil {
				delete(s.again, q)
			}
			continue
		}
		if l == nil {
			l = &lookback{since: now}
			s.again[q] = l
		}
		if now.Sub(l.since) > patience {
			s.clear(now)
		}
		l.again, l.told = now.Add(after(l.tries+4)), false
		l.tries++
	}
}

// lookAgain notifies the dispatcher of the queues that are due for another claim. A queue without a claim since the
// last notice is removed.
func (s *Store) lookAgain() {
	if len(s.again) == 0 {
		return
	}
	now := time.Now()
	for q, l := range s.again {
		switch {
		case l.again.After(now):
		case l.told || s.cfg.Dispatch == nil:
			delete(s.again, q)
		default:
			l.told, l.again = true, now.Add(2*time.Second)
			s.cfg.Dispatch.Backlog(q.Namespace, q.Queue, q.Kind)
		}
	}
}

// alarm returns a channel that fires when a deferred change or claim is due; nil if there is none.
func (s *Store) alarm() <-chan time.Time {
	var at time.Time
	earlier := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	for _, p := range s.aside {
		earlier(p.again)
	}
	for _, l := range s.again {
		earlier(l.again)
	}
	if at.IsZero() {
		return nil
	}
	return time.After(time.Until(at))
}

// clear has the transactions of apps that are paused ended, next to the committer and not too often.
func (s *Store) clear(now time.Time) {
	if s.cfg.Unblock == nil || now.Sub(s.asked) < asked || s.unblock.Swap(true) {
		return
	}
	s.asked = now
	s.ending.Go(func() {
		defer s.unblock.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), aheadTimeout)
		defer cancel()
		_ = s.cfg.Unblock(ctx) // it is asked again while the lock is met
	})
}
