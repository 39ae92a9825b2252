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

// Transactions whose rows another app has locked are deferred and retried separately from all others, so that an app
// that is paused in a database transaction does not block the other apps.

// These are the limits of the retry interval of deferred transactions: first the usual time of a commit, later longer.
const (
	firstRetry = 2 * time.Millisecond
	lastRetry  = 100 * time.Millisecond
)

// maxDeferral is how long a transaction may be deferred before its caller gets an error. By then the lock belongs to a
// database transaction that is not an app's and cannot be ended by this app.
const maxDeferral = 10 * time.Second

// These are the time for which a lock may block a transaction before the store looks for paused lock owners, and the
// interval between two such checks.
const (
	unblockAfter    = time.Second
	unblockInterval = 250 * time.Millisecond
)

// maxSeparate is the maximum number of transactions that one round tries one by one, since each of them costs a
// database transaction.
const maxSeparate = 16

var errLockHeld = errors.New("the rows are locked by a transaction that does not belong to an app; find it in pg_locks and end it")

// deferChanges defers items to a later batch, because other transactions have locked rows that they need.
func (s *Store) deferChanges(items []*pending) {
	if len(items) == 0 {
		return
	}
	now := time.Now()
	for _, p := range items {
		if p.deferredSince.IsZero() {
			p.deferredSince = now
		}
		switch blocked := now.Sub(p.deferredSince); {
		case blocked > maxDeferral:
			s.failAll([]*pending{p}, fmt.Errorf("%w: %w", store.ErrUnavailable, errLockHeld))
			continue
		case blocked > unblockAfter:
			s.requestUnblock(now)
		}
		p.retryAt = now.Add(retryDelay(p.retries))
		p.retries++
		s.deferred = append(s.deferred, p)
	}
}

// retryDelay returns the delay before the next try, with jitter, so that apps that were in conflict do not retry at the
// same time.
func retryDelay(retries int) time.Duration {
	d := min(firstRetry<<min(retries, 16), lastRetry)
	return d/2 + rand.N(d)
}

// retryDeferred runs the deferred transactions that are due again. A transaction that failed alone gets its own batch,
// because the store does not know which of its rows was locked.
func (s *Store) retryDeferred() (overflow []*pending) {
	if len(s.deferred) == 0 {
		return nil
	}
	now := time.Now()
	var later, due, separate []*pending
	for _, p := range s.deferred {
		switch {
		case p.retryAt.After(now):
			later = append(later, p)
		case p.separately && len(separate) < maxSeparate:
			separate = append(separate, p)
		case !p.separately && len(due) < maxChanges:
			due = append(due, p)
		default:
			later = append(later, p)
		}
	}
	s.deferred = later
	for _, p := range separate {
		overflow = append(overflow, s.run([]*pending{p})...)
	}
	if len(due) > 0 {
		overflow = append(overflow, s.run(due)...)
	}
	return overflow
}

// skippedQueue is a queue in which claims skipped locked tasks. The store claims again later, because no notification
// may follow when the locks are released.
type skippedQueue struct {
	since, retryAt time.Time
	retries        int
	notified       bool // the dispatcher was notified, and no claim has followed yet
}

// recordSkipped records in which queues the claims of a batch skipped tasks.
func (s *Store) recordSkipped(b *batch) {
	if !s.cfg.Dialect.Shared {
		return
	}
	now := time.Now()
	for _, p := range b.items {
		if p.lease == nil {
			continue
		}
		q := QueueKey{p.lease.Namespace, p.lease.Queue, p.lease.Kind}
		l := s.skippedQueues[q]
		// A claim that skipped nothing has read all ready tasks, so the queue needs no further claim.
		if !b.skipped[q] {
			if l != nil {
				delete(s.skippedQueues, q)
			}
			continue
		}
		if l == nil {
			l = &skippedQueue{since: now}
			s.skippedQueues[q] = l
		}
		if now.Sub(l.since) > unblockAfter {
			s.requestUnblock(now)
		}
		l.retryAt, l.notified = now.Add(retryDelay(l.retries+4)), false
		l.retries++
	}
}

// retrySkipped notifies the dispatcher of the queues that are due for another claim. A queue without a claim since the
// last notification is removed.
func (s *Store) retrySkipped() {
	if len(s.skippedQueues) == 0 {
		return
	}
	now := time.Now()
	for q, l := range s.skippedQueues {
		switch {
		case l.retryAt.After(now):
		case l.notified || s.cfg.Dispatch == nil:
			delete(s.skippedQueues, q)
		default:
			l.notified, l.retryAt = true, now.Add(2*time.Second)
			s.cfg.Dispatch.Backlog(q.Namespace, q.Queue, q.Kind)
		}
	}
}

// nextRetry returns a channel that receives when a deferred transaction or claim is due; nil if there is none.
func (s *Store) nextRetry() <-chan time.Time {
	var at time.Time
	earlier := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	for _, p := range s.deferred {
		earlier(p.retryAt)
	}
	for _, l := range s.skippedQueues {
		earlier(l.retryAt)
	}
	if at.IsZero() {
		return nil
	}
	return time.After(time.Until(at))
}

// requestUnblock ends the database transactions of paused apps. It does so outside of the committer goroutine, and at a
// limited rate.
func (s *Store) requestUnblock(now time.Time) {
	if s.cfg.Unblock == nil || now.Sub(s.lastUnblock) < unblockInterval || s.unblocking.Swap(true) {
		return
	}
	s.lastUnblock = now
	s.ending.Go(func() {
		defer s.unblocking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), separateWriteTimeout)
		defer cancel()
		_ = s.cfg.Unblock(ctx) // it is called again while the lock persists
	})
}
