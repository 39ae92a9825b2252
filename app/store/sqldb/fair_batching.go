package sqldb

import (
	"container/heap"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// Ranks order the tasks that wait for a worker. If the workers have enough slots, tasks wait for the committer instead:
// every step of a workflow is a transaction, and a class with a hundred open workflows causes long batches, for which
// each step of every other class waits. Therefore, while several classes have transactions, batches are short, and a
// class with few transactions gets into the next one.

// maxFairBatch is the maximum number of transactions in a batch while several classes have transactions: enough to be
// worth a commit, and few enough that the next batch comes soon.
const maxFairBatch = 10

// classIdleTime is how long a class counts as active after its last transaction: between the steps of a workflow it has
// none.
const classIdleTime = time.Second

// fairQueue contains the transactions that wait for a batch, by class, in the order of engine.Rank. Only the committer
// uses it.
type fairQueue struct {
	clock     int64
	unclassed []*pending // transactions without a class come first: claims, which serve all classes, and heartbeats
	classes   map[classKey]*classQueue
	active    classHeap // classes with transactions
	waiting   int
	pruned    time.Time
}

type classKey struct{ namespace, key string }

type classQueue struct {
	queue []*pending
	tag   int64
	last  time.Time
}

// fairBatch adds items and returns the transactions of the next batch: as many as fit if there are no fairness keys or
// only one class has transactions.
func (s *Store) fairBatch(items []*pending) []*pending {
	h := &s.fairQueue
	if h.waiting == 0 && !s.queues.anyFair() {
		return items
	}
	now := time.Now()
	for _, p := range items {
		if p.ranked {
			// The transaction was already in an earlier batch, so it is not ranked again.
			h.unclassed = append(h.unclassed, p)
		} else {
			p.ranked = true
			h.add(p, s.classOf(p), now)
		}
	}
	h.waiting += len(items)
	h.pruneIdle(now)
	limit := maxChanges
	if len(h.classes) > 1 {
		limit = min(max(maxFairBatch, len(h.classes)), maxChanges)
	}
	return h.popFair(items[:0], limit)
}

// add inserts a transaction at its position.
func (h *fairQueue) add(p *pending, c store.Class, now time.Time) {
	if c.Key == "" {
		h.unclassed = append(h.unclassed, p)
		return
	}
	k := classKey{c.Namespace, c.Key}
	one := h.classes[k]
	if one == nil {
		if h.classes == nil {
			h.classes = map[classKey]*classQueue{}
		}
		one = &classQueue{}
		h.classes[k] = one
	}
	p.rank, one.tag = engine.Rank(h.clock, one.tag, c.Weight)
	one.queue, one.last = append(one.queue, p), now
	if len(one.queue) == 1 {
		heap.Push(&h.active, one)
	}
}

// popFair moves the first transactions of the queue to items.
func (h *fairQueue) popFair(items []*pending, limit int) []*pending {
	n := min(limit, len(h.unclassed))
	items = append(items, h.unclassed[:n]...)
	if h.unclassed = h.unclassed[n:]; len(h.unclassed) == 0 {
		h.unclassed = nil
	}
	for len(items) < limit && len(h.active) > 0 {
		next := h.active[0]
		p := next.queue[0]
		if next.queue = next.queue[1:]; len(next.queue) == 0 {
			next.queue = nil
			heap.Pop(&h.active)
		} else {
			heap.Fix(&h.active, 0)
		}
		h.clock = max(h.clock, p.rank)
		items = append(items, p)
	}
	h.waiting -= len(items)
	return items
}

// classHeap is a heap of classes, ordered by the rank of their first transaction.
type classHeap []*classQueue

func (t classHeap) Len() int { return len(t) }

func (t classHeap) Less(i, j int) bool { return t[i].queue[0].rank < t[j].queue[0].rank }

func (t classHeap) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

func (t *classHeap) Push(c any) { *t = append(*t, c.(*classQueue)) }

func (t *classHeap) Pop() any {
	last := len(*t) - 1
	c := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	return c
}

// pruneIdle removes classes that have had no transaction for some time.
func (h *fairQueue) pruneIdle(now time.Time) {
	if now.Sub(h.pruned) < classIdleTime {
		return
	}
	h.pruned = now
	for k, c := range h.classes {
		if len(c.queue) == 0 && now.Sub(c.last) > classIdleTime {
			delete(h.classes, k)
		}
	}
}

// classOf returns the fairness class of a transaction: the class that it names, or that of its run. A transaction whose
// run is not cached has no class.
func (s *Store) classOf(p *pending) store.Class {
	if p.transaction == nil {
		return store.Class{}
	}
	c := p.transaction.Class
	if len(p.transaction.Needs.Runs) > 0 {
		runs := s.cache.runs
		if s.cfg.Dialect.Shared {
			runs = s.memory.runs
		}
		if r, ok := runs.get(p.transaction.Needs.Runs[0]); ok {
			c.Namespace = r.Namespace
			c.Key, c.Weight = r.Fairness()
		}
	} else if c.Namespace == "" {
		return c
	}
	if c.Key == "" {
		c.Key = engine.DefaultClass
	}
	return c
}
