package sqldb

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The decision functions of the callers run in order, each on the state that the previous one left. If a function fails
// or panics, only its own transaction fails: all its writes are checked before the first of them is applied.

// decide runs the transactions in order on the batch's rows and returns how many it has run: not all of them if their
// events become too large.
func (b *batch) decide(items []*pending) int {
	for i, p := range items {
		p.ready, p.readied = len(b.ready), len(b.ready)
		if p.transaction == nil {
			continue
		}
		// The remaining transactions get their own batch, because a batch with megabytes of history would delay all of
		// them.
		if b.bytes > maxBytes {
			return i
		}
		w, err := decideOne(p.transaction, b)
		if err != nil {
			p.err = err
			continue
		}
		// Check all writes before applying any. A transaction that is half applied to the batch's rows could not be
		// undone, and the next transaction would be decided on it.
		payloads, err := b.checkWrites(&w)
		if err == nil {
			err = b.applyLogs(&w)
		}
		if err != nil {
			p.err = err
			continue
		}
		b.applyWrites(&w, payloads)
		b.dirty = b.dirty || p.must
		p.readied = len(b.ready)
		p.result = w.Answer
	}
	return len(items)
}

// decideOne calls Decide. If Decide panics, only this transaction fails.
func decideOne(c *store.Transaction, b *batch) (w store.Writes, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("decide: panic: %v\n%s", r, debug.Stack())
		}
	}()
	return c.Decide(b, b.now)
}

// checkWrites checks all writes before any of them is applied, and returns the encoded payloads of their events, by
// decision. A decision that is based on another state than the batch's is a programming error, and is refused.
func (b *batch) checkWrites(w *store.Writes) ([][][]byte, error) {
	if err := b.checkRemoval(w); err != nil {
		return nil, err
	}
	if err := b.checkSchedules(w.Schedules); err != nil {
		return nil, err
	}
	last := map[string]int64{}
	all := make([][][]byte, len(w.Runs))
	for i := range w.Runs {
		d := &w.Runs[i]
		if d.Next == nil || d.Next.ID == "" {
			return nil, errors.New("the decision has no run")
		}
		id := d.Next.ID
		at, seen := last[id]
		if r := b.runs[id]; !seen && r != nil && r.Run != nil {
			at = r.LastSeq
		}
		// A decision is valid only for the state on which it is based. Two decisions of one run in a transaction follow
		// each other.
		if d.After != at {
			return nil, fmt.Errorf("run %s: the decision is based on event %d, but the last event is %d", id, d.After, at)
		}
		all[i] = make([][]byte, 0, len(d.Events))
		for k := range d.Events {
			e := &d.Events[k]
			if s := d.Inherits; s != nil && at+1 == s.First {
				at = s.Last
			}
			at++
			if e.Seq != at {
				return nil, fmt.Errorf("run %s: the decision adds event %d (%s); the next number is %d", id, e.Seq, e.Type(), at)
			}
			body, err := history.EncodeData(e.Data)
			if err != nil {
				return nil, fmt.Errorf("run %s: event %d (%s): %w", id, e.Seq, e.Type(), err)
			}
			all[i] = append(all[i], body)
		}
		if s := d.Inherits; s != nil && at+1 == s.First {
			at = s.Last
		}
		if d.Next.LastSeq != at {
			return nil, fmt.Errorf("run %s: the decision sets last_seq to %d, but its last event is %d", id, d.Next.LastSeq, at)
		}
		last[id] = at
	}
	return all, nil
}

// applyWrites applies the writes w to the rows of the batch.
func (b *batch) applyWrites(w *store.Writes, payloads [][][]byte) {
	for i := range w.Runs {
		b.applyRun(&w.Runs[i], payloads[i])
	}
	for i := range w.Sessions {
		b.applySession(&w.Sessions[i])
	}
	b.served = append(b.served, w.Served...)
	for _, f := range w.Workflows {
		had := b.workflows[f.Key()]
		b.workflows[f.Key()] = &workflow{Workflow: &f, dirty: true, assumed: had != nil && had.assumed}
		b.dirty = true
	}
	for _, n := range w.Workers {
		had := b.workers[n.Key()]
		// Another process of the worker registered, or this one deregistered: from this commit on, no task may be
		// dispatched to the old process.
		if had != nil && had.Worker != nil && (had.Incarnation != n.Incarnation ||
			had.DeregisteredAt.IsZero() && !n.DeregisteredAt.IsZero()) {
			b.deregistered = append(b.deregistered, store.Process{Worker: n.Key(), Incarnation: had.Incarnation})
		} else if had != nil && had.Worker != nil && had.Status != n.Status { // the worker starts or stops draining
			b.drainChanged = append(b.drainChanged, store.Process{Worker: n.Key(), Incarnation: n.Incarnation})
		}
		b.workers[n.Key()] = &worker{Worker: &n, stored: had != nil && had.stored, dirty: true, touched: true}
		b.dirty = true
	}
	for _, k := range w.Reconnected {
		b.leaseExpired(k)
	}
	for _, k := range w.DropWorkers {
		had := b.workers[k]
		if had != nil && had.Worker != nil {
			b.deregistered = append(b.deregistered, store.Process{Worker: k, Incarnation: had.Incarnation})
		}
		b.workers[k] = &worker{stored: had == nil || had.stored, dirty: true, touched: true}
		b.dirty = true
	}
	for _, c := range w.Receipts {
		b.receipts[c.ReceiptKey] = &c
		b.flush.receipts[c.ReceiptKey] = &c
	}
	for _, t := range w.Tokens {
		b.tokens[t.ID] = &t
		b.flush.tokens[t.ID] = &t
		b.tokenNews = append(b.tokenNews, t.ID)
	}
	for _, t := range w.TokenUses {
		b.tokens[t.ID] = &t
		b.flush.tokens[t.ID] = &t
	}
	b.applyRemoval(w)
	b.dropRoutingKeys = b.dropRoutingKeys || w.DropRoutingKeys
	b.unserved = append(b.unserved, w.Unserved...)
	for ns, epoch := range w.EpochWatermarks {
		b.raiseWatermark(ns, epoch)
	}
	b.applySchedules(w.Schedules)
	b.applyBatchJobs(w)
	b.applyQueues(w)
	for _, id := range w.DropTokens {
		b.tokens[id] = nil
		b.flush.tokens[id] = nil
		b.tokenNews = append(b.tokenNews, id)
	}
	for _, n := range w.DropAudits {
		b.flush.goneAudits.I(n)
	}
	for _, a := range w.Audit {
		b.flush.audit.I(a.At.Micros()).S(a.Identity).S(a.Action).S(a.Namespace).S(a.Target).S(a.Detail)
	}
}

// applyRun reads the run's previous state before it applies the decision: which leases end, in which sessions they
// were, which tasks become ready.
func (b *batch) applyRun(d *engine.Decision, payloads [][]byte) {
	id := d.Next.ID
	r := b.runs[id]
	if r == nil || r.Run == nil {
		r = &run{Run: &engine.Run{}}
		b.runs[id] = r
	}
	b.dirty = true
	before, inserted := engine.RunUsage(&r.Head), r.ID == ""
	r.changed = true
	known := b.touched[id]
	still := (known == nil || known.OnlyRenewed) && onlyRenews(r.Run, d)
	hint := b.runChange(&d.Next.Head)
	// Subscribers need not read a run again of which only leases were renewed.
	hint.OnlyRenewed = still
	ended := outcomes(slices.Concat(d.Events, d.Unrecorded))
	var sessions []inSession
	for seq, a := range d.Next.Activities.Changes() {
		old, had := r.Activities.Get(seq)
		if had && old.State == engine.LeasedState && (a == nil || a.State != engine.LeasedState) {
			b.leaseEnded(QueueKey{d.Next.Namespace, old.Queue, protocol.KindActivity})
		}
		if old.SessionID != "" {
			sessions = append(sessions, inSession{seq, old.SessionID})
		}
		markRow(&r.activities, seq, had)
		if a != nil && a.State == engine.Ready && (!had || old.State != engine.Ready || old.Delivery != a.Delivery ||
			old.Suspect != a.Suspect) { // the task now waits for other processes
			b.ready = append(b.ready, taskKey{id, seq})
		}
		if had && old.Suspect != nil && old.State == engine.LeasedState &&
			(a == nil || a.Suspect == nil || a.State != engine.LeasedState) {
			b.suspectReleased(d.Next.Namespace, old.Lease)
		}
		// A worker that reported the end of the attempt need not be notified. A worker that still runs the attempt must
		// be.
		lost := a == nil && !ended[seq] || a != nil && a.Cancel && !old.Cancel
		if had && old.State == engine.LeasedState && lost {
			hint.Cancelled = append(hint.Cancelled, store.CancelledAttempt{
				Worker: old.Owner, TaskID: engine.StepID(id, seq), AttemptID: engine.AttemptID(id, seq, old.Delivery),
			})
		}
	}
	slices.SortFunc(sessions, func(x, y inSession) int { return cmp.Compare(x.seq, y.seq) })
	markAll(&r.timers, &r.Timers, &d.Next.Timers)
	markAll(&r.waits, &r.Waits, &d.Next.Waits)
	markAll(&r.signals, &r.Signals, &d.Next.Signals)
	markAll(&r.unread, &r.Unread, &d.Next.Unread)
	markAll(&r.updates, &r.Updates, &d.Next.Updates)
	markAll(&r.children, &r.Children, &d.Next.Children)
	markAll(&r.attached, &r.Attached, &d.Next.Attached)
	markAll(&r.owed, &r.Undelivered, &d.Next.Undelivered)
	old := r.Task
	r.reindex(d.Next.SearchAttributes)
	r.Run.Merge(d.Next)
	if old != nil && old.State == engine.LeasedState &&
		(r.Task == nil || r.Task.State != engine.LeasedState || !r.Status.Open()) {
		b.leaseEnded(QueueKey{r.Namespace, r.Queue, protocol.KindWorkflow})
	}
	if t := r.Task; t != nil && t.State == engine.Ready &&
		(old == nil || old.State != engine.Ready || old.Number != t.Number || old.Suspect != t.Suspect) {
		b.ready = append(b.ready, taskKey{id, 0})
	}
	if old != nil && old.Suspect != nil && old.State == engine.LeasedState && (r.Task == nil ||
		r.Task.Suspect == nil || r.Task.State != engine.LeasedState || !r.Status.Open()) {
		b.suspectReleased(r.Namespace, old.Lease)
	}
	if old != nil && old.State == engine.LeasedState && !r.Status.Open() &&
		!endedBy(d.Events, engine.TaskID(id, old.Number)) {
		hint.Cancelled = append(
			hint.Cancelled, store.CancelledAttempt{Worker: old.Owner, TaskID: engine.TaskID(id, old.Number)},
		)
	}
	hint.LastSeq, hint.Closed, hint.ContinuedTo = r.LastSeq, !r.Status.Open(), r.ContinuedTo
	if n := len(d.Events); n > 0 && hint.Closed {
		hint.Closing = &store.Closing{Head: &d.Next.Head, Event: &d.Events[n-1]}
	}
	b.append(d, payloads, sessions)
	b.addUsage(r.Namespace, engine.RunChanged(before, &r.Head, inserted))
	for i := range d.Sessions {
		b.applySession(&d.Sessions[i])
	}
	b.applyInherited(d)
}

// inSession is an activity that was open in a session, with that session.
type inSession struct {
	seq     int64
	session string
}

// eventBytes is the estimated memory of an event without its payload.
const eventBytes = 128

// append records the events of a decision, which are written with the batch. sessions are the sessions of activities
// that were open.
func (b *batch) append(d *engine.Decision, payloads [][]byte, sessions []inSession) {
	if len(d.Events) == 0 {
		return
	}
	id := d.Next.ID
	evs, bytes := b.events[id], 0
	for k := range d.Events {
		bytes += len(payloads[k]) + eventBytes
		if len(sessions) == 0 {
			continue
		}
		seq, attempt := history.EndedAttempt(d.Events[k].Data)
		i, in := slices.BinarySearchFunc(sessions, seq, func(s inSession, seq int64) int { return cmp.Compare(s.seq, seq) })
		if seq == 0 || !in {
			continue
		}
		key := engine.SessionKey{Namespace: d.Next.Namespace, ID: sessions[i].session}
		// a later transaction of the batch may read the time of the last activity
		if s := b.sessions[key]; s != nil && s.Session != nil && s.follow {
			row := *s.Session
			recordActivity(&row, attempt.SessionEpoch, attempt.Worker, record.EndedAt(d.Events[k]))
			s.Session = &row
		}
		session := record.SessionKey(key)
		at := len(evs.list) - evs.written + k
		if evs.sessions == nil {
			evs.sessions = make([]string, 0, at+1)
		}
		for len(evs.sessions) < at {
			evs.sessions = append(evs.sessions, "")
		}
		evs.sessions = append(evs.sessions, session)
	}
	evs.list, evs.payloads = append(evs.list, d.Events...), append(evs.payloads, payloads...)
	evs.bytes += bytes
	b.bytes += bytes
	// Inherited signals count like other events of the history, although few or none of them are written.
	if s := d.Inherits; s != nil {
		evs.inherits = s
		b.runs[id].Bytes += s.Bytes + (s.Last-s.First+1)*engine.EventBytes
		for i := range s.Added {
			b.bytes += len(s.Added[i].Body)
		}
	}
	b.runs[id].Bytes += int64(bytes + len(d.Events)*(engine.EventBytes-eventBytes))
	b.events[id] = evs
}

// onlyRenews reports whether a decision only renews leases, so that open rows and their owners stay the same.
func onlyRenews(stored *engine.Run, d *engine.Decision) bool {
	if len(d.Events) > 0 || !sameTask(stored.Task, d.Next.Task) {
		return false
	}
	for seq, a := range d.Next.Activities.Changes() {
		old, had := stored.Activities.Get(seq)
		if !had || a == nil || old.State != engine.LeasedState || a.State != old.State || a.Delivery != old.Delivery {
			return false
		}
	}
	return true
}

// sameTask reports whether the fields whose changes are sent to subscribers are equal. It ignores the lease's expiry,
// which may have been extended.
func sameTask(a, b *engine.Task) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.State == b.State && a.Delivery == b.Delivery && a.Attempt == b.Attempt
}

// runChange returns the batch's change notification for a run.
func (b *batch) runChange(h *engine.Head) *store.RunChange {
	c := b.touched[h.ID]
	if c == nil {
		c = &store.RunChange{Namespace: h.Namespace, WorkflowID: h.WorkflowID, RunID: h.ID}
		b.touched[h.ID] = c
	}
	return c
}

// Only mark what changed. The value is read when it is written, since a later transaction of the batch may change it
// again.
func markAll[V any](m *map[int64]bool, stored, next *engine.Table[int64, V]) {
	for seq := range next.Changes() {
		_, had := stored.Get(seq)
		markRow(m, seq, had)
	}
}

// outcomes returns the activities whose attempts their workers ended in these events: those workers need no
// notification.
func outcomes(events []history.Event) map[int64]bool {
	var m map[int64]bool
	record := func(seq int64) {
		if m == nil {
			m = map[int64]bool{}
		}
		m[seq] = true
	}
	for _, e := range events {
		switch d := e.Data.(type) {
		case *history.ActivityCompleted:
			record(d.Sequence)
		case *history.ActivityFailed:
			record(d.Sequence)
		}
	}
	return m
}

// endedBy reports whether the completion of this workflow task wrote these events.
func endedBy(events []history.Event, task string) bool {
	return len(events) > 0 && events[len(events)-1].TaskID == task
}

// A change of a session may change its routing word, and so the routes of its ready tasks. They are written with the
// batch, once, by the final state of the session.
func (b *batch) applySession(c *engine.SessionChange) {
	k := c.Session.Key()
	s := b.sessions[k]
	if s == nil {
		s = &session{}
		b.sessions[k] = s
	}
	b.putSession(s, &c.Session, c.Timeline)
	s.deleted = c.Delete
	if c.Arguments != nil {
		b.flush.arguments[k] = *c.Arguments
	}
	if c.Snapshot != nil {
		b.flush.snapshots[k] = *c.Snapshot
	}
	if c.Delete {
		b.raiseWatermark(k.Namespace, c.Session.Epoch)
	}
}

// putSession replaces the state of a session and adds entries to its timeline.
func (b *batch) putSession(s *session, next *engine.Session, timeline []protocol.SessionEvent) {
	s.addFormerOwner(next.Owner)
	if s.follow { // keep the activity that this batch recorded after next was computed
		recordActivity(next, s.Epoch, s.Owner, s.RecentActivity)
	}
	s.Session, s.dirty, s.touched, s.deleted, s.decided = next, true, true, false, b.number
	b.dirty = true
	for i := range timeline {
		e := &timeline[i]
		b.moves = append(b.moves, store.SessionMove{Session: next.Key(), SessionEvent: *e})
		if e.What == "expired" && e.Why == engine.ReasonLeaseLost {
			b.leaseExpired(engine.WorkerKey{Namespace: next.Namespace, ID: e.Worker})
		}
	}
}
