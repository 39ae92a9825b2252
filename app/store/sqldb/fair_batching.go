package sqldb

import (
	"container/heap"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// Fair batching. Ranks order the tasks that wait for a worker. If the workers have enough slots, tasks wait for the
// committer instead: every step of a workflow is a change, and the changes of a class with a hundred open workflows
// make long batches. Each step of every other class waits for them, six or seven times per workflow. So while several
// classes have changes, batches are short, and a class with few changes gets into the next one.

// maxFairBatch is the maximum number of changes in a batch while several classes have changes: enough to be worth a
// commit, and few enough that the next batch comes soon.
const maxFairBatch = 10

// classIdleTime is the time for which a class counts after its last change: between the steps of a workflow it has
// none.
const classIdleTime = time.Second

// fairQueue are the changes that wait for a batch, by class, in the order of engine.Rank. Only the committer uses them.
type fairQueue struct {
	clock     int64
	unclassed []*pending // changes without a class go first: claims, which serve all classes, and heartbeats
	classes   map[classKey]*classQueue
	active    classHeap // the classes that have changes
	waiting   int
	pruned    time.Time
}

type classKey struct{ namespace, key string }

type classQueue struct {
	queue []*pending
	tag   int64
	last  time.Time
}

// fairBatch adds items and returns the changes of the next batch. Without fairness keys, or if only one class has
// changes, these are as many as fit.
func (s *Store) fairBatch(items []*pending) []*pending {
	h := &s.fairQueue
	if h.waiting == 0 && !s.queues.anyFair() {
		return items
	}
	now := time.Now()
	for _, p := range items {
		if p.ranked {
			// The change was waiting for an earlier batch already, so it is not ranked again.
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

// add puts a change in its place.
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

// popFair adds the changes that come first.
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

// classHeap is a heap of classes, ordered by the rank of their first change.
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

// pruneIdle drops classes that had nothing for a while.
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

// classOf returns the fairness class of a change: the one that it names, or that of its run. A change whose run is not
// cached has no class.
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
