package sqldb

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A claim leases tasks that were not dispatched when they became ready. It runs in a batch like any transaction, so it
// is ordered with the decisions that create tasks. On a shared database it never waits for a lock, since several apps
// claim from the same queues.

// maxLeases is the maximum number of tasks of one claim: a batch with thousands of leases would delay all others.
const maxLeases = 256

// pick is a ready task that a claim read and may lease.
type pick struct {
	taskKey
	priority, rank, readyAt int64
	version                 int64 // version of its run's row, on a shared database
	activity                *engine.Activity
	suspect                 *engine.Suspicion // for a task with a routing key of suspects
}

// leaseTasks leases ready tasks to the polls of p: by priority, then oldest first, each to the first poll that may have
// it. It reads only the index ranges of tasks that these workers can run. On a shared database it skips locked rows and
// never waits for a lock. The app that holds the lock either leases the skipped task or reports it again. Because that
// app may have died or be paused, the queue is also claimed again later (see recordSkipped).
func (b *batch) leaseTasks(p *pending) error {
	select {
	case <-p.callerGone:
		return nil
	default:
	}
	r := p.lease
	q := QueueKey{r.Namespace, r.Queue, r.Kind}
	if err := b.refreshRoutingKeys(); err != nil {
		return err
	}
	for i := range r.Pollers { // a worker that deregistered since its poll, or deregisters in this batch, gets no task
		if p := &r.Pollers[i]; p.Deregistered != nil && p.Deregistered.Load() || b.deregisters(p.Lessee.Worker) ||
			b.isolates(processOf(p.Lessee.Worker)) {
			p.Max = 0
		}
	}
	// Count the sessions first: which sessions a worker may acquire determines which ranges must be read.
	held, open, err := b.holdings(q, r.Pollers)
	if err != nil {
		return err
	}
	room, bytes := make([]int, len(r.Pollers)), store.NewBudgets(r.Pollers)
	total := 0
	for i, poller := range r.Pollers {
		room[i] = max(0, poller.Max)
		total += room[i]
	}
	total = min(total, maxLeases)
	if total == 0 {
		return nil
	}
	budget, bound, err := b.budget(q)
	if err != nil {
		return err
	}
	settings := b.Queue(engine.QueueKey{Namespace: q.Namespace, Name: q.Queue})
	// one more than needed, to find out whether any remains
	routes, suspects := b.routesToRead(q, r.Pollers, held, open, settings)
	picks, err := b.readPicks(q, routes, min(total, budget)+1)
	if err != nil {
		return err
	}
	holds, some, err := b.suspects(q, suspects, r.Pollers)
	if err != nil {
		return err
	}
	picks = append(some, picks...)
	b.s.candidates.Add(int64(len(picks)))
	if err := b.loadPicks(q, picks); err != nil {
		return err
	}
	var unleased backlog
	for _, t := range picks {
		key := b.routingKeyOf(t.taskKey)
		if total == 0 {
			unleased.add(key)
			continue
		}
		i, ok, full := b.pollerFor(t, r, room, held, settings, unleased.has(key), holds)
		size := int64(0)
		for ok {
			if size = b.deliveryBytes(t, r, i); bytes.Fits(i, size) {
				break
			}
			// The poll receives no more tasks, and the task goes to another poll or waits for the next claim.
			total -= room[i]
			room[i] = 0
			i, ok, full = b.pollerFor(t, r, room, held, settings, unleased.has(key), holds)
		}
		if t.suspect != nil {
			full = false // another claim follows when a process no longer holds a suspect
		}
		if full {
			unleased.add(key)
		}
		// Only the limit delays the task. This must not count as a backlog, which would make the polls claim again
		// immediately: the length of the wait is known.
		if ok && budget == 0 {
			b.throttled[q] = bound
			break
		}
		if ok {
			budget--
			bytes.Subtract(i, size)
			b.countLease(q)
			room[i]--
			total--
			e := b.lessee(r, i, held)
			l := b.lease(b.runs[t.run], t.seq, &e)
			if l.SessionAcquired {
				w := r.Pollers[i].Lessee.Worker
				one := load{sessions: 1}
				one.used.Add(l.Session.UsedBy(w, b.now), 1)
				held[processOf(w)] = held[processOf(w)].plus(one)
				b.acquired[w.Key()] = b.acquired[w.Key()].plus(one)
			}
			l.Poller, l.Size = i, size
			if s := r.Pollers[i].Lessee.Worker; b.isolates(processOf(s)) {
				for k := range r.Pollers {
					if processOf(r.Pollers[k].Lessee.Worker) == processOf(s) {
						room[k] = 0
					}
				}
			}
			p.leased = append(p.leased, l)
			p.runs = append(p.runs, b.runs[t.run])
			b.leasedRuns[t.run] = true
		}
	}
	if _, withheld := b.throttled[q]; !withheld && (unleased.anyKey || len(unleased.keys) > 0) {
		b.addBacklog(q, unleased.keys...)
	}
	b.reportFull(q, r, held, settings)
	return nil
}

// reportFull reports polls whose workers hold their maximum number of sessions, or lack resources for one more, and the
// routes of new sessions that they could otherwise read. The caller can then evict idle sessions of these workers.
func (b *batch) reportFull(q QueueKey, r *store.LeaseRequest, held map[process]load, settings *engine.Queue) {
	if r.Full == nil || q.Kind != protocol.KindActivity {
		return
	}
	reported := map[engine.WorkerKey]bool{}
	for i := range r.Pollers {
		e := &r.Pollers[i].Lessee
		n, ok := held[processOf(e.Worker)]
		if !ok || reported[e.Worker.Key()] || settings.Withholds(e.Worker) {
			continue
		}
		reported[e.Worker.Key()] = true
		var routes []string
		for _, l := range b.routingKeysOf(q) {
			full := n.sessions >= e.Worker.MaxSessions ||
				!e.Worker.FitsSessionOf(l.requirements, n.used) && e.Worker.FitsSessionOf(l.requirements, nil)
			if l.session && l.fits(q.Kind, e) && full {
				routes = append(routes, freeRoutes(q, l.String(), e.Worker)...)
			}
		}
		if len(routes) > 0 {
			r.Full(e.Worker.Key(), routes)
		}
	}
}

// freeRoutes returns the routes of a routing key's tasks in sessions without an owner that the worker may acquire. If a
// session is pinned to a release, its route contains the release, so workers of other releases never read its tasks.
func freeRoutes(q QueueKey, key string, w *engine.Worker) []string {
	list := []string{route(q, key, "+")}
	if w.Release != "" {
		list = append(list, route(q, key, "+"+w.Release))
	}
	return list
}

// process is one process of a worker.
type process struct {
	engine.WorkerKey
	incarnation string
}

func processOf(w *engine.Worker) process { return process{w.Key(), w.Incarnation} }

// load is the number of sessions of a worker and the sum of their resources.
type load struct {
	sessions int
	used     engine.Amounts
}

func (l load) plus(o load) load { return load{l.sessions + o.sessions, l.used.Plus(o.used)} }

// holdings counts the sessions that each worker holds, under the lock of the worker's row. Only under the lock may this
// count be compared with the maximum: otherwise two apps could both acquire the last session. A superseded process is
// missing from the result and gets no task, even if this app has not been notified of the newer process. A worker is
// also missing if its row is locked by another transaction or does not exist; it then acquires no session here. Queues
// without session tasks need no count. open are the routing words of sessions that any worker may acquire although they
// have an owner.
func (b *batch) holdings(q QueueKey, pollers []store.Poller) (held map[process]load, open []string, err error) {
	if !slices.ContainsFunc(b.routingKeysOf(q), func(l routingKey) bool { return l.session }) {
		return nil, nil, nil
	}
	held = map[process]load{}
	requested := map[engine.WorkerKey]bool{}
	keys := db.NewRowset(record.Workers.Key())
	for _, p := range pollers {
		if k := p.Lessee.Worker.Key(); p.Lessee.Worker.MaxSessions > 0 && p.Max > 0 && !requested[k] {
			requested[k] = true
			keys.S(k.Namespace).S(k.ID)
		}
	}
	if keys.Empty() {
		return held, nil, nil
	}
	if err := b.send(b.takeDeferred()...); err != nil { // the following code needs the time
		return nil, nil, err
	}
	rows := map[engine.WorkerKey]*engine.Worker{} // rows that this batch has locked
	var calls []*db.Call
	args := []any{keys.JSON()}
	if b.s.cfg.Dialect.Shared {
		args = keys.Arrays()
		calls = b.fetch(b.s.st.workers, keys, func(v []any) error {
			w, err := record.ReadWorker(v)
			rows[w.Key()] = &w
			return err
		}, func([]any) { b.skipped[q] = true })
	} else if err := b.send(b.loadWorkers(requested)...); err != nil {
		return nil, nil, err
	}
	count, suspended := map[engine.WorkerKey]load{}, map[process]load{}
	calls = append(calls, &db.Call{Stmt: b.s.st.held, Args: append(
		slices.Clip(args), b.now.UnixMicro(), q.Namespace,
	), Row: func(v []any) error {
		if db.Int(v[2]) < 0 {
			open = append(open, db.Str(v[1]))
			return nil
		}
		k, n := engine.WorkerKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}, int(db.Int(v[3]))
		resources, err := record.ReadHeldResources(v[4])
		some := load{}
		some.used.Add(resources.Resources, n)
		if db.Int(v[2]) == 0 {
			p := process{k, resources.Incarnation}
			suspended[p] = suspended[p].plus(some)
			return err
		}
		some.sessions = n
		count[k] = count[k].plus(some)
		return err
	}})
	if err := b.send(calls...); err != nil {
		return nil, nil, err
	}
	if !b.s.cfg.Dialect.Shared {
		for k := range requested {
			if w := b.workers[k].Worker; w != nil {
				rows[k] = w
			}
		}
	}
	for k, w := range rows {
		held[processOf(w)] = count[k].plus(b.acquired[k]).plus(suspended[processOf(w)])
	}
	for i := range pollers {
		l := &pollers[i].Lessee
		switch newest := rows[l.Worker.Key()]; {
		// The row is current; this app may not have been notified yet that the process deregistered or was superseded.
		case newest != nil && !newest.DeregisteredAt.IsZero():
			pollers[i].Max = 0
		case newest == nil:
		case newest.Incarnation == l.Worker.Incarnation:
			if !newest.SameResources(l.Worker) { // the process has registered other resources since its poll
				l.Worker = newest
			}
		case l.Worker.Explicit: // superseded: it gets no tasks
			pollers[i].Max = 0
		default: // a worker that names no process counts as the newest process
			l.Worker = newest
		}
	}
	return held, open, nil
}

// routesToRead returns the routes to read, those of suspects separately. For each routing key that a poll may serve,
// these are "*", or the sessions that its worker holds and, if it holds less than its maximum, sessions without an
// owner and sessions that any worker may acquire.
func (b *batch) routesToRead(
	q QueueKey, pollers []store.Poller, held map[process]load, open []string, settings *engine.Queue,
) (all, suspects []string) {
	plain, suspected := map[string]bool{}, map[string]bool{}
	for _, l := range b.routingKeysOf(q) {
		routes := plain
		if l.suspect {
			routes = suspected
		}
		name := l.String()
		for i := range pollers {
			e := &pollers[i].Lessee
			if pollers[i].Max <= 0 || !l.fits(q.Kind, e) || settings.Withholds(e.Worker) {
				continue
			}
			if !l.session {
				if !e.Draining {
					routes[route(q, name, "*")] = true
				}
				continue
			}
			routes[route(q, name, "="+e.Worker.ID)] = true
			if e.Draining { // it acquires no session
				continue
			}
			n, ok := held[processOf(e.Worker)]
			below := ok && n.sessions < e.Worker.MaxSessions && e.Worker.FitsSessionOf(l.requirements, n.used)
			for _, word := range open {
				if strings.HasPrefix(word, "~"+e.Worker.ID+"~") ||
					below && (strings.HasSuffix(word, "~") || strings.HasSuffix(word, "~"+e.Worker.Release)) {
					routes[route(q, name, word)] = true
				}
			}
			if below {
				for _, free := range freeRoutes(q, name, e.Worker) {
					routes[free] = true
				}
			}
		}
	}
	return sorted(plain), sorted(suspected)
}

// routingKeysOf returns the routing keys of a queue, including those of this batch.
func (b *batch) routingKeysOf(q QueueKey) []routingKey {
	var list []routingKey
	known := b.s.routingKeys.known[q]
	for _, l := range known {
		list = append(list, l.routingKey)
	}
	for k := range b.routingKeys {
		if _, ok := known[k.text]; ok || k.QueueKey != q {
			continue
		}
		if l, ok := parseRoutingKey(k.text); ok {
			list = append(list, l)
		}
	}
	return list
}

// readPicks reads the first n ready tasks of each range and merges them. Each range is sorted, so the first n of each
// contain the first n of all.
func (b *batch) readPicks(q QueueKey, routes []string, n int) ([]pick, error) {
	var picks []pick
	found, visible := map[string]int{}, map[string]int{}
	row := func(v []any) error {
		// This row contains the number of tasks in the range, including locked ones. If fewer tasks were returned, some
		// were skipped.
		if db.Int(v[1]) < 0 {
			visible[db.Str(v[0])] = int(db.Int(v[2]))
			return nil
		}
		found[db.Str(v[0])]++
		t := pick{
			taskKey: taskKey{db.Str(v[3]), db.Int(v[4])}, priority: db.Int(v[1]), readyAt: db.Int(v[2]), rank: db.Int(v[6]),
		}
		if b.s.cfg.Dialect.Shared {
			t.version = db.Int(v[7])
		}
		if t.seq == 0 && db.Str(v[5]) != "" {
			s, err := record.Undocument[engine.Suspicion](db.Str(v[5]))
			if err != nil {
				return fmt.Errorf("suspicion of run %s: %w", t.run, err)
			}
			t.suspect = &s
		}
		// The row contains the body of the activity, so an activity whose run is not cached need not be read again.
		if t.seq > 0 {
			if r := b.cachedRun(&t); r == nil {
				a, err := record.ReadActivity(t.run, q.Namespace, t.seq, db.Str(v[5]))
				if err != nil {
					return err
				}
				t.activity = &a
			}
		}
		picks = append(picks, t)
		return nil
	}
	for len(routes) > 0 {
		stmt, size := b.s.st.pick(b.s.cfg.Dialect, len(routes))
		some := routes[:min(size, len(routes))]
		routes = routes[len(some):]
		args := []any{some, int64(n)}
		if !b.s.cfg.Dialect.Shared {
			args = args[:0]
			for i := range size {
				if i < len(some) {
					args = append(args, some[i], int64(n))
				} else {
					args = append(args, "", int64(0))
				}
			}
		}
		if err := b.send(&db.Call{Stmt: stmt, Args: args, Row: row}); err != nil {
			return nil, err
		}
	}
	for k, n := range visible {
		if n > found[k] {
			b.skipped[q] = true
		}
	}
	slices.SortFunc(picks, func(x, y pick) int {
		return cmp.Or(
			cmp.Compare(x.priority, y.priority), cmp.Compare(x.rank, y.rank), cmp.Compare(x.readyAt, y.readyAt),
			cmp.Compare(x.run, y.run), cmp.Compare(x.seq, y.seq),
		)
	})
	return picks, nil
}

// cachedRun returns the run of a pick with the picked task, if the batch has it or its cached state is current: the
// pick has locked the run's row and contains its version.
func (b *batch) cachedRun(t *pick) *run {
	r := b.runs[t.run]
	if r == nil && b.s.cfg.Dialect.Shared {
		if r, _ = b.s.memory.runs.get(t.run); r == nil || r.version != t.version {
			return nil
		}
	} else if r == nil {
		r, _ = b.s.cache.runs.get(t.run)
	}
	if r == nil || r.Run == nil || r.partial { // another app had locked it when the batch began
		return nil
	}
	if a, ok := r.Activities.Get(t.seq); t.seq > 0 && (!ok || a.State != engine.Ready) {
		return nil
	}
	return r
}

// loadPicks loads the runs and sessions of the picked tasks into the batch. Of a run it loads only the head and the
// picked activities: a lease changes no other row of a run, so leasing from a run with a thousand open rows costs the
// same as from one with two.
func (b *batch) loadPicks(q QueueKey, picks []pick) error {
	cached, uncached := map[string]*run{}, map[string]int64{} // by run ID; for unknown runs the versions
	for i := range picks {
		t := &picks[i]
		if r := b.cachedRun(t); r != nil && t.activity == nil {
			cached[t.run] = r
		} else {
			uncached[t.run] = t.version
		}
	}
	// If one pick of a run is unknown, read the run again, even if it is cached.
	for id, r := range cached {
		if _, some := uncached[id]; !some {
			b.runs[id] = r
		}
	}
	for id, version := range uncached {
		if r := b.s.cache.partly(id, version); r != nil && b.runs[id] == nil {
			b.runs[id] = r
		}
	}
	calls := b.loadRuns(slices.Sorted(maps.Keys(uncached)), false)
	if len(calls) > 0 {
		if err := b.send(calls...); err != nil {
			return err
		}
	}
	sessions := map[engine.SessionKey]bool{}
	for _, t := range picks {
		r := b.runs[t.run]
		if r.Run == nil || t.seq == 0 {
			continue
		}
		a, ok := r.Activities.Get(t.seq)
		if !ok && r.partial && t.activity != nil {
			a = *t.activity
			r.Activities.Put(t.seq, a)
		}
		if a.SessionID != "" {
			sessions[engine.SessionKey{Namespace: q.Namespace, ID: a.SessionID}] = true
		}
	}
	if err := b.send(b.loadSessions(sessions)...); err != nil {
		return err
	}
	for k := range sessions {
		if b.locked[k] { // its tasks cannot be leased now
			b.skipped[q] = true
		}
	}
	return b.recordRoutes()
}

// pollerFor returns the poll for a task: the first one that has a free slot and may run it. full is true if the task
// gets no poll only because the polls that may run it are full: their next claim can lease it. known is true if tasks
// of this routing key are already known to wait, so that full need not be determined again.
func (b *batch) pollerFor(
	t pick, r *store.LeaseRequest, room []int, held map[process]load, settings *engine.Queue, known bool,
	holds map[process]*engine.HeldTasks,
) (i int, ok, full bool) {
	row := b.runs[t.run]
	if row.Run == nil {
		return 0, false, false
	}
	var requirements engine.TaskRequirements
	if t.seq == 0 {
		if row.readyRow() == (readyRow{}) {
			return 0, false, false
		}
		requirements = row.TaskRequirements()
	} else {
		a, ok := row.Activities.Get(t.seq)
		if !ok || a.State != engine.Ready {
			return 0, false, false
		}
		requirements = engine.TaskRequirements{Kind: protocol.KindActivity, Type: a.Type, Requirements: a.Requirements}
		if a.SessionID != "" {
			s := b.sessions[engine.SessionKey{Namespace: row.Namespace, ID: a.SessionID}]
			if s == nil || s.Session == nil || s.deleted {
				return 0, false, false
			}
			requirements.Session = s.Session
		}
	}
	requirements.Queue = settings
	suspect := row.SuspicionOf(t.seq)
	may := func(i int) bool {
		return b.admits(suspect, r.Pollers[i].Lessee.Worker, holds) &&
			engine.Admits(requirements, b.lessee(r, i, held), b.now)
	}
	if s := requirements.Session; s != nil && s.Open { // prefer the owner, which has the state
		for i := range r.Pollers {
			if room[i] > 0 && s.HeldBy(r.Pollers[i].Lessee.Worker.ID, b.now) && may(i) {
				return i, true, false
			}
		}
	}
	if t.seq == 0 && r.StickyWorkers != nil { // a worker with the run in its sticky cache gets only the new events
		for _, k := range r.StickyWorkers(t.run) {
			for i := range r.Pollers {
				w := r.Pollers[i].Lessee.Worker
				if room[i] > 0 && w.Key() == k.Worker && w.Incarnation == k.Incarnation && may(i) {
					return i, true, false
				}
			}
		}
	}
	if s := requirements.Session; s != nil && !s.Held(b.now) && s.ChoosesWorker() {
		if i := b.roomiest(s, r, room, held, may); i >= 0 {
			return i, true, false
		}
	}
	for i := range r.Pollers {
		if room[i] <= 0 && (known || full) || !may(i) {
			continue
		}
		if room[i] > 0 {
			return i, true, false
		}
		full = true
	}
	return 0, false, full
}

// roomiest returns the poll whose worker has the most room for a session without an owner; -1: no poll may acquire it.
func (b *batch) roomiest(
	s *engine.Session, r *store.LeaseRequest, room []int, held map[process]load, may func(int) bool,
) int {
	best, most := -1, engine.Lessee{}
	for i := range r.Pollers {
		if room[i] <= 0 || !may(i) {
			continue
		}
		if l := b.lessee(r, i, held); best < 0 || s.RoomierFor(&l, &most) {
			best, most = i, l
		}
	}
	return best
}

// lessee returns the worker of a poll with its number of sessions, if they were counted under the lock of the worker's
// row. Without that count, the rules for admission do not let the worker acquire a session.
func (b *batch) lessee(r *store.LeaseRequest, i int, held map[process]load) engine.Lessee {
	l := r.Pollers[i].Lessee
	n, counted := held[processOf(l.Worker)]
	l.Sessions, l.Used, l.Counted = n.sessions, n.used, counted
	return l
}
