package sqldb

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A task's rank in the fair order is written into its row when it becomes ready, so that a claim reads the order
// instead of computing it. Therefore the tags of the classes are rows as well, shared by all apps. A queue in which no
// task has ever had a fairness key has no tags and costs nothing.

// tagKey is the key of a tag: a class in one priority of a queue.
type tagKey struct {
	QueueKey
	tier  int64
	class string
}

// tag is the tag of a class; see engine.Rank.
type tag struct {
	value  int64
	dirty  bool
	stored bool // the tag has a row
}

// priorityCount is the number of priorities.
const priorityCount = 10

// pruneInterval is how far a tier's clock advances before tags behind the clock are deleted; a task of weight 1
// advances it by a million.
const pruneInterval = 1000 * 1_000_000

// hasRanks reports whether the tasks of a queue have ranks: they do from the first task with a fairness key on.
func (b *batch) hasRanks(q QueueKey) bool { return b.newlyFair[q] || b.s.queues.fair(q) }

// rankReadyTasks gives every task that became ready its rank in the fair order of its queue. Queues without fairness
// keys cost nothing. On a shared database the tags are locked in one statement after all other rows.
func (b *batch) rankReadyTasks(items []*pending) error {
	type ranked struct {
		taskKey
		tagKey
		weight int
	}
	var list []ranked
	seen, order := map[taskKey]bool{}, map[string]int{}
	for _, t := range b.ready {
		if _, known := order[t.run]; !known {
			order[t.run] = len(order)
		}
		if seen[t] || !b.isReady(t) {
			continue
		}
		seen[t] = true
		k, weight := b.classOf(t)
		if k.class != "" {
			b.newlyFair[k.QueueKey] = true
		}
		list = append(list, ranked{t, k, weight})
	}
	slices.SortFunc(list, func(x, y ranked) int {
		// order the runs by their transactions, and the tasks of one run by their commands
		return cmp.Or(cmp.Compare(order[x.run], order[y.run]), cmp.Compare(x.seq, y.seq))
	})
	want := map[tagKey]bool{}
	for i := range list {
		k := &list[i].tagKey
		if !b.hasRanks(k.QueueKey) {
			continue
		}
		if k.class == "" {
			k.class = engine.DefaultClass
		}
		want[*k], want[k.clock()] = true, true
	}
	for _, p := range items {
		if p.lease == nil {
			continue
		}
		if q := (QueueKey{p.lease.Namespace, p.lease.Queue, p.lease.Kind}); b.s.queues.fair(q) {
			// A claim may lease tasks of any priority, so it may advance the clock of each tier.
			for tier := range int64(priorityCount) {
				want[tagKey{q, tier, ""}] = true
			}
		}
	}
	for _, t := range b.served {
		if q := (QueueKey{t.Namespace, t.Queue, t.Kind}); b.hasRanks(q) {
			want[tagKey{q, int64(t.Priority), ""}] = true
		}
	}
	if len(want) == 0 {
		return nil
	}
	keys := db.NewRowset(record.Fairness.Key())
	for k := range want {
		b.tags[k] = &tag{}
		keys.S(k.Namespace).S(k.Queue).S(string(k.Kind)).I(k.tier).S(k.class)
	}
	// All tasks that wait in a queue share its tags, so the tags are locked last and for the shortest time.
	if err := b.send(b.fetch(b.s.st.tags, keys, func(v []any) error {
		t := b.tags[readTagKey(v)]
		t.value, t.stored = db.Int(v[5]), true
		return nil
	}, func(v []any) { b.markLocked(readTagKey(v)) })...); err != nil {
		return err
	}
	b.advanceServed()
	if len(b.locked) > 0 {
		tasks, queues := map[taskKey]bool{}, map[QueueKey]bool{}
		for _, t := range list {
			if b.locked[t.tagKey] || b.locked[t.clock()] {
				tasks[t.taskKey] = true
			}
		}
		for k := range want {
			if b.locked[k] && k.class == "" {
				queues[k.QueueKey] = true
			}
		}
		if len(tasks)+len(queues) > 0 {
			return b.deferBlocked(tasks, queues)
		}
	}
	for _, t := range list {
		if class := b.tags[t.tagKey]; class != nil && t.class != "" {
			var place int64
			place, class.value = engine.Rank(b.tags[t.clock()].value, class.value, t.weight)
			class.dirty, b.dirty = true, true
			b.setRank(t.taskKey, place)
		}
	}
	return nil
}

func readTagKey(v []any) tagKey {
	return tagKey{QueueKey{db.Str(v[0]), db.Str(v[1]), protocol.TaskKind(db.Str(v[2]))}, db.Int(v[3]), db.Str(v[4])}
}

func (k tagKey) compare(o tagKey) int {
	return cmp.Or(k.QueueKey.compare(o.QueueKey), cmp.Compare(k.tier, o.tier), cmp.Compare(k.class, o.class))
}

// clock returns the key of the tier's clock: the rank of the last dispatched task. A class that returns after a pause
// starts there and gets no credit for the time that it was idle.
func (k tagKey) clock() tagKey { return tagKey{k.QueueKey, k.tier, ""} }

// classOf returns the fairness class of a ready task and its weight; the class is empty without a key. An activity uses
// the key of its command, or else the key of its run.
func (b *batch) classOf(t taskKey) (tagKey, int) {
	r := b.runs[t.run]
	if t.seq == 0 {
		key, weight := r.Fairness()
		return tagKey{QueueKey{r.Namespace, r.Queue, protocol.KindWorkflow}, int64(r.Priority), key}, weight
	}
	a, _ := r.Activities.Get(t.seq)
	key, weight := a.FairnessIn(&r.Head)
	return tagKey{QueueKey{r.Namespace, a.Queue, protocol.KindActivity}, int64(a.Priority), key}, weight
}

// fairnessClass returns the fairness class of a task in a queue with fairness keys, or "" in other queues.
func (b *batch) fairnessClass(t taskKey) string {
	k, _ := b.classOf(t)
	if !b.hasRanks(k.QueueKey) {
		return ""
	}
	return cmp.Or(k.class, engine.DefaultClass)
}

// setRank sets the rank of a ready task, whose row is written anyway.
func (b *batch) setRank(t taskKey, rank int64) {
	r := b.runs[t.run]
	if t.seq == 0 {
		task := *r.Task
		task.Rank = rank
		r.Task = &task
		return
	}
	a, _ := r.Activities.Get(t.seq)
	a.Rank = rank
	r.Activities.Put(t.seq, a)
}

// rankOf returns the rank of a ready task.
func (b *batch) rankOf(t taskKey) int64 {
	r := b.runs[t.run]
	if t.seq == 0 {
		if r.Task == nil {
			return 0
		}
		return r.Task.Rank
	}
	a, _ := r.Activities.Get(t.seq)
	return a.Rank
}

// advanceClock advances the clock of a task's tier to the task's rank: tasks that become ready later rank after it.
// Tasks that were dispatched without waiting count, too.
func (b *batch) advanceClock(t taskKey) {
	k, _ := b.classOf(t)
	clock := b.tags[k.clock()]
	if clock == nil {
		return
	}
	if rank := b.rankOf(t); rank > clock.value {
		clock.value, clock.dirty = rank, true
	}
}

// advanceServed advances the clocks for tasks that the app completed without a lease. A clock that another transaction
// has locked is left to the next such task.
func (b *batch) advanceServed() {
	for _, t := range b.served {
		k := tagKey{QueueKey{t.Namespace, t.Queue, t.Kind}, int64(t.Priority), ""}
		if clock := b.tags[k]; clock != nil && !b.locked[k] && t.Rank > clock.value {
			clock.value, clock.dirty, b.dirty = t.Rank, true, true
		}
	}
	b.served = nil
}

func (b *batch) gatherTags() []*db.Call {
	rows, fresh := db.NewRowset(record.Fairness.Columns), db.NewRowset(record.Fairness.Columns)
	var calls []*db.Call
	for _, k := range slices.SortedFunc(maps.Keys(b.tags), tagKey.compare) {
		// new rows cannot be locked, so write them in key order: two apps may add the same ones
		t := b.tags[k]
		if !t.dirty {
			continue
		}
		rows.S(k.Namespace).S(k.Queue).S(string(k.Kind)).I(k.tier).S(k.class).I(t.value)
		if !t.stored {
			fresh.S(k.Namespace).S(k.Queue).S(string(k.Kind)).I(k.tier).S(k.class).I(0)
		}
		t.dirty, t.stored = false, true
		// A class whose tag is behind the clock starts at the clock again, like a class without a row. Therefore old
		// tags can be deleted.
		if last, known := b.s.pruned[k]; k.class == "" && t.value > last+pruneInterval {
			b.s.pruned[k] = t.value
			if known {
				calls = append(
					calls, &db.Call{Stmt: b.s.st.pruneTags, Args: []any{k.Namespace, k.Queue, string(k.Kind), k.tier, t.value}},
				)
			}
		}
	}
	if b.s.cfg.Dialect.Shared {
		b.aheadCalls = append(b.aheadCalls, b.s.st.addTags.Calls(fresh)...)
	}
	return append(b.s.st.putTags.Calls(rows), calls...)
}

// fair reports whether tasks of a queue have ranks, as far as this process knows.
func (q *queues) fair(k QueueKey) bool {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.ranked[k]
}

// anyFair reports whether any queue has fairness keys.
func (q *queues) anyFair() bool {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return len(q.ranked) > 0
}

// rememberFair records, after the commit, which queues have ranks from now on, and reports whether there is a new one.
func (b *batch) rememberFair() bool {
	if len(b.newlyFair) == 0 {
		return false
	}
	q := &b.s.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	had := len(q.ranked)
	next := maps.Clone(q.ranked)
	maps.Copy(next, b.newlyFair)
	q.ranked = next
	if len(next) == had {
		return false
	}
	q.generation++
	return true
}

// readRanked reads the queues whose tasks have ranks.
func (s *Store) readRanked(ctx context.Context) (map[QueueKey]bool, error) {
	s.readings.Add(1)
	rows, err := s.cfg.Reads.QueryContext(ctx, "SELECT DISTINCT namespace, queue, kind FROM fairness WHERE class = ''")
	if err != nil {
		return nil, fmt.Errorf("read the queues with fairness keys: %w", s.cfg.Dialect.WrapUnavailable(err))
	}
	defer rows.Close()
	ranked := map[QueueKey]bool{}
	for rows.Next() {
		var k QueueKey
		if err := rows.Scan(&k.Namespace, &k.Queue, &k.Kind); err != nil {
			return nil, fmt.Errorf("read the queues with fairness keys: %w", err)
		}
		ranked[k] = true
	}
	return ranked, s.cfg.Dialect.WrapUnavailable(rows.Err())
}
