package sqldb

import (
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
)

// lru is a map that forgets what was not used for longest once its entries weigh too much.
type lru[K comparable, V any] struct {
	entries map[K]*entry[K, V]
	head    entry[K, V] // ring: head.next is the newest
	weight  int
	most    int
}

type entry[K comparable, V any] struct {
	key        K
	value      V
	weight     int
	prev, next *entry[K, V]
}

func newLRU[K comparable, V any](most int) *lru[K, V] {
	l := &lru[K, V]{entries: map[K]*entry[K, V]{}, most: most}
	l.head.prev, l.head.next = &l.head, &l.head
	return l
}

func (l *lru[K, V]) get(k K) (v V, ok bool) {
	e := l.entries[k]
	if e == nil {
		return v, false
	}
	e.unlink()
	l.link(e)
	return e.value, true
}

func (l *lru[K, V]) put(k K, v V, weight int) {
	l.drop(k)
	e := &entry[K, V]{key: k, value: v, weight: weight}
	l.entries[k] = e
	l.link(e)
	l.weight += weight
	for l.weight > l.most && l.head.prev != e {
		l.drop(l.head.prev.key)
	}
}

func (l *lru[K, V]) drop(k K) {
	if e := l.entries[k]; e != nil {
		e.unlink()
		delete(l.entries, k)
		l.weight -= e.weight
	}
}

func (l *lru[K, V]) clear() { *l = *newLRU[K, V](l.most); l.head.prev, l.head.next = &l.head, &l.head }

func (l *lru[K, V]) link(e *entry[K, V]) {
	e.prev, e.next = &l.head, l.head.next
	e.prev.next, e.next.prev = e, e
}

func (e *entry[K, V]) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

// past is the beginning of a run's history, event k at index k-1. It is true on every database, since history is only appended to.
type past struct {
	events []history.Event
	bytes  int
}

// The most the caches keep: open runs with their open rows, sessions, workers, workflow ids, and bytes of history.
const (
	mostRuns     = 20_000
	mostSessions = 20_000
	mostWorkers  = 5_000
	mostKeys     = 40_000
	mostHistory  = 48 << 20
	longest      = 256 // events of a history that is kept
)

// cache is what the committer remembers between batches. Runs, sessions, workers and workflows are used only when no other process writes the
// database; where a run belongs and what its past was never changes, so that is remembered everywhere.
type cache struct {
	runs      *lru[string, *run]
	sessions  *lru[engine.SessionKey, *session]
	workers   *lru[engine.WorkerKey, *engine.Worker]
	workflows *lru[engine.WorkflowKey, *engine.Workflow]
	owners    *lru[string, engine.WorkflowKey]
	history   *lru[string, *past]
	floors    map[string]int64 // nil: not read yet
}

func newCache() *cache {
	return &cache{
		runs: newLRU[string, *run](mostRuns), sessions: newLRU[engine.SessionKey, *session](mostSessions),
		workers: newLRU[engine.WorkerKey, *engine.Worker](mostWorkers), workflows: newLRU[engine.WorkflowKey, *engine.Workflow](mostKeys),
		owners: newLRU[string, engine.WorkflowKey](mostKeys), history: newLRU[string, *past](mostHistory),
	}
}

// forget drops everything that a batch which was not committed may have touched.
func (c *cache) forget(b *batch) {
	for id := range b.runs {
		c.runs.drop(id)
	}
	for k := range b.sessions {
		c.sessions.drop(k)
	}
	for k := range b.workers {
		c.workers.drop(k)
	}
	for k := range b.workflows {
		c.workflows.drop(k)
	}
	c.floors = nil
}

// clear drops everything.
func (c *cache) clear() {
	c.runs.clear()
	c.sessions.clear()
	c.workers.clear()
	c.workflows.clear()
	c.history.clear()
	c.floors = nil
}

// remember takes over what a committed batch left.
func (c *cache) remember(b *batch, trusted bool) {
	c.removed(b)
	for id, r := range b.runs {
		r.settle()
		if !trusted || r.Run == nil || r.partial {
			continue
		}
		if !r.Status.Open() {
			c.runs.drop(id)
			continue
		}
		c.runs.put(id, r, 1+(r.Activities.Len()+r.Timers.Len()+r.Waits.Len()+r.Signals.Len()+r.Unread.Len()+r.Updates.Len()+r.Children.Len())/4)
	}
	for id, evs := range b.events {
		c.append(id, evs, b.runs[id].Status.Open())
	}
	if !trusted {
		return
	}
	for k, s := range b.sessions {
		if s.Session == nil || s.deleted {
			c.sessions.drop(k)
		} else {
			s.dirty = false
			c.sessions.put(k, s, 1)
		}
	}
	for k, w := range b.workers {
		if w.Worker == nil {
			c.workers.drop(k)
		} else {
			c.workers.put(k, w.Worker, 1)
		}
	}
	for k, w := range b.workflows {
		if w.Workflow != nil {
			c.workflows.put(k, w.Workflow, 1)
		}
	}
	if b.floors != nil || b.raised {
		c.floors = b.floors
	}
}

// append lengthens a history that is kept, if these events follow on it.
func (c *cache) append(id string, evs appended, open bool) {
	p, ok := c.history.get(id)
	if !ok {
		p = &past{}
	}
	n := len(p.events) + len(evs.list)
	if !open || n > longest || evs.list[0].Seq != int64(len(p.events))+1 {
		c.history.drop(id)
		return
	}
	p.events = append(p.events, evs.list...)
	p.bytes += evs.bytes
	c.history.put(id, p, p.bytes)
}

// events returns the kept history of a run as long as it is, with its size; nil when it is not kept up to last.
func (c *cache) events(id string, last int64) (list []history.Event, bytes int) {
	if p, ok := c.history.get(id); ok && int64(len(p.events)) == last {
		return p.events[:last:last], p.bytes
	}
	return nil, 0
}
