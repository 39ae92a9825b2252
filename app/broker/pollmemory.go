package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The response of a poll may be lost after the poll leased tasks. If the repeated poll counted as a new one, these
// tasks would wait until their leases expire, and the worker would receive further tasks for which it has no slot.

// pollRetention is how long the result of a poll_request_id stays in memory.
const pollRetention = 120 * time.Second

// pollMemory responds to a repeated poll with the tasks of the first one, so that a lost response costs no lease.
type pollMemory struct {
	mu    sync.Mutex // guards polls
	polls map[pollKey]*pollEntry
}

// sweep deletes the polls that ended more than pollRetention ago.
func (m *pollMemory) sweep(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, e := range m.polls {
		if !e.at.IsZero() && now.Sub(e.at) > pollRetention {
			delete(m.polls, k)
		}
	}
}

// pollKey identifies a poll. Poll IDs are unique per kind of poll (way): a worker's polls for workflow tasks and update
// validations share one space of IDs; polls for activities, for queries and for mixed kinds each have their own.
type pollKey struct {
	worker engine.WorkerKey
	id     string
	space  string
}

// pollEntry is an open poll, or the tasks that a completed poll leased. It contains only task IDs: the page of history
// of a task may have megabytes, and can be read again.
type pollEntry struct {
	kinds   []protocol.TaskKind
	done    chan struct{}   // closed when tasks and undo are set
	tasks   []store.TaskRef // empty: nothing was leased, or the poll failed
	undo    func()
	at      time.Time
	readers int // number of responses with these tasks, without undelivered ones; guarded by pollMemory.mu
}

// runOnce runs poll, or joins the open poll with the same key, or calls again to read the tasks of a completed one. If
// a task is no longer leased, once refuses the poll, or runs it as a new one if anew is set.
func (m *pollMemory) runOnce(
	ctx context.Context, k pollKey, kinds []protocol.TaskKind, anew bool,
	poll func() (protocol.PollResponse, error), redeliver func([]store.TaskRef) (protocol.PollResponse, error),
) (protocol.PollResponse, error) {
	for {
		e, first := m.entry(k, kinds)
		if first {
			a, err := poll()
			if err == nil && a.Status == protocol.PollLeased {
				e.tasks, e.undo = taskRefs(a.Tasks), a.Undo
			}
			m.finish(k, e)
			return m.read(k, e, a), err
		}
		// Two different polls with one ID are a mistake of the client, which would receive tasks for which it has no
		// slot.
		if !sameKinds(e.kinds, kinds) {
			return protocol.PollResponse{}, protocol.Refuse(
				protocol.ReasonPollKinds, "poll_request_id %s was already used for other task kinds; use a new ID", k.id,
			).With("poll_status", protocol.PollConflict).With("poll_request_id", k.id).With("requested_task_kinds", kinds).With(
				"bound_task_kinds", e.kinds,
			)
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return protocol.PollResponse{}, context.Cause(ctx)
		}
		if e.tasks != nil && m.join(k, e) {
			switch a, err := redeliver(e.tasks); {
			case err != nil:
				m.read(k, e, a).Undo() // no task is delivered with this response
				return protocol.PollResponse{}, err
			case len(a.Tasks) > 0:
				return m.read(k, e, a), nil
			case !anew:
				return protocol.PollResponse{}, protocol.Refuse(protocol.ReasonPollExpired,
					"the tasks leased for poll_request_id %s are no longer leased to the worker; poll with a new ID", k.id).
					With("poll_status", protocol.PollConflict).With("poll_request_id", k.id)
			}
		}
		m.forget(k, e)
	}
}

// sameKinds compares two lists regardless of order, since clients build the list anew for each poll.
func sameKinds(a, b []protocol.TaskKind) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(k protocol.TaskKind) bool { return !slices.Contains(b, k) })
}

// entry returns the entry of a poll key, and whether it is new. The first caller with a key runs the poll; later
// callers repeat the same request and wait for the result of the first.
func (m *pollMemory) entry(k pollKey, kinds []protocol.TaskKind) (*pollEntry, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.polls == nil {
		m.polls = map[pollKey]*pollEntry{}
	}
	if e, ok := m.polls[k]; ok && (e.at.IsZero() || time.Since(e.at) <= pollRetention) {
		return e, false
	}
	e := &pollEntry{kinds: kinds, done: make(chan struct{}), readers: 1}
	m.polls[k] = e
	return e, true
}

// finish publishes the tasks of a poll. It removes the entry of a poll without tasks.
func (m *pollMemory) finish(k pollKey, e *pollEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.at = time.Now()
	if e.tasks == nil {
		delete(m.polls, k)
	}
	close(e.done)
}

// join adds a reader to the tasks of an entry; false: the tasks were already released.
func (m *pollMemory) join(k pollKey, e *pollEntry) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.polls[k] != e {
		return false
	}
	e.readers++
	return true
}

// read returns the response of an entry for one caller. If no response that contains its tasks could be delivered, they
// are released.
func (m *pollMemory) read(k pollKey, e *pollEntry, a protocol.PollResponse) protocol.PollResponse {
	if e.tasks == nil {
		return a
	}
	a.Undo = sync.OnceFunc(func() {
		m.mu.Lock()
		e.readers--
		unused := e.readers == 0
		if unused && m.polls[k] == e {
			delete(m.polls, k)
		}
		m.mu.Unlock()
		if unused {
			e.undo()
		}
	})
	return a
}

// forget removes an entry if the key still refers to it; another poll may have reused the key.
func (m *pollMemory) forget(k pollKey, e *pollEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.polls[k] == e {
		delete(m.polls, k)
	}
}

// taskRefs returns references to deliveries of tasks, and to query tasks by their IDs.
func taskRefs(tasks []protocol.Task) []store.TaskRef {
	refs := make([]store.TaskRef, len(tasks))
	for i, t := range tasks {
		r := store.TaskRef{Kind: t.Kind}
		switch {
		case t.Workflow != nil:
			r.Run, r.Seq, _ = engine.ParseTaskID(t.Workflow.TaskID)
			r.Delivery = t.Workflow.Attempt
		case t.Activity != nil:
			r.Run, r.Seq, r.Delivery, _ = engine.ParseAttemptID(t.Activity.AttemptID)
		case t.Query != nil:
			r.Run, r.Delivery = t.Query.TaskID, t.Query.Attempt
		case t.Validation != nil:
			r.Run, r.Delivery = t.Validation.TaskID, t.Validation.Attempt
		}
		refs[i] = r
	}
	return refs
}

// redeliver returns the tasks of an earlier poll in their current state, or no tasks if the worker no longer holds one
// of the leases.
func (b *Broker) redeliver(
	ctx context.Context, in protocol.PollRequest, w *engine.Worker, refs []store.TaskRef,
) (protocol.PollResponse, error) {
	now, err := b.store.Now(ctx)
	if err != nil {
		return protocol.PollResponse{}, err
	}
	leased := make([]store.Leased, 0, len(refs))
	err = b.store.View(ctx, func(r store.Reader) error {
		for _, ref := range refs {
			l, ok, err := b.deliveryLease(ctx, r, ref, now)
			if err != nil {
				return err
			}
			if by := leaseOfTask(l); !ok || by.Owner != w.ID || by.Incarnation != w.Incarnation {
				// Deliver all tasks or none: with some of them, the worker would not know which ones it has lost.
				leased = nil
				return nil
			}
			leased = append(leased, l)
		}
		return nil
	})
	if err != nil || len(leased) == 0 {
		return protocol.PollResponse{}, err
	}
	tasks, err := b.tasksForLeases(ctx, in, leased) // if this fails, the leases do not change
	return protocol.PollResponse{
		Status: protocol.PollLeased, Tasks: tasks, AppRelease: b.opt.Release, StoreTime: b.storeTime(), Undo: func() {},
	}, err
}

// deliveryLease returns the lease of a delivery that has not ended.
func (b *Broker) deliveryLease(
	ctx context.Context, r store.Reader, ref store.TaskRef, now time.Time,
) (l store.Leased, ok bool, err error) {
	if ref.Kind.Asked() {
		q, err := b.questions.Get(ctx, ref.Run)
		if errors.Is(err, store.ErrNotFound) {
			return l, false, nil
		}
		return store.Leased{Kind: ref.Kind, Question: &q}, err == nil && !q.Over && q.Owner != "" &&
			q.Attempt == ref.Delivery, err
	}
	run, err := r.Step(ctx, ref.Run, activitySeq(ref))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return l, false, err
	}
	l, ok = currentLease(ctx, r, run, ref, now)
	return l, ok, nil
}

// leaseOfTask returns the lease of a leased task.
func leaseOfTask(l store.Leased) (by engine.Lease) {
	switch {
	case l.Question != nil:
		by.Owner, by.Incarnation = l.Question.Owner, l.Question.Incarnation
	case l.Activity != nil:
		by = l.Activity.Lease
	case l.Head.Task != nil:
		by = l.Head.Task.Lease
	}
	return by
}

// pollSpace returns the space of poll IDs of polls for these kinds; see pollKey.
func pollSpace(kinds []protocol.TaskKind) string {
	if !slices.ContainsFunc(kinds, func(k protocol.TaskKind) bool {
		return k != protocol.KindWorkflow && k != protocol.KindValidation
	}) {
		return string(protocol.KindWorkflow)
	}
	return fmt.Sprint(kinds)
}

// leasedBefore returns tasks that were leased to the poll by an app that does not have the poll in memory: another app,
// this app before a restart, or this app if the database failed before it confirmed a commit. Each lease contains the
// ID of its poll. leasedBefore reads the store only within pollRetention after the worker connected here or after a
// poll with an unknown outcome; on a shared database also for every poll of a worker that may call any app, as behind a
// load balancer.
func (b *Broker) leasedBefore(
	ctx context.Context, in protocol.PollRequest, w *engine.Worker,
) (protocol.PollResponse, error) {
	if in.PollID == "" {
		return protocol.PollResponse{}, nil
	}
	var last time.Time
	b.workers.With(w.Key(), func(h *membership.TrackedWorker) {
		if last = h.Adopted; h.UnknownPollAt.After(last) {
			last = h.UnknownPollAt
		}
	})
	if (last.IsZero() || time.Since(last) > pollRetention) && (w.Explicit || !b.workers.HasOtherApps()) {
		return protocol.PollResponse{}, nil
	}
	leased, err := b.leasedUnder(ctx, store.Process{Worker: w.Key(), Incarnation: w.Incarnation}, "", in.PollID, in.Kinds)
	if err != nil || len(leased) == 0 {
		return protocol.PollResponse{}, err
	}
	return b.pollResponse(ctx, in, leased)
}

// leasedUnder returns the tasks of these kinds that are leased to a process under one poll ID, in one run or, with "",
// in any run. It records a redelivery for each of them, since the app that leased a task may be about to release it
// because its response failed.
func (b *Broker) leasedUnder(
	ctx context.Context, p store.Process, run, poll string, kinds []protocol.TaskKind,
) (leased []store.Leased, err error) {
	found, err := b.readLeasedUnder(ctx, p, run, poll, kinds)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	for _, l := range found {
		// deliveries that have ended are ignored, as by readLeasedUnder
		if err := transaction.RecordRedelivery(ctx, b.store, refOf(l)); err != nil && protocol.ReasonOf(err) == "" {
			return nil, err
		}
	}
	return b.readLeasedUnder(ctx, p, run, poll, kinds)
}

// readLeasedUnder reads the tasks of leasedUnder from the store.
func (b *Broker) readLeasedUnder(
	ctx context.Context, p store.Process, of, poll string, kinds []protocol.TaskKind,
) (leased []store.Leased, err error) {
	now, err := b.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	err = b.store.View(ctx, func(r store.Reader) error {
		refs, err := r.Owned(ctx, p.Worker, p.Incarnation)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			if ref.PollID != poll || of != "" && ref.Run != of || !slices.Contains(kinds, ref.Kind) {
				continue
			}
			run, err := r.Step(ctx, ref.Run, activitySeq(ref))
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			if l, ok := currentLease(ctx, r, run, ref, now); ok {
				leased = append(leased, l)
			}
		}
		return nil
	})
	return leased, err
}

// activitySeq returns the command number of a delivery's activity, or 0 for a workflow task.
func activitySeq(ref store.TaskRef) int64 {
	if ref.Kind == protocol.KindWorkflow {
		return 0
	}
	return ref.Seq
}

// currentLease returns the lease of a task of an earlier poll, if the worker still holds it.
func currentLease(
	ctx context.Context, r store.Reader, run *engine.Run, ref store.TaskRef, now time.Time,
) (store.Leased, bool) {
	if run == nil {
		return store.Leased{}, false
	}
	if ref.Kind == protocol.KindWorkflow {
		t := run.Task
		ok := t != nil && t.Number == ref.Seq && t.State == engine.LeasedState && t.Delivery == ref.Delivery &&
			t.Until.After(now)
		return store.Leased{Kind: ref.Kind, Head: run.Head}, ok
	}
	a, ok := run.Activities.Get(ref.Seq)
	if !ok || a.State != engine.LeasedState || a.Delivery != ref.Delivery || !a.Until.After(now) {
		return store.Leased{}, false
	}
	l := store.Leased{Kind: ref.Kind, Head: run.Head, Activity: &a, IsNew: a.New}
	if a.SessionID != "" {
		s, err := r.Session(ctx, engine.SessionKey{Namespace: run.Namespace, ID: a.SessionID})
		if err != nil {
			return store.Leased{}, false
		}
		l.Session = &s
	}
	return l, true
}
