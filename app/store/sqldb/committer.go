package sqldb

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// The committer groups many transactions of the app into few database transactions (group commit). It never delays a
// batch to collect more: under load, transactions arrive while it writes, and without load a transaction is committed
// alone. All database errors are handled here. A caller therefore gets one of four results: committed, rejected,
// unavailable, or unknown outcome (the connection was lost during COMMIT).

// These are limits of one batch.
const (
	maxChanges = 256
	maxBytes   = 4 << 20
	// maxCleanUp is the maximum number of background transactions in one batch, because a caller that arrives during
	// the batch waits for its end.
	maxCleanUp = 32
)

// maxLocked is how often a batch that meets a lock during its writes is retried immediately before it is split. Most
// locks belong to a batch of another app, which commits within milliseconds.
const maxLocked = 2

// maxRaces is how often a batch is retried after conflicts before its callers get an error.
const maxRaces = 20

// outcomeTimeout is how long callers wait for the outcome of a transaction whose connection was lost. After that they
// get the error that the outcome is unknown.
const outcomeTimeout = 10 * time.Second

// loop is the committer goroutine. It commits the waiting transactions and never waits for more. Deferred transactions
// get separate batches, so they cannot delay others.
func (s *Store) loop() {
	defer close(s.done)
	quit := s.quit
	var overflow []*pending // transactions of a batch that became too large
	if !s.cfg.Dialect.Shared {
		s.clock.Now() // detects a clock that was set back while no app was running
	}
	for {
		s.retrySkipped()
		overflow = append(overflow, s.retryDeferred()...)
		items := overflow
		if len(items) == 0 && s.fairQueue.waiting == 0 {
			if quit == nil && len(s.in) == 0 && len(s.back) == 0 && len(s.deferred) == 0 {
				s.shutdown()
				return
			}
			select {
			case p := <-s.in:
				items = append(items, p)
			case p := <-s.back:
				items = append(items, p)
			case <-s.nextRetry():
				continue
			case <-s.clock.Jumped():
				_ = s.settleClock() // if this fails, the next batch tries it again
				continue
			case <-s.evictionDue():
				s.evictUnused()
				continue
			case <-quit:
				quit = nil
				continue
			}
			// Callers that the last batch has just woken are about to submit their next transactions. Gosched lets them
			// run, so that these transactions join this batch.
			runtime.Gosched()
		}
		overflow = s.run(s.drain(items))
		s.scheduleEviction()
		select {
		case <-s.evictionDue():
			s.evictUnused()
		default:
		}
	}
}

// run commits items (see attempt). It stores its start time, from which the health check detects that the database
// hangs.
func (s *Store) run(items []*pending) (overflow []*pending) {
	s.health.began.Store(time.Now().UnixNano())
	defer s.health.began.Store(0)
	return s.attempt(items)
}

// drain adds waiting transactions: those with a waiting caller, and one background transaction for each of them. If no
// caller waits, it adds up to maxCleanUp background transactions. So clean-up neither delays callers nor starves.
func (s *Store) drain(items []*pending) []*pending {
	most := maxChanges
	if s.queues.anyFair() {
		// read all of them, because transactions of a small class may be queued after those of a large one
		most = cap(s.in)
	}
	items = s.fairBatch(fillFrom(items, s.in, most))
	behind := 0
	for _, p := range items {
		if p.background() {
			behind++
		}
	}
	room := len(items) - 2*behind // as many background transactions as other ones
	if behind == len(items) {
		room = maxCleanUp - behind
	}
	return fillFrom(items, s.back, min(len(items)+max(room, 0), maxChanges))
}

// fillFrom adds what a channel contains, up to most items.
func fillFrom(items []*pending, from chan *pending, most int) []*pending {
	for len(items) < most {
		select {
		case p := <-from:
			items = append(items, p)
		default:
			return items
		}
	}
	return items
}

// shutdown runs when the committer stops. By then deferred transactions have their results, and new calls are refused
// because the store is closed.
func (s *Store) shutdown() {
	s.ending.Wait()
	errs := []error{s.cfg.Conn.Close(context.Background()), s.cfg.Reads.Close()}
	if s.cfg.Release != nil {
		errs = append(errs, s.cfg.Release())
	}
	s.ended = errors.Join(errs...)
}

// attempt commits items and passes the results to their callers. It returns the items that did not fit, and defers
// items whose rows another transaction has locked. A batch that fails is split in halves, so that the faulty
// transaction gets its own error and the others are stored.
func (s *Store) attempt(items []*pending) (overflow []*pending) {
	for races := 0; ; races++ {
		if err := s.settleClock(); err != nil {
			s.health.failed.Store(true)
			s.failAll(items, fmt.Errorf("%w: %w", store.ErrUnavailable, err))
			return nil
		}
		b, err := s.runBatch(items)
		if err == nil {
			s.deferChanges(b.deferred)
			return b.overflow
		}
		if errors.Is(err, errClockJumped) {
			s.abandonBatch(b, err)
			if err = s.cfg.Conn.Reset(context.Background()); err == nil {
				races--
				continue
			}
		}
		class := s.cfg.Dialect.Classify(err)
		if errors.Is(err, errRowsLocked) {
			class = db.Locked
		}
		if e := s.cfg.Conn.Reset(context.Background()); e != nil {
			class, err = db.Unavailable, errors.Join(err, e)
		}
		if class == db.Lost || class == db.Unavailable { // the next connection may be to another server
			s.memory.clear()
			s.cache.leads.clear()
			b.clearVersions()
		}
		// The response to COMMIT was lost. The row in the table batches, written in the same transaction, shows whether
		// it was committed.
		if class == db.Lost && b.sealed {
			done, e := s.wasCommitted(b.number)
			if done {
				b.finish(b.items)
				s.deferChanges(b.deferred)
				return b.overflow
			}
			if e != nil { // it is unknown whether it was stored, and a retry could store it twice
				err = fmt.Errorf("%w: %w", store.ErrOutcome, errors.Join(err, e))
				s.ledger.MarkUncertain()
				s.abandonBatch(b, err)
				s.cache.clear()
				s.memory.clear()
				s.health.failed.Store(true)
				s.failAll(b.items, err)
				s.deferChanges(b.deferred)
				return b.overflow
			}
		}
		if class == db.Unavailable && b.sealed {
			err = fmt.Errorf("%w: %w", store.ErrOutcome, err)
			s.ledger.MarkUncertain()
		}
		s.abandonBatch(b, err)
		switch {
		// The items whose rows are locked are known. They are deferred, and the others are decided again immediately.
		case class == db.Locked && len(b.blocked) > 0:
			s.deferChanges(b.blocked)
			items = slices.DeleteFunc(slices.Clone(items), func(p *pending) bool { return slices.Contains(b.blocked, p) })
			if len(items) == 0 {
				return nil
			}
			continue
		case class == db.Retryable && races < maxRaces, class == db.Locked && races < maxLocked && !items[0].separately,
			class == db.Lost &&
				races < 2:
			continue
		// Nothing was stored, and all callers may retry. The cache is cleared, since the next connection may be to
		// another server.
		case class == db.Unavailable || class == db.Lost:
			s.cache.clear()
			s.health.failed.Store(true)
			s.failAll(items, fmt.Errorf("%w: %w", store.ErrUnavailable, err))
			return nil
		case len(items) == 1 && class == db.Locked:
			items[0].separately = true
			s.deferChanges(items)
			return nil
		case len(items) == 1:
			s.failAll(items, fmt.Errorf("commit: %w", err))
			return nil
		}
		// Splitting in halves finds one failing transaction among hundreds in a few tries, and stores the others
		// meanwhile.
		half := len(items) / 2
		overflow = s.attempt(items[:half])
		return append(overflow, s.attempt(items[half:])...)
	}
}

// runBatch runs one batch to its end. If it fails, nothing of it is stored, unless the response to COMMIT was lost. If
// a batch wrongly assumed that IDs are unused without reading them, it is run again with a read.
func (s *Store) runBatch(items []*pending) (*batch, error) {
	if b, err := s.runCached(items); b != nil {
		return b, err
	}
	b, err := s.runLoaded(items, !s.cfg.Dialect.Shared)
	if err == nil || !b.assumed || s.cfg.Dialect.Classify(err) != db.Guilty {
		return b, err
	}
	s.abandonBatch(b, err)
	if e := s.cfg.Conn.Reset(context.Background()); e != nil {
		return b, errors.Join(err, e)
	}
	return s.runLoaded(items, false)
}

// runLoaded runs one batch on rows that it reads, except for IDs that it may assume to be unused. The order is fixed:
// decide, route the tasks that became ready, rank them, reserve waiting polls for them, write. Claims follow the first
// write, and the first of them is sent with it, so that claims see the tasks that transactions of the same batch made
// ready.
func (s *Store) runLoaded(items []*pending, assume bool) (*batch, error) {
	s.batch++
	b := s.newBatch()
	b.assume = assume
	for _, p := range items {
		p.result, p.leased, p.runs, p.err = nil, nil, nil, nil
	}
	if err := b.load(items); err != nil {
		return b, fmt.Errorf("load rows: %w", err)
	}
	b.items = b.unlockedItems(items)
	decided := b.decide(b.items)
	b.items, b.overflow = b.items[:decided], b.items[decided:]
	if err := b.writeDecisions(); err != nil {
		return b, err
	}
	b.finish(b.items)
	return b, nil
}

// writeDecisions writes the decisions, and then leases the tasks that the claims of the batch find.
func (b *batch) writeDecisions() error {
	if err := b.routeReadyTasks(); err != nil {
		return fmt.Errorf("route ready tasks: %w", err)
	}
	if err := b.rankReadyTasks(b.items); err != nil {
		return fmt.Errorf("rank ready tasks: %w", err)
	}
	if err := b.dispatchReady(); err != nil {
		return fmt.Errorf("dispatch ready tasks: %w", err)
	}
	claims := slices.DeleteFunc(slices.Clone(b.items), func(p *pending) bool { return p.lease == nil })
	// Without claims, COMMIT is sent in the same round trip as this write. Claims cause writes after it.
	if err := b.write(len(claims) == 0); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	if len(claims) == 0 {
		return nil
	}
	for _, p := range claims {
		if err := b.leaseTasks(p); err != nil {
			return fmt.Errorf("lease tasks: %w", err)
		}
	}
	if err := b.write(true); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	return nil
}

// runCached runs one batch on cached rows in a single round trip, if the cache contains all its rows and is up to date.
// Otherwise it stores nothing and returns no batch, and the caller runs the batch with loaded rows.
func (s *Store) runCached(items []*pending) (*batch, error) {
	b := s.cachedBatch(items)
	if b == nil {
		return nil, nil
	}
	s.batch++
	b.number = s.batch
	for _, p := range items {
		p.result, p.leased, p.runs, p.err = nil, nil, nil, nil
	}
	err := b.commitCached(items)
	s.memory.recordGuess(err == nil)
	if err == nil {
		return b, nil
	}
	if class := s.cfg.Dialect.Classify(err); class == db.Lost || class == db.Unavailable {
		return b, fmt.Errorf("commit in one round trip: %w", err)
	}
	s.abandonBatch(b, err)
	if e := s.cfg.Conn.Reset(context.Background()); e != nil {
		return s.newBatch(), errors.Join(err, e)
	}
	return nil, nil
}

// abandonBatch undoes the reservations of polls of a failed batch and invalidates the cached rows that it changed. If
// the outcome of the batch is unknown, it ends the polls with Doubt: tasks may be leased to them, and their workers
// must poll again.
func (s *Store) abandonBatch(b *batch, why error) {
	for _, h := range b.deliveries {
		if errors.Is(why, store.ErrOutcome) {
			h.r.Doubt(why)
		} else {
			h.r.Undo()
		}
	}
	s.cache.forget(b)
	s.memory.forget(b)
}

// wasCommitted reports whether a batch was committed whose COMMIT got no response. On a shared database a transaction
// that is still in progress locks this app's row, so the query waits for its end.
func (s *Store) wasCommitted(number int64) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), outcomeTimeout)
	defer cancel()
	query := "SELECT batch FROM batches WHERE app = $1"
	if s.cfg.Dialect.Shared {
		query += " FOR UPDATE"
	}
	var last int64
	if err := s.cfg.Reads.QueryRowContext(ctx, query, s.cfg.App).Scan(&last); err != nil {
		return false, fmt.Errorf("read the outcome of batch %d: %w", number, err)
	}
	return last >= number, nil
}

// failAll passes an error to the callers of all items.
func (s *Store) failAll(items []*pending, err error) {
	_ = s.checkOutage(err)
	for _, p := range items {
		p.result, p.leased, p.err = nil, nil, err
		close(p.done)
	}
}
