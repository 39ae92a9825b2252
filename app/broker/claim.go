package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A claim by ID is a poll for one task that the worker names. It must not bypass the rules for polls, so it makes the
// same checks.

// LeaseTask leases one ready task to a worker that names the task. All checks of a poll apply: registration, release,
// drains, queue, type, build, requirements, session. A worker that already owns the lease receives the task again with
// the same lease, so a lost response costs nothing.
func (b *Broker) LeaseTask(ctx context.Context, in protocol.LeaseRequest) (protocol.PollResponse, error) {
	poll := protocol.PollRequest{
		WorkerID: in.WorkerID, Namespace: in.Namespace, Incarnation: in.Incarnation, Release: in.Release, Gated: in.Gated,
		BuildID:  in.BuildID,
		PageSize: in.PageSize, Kinds: []protocol.TaskKind{in.Kind},
	}
	// Use the checks of a poll, so that a new check applies to both.
	w, ended, err := b.admitPoll(ctx, &poll)
	if err != nil {
		return protocol.PollResponse{}, err
	}
	if ended != nil {
		return protocol.PollResponse{}, dispatchRefusal(ended)
	}
	c, err := b.leaseTransaction(in, w)
	if err != nil {
		return protocol.PollResponse{}, err
	}
	got, err := transaction.Commit[leasedTask](ctx, b.store, c)
	if err != nil {
		return protocol.PollResponse{}, b.visibilityOf(ctx, w.Namespace, in.Kind, in.TaskID, w.ID).hideDetails(err)
	}
	if !got.repeated {
		return b.pollResponse(ctx, poll, []store.Leased{got.Leased})
	}
	// an earlier request made this lease, so an error here must not release it
	tasks, err := b.tasksForLeases(ctx, poll, []store.Leased{got.Leased})
	if err != nil {
		return protocol.PollResponse{}, err
	}
	return protocol.PollResponse{
		Status: protocol.PollLeased, Tasks: tasks, AppRelease: b.opt.Release, Undo: func() {},
	}, nil
}

// leasedTask is the result of a claim. again means that the worker already owned the lease.
type leasedTask struct {
	store.Leased
	repeated bool
}

// dispatchRefusal returns the error for a worker to which the app dispatches no tasks at all. A poll returns the reason
// as a status, because the worker polls again. A claim names one task, so the reason is an error.
func dispatchRefusal(a *protocol.PollResponse) error {
	switch a.Status {
	case protocol.PollMismatch:
		return protocol.Refuse(protocol.ReasonVersionMismatch, "%s", a.Reason).With("app_release", a.AppRelease)
	case protocol.PollNoWorkflow, protocol.PollNoActivity:
		return protocol.Refuse(
			protocol.ReasonNotClaimable, "the worker registered no types or no slots for tasks of this kind",
		)
	}
	return protocol.Refuse(protocol.ReasonWorkerDraining, "the worker is draining, or the app is")
}

// leaseTransaction returns the transaction that leases the task.
func (b *Broker) leaseTransaction(in protocol.LeaseRequest, w *engine.Worker) (store.Transaction, error) {
	id, err := parseTaskID(in)
	if err != nil {
		return store.Transaction{}, err
	}
	key := w.Key()
	needs := store.Keys{Runs: []string{id.run}, Workers: []engine.WorkerKey{key}, Holdings: true}
	if id.seq > 0 {
		needs.Activities = []int64{id.seq}
	}
	isolated := b.dispatch.Isolated(store.Process{Worker: key, Incarnation: w.Incarnation})
	return store.Transaction{Needs: needs, Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
		run, err := id.checkVisible(rows.Run(id.run), in)
		if err != nil {
			return store.Writes{}, err
		}
		if isolated && run.Ready(id.seq) {
			return store.Writes{}, protocol.Refuse(
				protocol.ReasonNotClaimable, "worker %s runs a task that was blamed for the loss of a worker process, and receives no other task until "+
					"that is cleared", key.ID,
			).With("task_status", string(engine.Ready))
		}
		current := rows.Worker(key) // the current row: another app may have accepted a newer registration
		if current == nil || !current.DeregisteredAt.IsZero() ||
			in.Incarnation != "" && in.Incarnation != current.Incarnation {
			return store.Writes{}, transaction.StaleWorker(key.ID)
		}
		l := engine.Lessee{Worker: current, BuildID: in.BuildID}
		if l.BuildID == "" {
			l.BuildID = current.BuildID
		}
		return id.lease(rows, run, l, in.Kind, now)
	}}, nil
}

// taskID is a parsed task ID: the number of a workflow task, or the sequence number of an activity.
type taskID struct {
	run         string
	number, seq int64
	text        string
}

// parseTaskID parses a task ID. An invalid ID gets the same error as the ID of a task that does not exist.
func parseTaskID(in protocol.LeaseRequest) (id taskID, err error) {
	var ok bool
	id.text = in.TaskID
	if in.Kind == protocol.KindWorkflow {
		id.run, id.number, ok = engine.ParseTaskID(in.TaskID)
	} else {
		id.run, id.seq, ok = engine.ParseStepID(in.TaskID)
	}
	if !ok {
		return id, transaction.TaskNotFound(in.TaskID)
	}
	return id, nil
}

// checkVisible checks whether the caller may know of the task: it must be in the caller's namespace and, if the request
// names queues, in one of these.
func (id taskID) checkVisible(run *engine.Run, in protocol.LeaseRequest) (*engine.Run, error) {
	if run == nil || run.Namespace != transaction.NamespaceOrDefault(in.Namespace) {
		return nil, transaction.TaskNotFound(in.TaskID)
	}
	queue := run.Queue
	if a, ok := run.Activities.Get(id.seq); ok {
		queue = a.Queue
	}
	// Report the task as not found instead of forbidden, since the caller must not learn that a queue outside its scope
	// contains it.
	if len(in.Queues) > 0 && !slices.Contains(in.Queues, queue) {
		return nil, transaction.TaskNotFound(in.TaskID)
	}
	return run, nil
}

// lease leases the task, or finds that this process of the worker already owns its lease.
func (id taskID) lease(
	rows store.Rows, run *engine.Run, l engine.Lessee, kind protocol.TaskKind, now time.Time,
) (store.Writes, error) {
	// A worker that did not receive the response to its claim repeats the claim, while its code may already run. Return
	// the existing lease: a new lease would invalidate it.
	if got, ok := id.leasedTo(rows, run, l.Worker, now); ok {
		return store.Writes{Answer: leasedTask{Leased: got, repeated: true}}, nil
	}
	settings, err := id.settings(run, kind, rows.Queue)
	if err != nil {
		return store.Writes{}, err
	}
	if id.seq == 0 {
		w, d, err := transaction.Decide(rows, run, engine.LeaseTask{Number: id.number, Lessee: l, Settings: settings}, now)
		if err == nil {
			w.Answer = leasedTask{Leased: store.Leased{Kind: protocol.KindWorkflow, Head: d.Next.Head}}
		}
		return w, err
	}
	sk := engine.SessionKey{Namespace: run.Namespace}
	if a, ok := run.Activities.Get(id.seq); ok {
		sk.ID = a.SessionID
	}
	// Count the sessions of the worker under the lock of its row: of two concurrent claims, only one gets the worker's
	// last free place for a session.
	l.Sessions, l.Used, l.Counted = rows.Holding(l.Worker.Key(), sk, now), rows.Used(l.Worker, now), true
	var out engine.LeasedActivity
	w, d, err := transaction.Decide(
		rows, run,
		engine.LeaseActivityTask{
			Seq: id.seq, Lessee: l, EpochWatermark: rows.EpochWatermark, Result: &out, Settings: settings,
		},
		now,
	)
	if err == nil {
		w.Answer = leasedTask{Leased: store.Leased{
			Kind: protocol.KindActivity, Head: d.Next.Head, Activity: &out.Activity, Session: out.Session, IsNew: out.IsNew,
			SessionAcquired: out.Acquired,
		}}
	}
	return w, err
}

// settings returns the settings of the task's queue. If the queue has a limit, a claim is refused, because only polls
// are counted.
func (id taskID) settings(
	run *engine.Run, kind protocol.TaskKind, of func(engine.QueueKey) *engine.Queue,
) (*engine.Queue, error) {
	queue := run.Queue
	if a, ok := run.Activities.Get(id.seq); ok {
		queue = a.Queue
	}
	settings := of(engine.QueueKey{Namespace: run.Namespace, Name: queue})
	for _, q := range []*engine.Queue{settings, of(engine.QueueKey{Namespace: run.Namespace})} {
		if q != nil && q.Budget(kind).Bounded() {
			return nil, protocol.Refuse(
				protocol.ReasonThrottled, "queue %s has a limit, so only polls can lease its tasks", queue,
			).With("task_status", string(engine.Ready))
		}
	}
	return settings, nil
}

// leasedTo reports whether this process of the worker owns the task's lease.
func (id taskID) leasedTo(rows store.Rows, run *engine.Run, w *engine.Worker, now time.Time) (store.Leased, bool) {
	mine := func(s engine.TaskState, l engine.Lease) bool {
		return s == engine.LeasedState && l.Owner == w.ID && l.Incarnation == w.Incarnation && l.Until.After(now)
	}
	if id.seq == 0 {
		t := run.Task
		return store.Leased{Kind: protocol.KindWorkflow, Head: run.Head}, t != nil && t.Number == id.number &&
			mine(t.State, t.Lease)
	}
	a, ok := run.Activities.Get(id.seq)
	out := store.Leased{Kind: protocol.KindActivity, Head: run.Head, Activity: &a, IsNew: a.New}
	if a.SessionID != "" {
		out.Session = rows.Session(engine.SessionKey{Namespace: run.Namespace, ID: a.SessionID})
	}
	return out, ok && mine(a.State, a.Lease)
}

// LeaseStatus returns the state of a task, the worker that leased it, and whether the calling worker may lease it.
func (b *Broker) LeaseStatus(ctx context.Context, in protocol.LeaseRequest) (protocol.LeaseStatus, error) {
	s := protocol.LeaseStatus{TaskID: in.TaskID, TaskStatus: "completed"}
	id, err := parseTaskID(in)
	if err != nil {
		return s, err
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return s, err
	}
	var l engine.Lessee
	if in.WorkerID != "" {
		if l.Worker, err = b.workers.Current(ctx, engine.WorkerKey{
			Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.WorkerID,
		}, in.Incarnation); err != nil {
			return s, err
		}
	}
	// Evaluate a claim on rows that are read together but not locked. The result is for display and for callers that
	// wait for a retry; it is not a guarantee.
	err = b.store.View(ctx, func(r store.Reader) error {
		run, err := r.Step(ctx, id.run, id.seq)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if run, err = id.checkVisible(run, in); err != nil {
			return err
		}
		var session *engine.Session
		if a, ok := run.Activities.Get(id.seq); ok && a.SessionID != "" {
			if found, err := r.Session(ctx, engine.SessionKey{Namespace: run.Namespace, ID: a.SessionID}); err == nil {
				session = &found
			}
		}
		if l.Worker != nil {
			held, err := r.Holdings(ctx, run.Namespace)
			if err != nil {
				return err
			}
			l.Sessions, l.Used, l.Counted = held[l.Worker.ID].Sessions, held[l.Worker.ID].UsedAt(l.Worker), true
		}
		settings, refusal := id.settings(run, in.Kind, b.store.Queue)
		id.status(&s, run, l, session, settings, now)
		if s.Claimable {
			setUnclaimable(&s, refusal)
		}
		return nil
	})
	if err == nil && s.LeaseOwner != nil {
		namespace := transaction.NamespaceOrDefault(in.Namespace)
		if there, e := b.workers.IsVisible(ctx, namespace, *s.LeaseOwner); e != nil || !there {
			s.LeaseOwner = nil // leased to a worker that the caller must not learn
		}
	}
	return s, err
}

// status sets the members of s that describe the state of the task.
func (id taskID) status(
	s *protocol.LeaseStatus, run *engine.Run, l engine.Lessee, session *engine.Session, settings *engine.Queue,
	now time.Time,
) {
	s.WorkflowID, s.RunID, s.WorkflowType, s.TaskQueue = run.WorkflowID, run.ID, &run.Type, &run.Queue
	s.RunStatus, _, _ = run.Public()
	var lease engine.Lease
	var err error
	if id.seq == 0 {
		if t := run.Task; t != nil && t.Number == id.number {
			s.TaskStatus, lease = string(t.State), t.Lease
			s.RetryAfter = retryAfter(t.State, t.ReadyAt.Time, now)
		}
		err = run.Claimable(id.number, l, settings, now)
	} else {
		var a engine.Activity
		a, _, err = run.ClaimableActivity(id.seq, l, func(string) *engine.Session { return session }, settings, now)
		if a.Type != "" {
			s.TaskStatus, lease, s.ActivityType, s.TaskQueue, s.ActivityID = string(a.State), a.Lease, &a.Type, &a.Queue,
				&s.TaskID
			s.RetryAfter = retryAfter(a.State, a.ReadyAt.Time, now)
			if a.State == engine.LeasedState {
				attempt := engine.AttemptID(run.ID, id.seq, a.Delivery)
				s.AttemptID = &attempt
			}
		}
	}
	s.LeaseOwner, s.LeaseExpires = protocol.OrNil(lease.Owner), lease.Until
	s.Claimable = err == nil
	s.Claimed = l.Worker != nil && lease.Owner == l.Worker.ID && lease.Incarnation == l.Worker.Incarnation &&
		lease.Until.After(now)
	if !s.Claimed {
		setUnclaimable(s, err)
	}
}

// setUnclaimable stores why the task cannot be claimed.
func setUnclaimable(s *protocol.LeaseStatus, err error) {
	var refusal *protocol.Error
	if errors.As(err, &refusal) {
		reason := string(refusal.Reason)
		s.Claimable, s.Reason, s.ReasonDetail = false, &reason, &refusal.Message
	}
}

// retryAfter returns the remaining backoff of a delayed task in seconds, or nil for a task in another state. The
// minimum is 1: a caller that waits 0 seconds would repeat the request immediately and get the same response.
func retryAfter(s engine.TaskState, at, now time.Time) *int64 {
	if s != engine.Delayed {
		return nil
	}
	n := max(1, int64(at.Sub(now).Round(time.Second)/time.Second))
	return &n
}
