// Package evict releases the session that has been idle the longest when every worker that could acquire a waiting
// session is full. The engine decides under row locks whether a session may be released; this package decides when to
// search and which session to try first.
package evict

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A new session waits while every live worker that may acquire it is at its session limit. Claims report these workers.
// When a task has waited for evictAfter, the longest idle session at one of the workers is evicted.
const (
	// wait of a task before a session is evicted for it, and interval between two evictions at a worker
	evictAfter      = time.Second
	releaseTimeout  = time.Second // time that a notified holder has to release the session
	maxWaitingTasks = 32          // waiting tasks of a route that one search reads
	maxCandidates   = 3           // sessions of a worker that one search tries
	maxExactReads   = 64          // sessions of a worker whose exact last activity one search reads
)

// searchTimeout is the maximum duration of one search.
const searchTimeout = 30 * time.Second

// Evictor collects the workers at their session limit that claims reported. It searches for waiting sessions only after
// such a report, and stops once no session waits.
type Evictor struct {
	store    store.Store
	dispatch *dispatch.Dispatch
	workers  *membership.Workers
	drains   func() bool // whether the app does
	log      zerolog.Logger

	life     context.Context // context of the searches; ends with Close
	end      context.CancelCauseFunc
	searches sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	full      map[engine.WorkerKey]map[string]bool
	timer     *time.Timer // timer of the next search; nil: none is scheduled
	at        time.Time   // time of the next search
	searching bool
	closed    bool
	asked     map[engine.SessionKey]chan struct{} // by session: closed when the notified owner releases it
	notify    func(namespace, worker string, n protocol.SessionNotice) bool

	// waits holds the sessions whose wait for a place was reported, with the time of the last search that found them
	// waiting. Only searches use it, and at most one runs at a time.
	waits     map[engine.SessionKey]time.Time
	countWait func() // counts a session that has waited for a place for engine.StuckPlace; nil: no counter
}

// New returns the evictor of an app with its workers.
func New(
	s store.Store, d *dispatch.Dispatch, w *membership.Workers, drains func() bool, waited func(), log zerolog.Logger,
) *Evictor {
	e := &Evictor{
		store: s, dispatch: d, workers: w, drains: drains, log: log, countWait: waited,
		waits: map[engine.SessionKey]time.Time{},
	}
	e.life, e.end = context.WithCancelCause(context.Background())
	return e
}

// SetNotifier sets the function that requests an owner to release one of its sessions. The function reports whether the
// owner is connected; if not, the evictor releases the session.
func (e *Evictor) SetNotifier(notify func(namespace, worker string, n protocol.SessionNotice) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notify = notify
}

// AtLimit records that a worker at its maximum of sessions did not receive the tasks that wait on these routes. The
// committer calls it, so it must not block.
func (e *Evictor) AtLimit(w engine.WorkerKey, routes []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := make(map[string]bool, len(routes))
	for _, one := range routes {
		seen[one] = true
	}
	// Wait before the search: if a session ends meanwhile, none has to be evicted.
	e.scheduleSearch(map[engine.WorkerKey]map[string]bool{w: seen}, time.Now().Add(evictAfter))
}

// scheduleSearch schedules a search for these workers, at the latest at at. The caller holds mu.
func (e *Evictor) scheduleSearch(full map[engine.WorkerKey]map[string]bool, at time.Time) {
	if e.full == nil {
		e.full = map[engine.WorkerKey]map[string]bool{}
	}
	for w, routes := range full {
		if e.full[w] == nil {
			e.full[w] = map[string]bool{}
		}
		maps.Copy(e.full[w], routes)
	}
	if e.closed || e.searching || e.timer != nil && !at.Before(e.at) { // a running search schedules the next one
		return
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(at), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.closed || e.timer != timer {
			return
		}
		full := e.full
		e.full, e.timer, e.searching = nil, nil, true
		e.searches.Go(func() {
			ctx, cancel := context.WithTimeout(e.life, searchTimeout)
			defer cancel()
			e.search(ctx, full)
		})
	})
	e.timer, e.at = timer, at
}

// Close stops the searches and waits for the running search.
func (e *Evictor) Close() {
	e.mu.Lock()
	e.closed = true
	if e.timer != nil {
		e.timer.Stop()
	}
	e.mu.Unlock()
	e.end(store.ErrClosed)
	e.searches.Wait()
}

// search runs one search for all full workers and schedules the next search.
func (e *Evictor) search(ctx context.Context, full map[engine.WorkerKey]map[string]bool) {
	byNamespace := map[string]map[engine.WorkerKey]map[string]bool{}
	for k, routes := range full {
		if byNamespace[k.Namespace] == nil {
			byNamespace[k.Namespace] = map[engine.WorkerKey]map[string]bool{}
		}
		byNamespace[k.Namespace][k] = routes
	}
	next := time.Duration(0)
	for ns, here := range byNamespace {
		after, err := e.evictFor(ctx, ns, here)
		if err != nil {
			if ctx.Err() == nil {
				store.Warn(&e.log, err).Str("namespace", ns).Msg("failed to release an idle session for a waiting one; retrying")
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
	e.mu.Lock()
	defer e.mu.Unlock()
	e.searching = false
	if len(e.full) > 0 { // reported by claims meanwhile
		e.scheduleSearch(nil, time.Now().Add(evictAfter))
	}
	if next > 0 {
		e.scheduleSearch(full, time.Now().Add(next))
	}
}

// evictFor evicts a session at each of these workers that a session waits for. after is the time until the next useful
// search; 0: no session waits.
func (e *Evictor) evictFor(
	ctx context.Context, ns string, full map[engine.WorkerKey]map[string]bool,
) (after time.Duration, err error) {
	now, err := e.store.Now(ctx)
	if err != nil || e.drains() {
		return 0, err
	}
	soonest := func(d time.Duration) {
		if d = max(d, time.Millisecond); after == 0 || d < after {
			after = d
		}
	}
	var wanting []blocked
	idle := map[engine.WorkerKey][]engine.Session{}
	marked := map[engine.WorkerKey]int{}
	err = e.store.View(ctx, func(r store.Reader) error {
		if wanting, err = e.blockedWorkers(ctx, r, ns, full, now, soonest); err != nil {
			return err
		}
		for i := range wanting {
			for _, k := range wanting[i].workers {
				lacking := wanting[i].lacking[k]
				if _, known := idle[k]; known && lacking == nil {
					continue
				}
				found, leaving, err := evictable(ctx, r, k, lacking, now, soonest)
				if err != nil {
					return err
				}
				if marked[k] = leaving; lacking == nil {
					idle[k] = found
				} else {
					wanting[i].idle = append(wanting[i].idle, found...)
				}
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, waits := range wanting {
		// The lease of a session that is marked for eviction ends soon, which makes room for this session.
		if i := slices.IndexFunc(waits.workers, func(k engine.WorkerKey) bool { return marked[k] > 0 }); i >= 0 {
			marked[waits.workers[i]]--
			continue
		}
		// One for each session that waits. Evicting more at a time could empty workers for tasks that the next commit
		// cancels.
		gone, err := e.evictLongestIdle(ctx, &waits, idle, soonest)
		if err != nil {
			return 0, err
		}
		if gone {
			soonest(evictAfter) // search again for the other waiting sessions
		}
	}
	return after, nil
}

// blocked is a session that waits for a place or resources at full workers.
type blocked struct {
	session engine.Session
	workers []engine.WorkerKey
	// lacking are the amounts that must become free, by the workers that lack resources.
	lacking map[engine.WorkerKey]engine.Amounts
	idle    []engine.Session // idle sessions at those workers that use a lacking resource
}

// evictLongestIdle evicts the longest idle session of the full workers. A worker whose session was evicted is skipped
// for the rest of the search.
func (e *Evictor) evictLongestIdle(
	ctx context.Context, waits *blocked, idle map[engine.WorkerKey][]engine.Session, soonest func(time.Duration),
) (bool, error) {
	all := waits.idle
	for _, k := range waits.workers {
		if waits.lacking[k] == nil {
			all = append(all, idle[k]...)
		}
	}
	slices.SortFunc(all, longestIdle)
	for i := range all {
		gone, left, err := e.evictSession(ctx, &all[i], &waits.session)
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

// longestIdle sorts the session first that is least likely to be used soon, by its last activity; ties are broken by
// ID.
func longestIdle(x, y engine.Session) int {
	return cmp.Or(x.LastActivity.Compare(y.LastActivity.Time), cmp.Compare(x.ID, y.ID))
}

// blockedWorkers returns, for each session that has waited long enough for room, the full workers that could acquire
// the session if they had room. If a live worker has room for a session, no other session is evicted for it.
func (e *Evictor) blockedWorkers(
	ctx context.Context, r store.Reader, ns string, full map[engine.WorkerKey]map[string]bool, now time.Time,
	soonest func(time.Duration),
) ([]blocked, error) {
	routes := map[string]bool{}
	for _, seen := range full {
		maps.Copy(routes, seen)
	}
	waiting, err := r.ReadyOn(ctx, ns, slices.Sorted(maps.Keys(routes)), maxWaitingTasks)
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	known, err := e.workers.Roster(ctx, r, ns)
	if err != nil {
		return nil, err
	}
	held, err := r.Holdings(ctx, ns)
	if err != nil {
		return nil, err
	}
	soonest(engine.YieldIdle) // if no session can be evicted now, search again after this time
	var list []blocked
	seen := map[string]bool{}
	for i := range waiting {
		a := &waiting[i]
		if seen[a.SessionID] {
			continue
		}
		seen[a.SessionID] = true
		waited := now.Sub(a.ReadyAt.Time)
		if waited < evictAfter {
			soonest(evictAfter - waited)
			continue
		}
		s, err := r.Session(ctx, engine.SessionKey{Namespace: ns, ID: a.SessionID})
		if errors.Is(err, store.ErrNotFound) {
			continue
		} else if err != nil {
			return nil, err
		}
		workers, lacking := e.fullWorkers(known, held, a, &s, now)
		if len(workers) > 0 {
			if waited < engine.StuckPlace {
				soonest(engine.StuckPlace - waited)
			} else {
				e.report(a, s.Key(), waited, workers)
			}
		}
		workers = slices.DeleteFunc(workers, func(k engine.WorkerKey) bool { return full[k] == nil })
		if len(workers) > 0 {
			list = append(list, blocked{session: s, workers: workers, lacking: lacking})
		}
	}
	return list, nil
}

// fullWorkers lists the live workers that could acquire a session if they had room for another one; none if one of them
// has room.
func (e *Evictor) fullWorkers(
	known membership.Roster, held map[string]store.Holding, a *engine.Activity, s *engine.Session, now time.Time,
) (list []engine.WorkerKey, lacking map[engine.WorkerKey]engine.Amounts) {
	want := engine.TaskRequirements{
		Kind: protocol.KindActivity, Type: a.Type, Requirements: a.Requirements, Session: s,
		Queue: e.store.Queue(engine.QueueKey{Namespace: s.Namespace, Name: a.Queue}),
	}
	for k, h := range known {
		if !h.Worker.Serves(a.Queue) || h.Gate != "" || e.workers.Stopped(&h) || !e.workers.Alive(h, now) {
			continue
		}
		used := held[k.ID].UsedAt(h.Worker)
		v := engine.Admit(want, engine.Lessee{
			Worker: h.Worker, Sessions: held[k.ID].Sessions, Counted: true, Used: used,
		}, now)
		if v.OK {
			return nil, nil
		}
		if v.Reason == protocol.ReasonSessionLimit && h.Worker.MaxSessions > 0 {
			list = append(list, k)
			if lacking == nil {
				lacking = map[engine.WorkerKey]engine.Amounts{}
			}
			lacking[k] = s.Lacking(h.Worker, used)
		}
	}
	return list, lacking
}

// report logs and counts the wait of a session for a place. It does so once per wait.
func (e *Evictor) report(a *engine.Activity, k engine.SessionKey, waited time.Duration, workers []engine.WorkerKey) {
	at := time.Now()
	maps.DeleteFunc(e.waits, func(_ engine.SessionKey, last time.Time) bool { return at.Sub(last) > time.Minute })
	_, reported := e.waits[k]
	if e.waits[k] = at; reported {
		return
	}
	if e.countWait != nil {
		e.countWait()
	}
	e.log.Warn().Str("namespace", k.Namespace).Str("session_id", k.ID).Str("run_id", a.RunID).
		Str("activity_type", a.Type).Str("task_queue", a.Queue).Float64("waited_seconds", waited.Seconds()).
		Int("workers", len(workers)).Str("worker_id", workers[0].ID).
		Msg(
			"task waits for a session place: all live workers that may acquire the session hold their maximum number of " +
				"sessions or lack resources",
		)
}

// evictable returns up to maxCandidates sessions of a worker that may be evicted now, the longest idle first. soonest
// receives the time until the next session may be evicted. marked is the number of sessions that will be evicted when
// their leases end. If the worker lacks resources, only sessions that use them count, and none if evicting all of them
// would not free enough.
func evictable(
	ctx context.Context, r store.Reader, k engine.WorkerKey, lacking engine.Amounts, now time.Time,
	soonest func(time.Duration),
) (list []engine.Session, marked int, err error) {
	all, err := r.Sessions(ctx, store.SessionQuery{
		Namespace: k.Namespace, Owner: k.ID, Statuses: []protocol.SessionStatus{protocol.SessionActive}, Limit: 10_000,
	})
	if err != nil {
		return nil, 0, err
	}
	if lacking != nil {
		var freed engine.Amounts
		all = slices.DeleteFunc(all, func(s engine.Session) bool {
			_, yields := s.YieldsAt()
			if !yields || !s.Held(now) || !s.Uses(lacking) {
				return true
			}
			freed.Add(s.Used, 1)
			return false
		})
		if !freed.Covers(lacking) {
			return nil, 0, nil
		}
	}
	slices.SortFunc(all, longestIdle)
	for i := range all {
		if all[i].Yielding && all[i].Held(now) {
			marked++
		}
	}
	exact := 0
	for _, s := range all {
		at, ok := s.YieldsAt()
		if !ok || s.Yielding || !s.Held(now) {
			continue
		}
		// The last activity in a row may lag behind the exact time but is never ahead of it. So the following sessions
		// have been idle for at most as long as this row shows.
		switch {
		case at.After(now):
			soonest(at.Sub(now))
			return list, marked, nil
		case len(list) == maxCandidates && s.LastActivity.After(list[maxCandidates-1].LastActivity.Time):
			return list, marked, nil
		case exact == maxExactReads:
			soonest(evictAfter)
			return list, marked, nil
		}
		exact++
		tasks, err := r.SessionTasks(ctx, s.Key(), 1) // a task that waits for its back-off also counts
		if err != nil {
			return nil, 0, err
		}
		if len(tasks) > 0 {
			continue
		}
		if s.LastActivity, err = r.LastActivity(ctx, &s); err != nil {
			return nil, 0, err
		}
		if at, _ = s.YieldsAt(); at.After(now) {
			soonest(at.Sub(now))
			continue
		}
		list = append(list, s)
		slices.SortFunc(list, longestIdle)
		list = list[:min(len(list), maxCandidates)]
	}
	return list, marked, nil
}

// evictSession evicts a session from its owner. It first asks the owner to release the session. If the owner is not
// connected or does not release it in time, evictSession releases the session itself. If the session may not be evicted
// after all, left is the remaining idle time that it needs.
func (e *Evictor) evictSession(
	ctx context.Context, s, waits *engine.Session,
) (gone bool, left time.Duration, err error) {
	// Check without a change first: a notice cannot be withdrawn, so an owner must not be asked for a session that may
	// stay.
	v, err := e.checkEviction(ctx, s, waits, false)
	if err != nil || !v.due {
		return false, v.left, err
	}
	given := make(chan struct{})
	e.mu.Lock()
	if e.asked == nil {
		e.asked = map[engine.SessionKey]chan struct{}{}
	}
	e.asked[s.Key()] = given
	notify := e.notify
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.asked, s.Key())
	}()
	notice := protocol.SessionNotice{SessionID: s.ID, Epoch: s.Epoch, Reason: engine.ReasonEvictedCap}
	if notify != nil && notify(s.Namespace, s.Owner, notice) {
		late := time.NewTimer(releaseTimeout)
		defer late.Stop()
		select {
		case <-given:
			return true, 0, nil
		case <-late.C:
		case <-ctx.Done():
			return false, 0, ctx.Err()
		}
	}
	v, err = e.checkEviction(ctx, s, waits, true)
	return v.due, v.left, err
}

// Released reports that an owner released a session.
func (e *Evictor) Released(k engine.SessionKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if given := e.asked[k]; given != nil {
		close(given)
		delete(e.asked, k)
	}
}

// evictionCheck reports whether a session may be evicted; left is the remaining idle time, if only that is missing.
type evictionCheck struct {
	due    bool
	left   time.Duration
	change engine.SessionChange
}

// checkEviction decides from the locked rows whether a session may be evicted for one that waits, and evicts it if
// reserve is set.
func (e *Evictor) checkEviction(ctx context.Context, s, waits *engine.Session, reserve bool) (evictionCheck, error) {
	key, owner := s.Key(), engine.WorkerKey{Namespace: s.Namespace, ID: s.Owner}
	v, err := transaction.Commit[evictionCheck](ctx, e.store, store.Transaction{
		Needs: store.Keys{
			Sessions: []engine.SessionKey{key}, RecentActivity: true, ExactActivity: true,
			Workers: []engine.WorkerKey{owner}, Holdings: true,
		},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			row, w := rows.Session(key), rows.Worker(owner)
			if row == nil || w == nil {
				return store.Writes{Answer: evictionCheck{}}, nil
			}
			lacking := waits.Lacking(w, rows.Used(w, now))
			c, err := engine.DecideSession(row, engine.YieldSession{
				Short:         lacking != nil && row.Uses(lacking),
				SessionHolder: engine.SessionHolder{Worker: s.Owner, Epoch: s.Epoch}, Held: rows.Holding(owner, key, now) + 1,
				Limit: w.MaxSessions,
			}, now)
			if engine.IsNotDue(err) {
				v := evictionCheck{}
				if at, ok := row.YieldsAt(); ok && at.After(now) {
					v.left = at.Sub(now)
				}
				return store.Writes{Answer: v}, nil
			}
			if err != nil || !reserve {
				return store.Writes{Answer: evictionCheck{due: true}}, err
			}
			return store.Writes{Sessions: []engine.SessionChange{c}, Answer: evictionCheck{due: true, change: c}}, nil
		},
	})
	if err == nil && reserve && v.due {
		transaction.Recheck(e.dispatch, transaction.FreedOwners([]engine.SessionChange{v.change}))
	}
	return v, err
}
