package sqldb

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Every dispatch reads the settings of queues, so a process caches all of them and is notified of changes. Limits are
// the exception: their usage is counted under the lock of the queue's row, since two claims must not use the same
// capacity.

// queues caches the settings of all task queues; they are few. A cached queue is never changed in place, so that
// readers need no lock to use it.
type queues struct {
	mu         sync.RWMutex // guards all fields below
	known      map[engine.QueueKey]*engine.Queue
	ranked     map[QueueKey]bool // queues whose tasks have ranks
	generation uint64            // incremented by every change: values that were read before a change are outdated
}

func (q *queues) init() { q.known, q.ranked = map[engine.QueueKey]*engine.Queue{}, map[QueueKey]bool{} }

func (q *queues) get(k engine.QueueKey) *engine.Queue {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.inherit(k, q.known[k])
}

// inherit returns a queue's settings combined with those of its namespace. Routing needs the combined settings; the row
// of a queue contains only its own. The caller must hold mu.
func (q *queues) inherit(k engine.QueueKey, own *engine.Queue) *engine.Queue {
	group := ""
	if all := q.known[engine.QueueKey{Namespace: k.Namespace}]; all != nil && k.Name != "" {
		group = all.Group
	}
	if own == nil && group == "" || own != nil && own.Inherited == group {
		return own
	}
	next := engine.Queue{Namespace: k.Namespace, Name: k.Name}
	if own != nil {
		next = *own
	}
	next.Inherited = group
	return &next
}

// bounded reports whether a limit applies to the tasks of a queue.
func (q *queues) bounded(k QueueKey) bool {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if len(q.known) == 0 {
		return false
	}
	return q.known[engine.QueueKey{Namespace: k.Namespace, Name: k.Queue}].Budget(k.Kind).Bounded() ||
		q.known[engine.QueueKey{Namespace: k.Namespace}].Budget(k.Kind).Bounded()
}

// Queue returns the cached settings of a task queue.
func (s *Store) Queue(k engine.QueueKey) *engine.Queue { return s.queues.get(k) }

// Pools returns the cached rows of queues with a pool.
func (s *Store) Pools() (list []*engine.Queue) {
	q := &s.queues
	q.mu.RLock()
	defer q.mu.RUnlock()
	for _, one := range q.known {
		if one.Pool != nil {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b *engine.Queue) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// RefreshQueues reads the settings of all queues again and passes changes to the dispatcher. It runs after changes by
// other processes.
func (s *Store) RefreshQueues(ctx context.Context) error {
	q := &s.queues
	for {
		q.mu.RLock()
		generation := q.generation
		q.mu.RUnlock()
		read := map[engine.QueueKey]*engine.Queue{}
		ranked, err := s.readRanked(ctx)
		if err != nil {
			return err
		}
		err = s.View(ctx, func(r store.Reader) error {
			rows, err := r.QueueRows(ctx, "")
			for i := range rows {
				read[rows[i].Key()] = &rows[i]
			}
			return err
		})
		if err != nil {
			return err
		}
		q.mu.Lock()
		if q.generation != generation { // this process changed settings meanwhile
			q.mu.Unlock()
			continue
		}
		was := q.known
		q.known, q.ranked = read, ranked
		q.generation++
		q.mu.Unlock()
		if s.cfg.Dispatch != nil {
			for _, k := range changedQueues(was, read) {
				now := read[k]
				if now == nil {
					now = &engine.Queue{Namespace: k.Namespace, Name: k.Name}
				}
				s.cfg.Dispatch.Queue(now)
			}
		}
		return nil
	}
}

// changedQueues compares UpdatedAt, which changes only with settings: counts of claims in a row need no notification.
func changedQueues(was, is map[engine.QueueKey]*engine.Queue) (list []engine.QueueKey) {
	for k, q := range is {
		if old := was[k]; old == nil || old.UpdatedAt != q.UpdatedAt {
			list = append(list, k)
		}
	}
	for k := range was {
		if is[k] == nil {
			list = append(list, k)
		}
	}
	return list
}

// queue is the state of a queue in a batch; its Queue is nil without settings.
type queue struct {
	*engine.Queue
	decided bool // its settings changed, not only its counts
	dirty   bool
}

// Queue returns the loaded row of a queue, or else the cached row.
func (b *batch) Queue(k engine.QueueKey) *engine.Queue {
	if q := b.queues[k]; q != nil {
		b.s.queues.mu.RLock()
		defer b.s.queues.mu.RUnlock()
		return b.s.queues.inherit(k, q.Queue)
	}
	return b.s.queues.get(k)
}

// scopes returns the keys of the rows that may limit a kind of task of a queue: the queue's own row, and the row of its
// namespace.
func scopes(q QueueKey) [2]engine.QueueKey {
	return [2]engine.QueueKey{{Namespace: q.Namespace, Name: q.Queue}, {Namespace: q.Namespace}}
}

// addLimitKeys adds the rows of the limits that apply to a claim. On a shared database they are locked, so that two
// claims never use the same capacity.
func (b *batch) addLimitKeys(r *store.LeaseRequest, want map[engine.QueueKey]bool) {
	q := QueueKey{r.Namespace, r.Queue, r.Kind}
	if !b.s.queues.bounded(q) {
		return
	}
	for _, k := range scopes(q) {
		want[k] = true
	}
}

// Read them even if they are cached: the counts, which change under the rows' locks, are only in the rows.
func (b *batch) loadQueues(keys map[engine.QueueKey]bool) []*db.Call {
	missing := db.NewRowset(record.Queues.Key())
	for k := range keys {
		b.queues[k] = &queue{}
		missing.S(k.Namespace).S(k.Name)
	}
	return b.fetch(b.s.st.queues, missing, func(v []any) error {
		q, err := record.ReadQueue(v)
		b.queues[q.Key()].Queue = &q
		return err
	}, func(v []any) { b.markLocked(engine.QueueKey{Namespace: db.Str(v[0]), Name: db.Str(v[1])}) })
}

// applyQueues sets decided: other apps are notified of changed settings, but not of rows of which only counts changed.
func (b *batch) applyQueues(w *store.Writes) {
	for _, q := range w.Queues {
		b.queues[q.Key()] = &queue{Queue: &q, decided: true, dirty: true}
		b.dirty = true
	}
}

// Other apps read all settings again after a notification, since they are few and change rarely.
func (b *batch) gatherQueues() ([]*db.Call, error) {
	rows := db.NewRowset(record.Queues.Columns)
	keys := slices.SortedFunc(maps.Keys(b.queues), func(x, y engine.QueueKey) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for _, k := range keys {
		q := b.queues[k]
		if !q.dirty {
			continue
		}
		body, err := record.DocumentWith(q.Queue, q.Unknown)
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", k.Name, err)
		}
		rows.S(k.Namespace).S(k.Name).I(q.UpdatedAt.Micros()).S(body)
		q.dirty = false
	}
	calls := b.s.st.putQueues.Calls(rows)
	if len(calls) > 0 && b.s.cfg.QueuesChanged != nil {
		calls = append(calls, b.s.cfg.QueuesChanged())
	}
	return calls, nil
}

// rememberQueues updates the cache after the commit and returns the changed settings.
func (b *batch) rememberQueues() (decided []*engine.Queue) {
	known := &b.s.queues
	known.mu.Lock()
	defer known.mu.Unlock()
	for _, q := range b.queues {
		if q.decided {
			decided = append(decided, q.Queue)
		}
	}
	gone := map[string]bool{}
	for _, name := range b.droppedNamespaces {
		gone[name] = true
	}
	if len(decided)+len(gone) == 0 {
		return nil
	}
	// Readers use the old map without a lock, so it is replaced and never changed.
	next := maps.Clone(known.known)
	maps.DeleteFunc(next, func(k engine.QueueKey, _ *engine.Queue) bool { return gone[k.Namespace] })
	for _, q := range decided {
		next[q.Key()] = q
	}
	known.known = next
	known.generation++
	return decided
}

// notifyQueues passes changed settings and exhausted limits to the dispatcher, before callers get their results.
func (b *batch) notifyQueues(decided []*engine.Queue) {
	if b.s.cfg.Dispatch == nil {
		return
	}
	for _, q := range decided {
		b.s.cfg.Dispatch.Queue(q)
	}
	for q, t := range b.throttled {
		if b.backlog[q] == nil { // capacity became free in the same batch: the next claim will find it
			b.s.cfg.Dispatch.Throttled(q.Namespace, q.Queue, q.Kind, t)
		}
	}
}

// leaseEnded records the end of a lease. If a limit counts leases, another task may be leased now. No other event would
// trigger a claim: the delayed tasks were ready before, so no commit makes them ready.
func (b *batch) leaseEnded(q QueueKey) {
	b.maybeIdle(q.Namespace)
	if !b.s.queues.bounded(q) {
		return
	}
	b.addBacklog(q)
	if b.s.queues.get(engine.QueueKey{Namespace: q.Namespace}).Budget(q.Kind).Leases > 0 {
		b.addBacklog(QueueKey{q.Namespace, "", q.Kind})
	}
}

// activeKey is the key of one count: all leased tasks of a kind in a namespace.
type activeKey struct {
	namespace string
	kind      protocol.TaskKind
}

// The leased tasks are counted instead of stored as a number in the row, because every lease and every end of one would
// have to lock that row.
func leasedByQueue() map[protocol.TaskKind]*db.Stmt {
	return map[protocol.TaskKind]*db.Stmt{
		protocol.KindActivity: {
			SQL: "SELECT queue, count(*) FROM tasks WHERE namespace = $1 AND owner IS NOT NULL AND kind = 'activity' GROUP BY queue",
		},
		protocol.KindWorkflow: {
			SQL: "SELECT queue, count(*) FROM runs WHERE namespace = $1 AND owner IS NOT NULL GROUP BY queue",
		},
	}
}

// budget returns the number of tasks that a claim may still lease by the limits of its queue and its namespace, and the
// limit that applies if it is 0. The rows were loaded with the batch; the leases are counted after its writes.
func (b *batch) budget(q QueueKey) (room int, bound engine.Throttle, err error) {
	room = math.MaxInt - 1
	for _, k := range scopes(q) {
		row := b.queues[k]
		if row == nil || row.Queue == nil || !row.Budget(q.Kind).Bounded() {
			continue
		}
		leased := 0
		if row.Budget(q.Kind).Leases > 0 {
			counts, err := b.activeIn(q)
			if err != nil {
				return 0, bound, err
			}
			for queue, n := range counts {
				if k.Name == "" || k.Name == queue {
					leased += n
				}
			}
		}
		n, t, _ := row.Room(q.Kind, leased, b.now)
		if n > 0 { // the limit applies once this claim has used the capacity
			_, t, _ = row.Count(q.Kind, n, b.now).Room(q.Kind, leased+n, b.now)
		}
		if n < room || n == room && t.Wait > bound.Wait {
			room, bound = n, t
		}
	}
	return room, bound, nil
}

// activeIn counts the leased tasks of a kind by queue, once per batch; later claims of the batch add to it.
func (b *batch) activeIn(q QueueKey) (map[string]int, error) {
	k := activeKey{q.Namespace, q.Kind}
	if counts := b.active[k]; counts != nil {
		return counts, nil
	}
	counts := map[string]int{}
	b.active[k] = counts
	return counts, b.send(&db.Call{Stmt: b.s.st.leased[q.Kind], Args: []any{q.Namespace}, Row: func(v []any) error {
		counts[db.Str(v[0])] = int(db.Int(v[1]))
		return nil
	}})
}

// countLease counts a lease of a claim.
func (b *batch) countLease(q QueueKey) {
	if counts := b.active[activeKey{q.Namespace, q.Kind}]; counts != nil {
		counts[q.Queue]++
	}
	for _, k := range scopes(q) {
		if row := b.queues[k]; row != nil && row.Queue != nil && row.Budget(q.Kind).PerMinute > 0 {
			row.Queue, row.dirty = row.Queue.Count(q.Kind, 1, b.now), true
		}
	}
}
