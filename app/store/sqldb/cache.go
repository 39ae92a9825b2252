package sqldb

import (
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
)

// These are the committer's caches, so that a step need not read what the previous step wrote. They are correct only
// while no other process writes; on a shared database only immutable values are read from them.

// lru is a least-recently-used cache with a maximum total weight. It counts weights instead of entries, since a run
// with a thousand open rows uses as much memory as a thousand small runs.
type lru[K comparable, V any] struct {
	entries  map[K]*entry[K, V]
	head     entry[K, V] // head of a ring: head.next is the newest entry
	weight   int
	capacity int
	rounds   int // see evict.go
}

type entry[K comparable, V any] struct {
	key        K
	value      V
	weight     int
	used       int // round in which it was last used
	prev, next *entry[K, V]
}

func newLRU[K comparable, V any](capacity int) *lru[K, V] {
	l := &lru[K, V]{entries: map[K]*entry[K, V]{}, capacity: capacity}
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

func (l *lru[K, V]) add(k K, v V, weight int) {
	e := l.entries[k]
	if e == nil {
		e = &entry[K, V]{key: k}
		l.entries[k] = e
	} else {
		e.unlink()
	}
	l.weight += weight - e.weight
	e.value, e.weight = v, weight
	l.link(e)
	// The newest entry stays even if it alone exceeds the capacity: the current step uses it, and the next step would
	// have to read it again.
	for l.weight > l.capacity && l.head.prev != e {
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

func (l *lru[K, V]) clear() {
	*l = *newLRU[K, V](l.capacity)
	l.head.prev, l.head.next = &l.head, &l.head
}

func (l *lru[K, V]) len() int { return len(l.entries) }

func (l *lru[K, V]) nextRound() { l.rounds++ }

func (l *lru[K, V]) evict(limit int) bool {
	for range limit {
		last := l.head.prev
		if last == &l.head {
			l.entries = map[K]*entry[K, V]{} // a map does not shrink, so replace it
			return false
		}
		if last.used >= l.rounds-1 {
			return false
		}
		l.drop(last.key)
	}
	return true
}

func (l *lru[K, V]) link(e *entry[K, V]) {
	e.used = l.rounds
	e.prev, e.next = &l.head, l.head.next
	e.prev.next, e.next.prev = e, e
}

func (e *entry[K, V]) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

// historyTail is the end of a run's history, without gaps. It contains what a worker with the run in its sticky cache
// has not seen yet. It is valid on every database, since histories only grow.
type historyTail struct {
	events []history.Event
	bytes  int
}

// These are the maximum sizes of the caches: open runs with their open rows, sessions, workers, workflow IDs, and bytes
// of history.
const (
	maxRuns     = 20_000
	maxSessions = 20_000
	maxWorkers  = 5_000
	maxKeys     = 40_000
	maxHeads    = 1_000 // heads of runs that are not cached completely
	maxHistory  = 48 << 20
	maxEvents   = 2048 // events of one history
	// bytes of one history: the maximum of a page of history, so that a cached history fills a page
	maxTailBytes = 3 << 20
)

// cache contains the committer's cached rows. Runs, sessions, workers and workflows are used only if no other process
// writes the database. The workflow ID of a run and the past of a run never change, so they are always used.
type cache struct {
	runs      *lru[string, *run]
	heads     *lru[string, head] // heads of runs that only claims have read lately
	sessions  *lru[engine.SessionKey, *session]
	workers   *lru[engine.WorkerKey, *engine.Worker]
	workflows *lru[engine.WorkflowKey, *engine.Workflow]
	owners    *lru[string, engine.WorkflowKey]
	sessionOf *lru[taskKey, engine.SessionKey] // sessions of leased activities whose runs are not cached
	// sessions that had a row when last read; another process may have removed it
	stored     *lru[engine.SessionKey, struct{}]
	history    *lru[string, *historyTail]
	leads      *lru[string, record.Lead]
	watermarks map[string]int64 // nil: not read yet
}

// historyBytes returns the size of the history cache for a process with this memory limit.
func historyBytes(memory int64) int {
	if memory <= 0 {
		return maxHistory
	}
	return int(min(maxHistory, memory/32))
}

func newCache(history int) *cache {
	return &cache{
		runs: newLRU[string, *run](maxRuns), heads: newLRU[string, head](maxHeads),
		sessions:  newLRU[engine.SessionKey, *session](maxSessions),
		workers:   newLRU[engine.WorkerKey, *engine.Worker](maxWorkers),
		workflows: newLRU[engine.WorkflowKey, *engine.Workflow](maxKeys),
		owners:    newLRU[string, engine.WorkflowKey](maxKeys),
		sessionOf: newLRU[taskKey, engine.SessionKey](maxSessions),
		stored:    newLRU[engine.SessionKey, struct{}](maxSessions), history: newLRU[string, *historyTail](history),
		leads: newLRU[string, record.Lead](maxRuns),
	}
}

// forget removes everything that a failed batch may have changed.
func (c *cache) forget(b *batch) {
	for id := range b.runs {
		c.runs.drop(id)
		c.heads.drop(id)
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
	c.watermarks = nil
}

// clear removes all entries.
func (c *cache) clear() {
	c.runs.clear()
	c.heads.clear()
	c.sessions.clear()
	c.workers.clear()
	c.workflows.clear()
	c.history.clear()
	c.watermarks = nil
}

// remember updates the cache with the rows of a committed batch.
func (c *cache) remember(b *batch, trusted bool) {
	// Remove deleted rows first: the same batch may have used a deleted name again, and that row must stay.
	c.removed(b)
	for id, r := range b.runs {
		r.written()
		c.head(id, r)
		if !trusted || r.Run == nil || r.partial {
			continue
		}
		// A closed run is seldom needed again, so do not cache it.
		if !r.Status.Open() {
			c.runs.drop(id)
			continue
		}
		c.runs.add(id, r, r.weight())
	}
	for id, evs := range b.events {
		c.append(id, evs, b.runs[id].Status.Open())
	}
	for id, l := range b.leads {
		c.leads.add(id, l, 1)
	}
	if !trusted {
		c.rememberStored(b)
		return
	}
	for k, s := range b.sessions {
		if s.Session == nil || s.deleted {
			c.sessions.drop(k)
		} else {
			s.dirty = false
			c.sessions.add(k, s, 1)
		}
	}
	for k, w := range b.workers {
		if w.Worker == nil {
			c.workers.drop(k)
		} else {
			c.workers.add(k, w.Worker, 1)
		}
	}
	for k, w := range b.workflows {
		if w.Workflow != nil {
			c.workflows.add(k, w.Workflow, 1)
		}
	}
	if b.watermarks != nil {
		c.watermarks = b.watermarks
	}
	if b.raisedWatermarks != nil {
		c.watermarks = nil
	}
}

// weight returns the memory that a history uses in the cache: its payloads, and a few hundred bytes for each event.
func (p *historyTail) weight() int { return p.bytes + 256*(len(p.events)+1) }

// weight returns the weight of a run in a cache of runs.
func (r *run) weight() int {
	return 1 + (r.Activities.Len()+r.Timers.Len()+r.Waits.Len()+r.Signals.Len()+r.Unread.Len()+r.Updates.Len()+
		r.Children.Len()+r.Attached.Len())/4
}

// head is the part of a run that a claim needs: the claim leases an activity by the activity's row and does not write
// the run's row. A run with many tasks that wait for long is not cached, and without its head each claim would have to
// read the run.
type head struct {
	engine.Head
	version int64 // version of its row, on a shared database
	stored  readyRow
	was     *settled
}

// head caches the head of a run that a batch did not write; otherwise it removes the head from the cache.
func (c *cache) head(id string, r *run) {
	if r.Run == nil || !r.partial || r.wrote {
		c.heads.drop(id)
		return
	}
	c.heads.add(id, head{r.Head, r.version, r.stored, r.was}, 1)
}

// partly returns the cached head of a run without its open rows, or nil if this version is not cached.
func (c *cache) partly(id string, version int64) *run {
	h, ok := c.heads.get(id)
	if !ok || h.version != version {
		return nil
	}
	return &run{Run: &engine.Run{Head: h.Head}, partial: true, version: h.version, stored: h.stored, was: h.was}
}

// rememberStored records which sessions have rows, and the sessions of tasks.
func (c *cache) rememberStored(b *batch) {
	for k, s := range b.sessions {
		if s.Session == nil || s.deleted {
			c.stored.drop(k)
		} else {
			c.stored.add(k, struct{}{}, 1)
		}
	}
	for _, l := range b.leasedIn {
		c.sessionOf.add(l.taskKey, l.session, 1)
	}
}

// append extends the cached part of a history. Events that do not continue it replace it.
func (c *cache) append(id string, evs appended, open bool) {
	if !open {
		c.history.drop(id)
		return
	}
	p, ok := c.history.get(id)
	// Only the events after the inherited signals are cached; inherited signals are read from their inbox.
	for k := len(evs.list) - 1; k > 0; k-- {
		if evs.list[k].Seq != evs.list[k-1].Seq+1 {
			evs.list = evs.list[k:]
			break
		}
	}
	if !ok || evs.list[0].Seq != p.last()+1 {
		p = &historyTail{}
	}
	p.events = append(p.events, evs.list...)
	p.bytes += evs.bytes
	p.trim()
	if len(p.events) == 0 {
		c.history.drop(id)
		return
	}
	c.history.add(id, p, p.weight())
}

// trim shortens a history that has become too long to the later half of the maximum. It copies that half, because
// others may still read the old slice.
func (p *historyTail) trim() {
	n := len(p.events)
	if n <= maxEvents && p.bytes <= maxTailBytes {
		return
	}
	kept := min(n, maxEvents/2)
	if p.bytes > maxTailBytes {
		kept = min(kept, int(int64(n)*(maxTailBytes/2)/int64(p.bytes))) // as if all events had the same size
	}
	p.bytes = int(int64(p.bytes) * int64(kept) / int64(n))
	p.events = append([]history.Event(nil), p.events[n-kept:]...)
}

func (p *historyTail) last() int64 {
	if len(p.events) == 0 {
		return 0
	}
	return p.events[len(p.events)-1].Seq
}

// at returns a cached event by its number, or nil.
func (p *historyTail) at(seq int64) *history.Event {
	if len(p.events) == 0 {
		return nil
	}
	i := seq - p.events[0].Seq
	if i < 0 || i >= int64(len(p.events)) {
		return nil
	}
	return &p.events[i]
}

// events returns the cached end of a run's history and its size; nil if it does not end with event last.
func (c *cache) events(id string, last int64) (list []history.Event, bytes int) {
	// The capacity is cut to the length, because the next batch appends to the cached slice and must not write into a
	// slice that others read.
	if p, ok := c.history.get(id); ok && p.last() == last {
		return p.events[:len(p.events):len(p.events)], p.bytes
	}
	return nil, 0
}
