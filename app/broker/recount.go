package broker

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// A killed app loses up to one second of usage that it had not stored. Afterwards the rows of all namespaces are marked
// as uncounted, and a background loop recounts their runs. The mark is stored, so an app that restarts continues a
// recount.

const (
	recountPause = 30 * time.Second // after a failed recount
	// settleTime is the time within which a live app has stored the usage of a commit.
	settleTime = 2 * usageInterval
	// recountTries is the maximum number of recounts of a namespace whose usage other apps change during the count. The
	// last count is stored regardless; it may be off by one second of their commits.
	recountTries  = 3
	markBatchSize = 100 // number of namespaces per transaction
)

// recounts is the queue of namespaces whose usage must be recounted.
type recounts struct {
	mu    sync.Mutex // guards names and ended
	names map[string]bool
	ended time.Time // latest time at which an app died without storing its usage; zero: none did
	wake  chan struct{}
}

// add enqueues namespaces.
func (q *recounts) add(names ...string) {
	if len(names) == 0 {
		return
	}
	q.mu.Lock()
	for _, name := range names {
		q.names[name] = true
	}
	q.mu.Unlock()
	q.signal()
}

// appEnded enqueues all namespaces whose last count is older than the death of an app, which died not later than until.
func (q *recounts) appEnded(until time.Time) {
	q.mu.Lock()
	if until.After(q.ended) {
		q.ended = until
	}
	q.mu.Unlock()
	q.signal()
}

func (q *recounts) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next returns an enqueued namespace, which stays enqueued until done is called, and the time of an app's death that is
// not handled yet. The order is random, so that two apps that recount at the same time share the work.
func (q *recounts) next() (name string, ended time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if names := slices.Collect(maps.Keys(q.names)); len(names) > 0 {
		name = names[rand.IntN(len(names))]
	}
	ended, q.ended = q.ended, time.Time{}
	return name, ended
}

func (q *recounts) done(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.names, name)
}

// recountUsage recounts enqueued namespaces, one after the other, until ctx ends.
func (b *Broker) recountUsage(ctx context.Context) {
	q := &b.recounts
	if b.store.Unclean() {
		now, err := b.store.Now(ctx)
		if err != nil {
			now = time.Now()
		}
		q.appEnded(now)
	}
	for ctx.Err() == nil {
		name, ended := q.next()
		var err error
		switch {
		case !ended.IsZero():
			if err = b.markUncounted(ctx, ended); err != nil {
				q.appEnded(ended)
				if ctx.Err() == nil {
					store.Warn(&b.log, err).Msg("failed to mark the usage of namespaces for a recount; retrying")
				}
			}
		case name != "":
			if err = b.countUsage(ctx, name); err == nil {
				q.done(name)
			} else if ctx.Err() == nil {
				store.Warn(&b.log, err).Str("namespace", name).Msg("failed to recount the usage of a namespace; retrying")
			}
		default:
			select {
			case <-q.wake:
			case <-ctx.Done():
			}
		}
		if err != nil {
			sleep(ctx, recountPause)
		}
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// markUncounted marks the namespaces whose last count is older than the death of an app, and enqueues all marked
// namespaces.
func (b *Broker) markUncounted(ctx context.Context, ended time.Time) error {
	due := func(n *store.Namespace) bool {
		return !n.Leaving && !n.CountedAt.IsZero() && !n.CountedAt.After(ended)
	}
	var list []store.Namespace
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		list, err = r.Namespaces(ctx)
		return err
	})
	if err != nil {
		return err
	}
	var names, marks []string
	for i := range list {
		n := &list[i]
		if due(n) {
			marks = append(marks, n.Name)
		} else if !n.CountedAt.IsZero() {
			continue
		}
		names = append(names, n.Name)
	}
	for names := range slices.Chunk(marks, markBatchSize) {
		_, err := b.store.Commit(ctx, store.Transaction{
			Needs: store.Keys{Namespaces: names}, Background: true,
			Decide: func(rows store.Rows, _ time.Time) (w store.Writes, err error) {
				for _, name := range names {
					if row := rows.Namespace(name); row != nil && due(row) {
						n := *row
						n.CountedAt = history.Time{}
						w.Namespaces = append(w.Namespaces, n)
					}
				}
				return w, nil
			},
		})
		if err != nil {
			return err
		}
	}
	b.recounts.add(names...)
	if len(names) > 0 {
		b.log.Info().Int("namespaces", len(names)).Msg("an app ended without storing its usage counts; recounting in the background")
	}
	return nil
}

var (
	errRecounted = errors.New("another app has recounted the namespace")
	errChanged   = errors.New("other apps changed the usage of the namespace during the recount")
)

// countUsage recounts the runs of a namespace and corrects its row. The row may lack runs that started before the first
// count, and usage that a killed app had not stored. Apps add the usage of their commits to the row during the count,
// so countUsage only adds the difference.
func (b *Broker) countUsage(ctx context.Context, name string) error {
	for try := 1; ; try++ {
		begun := time.Now()
		count, err := b.store.CountUsage(ctx, name)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		alone := !b.workers.HasOtherApps()
		if !alone { // the count may include runs whose usage another app has not stored yet
			sleep(ctx, settleTime-time.Since(begun))
		}
		err = b.correctUsage(ctx, name, count, alone || try == recountTries)
		switch {
		case errors.Is(err, errChanged):
			continue
		case errors.Is(err, errRecounted):
			return nil
		case err == nil:
			b.store.Quotas().RequestExchange(name) // make the next exchange read the corrected row
		}
		return err
	}
}

// correctUsage adds the difference between a count and the known usage to the row of a namespace. If another app has
// stored usage since the count began, the count includes an unknown part of it, and correctUsage returns errChanged
// unless force is set.
func (b *Broker) correctUsage(ctx context.Context, name string, count store.UsageCount, force bool) error {
	ledger := b.store.Quotas()
	missing := count.Counted.Minus(count.Known)
	missing.Starts = 0 // starts cannot be recounted: no row has their number
	_, err := b.store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Namespaces: []string{name}}, Background: true,
		Decide: func(rows store.Rows, now time.Time) (w store.Writes, err error) {
			row := rows.Namespace(name)
			if row == nil || row.Leaving {
				return w, nil
			}
			own := ledger.Position(name).Stored.Minus(count.Stored)
			switch {
			case !row.CountedAt.Equal(count.Row.CountedAt.Time):
				return w, errRecounted
			case !force && row.Usage != count.Row.Usage.Plus(own):
				return w, errChanged
			}
			n := *row
			n.Usage, n.CountedAt = n.Usage.Plus(missing), history.At(now)
			w.Namespaces = []store.Namespace{n}
			return w, nil
		},
	})
	return err
}
