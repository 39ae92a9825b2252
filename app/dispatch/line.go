package dispatch

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// kinds is how many kinds of tasks there are.
const kinds = 4

var kindNames = [kinds]protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity, protocol.KindQuery, protocol.KindValidation}

// kindOf is the number of a kind, -1 for one that does not exist.
func kindOf(k protocol.TaskKind) int {
	for i, name := range kindNames {
		if name == k {
			return i
		}
	}
	return -1
}

type lineKey struct {
	namespace, queue string
	kind             int
}

// line is who waits for one kind of task of one queue, longest wait first.
type line struct {
	key         lineKey
	first, last *entry
	size        int    // waiters that asked for this line, those without a free slot included
	gen         uint64 // rises with every backlog told: what a claim found is true of the gen it was sent at
	claiming    bool   // a claim is in flight; there is never a second one
	lastClaim   uint64 // number of its latest claim
	failures    int    // failed claims in a row
	vain        int    // empty claims in a row
	vainAt      time.Time
	err         error  // of the latest claim
	throttle    string // why a budget withheld tasks from the latest claim
	pause       *time.Timer
	used        uint64 // arrival that asked for it last
}

// entry is a waiter's place in one line. It is linked while the waiter can take a task of that kind.
type entry struct {
	line       *line
	waiter     *Waiter
	prev, next *entry
	linked     bool
	tried      bool // a claim for this waiter was answered
}

// link puts e at the place its arrival gives it.
func (l *line) link(e *entry) {
	if e.linked {
		return
	}
	e.linked = true
	before := l.last
	for before != nil && before.waiter.place > e.waiter.place {
		before = before.prev
	}
	e.prev = before
	if before == nil {
		e.next, l.first = l.first, e
	} else {
		e.next, before.next = before.next, e
	}
	if e.next == nil {
		l.last = e
	} else {
		e.next.prev = e
	}
}

func (l *line) unlink(e *entry) {
	if !e.linked {
		return
	}
	e.linked = false
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}

// resume ends the pause after a failed claim.
func (l *line) resume() {
	if l.pause != nil {
		l.pause.Stop()
		l.pause = nil
	}
}

// line returns the line of a key, making it if nobody asked before.
func (d *Dispatch) line(k lineKey) *line {
	l := d.lines[k]
	if l == nil {
		d.prune()
		l = &line{key: k, gen: 1}
		d.lines[k] = l
	}
	l.used = d.arrivals
	return l
}

const (
	pruneFloor = 1024    // fewer lines and classes than this are never forgotten
	pruneKeep  = 100_000 // arrivals for which an unused one is kept
)

// prune forgets lines and classes that nobody used for long: names in polls come from outside, and forgetting one only costs a claim when it is asked
// for again.
func (d *Dispatch) prune() {
	if len(d.lines)+len(d.classes) < d.pruneAt {
		return
	}
	old := func(used uint64) bool { return d.arrivals-used > pruneKeep }
	for k, c := range d.classes {
		if c.size == 0 && old(c.used) {
			delete(d.classes, k)
		}
	}
	for k, l := range d.lines {
		if l.size == 0 && !l.claiming && old(l.used) {
			l.resume()
			delete(d.lines, k)
			for _, c := range d.classes {
				delete(c.empty, l)
			}
		}
	}
	d.pruneAt = max(pruneFloor, 2*(len(d.lines)+len(d.classes)))
}
