package broker

import (
	"context"
	"encoding/binary"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker with a run in its sticky cache can compute the next commands of the workflow as soon as it has an activity's
// result. Committing both in one transaction (an eager workflow task) saves a commit and a round trip per step. If in
// doubt, the app commits only the result and creates the next workflow task as usual.

// eagerTask is an eager workflow task: the workflow's next commands, which the worker sent with the result of an
// activity. Methods accept a nil eagerTask, which means that there is none.
type eagerTask struct {
	b    *Broker
	ctx  context.Context
	run  string
	then engine.EagerTask
	by   store.Process
	poll protocol.PollRequest // the poll under whose ID the next activity is leased
	next *dispatch.Waiter     // waits for the next activity; nil: the worker has no free slot
	// byte budget of the response
	budget *dispatch.Budget
	need   store.Keys // rows that the commands need
}

// eagerTask returns the eager workflow task of an outcome, or nil if it cannot be accepted. by is the worker that polls
// with the same request: an eager task is accepted only from a worker to which the workflow task could be dispatched.
func (b *Broker) eagerTask(
	ctx context.Context, in protocol.CompleteItem, by *engine.Worker, budget *dispatch.Budget,
) *eagerTask {
	t := b.newEagerTask(ctx, in, by, budget)
	if run, _, ok := engine.ParseStepID(in.TaskID); ok && in.Eager != nil && t == nil {
		// the worker has applied the commands to its cached run and must replay it
		b.sticky.forget(run, b.processOf(in))
	}
	return t
}

// newEagerTask returns nil if there is any reason not to accept the eager workflow task. None of them is an error: the
// result is committed without it.
func (b *Broker) newEagerTask(
	ctx context.Context, in protocol.CompleteItem, by *engine.Worker, budget *dispatch.Budget,
) *eagerTask {
	if in.Eager == nil || in.Eager.Unread != nil || by == nil || in.Kind != protocol.KindActivity || in.Failure != nil ||
		in.Returned != "" || in.Owner != by.ID || in.Namespace != by.Namespace || in.Incarnation == "" ||
		in.Incarnation != by.Incarnation || by.WorkflowSlots == 0 {
		return nil
	}
	run, _, ok := engine.ParseStepID(in.TaskID)
	if !ok {
		return nil
	}
	t := &eagerTask{
		b: b, ctx: ctx, run: run, budget: budget, by: store.Process{Worker: by.Key(), Incarnation: by.Incarnation},
		poll: protocol.PollRequest{
			WorkerID: by.ID, Namespace: by.Namespace, Incarnation: by.Incarnation, PollID: eagerPollID(run, in.AttemptID),
			EagerTasks: true,
		},
	}
	for i, c := range in.Eager.Commands {
		if b.commandNeeds(in.Namespace, c, i, &t.need) != nil {
			return nil
		}
	}
	types, err := b.upsertTypes(ctx, in.Namespace, in.Eager.Commands)
	if err != nil {
		return nil
	}
	ends, err := b.attachedChildEnds(ctx, in.Namespace, in.Eager.Commands)
	if err != nil {
		return nil
	}
	if t.need.Runs, err = b.firstRuns(ctx, reusableIDs(in.Namespace, in.Eager.Commands)); err != nil {
		return nil
	}
	lessee := engine.Lessee{Worker: by, PollID: t.poll.PollID, BuildID: by.BuildID}
	t.then = engine.EagerTask{
		SeenThrough: in.Eager.SeenThrough, At: in.Eager.At, Commands: in.Eager.Commands, Hash: hashEagerTask(in.Eager),
		Types: types,
		Ends:  ends, Lessee: lessee,
	}
	// The worker has a slot for the next activity. Register its waiter before another worker can lease the activity.
	if in.Eager.Slot {
		t.next = b.dispatch.Enter(dispatch.Spec{
			Namespace: by.Namespace, Queues: by.Queues, Kinds: []protocol.TaskKind{protocol.KindActivity},
			Free: map[protocol.TaskKind]int{protocol.KindActivity: 1}, Max: 1, Lessee: lessee, Run: run,
			Budget: budget,
			Still:  func() bool { return b.workers.IsRegistered(by.Key(), by.Incarnation) },
		})
	}
	return t
}

// eagerPollID returns the poll ID for leases that are made with the result of an attempt. A worker that repeats the
// result uses the same ID, so any app finds the next activity. The ID need only be unique within the run, because the
// run ID is a column of the task's row.
func eagerPollID(run, attempt string) string { return "then " + strings.TrimPrefix(attempt, run+"-") }

// hashEagerTask returns a hash that identifies an eager workflow task. It covers the last event that the worker had
// seen: the same commands after another history are a different task.
func hashEagerTask(t *protocol.EagerTask) string {
	all := make([]byte, 0, 64)
	all = binary.BigEndian.AppendUint64(all, uint64(t.SeenThrough))
	all = binary.BigEndian.AppendUint64(all, uint64(t.At.Micros()))
	return hashPayloadBytes(append(all, hashCommands(t.Commands)...))
}

// transaction returns the transaction that commits a result with its eager workflow task.
func (t *eagerTask) transaction(ns string, needs store.Keys, in engine.CompleteActivity) store.Transaction {
	needs.Sessions, needs.Workflows, needs.Inherited = t.need.Sessions, t.need.Workflows, t.need.Inherited
	needs.Activities = append(needs.Activities, t.need.Activities...)
	needs.Current, needs.AllTasks, needs.Chain, needs.Bound = t.need.Current, t.need.AllTasks, t.need.Chain, t.need.Bound
	needs.Attached = t.need.Attached
	needs.Runs = append(needs.Runs, t.need.Runs...)
	decide := func(rows store.Rows, now time.Time) (store.Writes, error) {
		in := in
		if run := rows.Run(t.run); run != nil && t.serves(run) {
			then := t.then
			// Read the operators' settings here and not in advance: a drain of this build must also apply to eager
			// workflow tasks.
			then.Queue = rows.Queue(engine.QueueKey{Namespace: run.Namespace, Name: run.Queue})
			all := rows.Queue(engine.QueueKey{Namespace: run.Namespace})
			then.Budget = then.Queue.Budget(protocol.KindWorkflow).Bounded() || all.Budget(protocol.KindWorkflow).Bounded()
			in.Eager = &then
		}
		w, err := keepingResponses(transaction.UpdateRun(ns, t.run, store.Keys{}, in).Decide, t.need.Runs)(rows, now)
		if o, _ := w.Answer.(transaction.Outcome); err == nil {
			t.recordSticky(&o)
		}
		return w, err
	}
	return store.Transaction{Needs: needs, Recall: true, NotBefore: t.then.At.Time, Decide: decide}
}

// serves reports whether the caller's token allows the run's queue.
func (t *eagerTask) serves(run *engine.Run) bool {
	principal := auth.BoundFrom(t.ctx)
	return principal == nil || principal.Serves(run.Queue)
}

// recordSticky records which event the worker's sticky cache has reached: the last one, since the response contains the
// new events, or none if the eager workflow task was rejected. It runs inside the transaction, because the commit may
// dispatch the next workflow task, whose events depend on it.
func (t *eagerTask) recordSticky(o *transaction.Outcome) {
	switch {
	case !o.Fused:
		t.b.sticky.forget(t.run, t.by)
	case !o.Run.Status.Open(): // a closed run has no next task; watchClosedRuns notifies other workers that cache it
		t.b.sticky.forget(t.run, t.by)
	default:
		t.b.sticky.add(t.run, stickyWorker{t.by, o.Run.LastSeq})
	}
}

// forgetSticky removes the run from the worker's sticky entries, because the result and its eager workflow task were
// rejected.
func (t *eagerTask) forgetSticky() {
	if t != nil {
		t.b.sticky.forget(t.run, t.by)
	}
}

// leavePoll releases the poll that was reserved for the next activity.
func (t *eagerTask) leavePoll() {
	if t != nil && t.next != nil {
		t.next.Close()
	}
}

// accepted returns the response to an accepted eager workflow task.
func (t *eagerTask) accepted(o transaction.Outcome) *protocol.EagerResult {
	var leased []store.Leased
	if t.next != nil {
		leased = t.next.Collect(t.ctx)
	}
	return t.b.acceptedEagerTask(t.ctx, t.poll, t.run, o.EagerEvents, leased, t.budget)
}

// acceptedEagerTask returns how a run continued with an eager workflow task. If the new events do not fit into the
// response, it releases the leased activities and returns nil, as if the task had been rejected; the worker then evicts
// the run and replays it with the next task.
func (b *Broker) acceptedEagerTask(
	ctx context.Context, poll protocol.PollRequest, run string, made []history.Event, leased []store.Leased,
	budget *dispatch.Budget,
) *protocol.EagerResult {
	if !b.dispatch.Spend(budget, int64(history.SizeOf(made)), maxSentBytes-protocol.MaxTaskBytes) {
		for _, l := range leased {
			b.Return(l)
		}
		b.sticky.forget(run, store.Process{
			Worker: engine.WorkerKey{Namespace: poll.Namespace, ID: poll.WorkerID}, Incarnation: poll.Incarnation,
		})
		return nil
	}
	out := &protocol.EagerResult{Events: made, StoreTime: b.storeTime()}
	if a, err := b.pollResponse(ctx, poll, leased); err == nil && len(a.Tasks) > 0 {
		out.Next, out.StoreTime = a.Tasks[0].Activity, a.StoreTime
	}
	return out
}

// acceptedBefore returns the response to a repeated result whose eager workflow task was accepted at any app: its
// events follow the result in the history, and the lease of the next activity has the poll ID of the attempt.
func (b *Broker) acceptedBefore(
	ctx context.Context, in protocol.CompleteItem, ended history.Event, hash string, budget *dispatch.Budget,
) (*protocol.EagerResult, error) {
	if in.Eager == nil || in.Eager.Unread != nil || hash == "" || hash != hashEagerTask(in.Eager) {
		return nil, nil //nolint:nilerr // an eager workflow task that cannot be decoded was not accepted
	}
	run, _, _ := engine.ParseStepID(in.TaskID)
	var made []history.Event
	err := b.store.View(ctx, func(r store.Reader) error {
		events, err := r.Events(ctx, run, ended.Seq, 0, transaction.MaxPage, transaction.MaxPageSize)
		for _, e := range events {
			if e.SeenThrough != ended.Seq {
				break
			}
			made = append(made, e)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	p := store.Process{
		Worker: engine.WorkerKey{Namespace: in.Namespace, ID: in.Owner}, Incarnation: in.Incarnation,
	}
	poll := protocol.PollRequest{
		WorkerID: in.Owner, Namespace: in.Namespace, Incarnation: in.Incarnation,
		PollID: eagerPollID(run, in.AttemptID), EagerTasks: true,
	}
	leased, err := b.leasedUnder(ctx, p, run, poll.PollID, []protocol.TaskKind{protocol.KindActivity})
	if err != nil {
		return nil, err
	}
	leased = leased[:min(1, len(leased))]
	for _, l := range leased {
		if !b.dispatch.Spend(budget, l.Activity.DeliveryBytes(), 0) {
			b.Return(l)
			leased = nil
		}
	}
	return b.acceptedEagerTask(ctx, poll, run, made, leased, budget), nil
}
