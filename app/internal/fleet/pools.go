package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Every app keeps the members of pools set up and lends them to waiting workflows. Apps do not coordinate: each change
// is one decision on the row of the member or of the pool, and of two apps that make the same change one is refused.
// An app looks at a pool immediately after it committed a change that may concern pools, and otherwise at intervals,
// since the change may have been committed by another app.

// Intervals between two looks of an app at a pool: while workflows wait or members are not set up, and otherwise.
const (
	poolBusyInterval = time.Second
	poolIdleInterval = 5 * time.Second
)

// memberRetry is how long a member that no worker could set up is kept before it is replaced. The new member may be set
// up by the same workers.
const memberRetry = 30 * time.Second

// PoolsChanged makes this app look at the pools now. It never blocks.
func (f *Fleet) PoolsChanged() {
	select {
	case f.pools <- struct{}{}:
	default:
	}
}

// HasPools reports whether a namespace has pools, as far as this process knows.
func (f *Fleet) HasPools(namespace string) bool {
	return slices.ContainsFunc(f.store.Pools(), func(q *engine.Queue) bool { return q.Namespace == namespace })
}

// WatchPools keeps the pools until ctx ends. Without pools it sends no statement.
func (f *Fleet) WatchPools(ctx context.Context) {
	tick := time.NewTicker(poolBusyInterval)
	defer tick.Stop()
	next := map[engine.QueueKey]time.Time{} // time of the next look, by pool
	for {
		now := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.pools:
			now = true
		}
		pools := f.store.Pools()
		for _, q := range pools {
			if !now && time.Now().Before(next[q.Key()]) {
				continue
			}
			busy, err := f.keepPool(ctx, q)
			if err != nil && ctx.Err() == nil {
				store.Warn(&f.log, err).Str("namespace", q.Namespace).Str("pool", q.PoolOf()).
					Msg("failed to maintain a pool of sessions; retrying")
			}
			interval := poolIdleInterval
			if busy || err != nil {
				interval = poolBusyInterval
			}
			next[q.Key()] = time.Now().Add(interval - poolBusyInterval/2) // so that the look does not miss its tick
		}
		for k := range next {
			if !slices.ContainsFunc(pools, func(q *engine.Queue) bool { return q.Key() == k }) {
				delete(next, k)
			}
		}
	}
}

// poolState is a pool with its members and waiting steps, as read at one time.
type poolState struct {
	*engine.Queue
	now     time.Time
	members []engine.Session
	waiters []store.PoolWaiter
}

// free returns the members that a workflow can borrow now.
func (p *poolState) free() (list []engine.Session) {
	for _, s := range p.members {
		if s.Lendable(p.now) && p.Pool.Fits(&s) {
			list = append(list, s)
		}
	}
	return list
}

// keepPool lends free members to waiting workflows, replaces members and lets workers set members up. busy reports that
// another look is necessary soon.
func (f *Fleet) keepPool(ctx context.Context, q *engine.Queue) (busy bool, err error) {
	p := poolState{Queue: q}
	if p.now, err = f.store.Now(ctx); err != nil {
		return false, err
	}
	if err := f.store.View(ctx, func(r store.Reader) (err error) {
		if p.members, err = r.SessionsByID(ctx, q.Namespace, q.Pool.Members); err != nil {
			return err
		}
		p.waiters, err = r.PoolWaiters(ctx, q.Key(), protocol.MaxPoolSize)
		return err
	}); err != nil {
		return false, err
	}
	lent, err := f.lend(ctx, &p)
	if err != nil {
		return true, err
	}
	changed, err := f.replaceMembers(ctx, &p, lent)
	if err != nil {
		return true, err
	}
	unowned, err := f.warmMembers(ctx, &p)
	return changed || unowned || len(p.waiters) > lent || lent > 0, err
}

// lend lends free members to the first waiting workflows. The decisions are committed concurrently, so that they share
// batches. It returns the number of loans.
func (f *Fleet) lend(ctx context.Context, p *poolState) (lent int, err error) {
	free := p.free()
	n := min(len(free), len(p.waiters))
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { errs[i] = f.lendOne(ctx, p, &free[i], p.waiters[i]) })
	}
	wait.Wait()
	for _, e := range errs {
		switch {
		case e == nil:
			lent++
		case engine.IsNotDue(e) || errors.Is(e, engine.ErrMemberTaken) || protocol.ReasonOf(e) != "":
		default:
			err = errors.Join(err, e)
		}
	}
	return lent, err
}

func (f *Fleet) lendOne(ctx context.Context, p *poolState, s *engine.Session, to store.PoolWaiter) error {
	in := engine.LendMember{Seq: to.Seq, Member: s.ID, Pool: p.Pool}
	needs := store.Keys{
		Runs: []string{to.Run}, Activities: []int64{to.Seq}, Sessions: []engine.SessionKey{s.Key()},
	}
	_, err := f.store.Commit(ctx, store.Transaction{
		Needs: needs,
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			run := rows.Run(to.Run)
			if run == nil {
				return store.Writes{}, transaction.RunNotFound(to.Run)
			}
			a, _ := run.Activities.Get(to.Seq)
			w, _, err := transaction.Decide(rows, run, in, now)
			w.Served = []store.ServedTask{{
				Namespace: p.Namespace, Queue: p.Name, Kind: protocol.KindActivity, Priority: a.Priority, Rank: a.Rank,
			}}
			return w, err
		},
	})
	return err
}

// replaceMembers ends members that cannot be lent any more, removes members that have ended from the row of the pool,
// and adds members that are needed.
func (f *Fleet) replaceMembers(ctx context.Context, p *poolState, justLent int) (changed bool, err error) {
	live, lent := []string{}, justLent
	known := map[string]bool{}
	// If the pool has more members than its size, those without state end first, then free ones, the newest first. All
	// apps use the same order, so that they do not end different members.
	place := func(s *engine.Session) int {
		switch {
		case s.Loan != nil:
			return 0
		case s.EverAcquired:
			return 1
		}
		return 2
	}
	slices.SortFunc(p.members, func(a, b engine.Session) int {
		return cmp.Or(cmp.Compare(place(&a), place(&b)), cmp.Compare(a.ID, b.ID))
	})
	for i := range p.members {
		s := &p.members[i]
		known[s.ID] = true
		switch {
		case s.Terminal:
		case s.Loan != nil:
			lent++
		case !p.Pool.Fits(s), len(live) >= p.Pool.Size:
			f.closeMember(ctx, s, engine.ReasonPoolChanged)
		case s.Broken(p.now), s.Unowned(p.now) && len(s.UnpreparedBy) > 0 && p.now.Sub(s.UpdatedAt.Time) >= memberRetry:
			f.closeMember(ctx, s, engine.ReasonMemberLost)
		}
		if s.Terminal {
			changed = true
			continue
		}
		live = append(live, s.ID)
	}
	changed = changed || len(known) < len(p.Pool.Members) // clean-up removed the rows of others
	changed = changed || p.Pool.Deleted && len(live) == 0 // removes the pool from the row
	want := min(p.Pool.Size, lent+max(p.Pool.Warm, len(p.waiters)-justLent))
	if p.Pool.Deleted {
		want = 0
	}
	if len(live) >= want && !changed {
		return false, nil
	}
	return true, f.setMembers(ctx, p, live, want-len(live))
}

// closeMember ends a member unless a workflow has borrowed it meanwhile. After an error another look tries it again.
func (f *Fleet) closeMember(ctx context.Context, s *engine.Session, why string) {
	if err := f.update(ctx, s, engine.CloseMember{Why: why}); err != nil && ctx.Err() == nil {
		store.Warn(&f.log, err).Str("session_id", s.ID).Msg("failed to end a member of a pool; retrying")
	}
}

// setMembers stores which members of the pool live, and adds members without an owner. If another app has changed the
// list since it was read, nothing changes.
func (f *Fleet) setMembers(ctx context.Context, p *poolState, live []string, more int) error {
	key := p.Key()
	var fresh []engine.SessionKey
	for range more {
		fresh = append(fresh, engine.SessionKey{
			Namespace: p.Namespace, ID: fmt.Sprintf("pool.%s.%s", p.PoolOf(), ulid.Make()),
		})
	}
	all := slices.Clone(live)
	for _, k := range fresh {
		all = append(all, k.ID)
	}
	_, err := f.store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Queues: []engine.QueueKey{key}, Sessions: fresh},
		Decide: func(rows store.Rows, now time.Time) (out store.Writes, err error) {
			row := rows.Queue(key)
			if row == nil || row.Pool == nil || !slices.Equal(row.Pool.Members, p.Pool.Members) ||
				row.Pool.Deleted != p.Pool.Deleted {
				return out, errPoolChanged
			}
			next, err := engine.DecideQueue(row, key, engine.SetMembers{Members: all}, now)
			if err != nil {
				return out, err
			}
			out.Queues = []engine.Queue{next}
			for _, k := range fresh {
				c, err := engine.DecideSession(
					rows.Session(k), engine.CreateMember{Key: k, Name: p.PoolOf(), Pool: next.Pool}, now,
				)
				if err != nil {
					return out, err
				}
				out.Sessions = append(out.Sessions, c)
			}
			return out, nil
		},
	})
	if errors.Is(err, errPoolChanged) {
		return nil
	}
	if err == nil && len(fresh) > 0 {
		f.PoolsChanged() // workers set them up
	}
	return err
}

var errPoolChanged = errors.New("another app has changed the members of the pool")

// warmMembers chooses workers that set members without an owner up. It reports whether such members remain.
func (f *Fleet) warmMembers(ctx context.Context, p *poolState) (unowned bool, err error) {
	var cold []*engine.Session
	for i := range p.members {
		if s := &p.members[i]; s.Unowned(p.now) && p.Pool.Fits(s) {
			cold = append(cold, s)
		}
	}
	if len(cold) == 0 {
		return slices.ContainsFunc(p.members, func(s engine.Session) bool { return !s.EverAcquired && !s.Terminal }), nil
	}
	c, err := f.candidates(ctx, p.Namespace)
	if err != nil {
		return true, err
	}
	c.owner = &engine.Worker{Namespace: p.Namespace}
	for _, s := range cold {
		w := c.warmest(s)
		if w == nil {
			continue
		}
		done, err := f.warm(ctx, s, w)
		if err != nil {
			return true, err
		}
		if done {
			c.reserve(s, w)
		}
	}
	return true, nil
}

// warmest returns the worker that sets a member of a pool up: of those with a place, the resources and a free set-up,
// the one with the most resources free, then with the most places; nil: there is none.
func (c *candidates) warmest(s *engine.Session) (best *engine.Worker) {
	better := func(w, than *engine.Worker) bool {
		a, b := c.lessee(w), c.lessee(than)
		if x, y := s.ShareAfter(&a), s.ShareAfter(&b); x != y {
			return x > y
		}
		return cmp.Or(cmp.Compare(c.room(w), c.room(than)), cmp.Compare(than.ID, w.ID)) > 0
	}
	for _, h := range c.known {
		w := h.Worker
		if c.available(&h) && c.alive(&h) && s.WarmsAt(w) && c.room(w) > 0 && c.freeSetUp(w) &&
			s.FitsAt(w, c.used(w)) && !c.withheld(s, w) && (best == nil || better(w, best)) {
			best = w
		}
	}
	return best
}

// warm reserves a place for a member at a worker, which sets it up. It returns false if the member or the worker has
// changed so that it cannot.
func (f *Fleet) warm(ctx context.Context, s *engine.Session, w *engine.Worker) (bool, error) {
	key, sk := w.Key(), s.Key()
	_, err := f.store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Workers: []engine.WorkerKey{key}, Sessions: []engine.SessionKey{sk}, Holdings: true},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			row := rows.Worker(key)
			if row == nil || !row.DeregisteredAt.IsZero() || row.Incarnation != w.Incarnation {
				return store.Writes{}, transaction.StaleWorker(key.ID)
			}
			c, err := engine.DecideSession(rows.Session(sk), engine.WarmMember{Lessee: engine.Lessee{
				Worker: row, Sessions: rows.Holding(key, sk, now), Counted: true, Used: rows.Used(row, now),
			}}, now)
			return store.Writes{Sessions: []engine.SessionChange{c}}, err
		},
	})
	if err != nil && (engine.IsNotDue(err) || protocol.ReasonOf(err) != "") {
		return false, nil
	}
	return err == nil, err
}
