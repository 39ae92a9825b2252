package broker

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/logs"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Workers repeat reports of outcomes if a response is lost, send them late, and send many at once. Each outcome
// therefore has its own transaction and its own response. A repetition is recognized by its hash and gets the first
// response, also from another app.

// Complete records the outcomes of tasks separately: a refused outcome does not affect the others. If the request also
// polls (Next), the poll enters the dispatch queue before the outcomes are submitted, so that tasks which they create
// can be dispatched to it immediately. That poll never waits. If it is refused, its part of the response says so, and
// the outcomes are still recorded, unless the refusal shows that another process has registered under the worker's ID:
// then the whole request is refused.
func (b *Broker) Complete(ctx context.Context, in protocol.CompleteRequest) (protocol.CompleteBatchResponse, error) {
	if len(in.Items) == 0 || len(in.Items) > protocol.MaxItems {
		return protocol.CompleteBatchResponse{}, protocol.Invalid("items", "must be 1 to %d outcomes", protocol.MaxItems)
	}
	out := protocol.CompleteBatchResponse{Items: make([]protocol.CompleteResponse, len(in.Items))}
	collect := func() {}
	// The response has one byte budget, for the tasks of the next poll and for the events and activities of eager
	// workflow tasks.
	budget := responseBudget(ctx)
	var by *engine.Worker // the polling worker, if a task may be dispatched to it now
	if in.Next != nil {
		w, empty, err := b.admitPoll(ctx, in.Next)
		switch {
		case protocol.ReasonOf(err) == protocol.ReasonStaleRegistration:
			return out, err
		case err != nil:
			out.Next = protocol.RefusedNext(store.Refusal(err))
		case empty != nil:
			out.Next = empty
		default:
			if !in.Next.HandOver {
				by = w
			}
			// Enter the poll before submitting the outcomes. Otherwise a task that they create would be dispatched to
			// another worker, and this poll would find nothing.
			spec := b.pollSpec(*in.Next, w)
			spec.Own, spec.Budget = b.tasksForNextPoll(in), budget
			waiter := b.dispatch.Enter(spec)
			collect = func() {
				a, err := b.pollResponse(ctx, *in.Next, waiter.Collect(ctx))
				if out.Next = &a; err != nil {
					out.Next = protocol.RefusedNext(store.Refusal(err))
				}
			}
		}
	}
	if len(in.Items) == 1 {
		out.Items[0] = b.completeOne(ctx, in.Items[0], by, budget)
	} else {
		var wait sync.WaitGroup
		// Submit all outcomes concurrently, so that they share one batch of the store. Sequentially, each of them would
		// wait for a commit.
		for i, item := range in.Items {
			wait.Go(func() {
				stack.Grow()
				out.Items[i] = b.completeOne(ctx, item, by, budget)
			})
		}
		wait.Wait()
	}
	collect()
	return out, nil
}

// tasksForNextPoll returns the tasks that the outcomes of a request may create for its poll. Tasks of a queue with a
// limit are always claimed, so no slots are reserved for them.
func (b *Broker) tasksForNextPoll(in protocol.CompleteRequest) []dispatch.Own {
	ns, queues := transaction.NamespaceOrDefault(in.Next.Namespace), append([]string{""}, in.Next.Queues...)
	return slices.DeleteFunc(tasksMadeBy(in.Items), func(o dispatch.Own) bool {
		return slices.ContainsFunc(queues, func(queue string) bool {
			return b.store.Queue(engine.QueueKey{Namespace: ns, Name: queue}).Budget(o.Kind).Bounded()
		})
	})
}

// tasksMadeBy returns the tasks that runs may create because of outcomes: an activity for a workflow task, and one
// workflow task per run for any number of its activities. An eager workflow task has its own poll for the activity that
// it schedules.
func tasksMadeBy(items []protocol.CompleteItem) (list []dispatch.Own) {
	for i := range items {
		item, kind := &items[i], protocol.KindActivity
		run, _, ok := engine.ParseTaskID(item.TaskID)
		if item.Kind == protocol.KindActivity {
			kind = protocol.KindWorkflow
			run, _, ok = engine.ParseStepID(item.TaskID)
		}
		own := dispatch.Own{Run: run, Kind: kind}
		if ok && item.Eager == nil && !item.Kind.Asked() && !slices.Contains(list, own) {
			list = append(list, own)
		}
	}
	return list
}

// completeOne commits one outcome; a refusal is part of the response. by is the worker that polls with the same
// request, budget is the byte budget of the response.
func (b *Broker) completeOne(
	ctx context.Context, in protocol.CompleteItem, by *engine.Worker, budget *dispatch.Budget,
) protocol.CompleteResponse {
	in = in.Cleaned()
	a := protocol.CompleteResponse{TaskID: in.TaskID, Attempt: in.Attempt, AttemptID: in.AttemptID, Outcome: "rejected"}
	err := requireMembers(in)
	if in.Malformed != nil && (err != nil || in.Kind != protocol.KindWorkflow) {
		err = in.Malformed
	}
	if err != nil {
		return b.refusedResponse(a, err)
	}
	if in.Kind.Asked() {
		return b.replyToQuery(ctx, in, a)
	}
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	scope := b.visibilityOf(ctx, in.Namespace, in.Kind, in.TaskID, in.Owner)
	eager := b.eagerTask(ctx, in, by, budget)
	defer eager.leavePoll()
	o, hash, err := b.commitOutcome(ctx, &in, eager, scope)
	if err != nil {
		return b.unrecordedResponse(ctx, in, a, eager, hash, scope.hideDetails(err), budget)
	}
	return b.recordedResponse(in, a, eager, o)
}

// commitOutcome commits the transaction of one outcome. It also returns the hash of the outcome, by which a repetition
// is recognized.
func (b *Broker) commitOutcome(
	ctx context.Context, in *protocol.CompleteItem, eager *eagerTask, scope visibility,
) (o transaction.Outcome, hash string, err error) {
	lines, err := b.logs.FinalLines(ctx, in)
	if err != nil {
		return o, "", err
	}
	// A child may close after its row was read and before the decision. A child closes once, so the next read sees its
	// end. If the outcome needs more than three retries, the cause must be a different one. Few outcomes need the
	// signals that the run inherited by an inbox, so they are read only when the engine asks for them.
	withInbox := false
	again := func() bool {
		withInbox = withInbox || errors.Is(err, engine.ErrInboxUnread)
		return errors.Is(err, engine.ErrChildEnded) || errors.Is(err, engine.ErrInboxUnread)
	}
	for attempt := 0; attempt == 0 || again() && attempt <= 3; attempt++ {
		var c store.Transaction
		if c, hash, err = b.outcomeTransaction(ctx, *in, eager, withInbox); err != nil {
			continue
		}
		if c, err = scope.guard(logs.AddTo(c, lines)); err != nil {
			continue
		}
		o, err = transaction.Commit[transaction.Outcome](ctx, b.store, c)
	}
	if err != nil {
		return o, hash, err
	}
	// If the step ended a session, its owner may now hold another session, whose tasks were ready before. No commit
	// reports that, so check the queue again.
	transaction.Recheck(b.dispatch, o.Freed)
	if b.concernsPools(in, &o.Run) {
		b.fleet.PoolsChanged()
	}
	// Only a report that was accepted under its lease counts as a heartbeat of its worker, because any caller can send
	// other reports.
	if o.By.Owner == in.Owner {
		b.workers.RecordHolderHeartbeat(ctx, engine.WorkerKey{Namespace: o.Run.Namespace, ID: in.Owner}, o.By.Incarnation)
	}
	if len(o.Blamed) > 0 {
		b.clearSuspects(ctx, o.Run.Namespace, o.Blamed)
	}
	return o, hash, o.Refused
}

// clearSuspects ends the suspicion of the other tasks after one task was blamed for the loss of an executor. After an
// error these tasks stay suspects and are dispatched one at a time.
func (b *Broker) clearSuspects(ctx context.Context, namespace string, losses []string) {
	n, err := transaction.ClearSuspects(ctx, b.store, namespace, losses)
	if err != nil {
		store.Warn(&b.log, err).Strs("losses", losses).Msg("failed to clear suspects of a lost executor; they are delivered one by one")
	}
	b.opt.Metrics.countVerdicts(verdictCleared, n)
}

// recordedResponse returns the response to an outcome that was recorded.
func (b *Broker) recordedResponse(
	in protocol.CompleteItem, a protocol.CompleteResponse, eager *eagerTask, o transaction.Outcome,
) protocol.CompleteResponse {
	a.RunID, a.Outcome, a.Recorded = o.Run.ID, o.Outcome, o.Recorded
	a.CreatedTaskIDs, a.NextTaskID, a.Warnings = o.Created, protocol.OrNil(o.NextTask), o.Warnings
	a.RunStatus, _, _ = protocol.PublicRun(o.Run.Status, true, o.Run.Task != nil)
	b.opt.Metrics.countOutcome(in.Kind, o.Outcome)
	b.opt.Metrics.countRebuild(in.Recovered)
	if in.Executor != nil {
		b.opt.Metrics.countVerdicts(in.Executor.Verdict, 1)
	}
	if in.Returned != "" {
		_, seq, _ := engine.ParseStepID(in.TaskID)
		b.logReturned(in.Kind, o.Run.ID, seq, o)
	}
	if o.Fused {
		a.Eager = eager.accepted(o)
		b.opt.Metrics.countOutcome(protocol.KindWorkflow, "fused")
	}
	return a
}

// unrecordedResponse returns the response to an outcome that was not recorded by this request: the first response if
// the outcome is a repetition, otherwise the error.
func (b *Broker) unrecordedResponse(
	ctx context.Context, in protocol.CompleteItem, a protocol.CompleteResponse, eager *eagerTask, hash string, err error,
	budget *dispatch.Budget,
) protocol.CompleteResponse {
	// Check for a repetition only after the refusal, so that an ordinary report costs no extra read.
	repeated, ended, ok := b.firstResponse(ctx, in, hash, err, budget)
	if ok {
		return repeated
	}
	// A refusal means that the outcome was rejected, and the worker evicts the run from its sticky cache. After any
	// other error the app does not know whether the outcome was stored.
	if reason := protocol.ReasonOf(err); reason != "" {
		b.forgetSticky(in)
		eager.forgetSticky()
		// A rebuild that ran in an attempt which has ended is counted and logged here: no event of history contains it.
		if in.Recovered != nil && in.Recovered.Rebuild != "" {
			b.opt.Metrics.countRebuild(in.Recovered)
			b.log.Info().Str("task_id", in.TaskID).Str("worker_id", in.Owner).Int64("epoch", in.Epoch).
				Str("rebuild_activity", in.Recovered.Rebuild).Str("reason", in.Recovered.Reason).
				Msg("session rebuilt in an attempt that has ended")
		}
	}
	b.countLateOutcome(in, ended, err)
	return b.refusedResponse(a, err)
}

// requireMembers rejects an outcome that does not name its worker, task or delivery, before any other check.
func requireMembers(in protocol.CompleteItem) error {
	// One request may contain outcomes of tasks and replies to query tasks, which also have this member.
	delivery, present := "workflow_task_attempt", in.Attempt != 0
	if in.Kind == protocol.KindActivity {
		delivery, present = "activity_attempt_id", in.AttemptID != ""
	}
	var missing []string
	for _, m := range []struct {
		name  string
		given bool
	}{
		{"task_id", in.TaskID != ""}, {"lease_owner", in.Owner != ""}, {delivery, present},
	} {
		if !m.given {
			missing = append(missing, m.name)
		}
	}
	return protocol.Missing(missing)
}

// countLateOutcome counts an outcome that arrived after the end of the session's epoch.
func (b *Broker) countLateOutcome(in protocol.CompleteItem, ended history.Event, refusal error) {
	why := ""
	if c, ok := ended.Data.(*history.ActivityCancelled); ok && c.Reason == engine.SessionEndedReason &&
		c.AttemptID == in.AttemptID {
		why = "session_ended"
	}
	if reason := protocol.ReasonOf(refusal); reason == protocol.ReasonStaleSessionEpoch {
		why = string(reason)
	}
	if why == "" {
		return
	}
	b.opt.Metrics.countLateOutcome(why)
	b.log.Debug().Str("task_id", in.TaskID).Str("worker_id", in.Owner).Int64("epoch", in.Epoch).Str("reason", why).
		Msg("late completion ignored")
}

// replyToQuery passes the reply to a query task to the caller of the query. The reply is not stored.
func (b *Broker) replyToQuery(
	ctx context.Context, in protocol.CompleteItem, a protocol.CompleteResponse,
) protocol.CompleteResponse {
	outcome, err := b.completeQueryTask(ctx, in)
	if err != nil {
		return b.refusedResponse(a, err)
	}
	a.Outcome, a.Recorded = outcome, true
	b.opt.Metrics.countOutcome(in.Kind, outcome)
	return a
}

// refusedResponse returns the response to a rejected outcome.
func (b *Broker) refusedResponse(a protocol.CompleteResponse, err error) protocol.CompleteResponse {
	a.Err = err
	var refusal *protocol.Error
	if errors.As(err, &refusal) {
		reason := string(refusal.Reason)
		a.Reason, a.Error = &reason, protocol.BodyOf(err)
		b.opt.Metrics.countRefusal(reason)
	} else {
		a.Error = &protocol.ErrorBody{Reason: protocol.ReasonBackendUnavailable, Message: err.Error()}
		a.Uncertain()
	}
	return a
}
