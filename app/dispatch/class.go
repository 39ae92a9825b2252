package dispatch

import (
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A fleet may have thousands of equal workers, so eligibility is computed once per class of workers, and a task checks
// only eligible classes. The result of an empty claim is stored per worker, since workers of one class may hold
// different sessions.

// class is a set of workers with equal routing: they registered the same types, capabilities and build. Whether they
// may run a task is computed once per class. Afterwards a task costs nothing for workers that cannot run it, however
// many of them poll.
type class struct {
	like *engine.Worker // one of the workers
	used bool           // marks classes that are in use, during prune
}

// group contains the polls of one class in one poll queue: either its polls for a hand-over, or the others.
type group struct {
	*class
	handOver    bool
	queue       *pollQueue
	first, last *entry                // polls that can accept a task, the longest-waiting first
	readyGen    uint64                // gen at which tasks for the group remained in the queue
	readyGenOf  [priorityCount]uint64 // the same per priority
	open        bool                  // the group is in pollQueue.open
}

// member is the routing state of one worker. The result of an empty claim is valid only for this worker, since other
// workers of its class may own other sessions. So the results of empty claims are stored per worker.
type member struct {
	worker *engine.Worker
	class  *class
	spots  map[spotKey]*spot
	age    uint64    // incremented by forget, so that results of earlier claims are ignored
	polls  []*Waiter // in order of arrival
	used   uint64    // number of the last arrival of the worker
	before *member   // previous member of the same worker ID (other types or another process) that still has polls
}

// spotKey identifies a spot of a worker. Polls for a hand-over receive only tasks of the sessions that the worker hands
// over, so their empty claims do not mean that the poll queue has no task for the worker's other polls.
type spotKey struct {
	queue    *pollQueue
	handOver bool
}

type groupKey struct {
	class    *class
	handOver bool
}

// spot records the last empty claim of one worker in a poll queue.
type spot struct {
	group *group
	empty uint64 // gen of the poll queue at which a claim for this worker found no further task; 0: no such claim yet
}

// hasNoOlderTask reports whether, according to the notifications so far, the poll queue has no older ready task for
// this worker. Both values are gens of the poll queue, so the comparison shows which came last: the empty claim or the
// notification of waiting tasks.
func (s *spot) hasNoOlderTask() bool { return s.empty >= s.group.readyGen }

// mayHaveUrgentTask reports whether the poll queue may contain a task for this worker with a more urgent priority.
func (s *spot) mayHaveUrgentTask(priority int) bool {
	return slices.ContainsFunc(s.group.readyGenOf[:min(max(priority, 0), priorityCount)], func(gen uint64) bool {
		return gen > s.empty
	})
}

// spot returns the worker's spot in a poll queue, of its polls for a hand-over or of the others.
func (m *member) spot(l *pollQueue, handOver bool) *spot {
	k := spotKey{l, handOver}
	s := m.spots[k]
	if s == nil {
		s = &spot{group: l.group(groupKey{m.class, handOver})}
		m.spots[k] = s
	}
	return s
}

// forgetEmptyClaims marks all poll queues as possibly not empty for the worker.
func (m *member) forgetEmptyClaims() {
	for _, s := range m.spots {
		s.empty = 0
	}
	m.age++
}

// removePoll removes a poll of the worker.
func (m *member) removePoll(w *Waiter) {
	if i := slices.Index(m.polls, w); i >= 0 {
		m.polls = slices.Delete(m.polls, i, i+1)
	}
}

// waiting returns m, or the previous member of the same worker ID that still has open polls. Previous members stay
// reachable while they have polls, because a drain or removal of the worker must also end polls from before a new
// registration.
func (m *member) waiting() *member {
	for m != nil && len(m.polls) == 0 {
		m = m.before
	}
	if m != nil {
		m.before = m.before.waiting()
	}
	return m
}

// member returns the state of the worker of a poll. A registration with different routing starts a new member; a
// heartbeat does not.
func (d *Dispatch) member(w *engine.Worker) *member {
	k := w.Key()
	m := d.members[k]
	switch {
	case m == nil || m.worker != w && !routesAlike(m.worker, w):
		// Prune only for a worker that is new here, since only new workers make the map grow.
		if m == nil {
			d.prune()
		}
		m = &member{worker: w, class: d.class(w), spots: map[spotKey]*spot{}, before: m.waiting()}
		d.members[k] = m
	default:
		m.worker = w
	}
	m.used = d.arrivals
	return m
}

// class returns the class of a worker.
func (d *Dispatch) class(w *engine.Worker) *class {
	every := ""
	if w.AnyActivity {
		every = "every activity"
	}
	list := func(of []string) string { return strings.Join(of, "\x1f") }
	key := strings.Join(
		[]string{every, w.BuildID, w.Group, list(w.WorkflowTypes), list(w.ActivityTypes), list(w.Capabilities)}, "\x1e",
	)
	c := d.classes[key]
	if c == nil {
		c = &class{like: w}
		d.classes[key] = c
	}
	return c
}

// pollers returns the open polls of all processes of a worker.
func (d *Dispatch) pollers(k engine.WorkerKey) (list []*Waiter) {
	for m := d.members[k].waiting(); m != nil; m = m.before {
		list = append(list, m.polls...)
	}
	return list
}

// Polls returns the IDs of the open polls of a worker for tasks of a kind.
func (d *Dispatch) Polls(k engine.WorkerKey, kind protocol.TaskKind) (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.pollers(k) {
		if !w.detached && slices.Contains(w.spec.Kinds, kind) {
			names = append(names, w.spec.Lessee.PollID)
		}
	}
	return names
}

// routesAlike reports whether two registrations of a worker are equal for routing.
func routesAlike(a, b *engine.Worker) bool {
	return a.Incarnation == b.Incarnation && a.BuildID == b.BuildID && a.Group == b.Group && a.Release == b.Release &&
		a.MaxSessions == b.MaxSessions && a.SameResources(b) &&
		a.AnyActivity == b.AnyActivity && slices.Equal(a.WorkflowTypes, b.WorkflowTypes) &&
		slices.Equal(a.ActivityTypes, b.ActivityTypes) &&
		slices.Equal(a.Capabilities, b.Capabilities)
}

// eligibility is a routing key of tasks of one kind, with the groups whose workers may run tasks with that key.
type eligibility struct {
	store.RoutingKey
	fits []*group
}

// admits reports whether the workers of a class may run tasks with the routing key, by the rules of the engine. The
// operators' settings of the queue may change at any time, so they are not part of this result and are checked for each
// task.
func (n *eligibility) admits(l *pollQueue, c *class) bool {
	return engine.Admits(engine.TaskRequirements{
		Kind: kindNames[l.key.kind], Type: n.Type, BuildID: n.BuildID, Requirements: n.Requirements,
	},
		engine.Lessee{Worker: c.like}, noTime)
}

// longest returns the longest-waiting poll whose worker may run tasks with the routing key outside of sessions. It
// checks only the first poll of each group, since all polls of a group are eligible, and no poll for a hand-over.
func (n *eligibility) longest(settings *engine.Queue) *Waiter {
	var best *entry
	for _, g := range n.fits {
		if e := g.first; e != nil && !g.handOver && (best == nil || e.waiter.place < best.waiter.place) &&
			!settings.Withholds(g.like) {
			best = e
		}
	}
	if best == nil {
		return nil
	}
	return best.waiter
}

// longestFor returns the longest-waiting poll for the routing key for which may returns true. may depends on the
// worker, not only on its class.
func (n *eligibility) longestFor(may func(*Waiter) bool) *Waiter {
	var best *Waiter
	for _, g := range n.fits {
		var refused *member // a worker often has many consecutive polls
		for e := g.first; e != nil && (best == nil || e.waiter.place < best.place); e = e.next {
			if w := e.waiter; w.member != refused {
				if may(w) {
					best = w
					break
				}
				refused = w.member
			}
		}
	}
	return best
}
