package sqldb

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
)

// The most one batch takes.
const (
	mostChanges = 256
	mostBytes   = 4 << 20
)

// maxRaces is how often a batch that lost a race is run again before its callers are told.
const maxRaces = 20

// outcomeTimeout bounds the wait for a transaction whose connection was lost.
const outcomeTimeout = 10 * time.Second

// loop is the committer: it takes whatever waits, and never waits for more.
func (s *Store) loop() {
	defer close(s.done)
	var rest []*pending // left over from a batch that grew too large
	for {
		items := rest
		if len(items) == 0 {
			select {
			case p := <-s.in:
				items = append(items, p)
			case <-s.quit:
				if items = s.drain(nil); len(items) == 0 {
					s.end()
					return
				}
			}
			runtime.Gosched() // callers just woken by the last batch are about to bring their next change
		}
		items = s.drain(items)
		rest = s.attempt(items)
	}
}

func (s *Store) drain(items []*pending) []*pending {
	for len(items) < mostChanges {
		select {
		case p := <-s.in:
			items = append(items, p)
		default:
			return items
		}
	}
	return items
}

func (s *Store) end() {
	errs := []error{s.cfg.Conn.Close(context.Background()), s.cfg.Reads.Close()}
	if s.cfg.Release != nil {
		errs = append(errs, s.cfg.Release())
	}
	s.ended = errors.Join(errs...)
}

// attempt commits items and answers all of them but those it returns, which did not fit. A batch that fails is taken apart by halves, so that the
// change at fault gets its own error and the others are stored.
func (s *Store) attempt(items []*pending) (rest []*pending) {
	for races := 0; ; races++ {
		b, rest, err := s.try(items)
		if err == nil {
			return rest
		}
		class := s.cfg.Dialect.Classify(err)
		if e := s.cfg.Conn.Reset(context.Background()); e != nil {
			class, err = Unavailable, errors.Join(err, e)
		}
		if class == Lost && b.sealed {
			done, e := s.stored(b.number)
			if done {
				b.finish(items[:len(items)-len(rest)])
				return rest
			}
			if e != nil { // it may be stored or not: trying again could store it twice
				class, err = Unavailable, errors.Join(err, e)
			}
		}
		s.abandon(b)
		switch {
		case class == Again && races < maxRaces, class == Lost && races < 2:
			continue
		case class == Unavailable || class == Lost:
			s.cache.clear()
			s.refuse(items, fmt.Errorf("%w: %w", store.ErrUnavailable, err))
			return nil
		case len(items) == 1:
			s.refuse(items, fmt.Errorf("commit: %w", err))
			return nil
		}
		half := len(items) / 2
		rest = s.attempt(items[:half])
		return append(rest, s.attempt(items[half:])...)
	}
}

// try runs one batch to its end. When it fails nothing of it is stored, but for a COMMIT whose answer was lost.
func (s *Store) try(items []*pending) (*batch, []*pending, error) {
	s.batch++
	b := s.newBatch()
	for _, p := range items {
		p.answer, p.leased, p.runs, p.err = nil, nil, nil, nil
	}
	if err := b.load(items); err != nil {
		return b, nil, fmt.Errorf("load: %w", err)
	}
	taken := b.decide(items)
	if err := b.route(); err != nil {
		return b, nil, fmt.Errorf("route: %w", err)
	}
	if err := b.rank(items[:taken]); err != nil {
		return b, nil, fmt.Errorf("rank: %w", err)
	}
	b.handOver()
	claims := 0
	for _, p := range items[:taken] {
		if p.claim != nil {
			claims++
		}
	}
	if err := b.write(claims == 0); err != nil {
		return b, items[taken:], fmt.Errorf("flush: %w", err)
	}
	if claims > 0 {
		for _, p := range items[:taken] {
			if p.claim == nil {
				continue
			}
			if err := b.claim(p); err != nil {
				return b, items[taken:], fmt.Errorf("claim: %w", err)
			}
		}
		if err := b.write(true); err != nil {
			return b, items[taken:], fmt.Errorf("flush: %w", err)
		}
	}
	b.finish(items[:taken])
	return b, items[taken:], nil
}

// abandon undoes what a failed batch took: its reservations, the cached rows it changed.
func (s *Store) abandon(b *batch) {
	for _, h := range b.handed {
		h.r.Undo()
	}
	s.cache.forget(b)
}

// stored says whether a batch whose COMMIT had no answer was committed all the same. A transaction that is still at it holds the row, so this waits
// for its end.
func (s *Store) stored(number int64) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), outcomeTimeout)
	defer cancel()
	query := "SELECT batch FROM batches WHERE app = $1"
	if s.cfg.Dialect.Shared {
		query += " FOR UPDATE"
	}
	var last int64
	if err := s.cfg.Reads.QueryRowContext(ctx, query, s.cfg.App).Scan(&last); err != nil {
		return false, fmt.Errorf("outcome of batch %d: %w", number, err)
	}
	return last >= number, nil
}

func (s *Store) refuse(items []*pending, err error) {
	for _, p := range items {
		p.answer, p.leased, p.err = nil, nil, err
		close(p.done)
	}
}
