package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The response of a poll may be lost after tasks were leased for it. Therefore a poll has an ID, and a repeated poll
// receives the same tasks. Every reason for which a worker gets no tasks (registration, release, drains, slots) is
// returned as a status, since a poll that just waits would hide a mistake.

// These are the default and the maximum duration of a poll.
const (
	defaultPoll = 30 * time.Second
	maxPoll     = 60 * time.Second
	mismatchMS  = 10_000
)

// Poll returns tasks for a worker. It waits until there is a task or the time is up; the workers of a queue are
// served in the order of their polls. A repeated poll_request_id returns the same tasks for two minutes, while they are
// still leased. Afterwards it is rejected, since the worker has lost the tasks. For Sojourn workers, and for the Rust
// SDK, which exits after such an error, it counts as a new poll instead.
func (b *Broker) Poll(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
	asked := in.Queues // all requested queues; some of them may be withheld at the moment
	w, empty, err := b.admitPoll(ctx, &in)
	if err != nil || empty != nil {
		return orZero(empty), err
	}
	wait := defaultPoll
	if in.Timeout != nil {
		wait = min(max(0, time.Duration(*in.Timeout)*time.Second), maxPoll)
	}
	// If the wait ends because something about the worker changed (its drain, its registration), the poll does not end:
	// it is admitted again and continues for the rest of its time.
	poll := func() (protocol.PollResponse, error) {
		if a, err := b.leasedBefore(ctx, in, w); err != nil || len(a.Tasks) > 0 {
			return a, err
		}
		began := time.Now()
		for {
			spec := b.pollSpec(in, w)
			spec.Budget = responseBudget(ctx)
			waiter := b.dispatch.Enter(spec)
			leased, err := waiter.Wait(ctx, wait-time.Since(began))
			switch {
			case errors.Is(err, dispatch.ErrDraining):
				return b.drainStatus(), nil
			// the worker's other queues, or queues routed to it, may still serve it
			case errors.Is(err, dispatch.ErrDrained):
				in.Queues = asked
				if w, empty, err = b.admitPoll(ctx, &in); err != nil || empty != nil {
					return orZero(empty), err
				}
				continue
			// Return an empty response, so that the worker polls again with its new registration.
			case errors.Is(err, membership.ErrRevised):
				return b.pollResponse(ctx, in, nil)
			// the worker's registration ended, or this app no longer knows the worker
			case errors.Is(err, dispatch.ErrRegistrationEnded):
				next, empty, err := b.admitPoll(ctx, &in)
				if err != nil || empty != nil {
					return orZero(empty), err
				}
				if next.Incarnation != w.Incarnation {
					return b.supersededPoll(ctx, in, next)
				}
				w = next
				continue
			case errors.Is(err, dispatch.ErrNoMemory):
				return protocol.PollResponse{}, protocol.Refuse(protocol.ReasonOverloaded, "%v; try again", err)
			case err != nil:
				// Tasks may have been leased to this poll without the worker's knowledge.
				if errors.Is(err, store.ErrOutcome) {
					b.workers.With(w.Key(), func(h *membership.TrackedWorker) { h.UnknownPollAt = time.Now() })
				}
				return protocol.PollResponse{}, err
			}
			a, err := b.pollResponse(ctx, in, leased)
			if why := waiter.Throttled(); a.Status == protocol.PollEmpty && why != nil {
				a.Status, a.Reason, a.WaitReason, a.Wait = protocol.PollThrottled, string(protocol.ReasonThrottled),
					why.Why(time.UTC), why
			}
			return a, err
		}
	}
	if in.PollID == "" {
		return poll()
	}
	anew := w.Explicit || strings.HasPrefix(w.SDKVersion, protocol.RustSDK)
	return b.polls.runOnce(ctx, pollKey{w.Key(), in.PollID, pollSpace(in.Kinds)}, in.Kinds, anew, poll,
		func(refs []store.TaskRef) (protocol.PollResponse, error) { return b.redeliver(ctx, in, w, refs) })
}

// supersededPoll returns the response to a poll without an incarnation if another process has registered meanwhile. An
// app that knows the polls of the new process rejects the poll. At other apps the poll may come from the new process,
// which then polls again.
func (b *Broker) supersededPoll(
	ctx context.Context, in protocol.PollRequest, now *engine.Worker,
) (protocol.PollResponse, error) {
	if now.HeartbeatApp == b.opt.App {
		return protocol.PollResponse{}, transaction.StaleWorker(now.ID)
	}
	return b.pollResponse(ctx, in, nil)
}

// admitPoll checks a poll in the order in which an operator must fix problems: the worker's identity, release, drains,
// queues, build, and request. If the returned response is not nil, the poll ends with it, without tasks and without an
// error.
func (b *Broker) admitPoll(
	ctx context.Context, in *protocol.PollRequest,
) (*engine.Worker, *protocol.PollResponse, error) {
	if in.WorkerID == "" {
		return nil, nil, protocol.Invalid("worker_id", "is missing")
	}
	if err := protocol.CheckLimits(in); err != nil {
		return nil, nil, err
	}
	key := engine.WorkerKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.WorkerID}
	w, err := b.workers.Current(ctx, key, in.Incarnation)
	if err != nil {
		return nil, nil, err
	}
	// Record the heartbeat before any rejection: a worker that the release gate blocks is alive, too, and stays listed.
	b.workers.RecordHeartbeat(key)
	if in.Gated {
		if v := b.checkRelease(key, in.Release); !v.Allowed {
			return nil, &protocol.PollResponse{
				Status: protocol.PollMismatch, Reason: v.Message, RetryAfter: mismatchMS, AppRelease: b.opt.Release,
				Tasks: []protocol.Task{}, Undo: func() {},
			}, nil
		}
	}
	if b.isDraining() || !in.HandOver && b.workers.Drains(ctx, w) {
		a := b.drainStatus()
		return nil, &a, nil
	}
	if d := b.workers.DrainOf(w); d != nil && (!in.HandOver || d.DeadlinePassed(b.storeTime().Time)) {
		a := drainingResponse()
		a.RetryAfter = mismatchMS
		return nil, &a, nil
	}
	if len(in.Queues) == 0 {
		in.Queues = w.Queues
		if in.TaskQueue != "" {
			in.Queues = []string{in.TaskQueue}
		}
	}
	for _, q := range in.Queues {
		if !slices.Contains(w.Queues, q) {
			return nil, nil, protocol.Refuse(protocol.ReasonQueueMismatch, "worker %s does not serve queue %s", w.ID, q).
				With("registered_task_queue", w.Queues[0]).With("requested_task_queue", q)
		}
	}
	// A build may be drained in one queue and active in another, so check each queue. The poll ends only if none
	// remains.
	queues := b.undrainedQueues(w, in.Queues)
	if len(queues) == 0 {
		a := drainingResponse()
		a.Drained = &w.BuildID
		return nil, &a, nil
	}
	// queues that are routed to another group have no tasks for this worker until the route changes
	in.Queues = slices.DeleteFunc(queues, func(q string) bool { return b.routedElsewhere(w, q) })
	// Check the build ID after drains: a worker of a drained build must get the status draining, not an error about its
	// build ID.
	if in.BuildID != "" && in.BuildID != w.BuildID {
		return nil, nil, protocol.Refuse(
			protocol.ReasonBuildMismatch, "worker %s registered build %q but polls with build %q", w.ID, w.BuildID, in.BuildID,
		).With("registered_build_id", w.BuildID).With("requested_build_id", in.BuildID)
	}
	if in.HandOver {
		in.Kinds = []protocol.TaskKind{protocol.KindActivity}
	}
	if len(in.Kinds) == 0 {
		in.Kinds = []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity}
	}
	for _, k := range in.Kinds {
		if k != protocol.KindWorkflow && k != protocol.KindActivity && !k.Asked() {
			return nil, nil, protocol.Invalid(
				"kinds", "must be workflow, activity, query or update_validation, not %.40q", string(k),
			)
		}
	}
	in.Max = max(1, in.Max)
	if s := incapableReason(w, in.Kinds); s != "" && !w.Explicit {
		return nil, &protocol.PollResponse{Status: s, RetryAfter: mismatchMS, Tasks: []protocol.Task{}, Undo: func() {}}, nil
	}
	return w, nil, nil
}

// incapableReason returns why a worker that polls for one kind of task can never get one: it registered no type of this
// kind, or no slot. If the poll just waited, it would hide the mistake.
func incapableReason(w *engine.Worker, kinds []protocol.TaskKind) protocol.PollStatus {
	switch {
	case slices.Contains(kinds, protocol.KindActivity) && len(kinds) == 1 &&
		(len(w.ActivityTypes) == 0 && !w.AnyActivity || w.ActivitySlots == 0):
		return protocol.PollNoActivity
	case slices.Contains(kinds, protocol.KindWorkflow) && !slices.Contains(kinds, protocol.KindActivity) &&
		!slices.Contains(kinds, protocol.KindQuery) &&
		(len(w.WorkflowTypes) == 0 || w.WorkflowSlots == 0):
		return protocol.PollNoWorkflow
	}
	return ""
}

// drainStatus returns a poll response that says whether the worker or the app drains. A worker that drains stops
// polling permanently. If only the app drains, the worker must continue to poll, since the app's successor needs it.
func (b *Broker) drainStatus() protocol.PollResponse {
	a := drainingResponse()
	if b.isDraining() {
		a.Status, a.Reason = protocol.PollUnavailable, string(protocol.ReasonBackendUnavailable)
	}
	return a
}

// drainingResponse returns the status of a draining worker, with the time of its next poll, since an operator may end
// the drain.
func drainingResponse() protocol.PollResponse {
	return protocol.PollResponse{
		Status: protocol.PollDraining, Reason: string(protocol.ReasonWorkerDraining), RetryAfter: 1000,
		Tasks: []protocol.Task{}, Undo: func() {},
	}
}

// limitToOneTask records whether the tasks of the last response to polls for these kinds had to be returned because the
// response was rejected. Tasks are leased by their estimated sizes, so a response may be too large; after such a
// response, the next one contains only one task.
func (b *Broker) limitToOneTask(k engine.WorkerKey, kinds []protocol.TaskKind, returned bool) {
	b.workers.With(k, func(h *membership.TrackedWorker) {
		switch {
		case returned && h.SingleTask == nil:
			h.SingleTask = map[string]bool{pollSpace(kinds): true}
		case returned:
			h.SingleTask[pollSpace(kinds)] = true
		case len(h.SingleTask) > 0:
			delete(h.SingleTask, pollSpace(kinds))
		}
	})
}

// pollSpec limits the tasks of each kind to the worker's slots and to what the poll may contain.
func (b *Broker) pollSpec(in protocol.PollRequest, w *engine.Worker) dispatch.Spec {
	b.workers.With(w.Key(), func(h *membership.TrackedWorker) {
		if len(h.SingleTask) > 0 && h.SingleTask[pollSpace(in.Kinds)] {
			in.Max = 1
		}
	})
	free := map[protocol.TaskKind]int{}
	for _, k := range in.Kinds {
		free[k] = in.Max
		if n, ok := in.Free[k]; ok {
			free[k] = min(max(0, n), in.Max)
		}
	}
	build := in.BuildID
	if build == "" {
		build = w.BuildID
	}
	app := ""
	if !w.Explicit {
		app = b.opt.App
	}
	return dispatch.Spec{
		Namespace: w.Namespace, Queues: in.Queues, Kinds: in.Kinds, Free: free, Max: in.Max,
		Lessee: engine.Lessee{Worker: w, PollID: in.PollID, BuildID: build, App: app, Draining: in.HandOver},
		// The dispatcher calls Still under its lock when the poll enters. Otherwise a registration that ended, or a
		// drain that began, after the admission would leave a poll that never ends.
		Still: func() bool {
			if in.HandOver {
				return b.workers.IsRegistered(w.Key(), w.Incarnation)
			}
			return b.workers.AcceptsTasks(w)
		},
	}
}

// pollResponse converts leases to tasks. If that fails, it releases the leased tasks immediately.
func (b *Broker) pollResponse(
	ctx context.Context, in protocol.PollRequest, leased []store.Leased,
) (protocol.PollResponse, error) {
	a := protocol.PollResponse{
		Status: protocol.PollEmpty, Tasks: []protocol.Task{}, AppRelease: b.opt.Release, StoreTime: b.storeTime(),
		Undo: func() {},
	}
	if len(leased) == 0 {
		return a, nil
	}
	refs := make([]store.TaskRef, len(leased)) // keep only what releasing a task needs, not its page of history
	for i, l := range leased {
		refs[i] = refOf(l)
	}
	key := engine.WorkerKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.WorkerID}
	b.workers.RecordLease(key)
	b.limitToOneTask(key, in.Kinds, false)
	undo := sync.OnceFunc(func() {
		b.limitToOneTask(key, in.Kinds, true)
		for _, r := range refs {
			b.returnTask(r)
		}
	})
	for _, l := range leased {
		if l.SessionAcquired && l.Session.Origin == engine.OriginWorkflow {
			b.runInBackground(func(ctx context.Context) { b.releaseSuperseded(ctx, l.Session) })
		}
	}
	tasks, err := b.tasksForLeases(ctx, in, leased)
	if err != nil {
		undo()
		return protocol.PollResponse{}, err
	}
	if len(tasks) == 0 {
		return a, nil
	}
	// The sizes of tasks are estimates for a run that an earlier build started.
	if n := fittingTasks(tasks); n < len(tasks) {
		for _, r := range refs[n:] {
			b.returnTask(r)
		}
		tasks, refs = tasks[:n], refs[:n]
	}
	a.Status, a.Tasks, a.Undo = protocol.PollLeased, tasks, undo
	return a, nil
}

// storeTime returns the store's time for a response.
func (b *Broker) storeTime() history.Time {
	if at := b.store.About(); !at.IsZero() {
		return history.At(at)
	}
	return history.Time{}
}

// Return releases a lease whose task never reached a worker: the delivery does not count, and the task is ready again.
func (b *Broker) Return(l store.Leased) { b.returnTask(refOf(l)) }

// refOf returns the reference of a delivery. Query tasks are referenced by their ID.
func refOf(l store.Leased) store.TaskRef {
	switch {
	case l.Kind.Asked():
		return store.TaskRef{Kind: l.Kind, Run: l.Question.ID, Delivery: l.Question.Attempt}
	case l.Kind == protocol.KindWorkflow:
		t := l.Head.Task
		return store.TaskRef{Kind: l.Kind, Run: l.Head.ID, Seq: t.Number, Delivery: t.Delivery, Redeliveries: t.Redeliveries}
	}
	a := l.Activity
	return store.TaskRef{Kind: l.Kind, Run: l.Head.ID, Seq: a.Seq, Delivery: a.Delivery, Redeliveries: a.Redeliveries}
}

// returnTask releases a delivery whose response failed. It retries until the lease would expire, since otherwise the
// task would have to wait for that.
func (b *Broker) returnTask(ref store.TaskRef) {
	if ref.Kind.Asked() {
		b.runInBackground(func(ctx context.Context) {
			if err := b.questions.Requeue(ctx, ref.Run, ref.Delivery); err != nil {
				store.Warn(&b.log, err).Str("question", ref.Run).Msg("failed to requeue a query or validation task")
			}
		})
		return
	}
	b.retryInBackground(func(ctx context.Context) error {
		o, err := transaction.ReturnUndelivered(ctx, b.store, ref)
		if err == nil {
			b.logReturned(ref.Kind, ref.Run, ref.Seq, o)
		}
		if err != nil && protocol.ReasonOf(err) == "" && !errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
			b.log.Error().Err(err).Str("run_id", ref.Run).Msg("failed to undo the lease of an undelivered task")
		}
		return err
	})
}

// Up to loggedReturns consecutive returns without a start are logged; afterwards only each returnLogInterval'th.
const (
	loggedReturns     = 6
	returnLogInterval = 50
)

// logReturned logs a task that was returned again without a start, from the third consecutive return on: a single
// return has many harmless causes.
func (b *Broker) logReturned(kind protocol.TaskKind, run string, seq int64, o transaction.Outcome) {
	n := o.Returned
	if n < engine.ReturnedOften {
		return
	}
	b.opt.Metrics.countUnstarted(kind)
	if n < loggedReturns || n%returnLogInterval == 0 {
		b.log.Warn().Str("run_id", run).Str("kind", string(kind)).Int64("seq", seq).Str("queue", o.Run.Queue).
			Int("returns", n).Msg("task returned again without having been started")
	}
}

func orZero(a *protocol.PollResponse) protocol.PollResponse {
	if a == nil {
		return protocol.PollResponse{}
	}
	return *a
}

// undrainedQueues returns the queues for which the worker's build is not drained.
func (b *Broker) undrainedQueues(w *engine.Worker, queues []string) []string {
	return slices.DeleteFunc(slices.Clone(queues), func(q string) bool {
		return b.store.Queue(engine.QueueKey{Namespace: w.Namespace, Name: q}).Drained(w.BuildID)
	})
}
