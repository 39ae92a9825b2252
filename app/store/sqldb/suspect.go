package sqldb

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A process holds at most one suspect at a time, and a process with a blamed task holds no other task. Both are checked
// when a task is leased, under the lock of the worker's row: if two apps counted without the lock, both could find no
// task.

// maxSuspects is the maximum number of suspects that a claim reads from each range.
const maxSuspects = 256

// isolated contains the worker processes that hold a blamed task and receive no other task, as far as this app knows.
type isolated struct {
	mu    sync.RWMutex // guards known
	known map[process]bool
}

func (i *isolated) has(p process) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.known[p]
}

// isolates reports whether a process holds a blamed task and receives no other task.
func (b *batch) isolates(p process) bool {
	if is, ok := b.isolated[p]; ok {
		return is
	}
	return b.s.isolated.has(p)
}

// leasedSuspect records that a suspect was leased: a blamed task isolates its worker process.
func (b *batch) leasedSuspect(q QueueKey, s *engine.Suspicion, w *engine.Worker) {
	if s != nil && s.Alone {
		b.isolate(processOf(w), true)
		b.hidden[q] = true // the hint makes other apps read the isolated processes together with the routing keys
	}
}

func (b *batch) isolate(p process, is bool) {
	if b.isolated == nil {
		b.isolated = map[process]bool{}
	}
	b.isolated[p] = is
}

// maybeIdle requests another claim of the queues in which a blamed task waits for an idle process. The process of a
// lease that ended may be idle now; claims found nothing for it while it was busy.
func (b *batch) maybeIdle(namespace string) {
	for q := range b.s.blamed {
		if q.Namespace == namespace {
			b.addBacklog(q)
		}
	}
}

// recordBlamed records whether a blamed task waits for an idle process in a queue.
func (b *batch) recordBlamed(q QueueKey, picks []pick) {
	if !slices.ContainsFunc(picks, func(t pick) bool { return t.suspect.Isolated() }) {
		delete(b.s.blamed, q)
		return
	}
	if b.s.blamed == nil {
		b.s.blamed = map[QueueKey]bool{}
	}
	b.s.blamed[q] = true
}

// suspectReleased records that a worker process no longer holds a suspect, since it was cleared or its delivery ended,
// and requests another claim for suspects that wait for a process.
func (b *batch) suspectReleased(namespace string, l engine.Lease) {
	p := process{engine.WorkerKey{Namespace: namespace, ID: l.Owner}, l.Incarnation}
	if b.isolates(p) {
		b.isolate(p, false)
	}
	for _, kind := range []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity} {
		b.addBacklog(QueueKey{namespace, "", kind})
	}
}

// admits reports whether the suspicion of a task allows a process to lease it.
func (b *batch) admits(s *engine.Suspicion, w *engine.Worker, holds map[process]*engine.HeldTasks) bool {
	if !s.Limited() {
		return true
	}
	p := processOf(w)
	counted := holds[p]
	if counted == nil {
		return false
	}
	h := *counted
	b.addLeasedBy(p, &h)
	return s.Admits(h)
}

// addLeasedBy adds the tasks that claims of this batch have leased to a process, which statements do not count yet.
func (b *batch) addLeasedBy(p process, h *engine.HeldTasks) {
	for _, item := range b.items {
		for i := range item.leased {
			l := &item.leased[i]
			lease, suspect := engine.Lease{}, (*engine.Suspicion)(nil)
			switch {
			case l.Activity != nil:
				lease, suspect = l.Activity.Lease, l.Activity.Suspect
			case item.runs[i].Task != nil:
				lease, suspect = item.runs[i].Task.Lease, item.runs[i].Task.Suspect
			}
			if lease.Owner != p.ID || lease.Incarnation != p.incarnation || item.lease.Namespace != p.Namespace {
				continue
			}
			if h.Tasks++; suspect != nil {
				h.Suspects++
			}
		}
	}
}

// suspects reads the tasks with routing keys of suspects, in dispatch order, and counts the tasks of each process that
// polls for them. Without such a routing key it sends no statement.
func (b *batch) suspects(
	q QueueKey, routes []string, pollers []store.Poller,
) (map[process]*engine.HeldTasks, []pick, error) {
	if len(routes) == 0 {
		return nil, nil, nil
	}
	picks, err := b.readPicks(q, routes, maxSuspects)
	if err != nil || len(picks) == 0 {
		delete(b.s.blamed, q)
		return nil, nil, err
	}
	holds, err := b.countHeld(q, pollers)
	if err != nil {
		return nil, nil, err
	}
	for i := range picks {
		t := &picks[i]
		switch r := b.cachedRun(t); {
		case t.activity != nil:
			t.suspect = t.activity.Suspect
		case r != nil:
			t.suspect = r.SuspicionOf(t.seq)
		}
	}
	b.recordBlamed(q, picks)
	picks = slices.DeleteFunc(picks, func(t pick) bool {
		return t.suspect == nil || !slices.ContainsFunc(pollers, func(p store.Poller) bool {
			return p.Max > 0 && b.admits(t.suspect, p.Lessee.Worker, holds)
		})
	})
	slices.SortStableFunc(picks, func(x, y pick) int { return x.suspect.Compare(y.suspect) })
	return holds, picks, nil
}

// countHeld counts the tasks of each worker and the suspects among them, under the lock of the worker's row. If another
// transaction has locked the row, or the process was superseded, the worker is missing from the result and gets no
// suspect from this claim.
func (b *batch) countHeld(q QueueKey, pollers []store.Poller) (map[process]*engine.HeldTasks, error) {
	keys, requested := db.NewRowset(record.Workers.Key()), map[engine.WorkerKey]bool{}
	for _, p := range pollers {
		if k := p.Lessee.Worker.Key(); p.Max > 0 && !requested[k] {
			requested[k] = true
			keys.S(k.Namespace).S(k.ID)
		}
	}
	if keys.Empty() {
		return nil, nil
	}
	rows, counts := map[engine.WorkerKey]*engine.Worker{}, map[engine.WorkerKey]*engine.HeldTasks{}
	var calls []*db.Call
	if b.s.cfg.Dialect.Shared {
		calls = b.fetch(b.s.st.workers, keys, func(v []any) error {
			w, err := record.ReadWorker(v)
			rows[w.Key()] = &w
			return err
		}, func([]any) { b.skipped[q] = true })
	} else if err := b.send(b.loadWorkers(requested)...); err != nil {
		return nil, err
	}
	calls = append(calls, &db.Call{Stmt: b.s.st.processTasks, Args: b.s.cfg.Dialect.Keys(keys), Row: func(v []any) error {
		k := engine.WorkerKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}
		if counts[k] == nil {
			counts[k] = &engine.HeldTasks{}
		}
		counts[k].Tasks += int(db.Int(v[2]))
		counts[k].Suspects += int(db.Int(v[3]))
		return nil
	}})
	if err := b.send(calls...); err != nil {
		return nil, err
	}
	holds := map[process]*engine.HeldTasks{}
	for k := range requested {
		w := rows[k]
		if !b.s.cfg.Dialect.Shared {
			w = b.workers[k].Worker
		}
		if w == nil || !w.DeregisteredAt.IsZero() {
			continue
		}
		h := counts[k]
		if h == nil {
			h = &engine.HeldTasks{}
		}
		h.Counted = true
		holds[processOf(w)] = h
	}
	return holds, nil
}

// heldTasksQuery returns the query that counts the tasks of workers and the suspected tasks among them, using the index
// of owners and the partial index of suspects. Callers only need to know whether a worker has any task, so on a shared
// database the query reads at most one row per count.
func heldTasksQuery(d db.Dialect) string {
	one := func(table, counted, where, tail string) string {
		return d.Probe(record.Workers.Key(), "t.namespace, t.owner, "+counted,
			"(SELECT namespace, owner AS worker_id, owner, suspect FROM "+table+" WHERE owner IS NOT NULL)", where, tail)
	}
	const suspects = "t.suspect IS NOT NULL"
	tail := ""
	if d.Shared {
		tail = "LIMIT 1"
	}
	return db.ReuseParameter(d, "SELECT h.namespace, h.owner, sum(h.n), sum(h.s) FROM ("+strings.Join([]string{
		one("tasks", "1 AS n, 0 AS s", "", tail), one("runs", "1 AS n, 0 AS s", "", tail),
		one("tasks", "0 AS n, 1 AS s", suspects, ""), one("runs", "0 AS n, 1 AS s", suspects, ""),
	}, " UNION ALL ")+") AS h GROUP BY h.namespace, h.owner")
}

// selectRoutingKeysAndIsolated reads the routing keys of all queues, and then, with -1, the tasks that isolate their
// processes: the worker, and the document that contains the incarnation of the process.
const selectRoutingKeysAndIsolated = "SELECT namespace, queue, kind, lane, used_at FROM lanes" +
	" UNION ALL SELECT namespace, owner, 'activity', body, -1 FROM tasks WHERE suspect = 2 AND owner IS NOT NULL" +
	" UNION ALL SELECT namespace, owner, 'workflow', state, -1 FROM runs WHERE suspect = 2 AND owner IS NOT NULL"

// isolatedRow returns the isolated process in a row of selectRoutingKeysAndIsolated.
func isolatedRow(namespace, owner string, kind protocol.TaskKind, body string) (process, error) {
	p := process{WorkerKey: engine.WorkerKey{Namespace: namespace, ID: owner}}
	if kind == protocol.KindWorkflow {
		h, err := record.Undocument[engine.Head](body)
		if err == nil && h.Task != nil {
			p.incarnation = h.Task.Incarnation
		}
		return p, err
	}
	a, err := record.Undocument[engine.Activity](body)
	p.incarnation = a.Incarnation
	return p, err
}

// rememberIsolated updates the set of isolated processes after a batch was committed, and notifies the dispatcher.
func (b *batch) rememberIsolated() {
	if len(b.isolated) == 0 {
		return
	}
	i := &b.s.isolated
	i.mu.Lock()
	next := maps.Clone(i.known)
	i.mu.Unlock()
	if next == nil {
		next = map[process]bool{}
	}
	for p, is := range b.isolated {
		if is {
			next[p] = true
		} else {
			delete(next, p)
		}
	}
	b.s.setIsolated(next)
}

// setIsolated replaces the set of isolated processes, and notifies the dispatcher of the differences.
func (s *Store) setIsolated(next map[process]bool) {
	i := &s.isolated
	i.mu.Lock()
	was := i.known
	i.known = next
	i.mu.Unlock()
	if s.cfg.Dispatch == nil {
		return
	}
	for p := range was {
		if !next[p] {
			s.cfg.Dispatch.Isolate(store.Process{Worker: p.WorkerKey, Incarnation: p.incarnation}, false)
		}
	}
	for p := range next {
		if !was[p] {
			s.cfg.Dispatch.Isolate(store.Process{Worker: p.WorkerKey, Incarnation: p.incarnation}, true)
		}
	}
}
