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

// mostShared is the maximum number of changes in a batch while several classes have changes: enough to be worth a
// commit, and few enough that the next batch comes soon.
const mostShared = 10

// sharedFor is the time for which a class counts after its last change: between the steps of a workflow it has none.
const sharedFor = time.Second

// shares are the changes that wait for a batch, by class, in the order of engine.Rank. Only the committer uses them.
type shares struct {
	clock   int64
	nobody  []*pending // changes without a class go first: claims, which serve all classes, and heartbeats
	classes map[classKey]*share
	line    turns // the classes that have changes
	waiting int
	looked  time.Time
}

type classKey struct{ namespace, key string }

type share struct {
	queue []*pending
	tag   int64
	last  time.Time
}

// shared adds items and returns the changes of the next batch. Without fairness keys, or if only one class has changes,
// these are as many as fit.
func (s *Store) shared(items []*pending) []*pending {
	h := &s.shares
	if h.waiting == 0 && !s.queues.anyFair() {
		return items
	}
	now := time.Now()
	for _, p := range items {
		if p.behind {
			// The change was waiting for an earlier batch already, so it is not ranked again.
			h.nobody = append(h.nobody, p)
		} else {
			p.behind = true
			h.add(p, s.classOf(p), now)
		}
	}
	h.waiting += len(items)
	h.forget(now)
	most := mostChanges
	if len(h.classes) > 1 {
		most = min(max(mostShared, len(h.classes)), mostChanges)
	}
	return h.takeFair(items[:0], most)
}

// add puts a change in its place.
func (h *shares) add(p *pending, c store.Class, now time.Time) {
	if c.Key == "" {
		h.nobody = append(h.nobody, p)
		return
	}
	k := classKey{c.Namespace, c.Key}
	one := h.classes[k]
	if one == nil {
		if h.classes == nil {
			h.classes = map[classKey]*share{}
		}
		one = &share{}
		h.classes[k] = one
	}
	p.rank, one.tag = engine.Rank(h.clock, one.tag, c.Weight)
	one.queue, one.last = append(one.queue, p), now
	if len(one.queue) == 1 {
		heap.Push(&h.line, one)
	}
}

// takeFair adds the changes that come first.
func (h *shares) takeFair(items []*pending, most int) []*pending {
	n := min(most, len(h.nobody))
	items = append(items, h.nobody[:n]...)
	if h.nobody = h.nobody[n:]; len(h.nobody) == 0 {
		h.nobody = nil
	}
	for len(items) < most && len(h.line) > 0 {
		first := h.line[0]
		p := first.queue[0]
		if first.queue = first.queue[1:]; len(first.queue) == 0 {
			first.queue = nil
			heap.Pop(&h.line)
		} else {
			heap.Fix(&h.line, 0)
		}
		h.clock = max(h.clock, p.rank)
		items = append(items, p)
	}
	h.waiting -= len(items)
	return items
}

// turns is a heap of classes, ordered by the rank of their first change.
type turns []*share

func (t turns) Len() int { return len(t) }

func (t turns) Less(i, j int) bool { return t[i].queue[0].rank < t[j].queue[0].rank }

func (t turns) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

func (t *turns) Push(c any) { *t = append(*t, c.(*share)) }

func (t *turns) Pop() any {
	last := len(*t) - 1
	c := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	return c
}

// forget drops classes that had nothing for a while.
func (h *shares) forget(now time.Time) {
	if now.Sub(h.looked) < sharedFor {
		return
	}
	h.looked = now
	for k, c := range h.classes {
		if len(c.queue) == 0 && now.Sub(c.last) > sharedFor {
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
