package dispatch

import (
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A poll queue contains the polls for one kind of task in one task queue, in order of arrival. A poll may be in several
// poll queues. It is linked into a poll queue only while it can accept a task of that kind, so that searches skip full
// polls.

// kindCount is the number of task kinds.
const kindCount = 4

var kindNames = [kindCount]protocol.TaskKind{
	protocol.KindWorkflow, protocol.KindActivity, protocol.KindQuery, protocol.KindValidation,
}

// priorityCount is the number of priorities.
const priorityCount = 10

// noTime is the time that is passed to rules of the engine that do not depend on the time.
var noTime time.Time

// kindOf returns the number of a kind, or -1 for an unknown one.
func kindOf(k protocol.TaskKind) int {
	for i, name := range kindNames {
		if name == k {
			return i
		}
	}
	return -1
}

type pollQueueKey struct {
	namespace, queue string
	kind             int
}

// pollQueue holds the polls that wait for one kind of task of one queue.
type pollQueue struct {
	key          pollQueueKey
	groups       map[groupKey]*group
	byRoutingKey map[string]*eligibility // routing keys of offered tasks and of notifications of waiting tasks
	name         []byte                  // buffer for the routing key that is searched
	open         []*group                // groups with polls for which tasks may wait
	asking       map[*Waiter]bool        // polls with hold 0: they end after one claim of the poll queue
	size         int                     // number of waiters for this poll queue, including those without a free slot
	// fairness classes share the queue, so no task may be dispatched before an older one
	fair bool
	// incremented by each notification of waiting tasks; the result of a claim is valid for its gen
	gen       uint64
	claiming  bool   // a claim is in progress; there is at most one
	lastClaim uint64 // number of the latest claim
	failures  int    // consecutive failed claims
	vain      int    // number of consecutive empty claims
	vainAt    time.Time
	err       error          // error of the latest claim
	throttle  *protocol.Wait // why a limit delayed tasks of the latest claim
	pause     *time.Timer
	used      uint64 // number of the last arrival for this poll queue
}

// entry is the position of a poll in one poll queue. It is linked while the poll can accept a task of that kind.
type entry struct {
	queue         *pollQueue
	spot          *spot
	waiter        *Waiter
	prev, next    *entry
	linked        bool
	claimAnswered bool // a claim for this waiter has returned
}

// link inserts e at its position by arrival. It searches from the end, because most polls have just arrived; a poll
// belongs further to the front only if it was full and has a free slot again.
func (e *entry) link() {
	if e.linked {
		return
	}
	e.linked = true
	g := e.spot.group
	before := g.last
	for before != nil && before.waiter.place > e.waiter.place {
		before = before.prev
	}
	e.prev = before
	if before == nil {
		e.next, g.first = g.first, e
	} else {
		e.next, before.next = before.next, e
	}
	if e.next == nil {
		g.last = e
	} else {
		e.next.prev = e
	}
}

func (e *entry) unlink() {
	if !e.linked {
		return
	}
	e.linked = false
	g := e.spot.group
	if e.prev == nil {
		g.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		g.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}

// group returns the group of a key, and creates it if necessary.
func (l *pollQueue) group(k groupKey) *group {
	g := l.groups[k]
	if g == nil {
		// The group starts at the current gen: no claim was sent for this class yet, so tasks for it may wait.
		g = &group{class: k.class, handOver: k.handOver, queue: l}
		g.readyGen, g.readyGenOf = l.gen, allOf(l.gen)
		l.groups[k] = g
		for _, n := range l.byRoutingKey {
			if n.admits(l, k.class) {
				n.fits = append(n.fits, g)
			}
		}
	}
	return g
}

// maxRoutingKeys is the maximum number of routing keys that a poll queue remembers. It is limited because clients
// choose the task types.
const maxRoutingKeys = 1000

// eligible returns the groups whose workers can serve tasks with this type, build and requirements.
func (l *pollQueue) eligible(typ, build string, requirements []string) *eligibility {
	l.name = append(append(append(l.name[:0], typ...), 0x1e), build...)
	for _, r := range requirements {
		l.name = append(append(l.name, 0x1e), r...)
	}
	if n := l.byRoutingKey[string(l.name)]; n != nil {
		return n
	}
	// Dropping all routing keys loses no state. Each routing key that is still in use then costs one search through the
	// groups.
	if len(l.byRoutingKey) >= maxRoutingKeys {
		clear(l.byRoutingKey)
	}
	n := &eligibility{RoutingKey: store.RoutingKey{Type: typ, BuildID: build, Requirements: requirements}}
	for _, g := range l.groups {
		if n.admits(l, g.class) {
			n.fits = append(n.fits, g)
		}
	}
	l.byRoutingKey[string(l.name)] = n
	return n
}

// recordReady records that tasks with these routing keys are ready in the queue; without routing keys, any tasks may be
// ready.
func (l *pollQueue) recordReady(keys []store.RoutingKey) {
	// Increment gen first: a claim in progress was sent at an older gen, so its empty result does not cover these
	// tasks.
	l.gen++
	if len(keys) == 0 {
		for _, g := range l.groups {
			g.readyGenOf = allOf(l.gen)
			g.recordReady()
		}
	}
	for i := range keys {
		for _, g := range l.eligible(keys[i].Type, keys[i].BuildID, keys[i].Requirements).fits {
			g.readyGenOf[min(max(keys[i].Priority, 0), priorityCount-1)] = l.gen
			g.recordReady()
		}
	}
}

func allOf(gen uint64) (of [priorityCount]uint64) {
	for i := range of {
		of[i] = gen
	}
	return of
}

func (g *group) recordReady() {
	g.readyGen = g.queue.gen
	g.openForClaim()
}

// openForClaim includes the group in the next claim of the poll queue.
func (g *group) openForClaim() {
	if !g.open {
		g.open = true
		g.queue.open = append(g.queue.open, g)
	}
}

// resume ends the pause after a failed claim.
func (l *pollQueue) resume() {
	if l.pause != nil {
		l.pause.Stop()
		l.pause = nil
	}
}

// pollQueue returns the poll queue of a key and creates it at the first use.
func (d *Dispatch) pollQueue(k pollQueueKey) *pollQueue {
	l := d.pollQueues[k]
	if l == nil {
		d.prune()
		l = &pollQueue{key: k, gen: 1, groups: map[groupKey]*group{}, byRoutingKey: map[string]*eligibility{}}
		d.pollQueues[k] = l
	}
	l.used = d.arrivals
	return l
}

const (
	pruneMinimum = 1024    // below this number of poll queues and workers, unused ones are not removed
	pruneAfter   = 100_000 // a poll queue or worker is removed after this number of arrivals without a use
)

// prune removes poll queues, workers and classes that have been unused for a long time, because clients choose the
// names in polls. If a removed name is used again, that costs one claim.
func (d *Dispatch) prune() {
	if len(d.pollQueues)+len(d.members) < d.pruneAt {
		return
	}
	old := func(used uint64) bool { return d.arrivals-used > pruneAfter }
	for k, m := range d.members {
		if old(m.used) && m.waiting() == nil {
			delete(d.members, k)
			continue
		}
		for ; m != nil; m = m.before {
			m.class.used = true
		}
	}
	for k, l := range d.pollQueues {
		if l.size == 0 && !l.claiming && old(l.used) {
			l.resume()
			delete(d.pollQueues, k)
			for _, m := range d.members {
				delete(m.spots, spotKey{l, false})
				delete(m.spots, spotKey{l, true})
			}
		}
	}
	for k, c := range d.classes {
		if !c.used {
			delete(d.classes, k)
		}
	}
	for _, l := range d.pollQueues {
		l.prune()
	}
	for _, c := range d.classes {
		c.used = false
	}
	d.pruneAt = max(pruneMinimum, 2*(len(d.pollQueues)+len(d.members)))
}

// prune removes the groups of classes without workers.
func (l *pollQueue) prune() {
	some := false
	for k, g := range l.groups {
		if !k.class.used && g.first == nil {
			delete(l.groups, k)
			some = true
		}
	}
	if !some {
		return
	}
	clear(l.byRoutingKey) // the routing keys refer to the groups
	kept := l.open[:0]
	for _, g := range l.open {
		if g.class.used {
			kept = append(kept, g)
		}
	}
	clear(l.open[len(kept):])
	l.open = kept
}
