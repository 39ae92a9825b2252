package broker

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/presence"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A new session waits while every worker that may have it holds as many as it may. Claims tell which workers were shown
// less for that; when a task has waited for long enough, the mere id that has been idle for longest at one of them
// gives way to it.
const (
	// how long a task waits for room before a session gives way, and between two that give way at a worker
	roomAfter   = time.Second
	roomAnswer  = time.Second // how long a holder that was told has for giving the session up by itself
	roomWaiting = 32          // how many waiting tasks of a route one look sees
	roomTries   = 3           // how many sessions of a worker one look tries
)

// room is what the broker knows of workers at their cap. It looks for something only after a claim has told of
// such a worker, and stops once nothing waits.
type room struct {
	mu      sync.Mutex // guards what follows
	full    map[engine.WorkerKey]map[string]bool
	timer   *time.Timer // of the next look; nil: none is due
	at      time.Time   // when that is
	looking bool
	closed  bool
	told    map[engine.SessionKey]chan struct{} // sessions whose holders were told; closed when one gave its session up
	tell    func(namespace, worker string, n protocol.SessionNotice) bool
}

// TellsToYield gives the broker the way to tell a holder that one of its sessions is to give way; tell says
// whether there was anybody to tell. If there is not, the session is taken from its holder.
func (b *Broker) TellsToYield(tell func(namespace, worker string, n protocol.SessionNotice) bool) {
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	b.room.tell = tell
}

// full notes that a worker at its cap was not shown what waits on these routes. The committer calls it, so it must not
// block.
func (b *Broker) full(w engine.WorkerKey, routes []string) {
	r := &b.room
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := make(map[string]bool, len(routes))
	for _, one := range routes {
		seen[one] = true
	}
	// Not at once: a session may end by itself meanwhile, and then none has to give way.
	b.lookAgain(map[engine.WorkerKey]map[string]bool{w: seen}, time.Now().Add(roomAfter))
}

// lookAgain has these workers looked at no later than at; mu is held.
func (b *Broker) lookAgain(full map[engine.WorkerKey]map[string]bool, at time.Time) {
	r := &b.room
	if r.full == nil {
		r.full = map[engine.WorkerKey]map[string]bool{}
	}
	for w, routes := range full {
		if r.full[w] == nil {
			r.full[w] = map[string]bool{}
		}
		maps.Copy(r.full[w], routes)
	}
	if r.closed || r.looking || r.timer != nil && !at.Before(r.at) { // a look that is under way sees to the next
		return
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(at), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.closed || r.timer != timer {
			return
		}
		full := r.full
		r.full, r.timer, r.looking = nil, nil, true
		b.async(func(ctx context.Context) { b.lookForRoom(ctx, full) })
	})
	r.timer, r.at = timer, at
}

// closeRoom ends the looking.
func (b *Broker) closeRoom() {
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	b.room.closed = true
	if b.room.timer != nil {
		b.room.timer.Stop()
	}
}

// lookForRoom looks once for all workers that were found full, and sees to the next look.
func (b *Broker) lookForRoom(ctx context.Context, full map[engine.WorkerKey]map[string]bool) {
	byNamespace := map[string]map[engine.WorkerKey]map[string]bool{}
	for k, routes := range full {
		if byNamespace[k.Namespace] == nil {
			byNamespace[k.Namespace] = map[engine.WorkerKey]map[string]bool{}
		}
		byNamespace[k.Namespace][k] = routes
	}
	next := time.Duration(0)
	for ns, here := range byNamespace {
		after, err := b.makeRoom(ctx, ns, here)
		if err != nil {
			if ctx.Err() == nil {
				b.log.Warn().Err(err).Str("namespace", ns).Msg("no room made for waiting sessions; trying again")
			}
			after = engine.YieldIdle
		}
		if after == 0 {
			for k := range here {
				delete(full, k)
			}
		} else if next == 0 || after < next {
			next = after
		}
	}
	r := &b.room
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looking = false
	if len(r.full) > 0 { // claims that told of others meanwhile
		b.lookAgain(nil, time.Now().Add(roomAfter))
	}
	if next > 0 {
		b.lookAgain(full, time.Now().Add(next))
	}
}

// makeRoom has a session give way at each of these workers that something waits for. after is when it is worth another
// look; 0: nothing waits.
func (b *Broker) makeRoom(
	ctx context.Context, ns string, full map[engine.WorkerKey]map[string]bool,
) (after time.Duration, err error) {
	now, err := b.store.Now(ctx)
	if err != nil || b.isDraining() {
		return 0, err
	}
	soonest := func(d time.Duration) {
		if d = max(d, time.Millisecond); after == 0 || d < after {
			after = d
		}
	}
	var wanting [][]engine.WorkerKey
	idle := map[engine.WorkerKey][]engine.Session{}
	err = b.store.View(ctx, func(r store.Reader) error {
		if wanting, err = b.wanting(ctx, r, ns, full, now, soonest); err != nil {
			return err
		}
		for _, workers := range wanting {
			for _, k := range workers {
				if _, known := idle[k]; known {
					continue
				}
				if idle[k], err = idlest(ctx, r, k, now, soonest); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, workers := range wanting {
		// One for each session that waits. More at a time would empty workers for a need that the next commit may
		// end.
		gone, err := b.giveOne(ctx, workers, idle, soonest)
		if err != nil {
			return 0, err
		}
		if gone {
			soonest(roomAfter) // for what else waits
		}
	}
	return after, nil
}

// giveOne has the session that has been idle for longest at any of these workers give way. A worker of which one did is
// not asked again in this look.
func (b *Broker) giveOne(
	ctx context.Context, workers []engine.WorkerKey, idle map[engine.WorkerKey][]engine.Session,
	soonest func(time.Duration),
) (bool, error) {
	var all []engine.Session
	for _, k := range workers {
		all = append(all, idle[k]...)
	}
	slices.SortFunc(all, longestIdle)
	for i := range all {
		gone, left, err := b.giveWay(ctx, &all[i])
		if gone {
			delete(idle, engine.WorkerKey{Namespace: all[i].Namespace, ID: all[i].Owner})
		}
		if gone || err != nil {
			return gone, err
		}
		if left > 0 {
			soonest(left)
		}
	}
	return false, nil
}

// The one least likely to be used again soon, as far as anybody can tell; equal ones in an order that is the same
// each time.
func longestIdle(x, y engine.Session) int {
	return cmp.Or(x.LastActivity.Compare(y.LastActivity.Time), cmp.Compare(x.ID, y.ID))
}

// wanting lists, for each session that has waited for room for long enough, those of the workers found full
// that could have it if they had room. While some living worker has room for a session, nobody gives way for
// it.
func (b *Broker) wanting(
	ctx context.Context, r store.Reader, ns string, full map[engine.WorkerKey]map[string]bool, now time.Time,
	soonest func(time.Duration),
) ([][]engine.WorkerKey, error) {
	routes := map[string]bool{}
	for _, seen := range full {
		maps.Copy(routes, seen)
	}
	waiting, err := r.ReadyOn(ctx, ns, slices.Sorted(maps.Keys(routes)), roomWaiting)
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	known, err := b.workers.Roster(ctx, r, ns)
	if err != nil {
		return nil, err
	}
	held, err := r.Holdings(ctx, ns)
	if err != nil {
		return nil, err
	}
	soonest(engine.YieldIdle) // whatever is found now, that is when it may be otherwise
	var list [][]engine.WorkerKey
	seen := map[string]bool{}
	for i := range waiting {
		a := &waiting[i]
		if seen[a.SessionID] {
			continue
		}
		seen[a.SessionID] = true
		if left := roomAfter - now.Sub(a.ReadyAt.Time); left > 0 {
			soonest(left)
			continue
		}
		s, err := r.Session(ctx, engine.SessionKey{Namespace: ns, ID: a.SessionID})
		if errors.Is(err, store.ErrNotFound) {
			continue
		} else if err != nil {
			return nil, err
		}
		workers := slices.DeleteFunc(b.crowded(known, held, a, &s, now), func(k engine.WorkerKey) bool {
			return full[k] == nil
		})
		if len(workers) > 0 {
			list = append(list, workers)
		}
	}
	return list, nil
}

// crowded lists the live workers that could have a session if they had room for another; none if one of them has.
func (b *Broker) crowded(
	known presence.Roster, held map[string]store.Holding, a *engine.Activity, s *engine.Session, now time.Time,
) (list []engine.WorkerKey) {
	want := engine.Wanted{
		Kind: protocol.KindActivity, Type: a.Type, Requirements: a.Requirements, Session: s,
		Queue: b.store.Queue(engine.QueueKey{Namespace: s.Namespace, Name: a.Queue}),
	}
	for k, h := range known {
		if !h.Worker.Serves(a.Queue) || h.Gate != "" || b.workers.Stopped(&h) || !b.workers.Alive(h, now) {
			continue
		}
		v := engine.Admit(want, engine.Lessee{Worker: h.Worker, Sessions: held[k.ID].Sessions, Counted: true}, now)
		if v.OK {
			return nil
		}
		if v.Reason == protocol.ReasonSessionLimit && h.Worker.MaxSessions > 0 {
			list = append(list, k)
		}
	}
	return list
}

// idlest lists the few sessions of a worker that may give way now, as far as their rows tell, the one that has been
// idle for longest first. soonest hears when others may.
func idlest(
	ctx context.Context, r store.Reader, k engine.WorkerKey, now time.Time, soonest func(time.Duration),
) ([]engine.Session, error) {
	all, err := r.Sessions(ctx, store.SessionQuery{
		Namespace: k.Namespace, Owner: k.ID, Statuses: []protocol.SessionStatus{protocol.SessionActive}, Limit: 10_000,
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, longestIdle)
	var list []engine.Session
	for _, s := range all {
		at, ok := s.YieldsAt()
		switch {
		case !ok || !s.Held(now):
			continue
		// They are sorted by how long they have been idle, so all that follow may give way later still.
		case at.After(now):
			soonest(at.Sub(now))
			return list, nil
		}
		tasks, err := r.SessionTasks(ctx, s.Key(), 1) // one that waits for its back-off is queued, too
		if err != nil {
			return nil, err
		}
		if len(tasks) > 0 {
			continue
		}
		if list = append(list, s); len(list) == roomTries {
			break
		}
	}
	return list, nil
}

// giveWay has the holder of a session give it up. It is told first, so that it does so itself; one that cannot be told,
// or does not do it, loses the session. When the session may not give way after all, left says how much longer it has
// to be idle.
func (b *Broker) giveWay(ctx context.Context, s *engine.Session) (gone bool, left time.Duration, err error) {
	// Asked first, and nothing taken: a notice is not to be called back, so a session that may stay is not told to
	// go.
	v, err := b.yield(ctx, s, false)
	if err != nil || !v.due {
		return false, v.left, err
	}
	r := &b.room
	given := make(chan struct{})
	r.mu.Lock()
	if r.told == nil {
		r.told = map[engine.SessionKey]chan struct{}{}
	}
	r.told[s.Key()] = given
	tell := r.tell
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.told, s.Key())
	}()
	if tell != nil &&
		tell(s.Namespace, s.Owner, protocol.SessionNotice{SessionID: s.ID, Epoch: s.Epoch, Reason: engine.ReasonEvictedCap}) {
		late := time.NewTimer(roomAnswer)
		defer late.Stop()
		select {
		case <-given:
			return true, 0, nil
		case <-late.C:
		case <-ctx.Done():
			return false, 0, ctx.Err()
		}
	}
	v, err = b.yield(ctx, s, true)
	return v.due, v.left, err
}

// gaveWay notes that a holder gave a session up.
func (b *Broker) gaveWay(k engine.SessionKey) {
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	if given := b.room.told[k]; given != nil {
		close(given)
		delete(b.room.told, k)
	}
}

// yielding is whether a session may give way; left, if it only has to be idle for longer, is for how long.
type yielding struct {
	due    bool
	left   time.Duration
	change engine.SessionChange
}

// yield judges by the rows, under their locks, whether a session gives way, and with take has it done so.
func (b *Broker) yield(ctx context.Context, s *engine.Session, take bool) (yielding, error) {
	key, owner := s.Key(), engine.WorkerKey{Namespace: s.Namespace, ID: s.Owner}
	v, err := change.Commit[yielding](ctx, b.store, store.Change{
		Needs: store.Keys{
			Sessions: []engine.SessionKey{key}, Lately: true, Exactly: true, Workers: []engine.WorkerKey{owner}, Holdings: true,
		},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			row, w := rows.Session(key), rows.Worker(owner)
			if row == nil || w == nil {
				return store.Writes{Answer: yielding{}}, nil
			}
			c, err := engine.DecideSession(row, engine.YieldSession{
				SessionHolder: engine.SessionHolder{Worker: s.Owner, Epoch: s.Epoch}, Held: rows.Holding(owner, key, now) + 1,
				Most: w.MaxSessions,
			}, now)
			if engine.IsNotDue(err) {
				v := yielding{}
				if at, ok := row.YieldsAt(); ok && at.After(now) {
					v.left = at.Sub(now)
				}
				return store.Writes{Answer: v}, nil
			}
			if err != nil || !take {
				return store.Writes{Answer: yielding{due: true}}, err
			}
			return store.Writes{Sessions: []engine.SessionChange{c}, Answer: yielding{due: true, change: c}}, nil
		},
	})
	if err == nil && take && v.due {
		change.Recheck(b.dispatch, change.FreedBy([]engine.SessionChange{v.change}))
	}
	return v, err
}
