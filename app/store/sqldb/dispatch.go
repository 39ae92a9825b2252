package sqldb

import (
	"cmp"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Most tasks find a worker that already waits. If such a task is leased in the batch that creates it, this saves
// writing its ready row, a claim that finds it, and the time in between.

// routeReadyTasks ensures that the sessions of all tasks that became ready are in the batch. A session without a row
// gets a row without an owner, so that the row of its session routes every task.
func (b *batch) routeReadyTasks() error {
	var keys map[engine.SessionKey]bool
	for _, t := range b.ready {
		if t.seq == 0 {
			continue
		}
		r := b.runs[t.run]
		a, ok := r.Activities.Get(t.seq)
		if !ok || a.SessionID == "" {
			continue
		}
		k := engine.SessionKey{Namespace: r.Namespace, ID: a.SessionID}
		if s := b.sessions[k]; s != nil && s.Session != nil && s.counted && s.route != "" && !s.deleted {
			continue // most steps: the decision left the session as it is stored
		}
		if keys == nil {
			keys = map[engine.SessionKey]bool{}
		}
		keys[k] = true
	}
	if len(keys) == 0 {
		return nil
	}
	if err := b.send(b.loadSessions(keys)...); err != nil {
		return err
	}
	if err := b.reloadMissingSessions(keys); err != nil {
		return err
	}
	if err := b.recordRoutes(); err != nil {
		return err
	}
	if len(b.locked) > 0 {
		// A task whose session is locked cannot be routed, because its row would contain an outdated routing word. The
		// transactions that created such tasks run in a separate batch.
		late := map[taskKey]bool{}
		for _, t := range b.ready {
			if a, ok := b.runs[t.run].Activities.Get(t.seq); ok && t.seq > 0 &&
				b.locked[engine.SessionKey{Namespace: b.runs[t.run].Namespace, ID: a.SessionID}] {
				late[t] = true
			}
		}
		if len(late) > 0 {
			return b.deferBlocked(late, nil)
		}
	}
	at := history.At(b.now)
	for k := range keys {
		// No worker has acquired the session yet. With its row the task can be routed, and acquisitions are decided
		// under the lock of this row.
		if s := b.sessions[k]; s.Session == nil || s.deleted {
			b.applySession(&engine.SessionChange{Session: engine.Session{
				Namespace: k.Namespace, ID: k.ID, Origin: engine.OriginImplicit, Status: protocol.SessionActive, UpdatedAt: at,
				CreatedAt: at,
			}})
		}
	}
	return nil
}

// maxOvertakes is the number of consecutive tasks of a run that may be dispatched to the worker that created them
// before older tasks. A task that is dispatched in the commit that creates it is neither written as ready nor claimed
// later, so under load a continuing run costs less than a waiting one. The limit ensures that older tasks are
// dispatched eventually.
const maxOvertakes = 8

// dispatchReady offers every task that became ready to the polls that wait in this process, and leases it to the poll
// that is reserved for it. A task without a poll stays ready, and its queue has a backlog.
func (b *batch) dispatchReady() error {
	assignment := &sessionAssignment{}
	type candidate struct {
		taskKey
		priority int
		rank     int64
	}
	var list []candidate
	seen := map[taskKey]bool{}
	for _, t := range b.ready {
		if seen[t] {
			continue
		}
		seen[t] = true
		if !b.isReady(t) {
			continue
		}
		r := b.runs[t.run]
		urgency := r.Priority
		if a, ok := r.Activities.Get(t.seq); ok {
			urgency = a.Priority
		}
		list = append(list, candidate{t, urgency, b.rankOf(t)})
	}
	// Offer the most urgent tasks first: if there are fewer polls than tasks, claims lease the others.
	slices.SortStableFunc(list, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(x.priority, y.priority), cmp.Compare(x.rank, y.rank))
	})
	for _, t := range list {
		r := b.runs[t.run]
		if worker := b.workerOfLostLease(r, t.seq); worker != "" {
			b.leaseExpired(engine.WorkerKey{Namespace: r.Namespace, ID: worker})
		}
		o := b.offerOf(r, t.seq)
		o.Priority, o.Fair = t.priority, b.hasRanks(QueueKey{o.Namespace, o.Queue, o.Kind})
		o.MayOvertake = !o.Fair && r.overtakes < maxOvertakes
		var res store.Reservation
		var l engine.Lessee
		if b.s.cfg.Dispatch != nil && !b.s.queues.bounded(QueueKey{o.Namespace, o.Queue, o.Kind}) &&
			!r.SuspicionOf(t.seq).Limited() {
			// tasks with a limit, and suspects, are leased only by claims, which count under the rows' locks
			var err error
			if res, l, err = b.reserve(o, assignment); err != nil {
				return err
			}
		}
		if res != nil && res.Overtakes() {
			r.overtakes++
		} else {
			r.overtakes = 0
		}
		if res == nil {
			b.unreserved = append(b.unreserved, unreservedTask{t.taskKey, QueueKey{o.Namespace, o.Queue, o.Kind}})
			continue
		}
		// From here on the batch contains the lease. The poll receives the task after the commit.
		b.deliveries = append(b.deliveries, delivery{res, r, b.lease(r, t.seq, &l)})
	}
	b.ready = nil
	return nil
}

// workerOfLostLease returns the worker whose lease of a ready task expired in this batch, or "".
func (b *batch) workerOfLostLease(r *run, seq int64) string {
	var lost []history.Lost
	if seq == 0 {
		lost = r.Task.Lost
	} else if a, ok := r.Activities.Get(seq); ok {
		lost = a.Lost
	}
	if len(lost) == 0 {
		return ""
	}
	last := &lost[len(lost)-1]
	// Only a loss in this batch counts, because an earlier one has already been reported.
	if last.Why != engine.ReasonLeaseLost || last.At.Micros() != history.At(b.now).Micros() {
		return ""
	}
	return last.Worker
}

// leaseExpired records that a lease of a worker expired, or that the worker reconnected, and notifies the dispatcher
// before the batch offers tasks. A task that a paused worker lost must not be delivered to one of that worker's open
// polls, and no task may be delivered to a poll on a connection that broke without this app's knowledge.
func (b *batch) leaseExpired(k engine.WorkerKey) {
	if k.ID == "" || b.expiredWorkers[k] {
		return
	}
	if b.expiredWorkers == nil {
		b.expiredWorkers = map[engine.WorkerKey]bool{}
	}
	b.expiredWorkers[k] = true
	if b.s.cfg.Dispatch != nil {
		b.s.cfg.Dispatch.LeaseExpired(k)
	}
}

// unreservedTask is a task for which no poll was reserved.
type unreservedTask struct {
	taskKey
	queue QueueKey
}

// addUnreservedToBacklog adds the tasks without a reserved poll to the backlog, unless a claim of the same batch leased
// them.
func (b *batch) addUnreservedToBacklog() {
	for _, m := range b.unreserved {
		if b.isReady(m.taskKey) {
			b.addBacklog(m.queue, b.routingKeyOf(m.taskKey))
		}
	}
	b.unreserved = nil
}

// isReady reports whether a task waits for a worker, according to the batch's rows.
func (b *batch) isReady(t taskKey) bool {
	r := b.runs[t.run]
	if t.seq == 0 {
		return r.readyRow() != (readyRow{})
	}
	a, ok := r.Activities.Get(t.seq)
	return ok && a.State == engine.Ready
}

// offerOf returns only those fields of a task by which the dispatcher selects a poll, because the dispatcher examines
// each task under its lock.
func (b *batch) offerOf(r *run, seq int64) store.Offer {
	if seq == 0 {
		w := r.TaskRequirements()
		return store.Offer{
			Kind: w.Kind, Run: r.ID, Namespace: r.Namespace, Queue: r.Queue, Type: w.Type, BuildID: w.BuildID,
			Requirements: w.Requirements, Now: b.now,
			Settings: b.Queue(engine.QueueKey{Namespace: r.Namespace, Name: r.Queue}),
			Bytes:    r.DeliveryBytes(false), CachedBytes: r.DeliveryBytes(true),
		}
	}
	a, _ := r.Activities.Get(seq)
	o := store.Offer{
		Kind: protocol.KindActivity, Run: r.ID, Namespace: r.Namespace, Queue: a.Queue, Type: a.Type,
		Requirements: a.Requirements, Now: b.now,
		Settings: b.Queue(engine.QueueKey{Namespace: r.Namespace, Name: a.Queue}),
		Bytes:    a.DeliveryBytes(), CachedBytes: a.DeliveryBytes(),
	}
	if a.SessionID != "" {
		o.Session = b.sessions[engine.SessionKey{Namespace: r.Namespace, ID: a.SessionID}].Session
	}
	return o
}

// lease leases a ready task to a worker in the rows of the batch. The caller has called Admit before.
func (b *batch) lease(r *run, seq int64, l *engine.Lessee) store.Leased {
	b.dirty = true
	b.advanceClock(taskKey{r.ID, seq})
	if seq == 0 {
		r.Run.Merge(r.Run.Leased(*l, b.now))
		r.changed = true
		b.leasedSuspect(QueueKey{r.Namespace, r.Queue, protocol.KindWorkflow}, r.Task.Suspect, l.Worker)
		return store.Leased{Kind: protocol.KindWorkflow, Class: b.fairnessClass(taskKey{r.ID, seq})}
	}
	a, _ := r.Activities.Get(seq)
	var s *session
	var sess *engine.Session
	if a.SessionID != "" {
		k := engine.SessionKey{Namespace: r.Namespace, ID: a.SessionID}
		s = b.sessions[k]
		sess = b.sessionToLease(s, l.Worker)
		if b.s.cfg.Dialect.Shared && r.partial {
			b.leasedIn = append(b.leasedIn, leasedIn{taskKey{r.ID, seq}, k})
		}
	}
	a, timeline, acquired := engine.LeaseActivity(a, sess, *l, b.EpochWatermark, b.now)
	r.Activities.Put(seq, a)
	markRow(&r.activities, seq, true)
	b.leasedSuspect(QueueKey{r.Namespace, a.Queue, protocol.KindActivity}, a.Suspect, l.Worker)
	leased := store.Leased{
		Kind: protocol.KindActivity, Activity: &a, SessionAcquired: acquired, Class: b.fairnessClass(taskKey{r.ID, seq}),
	}
	if sess != nil {
		b.putSession(s, sess, timeline)
		s.decided = 0 // the poll receives this state of the session
		leased.Session, leased.IsNew = sess, a.New
	}
	return leased
}

// sessionToLease returns the session in which a task is leased: a copy, unless this batch created the state and no
// other code refers to it. In most steps in a session, the batch creates the state and leases the next task in it. A
// claim always gets a copy, since it also returns the previous state.
func (b *batch) sessionToLease(s *session, w *engine.Worker) *engine.Session {
	if s.decided == b.number && s.Session != s.row && s.With(w, b.now) {
		return s.Session
	}
	own := *s.Session
	return &own
}

// leasedIn is an activity that was leased, and its session.
type leasedIn struct {
	taskKey
	session engine.SessionKey
}

// arguments sets the arguments and events of a leased task from the cache, so that they need not be read. For most
// tasks, this batch or an earlier one wrote the event that contains the arguments.
func (b *batch) arguments(r *run, l *store.Leased) {
	l.Head = r.Head
	l.Events, l.Bytes = b.s.cache.events(r.ID, r.LastSeq)
	if l.Kind == protocol.KindWorkflow {
		if len(l.Events) > 0 {
			if d, ok := l.Events[0].Data.(*history.WorkflowStarted); ok {
				l.Arguments, l.Cached = d.Arguments, true
			}
		}
		return
	}
	var e *history.Event
	if evs := b.events[r.ID].list; len(evs) > 0 && l.Activity.Event >= evs[0].Seq &&
		l.Activity.Event <= evs[len(evs)-1].Seq {
		e = &evs[l.Activity.Event-evs[0].Seq]
	} else if p, ok := b.s.cache.history.get(r.ID); ok {
		e = p.at(l.Activity.Event)
	}
	if e != nil {
		if d, ok := e.Data.(*history.ActivityScheduled); ok {
			l.Arguments, l.Cached = d.Arguments, true
		}
	}
}
