package dispatch

import (
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A task that becomes ready is offered here before its batch is written, so that its lease is part of the same commit
// and the poll gets it a round trip sooner. Until the outcome of the commit is known, only a slot of the poll is
// reserved: a task that may not be stored must not be delivered.

// Reserve selects the poll that will receive the task. The next activity after a result goes to the worker that sent
// the eager workflow task. A workflow task goes to a process with the run in its sticky cache, otherwise to the
// longest-waiting eligible poll. A task of a session goes to the process that owns the session or, with First, to any
// eligible poll that may acquire it; the store counts the sessions of this poll's worker.
//
// No poll is selected while older ready tasks for it may wait in the queue: a new task must not be delivered before
// them. The store then calls Backlog, and a claim leases them in order. Only a task with MayOvertake is an exception:
// if no other poll is available, it goes to the poll that created it, unless a more urgent task may be ready.
func (d *Dispatch) Reserve(o store.Offer) store.Reservation {
	k := kindOf(o.Kind)
	if k < 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.pollQueues[pollQueueKey{o.Namespace, o.Queue, k}]
	if l == nil || d.closed {
		return nil
	}
	l.fair = o.Fair
	want := engine.TaskRequirements{
		Kind: o.Kind, Type: o.Type, BuildID: o.BuildID, Requirements: o.Requirements, Session: o.Session, Queue: o.Settings,
	}
	w := d.choosePoll(l, want, o)
	for w != nil && !w.budget.fits(w.size(&o)) {
		// The task does not fit into the poll's response. The poll must not receive a smaller task that follows this
		// one.
		w.stopped = true
		w.relink()
		w = d.choosePoll(l, want, o)
	}
	if w == nil {
		return nil
	}
	size := w.size(&o)
	if !w.budget.memory.Try(size) {
		return nil // a claim will wait until this memory is free
	}
	w.budget.reserve(size)
	// Older tasks of other kinds count, too: a poll with one slot that receives this task delays all of them.
	past := slices.ContainsFunc(w.entries, func(e entry) bool { return !e.spot.hasNoOlderTask() })
	w.reserveSlots(k, 1)
	d.beginWork()
	return &reservation{waiter: w, kind: k, overtook: past, size: size}
}

// choosePoll returns the poll that receives the task, or nil.
func (d *Dispatch) choosePoll(l *pollQueue, want engine.TaskRequirements, o store.Offer) *Waiter {
	w := d.eagerWaiter(l, want, o)
	if w == nil {
		w = d.stickyWaiter(l, want, o)
	}
	if w == nil {
		w = d.longest(l, want, o)
	}
	if w == nil && o.MayOvertake {
		w = d.creatorPoll(l, want, o)
	}
	return w
}

// eagerWaiter returns the poll of the worker that sent the eager workflow task which created this task, if the poll has
// a free slot and no older task for it is ready.
func (d *Dispatch) eagerWaiter(l *pollQueue, want engine.TaskRequirements, o store.Offer) *Waiter {
	// If fairness classes share the queue, the order of the queue covers all waiting tasks, so this task must not be
	// delivered before them.
	if o.Kind != protocol.KindActivity || o.Fair || len(d.runWaiters) == 0 {
		return nil
	}
	return d.runWaiter(l, want, o, func(w *Waiter, s *spot) bool { return w.spec.Run != "" && s.hasNoOlderTask() })
}

// creatorPoll returns the poll whose outcomes or eager workflow task created the task, unless a more urgent task may be
// ready for it.
func (d *Dispatch) creatorPoll(l *pollQueue, want engine.TaskRequirements, o store.Offer) *Waiter {
	var sticky []store.Process
	if o.Kind == protocol.KindWorkflow && d.sticky != nil {
		sticky = d.sticky(o.Run)
	}
	return d.runWaiter(l, want, o, func(w *Waiter, s *spot) bool {
		// Another worker would have to read and replay the run, which one of these processes has in its cache.
		caches := len(sticky) == 0 || slices.ContainsFunc(sticky, func(p store.Process) bool {
			return p.Worker == w.member.worker.Key() && p.Incarnation == w.member.worker.Incarnation
		})
		return caches && !s.mayHaveUrgentTask(o.Priority)
	})
}

// runWaiter returns the first waiter for tasks of the run that may run this task and has a free slot.
func (d *Dispatch) runWaiter(
	l *pollQueue, want engine.TaskRequirements, o store.Offer, fits func(*Waiter, *spot) bool,
) *Waiter {
	for _, w := range d.runWaiters[o.Run] {
		e := w.entry(l)
		if e == nil || w.room(l.key.kind) <= 0 || !fits(w, e.spot) {
			continue
		}
		lessee := w.spec.Lessee
		lessee.Counted = o.AcquiresSession
		if engine.Admits(want, lessee, o.Now) {
			return w
		}
	}
	return nil
}

// longest returns the longest-waiting eligible poll, or nil if there is none or an older task for it may be ready.
func (d *Dispatch) longest(l *pollQueue, want engine.TaskRequirements, o store.Offer) (w *Waiter) {
	switch s := o.Session; {
	case s == nil:
		w = l.eligible(o.Type, o.BuildID, o.Requirements).longest(o.Settings)
	case o.AcquiresSession:
		w = l.eligible(o.Type, o.BuildID, o.Requirements).longestFor(func(w *Waiter) bool {
			lessee := w.spec.Lessee
			lessee.Counted = true
			return engine.Admits(want, lessee, o.Now)
		})
	default:
		m := d.members[engine.WorkerKey{Namespace: o.Namespace, ID: s.Owner}]
		if m == nil || m.worker.Incarnation != s.Incarnation || !s.HeldBy(m.worker.ID, o.Now) {
			return nil
		}
		w = m.longest(l, want, o)
	}
	if w == nil || !w.entry(l).spot.hasNoOlderTask() {
		return nil
	}
	return w
}

// longest returns the longest-waiting poll of the worker that may receive the task.
func (m *member) longest(l *pollQueue, want engine.TaskRequirements, o store.Offer) *Waiter {
	for _, w := range m.polls {
		if e := w.entry(l); e != nil && e.linked && engine.Admits(want, w.spec.Lessee, o.Now) {
			return w
		}
	}
	return nil
}

// stickyWaiter returns the longest-waiting poll of the best process with the run in its sticky cache and without an
// older ready task; nil if none of these processes polls.
func (d *Dispatch) stickyWaiter(l *pollQueue, want engine.TaskRequirements, o store.Offer) *Waiter {
	if o.Kind != protocol.KindWorkflow || d.sticky == nil {
		return nil
	}
	for _, p := range d.sticky(o.Run) {
		m := d.members[p.Worker]
		if m == nil || m.worker.Incarnation != p.Incarnation {
			continue
		}
		if s := m.spots[spotKey{queue: l}]; s == nil || !s.hasNoOlderTask() {
			continue
		}
		if w := m.longest(l, want, o); w != nil {
			return w
		}
	}
	return nil
}

// entry returns the waiter's entry in a poll queue, or nil if it does not poll there.
func (w *Waiter) entry(l *pollQueue) *entry {
	for i := range w.entries {
		if w.entries[i].queue == l {
			return &w.entries[i]
		}
	}
	return nil
}

// reservation is one slot of a waiter that is reserved until the outcome of a commit is known.
type reservation struct {
	waiter   *Waiter
	kind     int
	size     int64 // bytes reserved in its response
	overtook bool
	ended    bool
}

// Lessee returns the worker that will receive the task.
func (r *reservation) Lessee() engine.Lessee { return r.waiter.spec.Lessee }

// Overtakes reports whether the task is delivered before older tasks that the worker could have run.
func (r *reservation) Overtakes() bool { return r.overtook }

// Deliver delivers the committed task to the poll, or releases it if the poll has ended.
func (r *reservation) Deliver(t store.Leased) {
	w, d := r.waiter, r.waiter.d
	d.mu.Lock()
	defer d.mu.Unlock()
	r.finish()
	defer d.endWork()
	if w.detached {
		w.pending--
		d.returnTasks([]store.Leased{t})
		return
	}
	d.count.Handovers++
	w.got = append(w.got, t)
	w.release(r.kind, 0)
}

// Undo frees the slot and restores the poll's previous position.
func (r *reservation) Undo() {
	w, d := r.waiter, r.waiter.d
	d.mu.Lock()
	defer d.mu.Unlock()
	r.finish()
	defer d.endWork()
	d.count.Undone++
	w.budget.undo(r.size)
	w.release(r.kind, 1)
	d.startClaims(w)
}

// Doubt ends a poll with an ID, which the worker can repeat to learn the outcome (see doubt). Any other poll continues.
func (r *reservation) Doubt(err error) {
	w, d := r.waiter, r.waiter.d
	d.mu.Lock()
	defer d.mu.Unlock()
	r.finish()
	defer d.endWork()
	d.count.Undone++
	d.endUncertain(w, err)
	w.budget.undo(r.size)
	w.release(r.kind, 1)
	d.startClaims(w)
}

// endUncertain ends a poll whose commit or claim failed with an unknown outcome, because a task may have been leased to
// it. The lease contains the poll ID, so the worker receives the task when it repeats the poll. If the poll stayed open
// instead, no worker would run the task until its lease expires.
func (d *Dispatch) endUncertain(w *Waiter, err error) {
	if w.spec.Lessee.PollID != "" && !w.detached {
		d.endWait(w, err)
	}
}

func (r *reservation) finish() {
	if r.ended {
		panic("dispatch: a reservation was ended twice")
	}
	r.ended = true
}
