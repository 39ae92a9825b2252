package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/logs"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/stack"
)

// Reports of outcomes. Workers repeat them when an answer is lost, send them late, and send many at once. Each
// outcome is therefore a change of its own with its own answer; a repeated one is known by its hash and gets
// its first answer, also when another app took it.

// Complete takes the outcomes of tasks, each on its own: one that is refused leaves the others standing. A next
// poll that comes with them enters the lines before the items are submitted, so that tasks they make can go to
// it at once. It is answered with what they and the backlog gave, and is never held.
func (b *Broker) Complete(ctx context.Context, in protocol.CompleteRequest) (protocol.CompleteBatchAnswer, error) {
	if len(in.Items) == 0 || len(in.Items) > protocol.MaxItems {
		return protocol.CompleteBatchAnswer{}, protocol.Invalid("items", "must be 1 to %d outcomes", protocol.MaxItems)
	}
	out := protocol.CompleteBatchAnswer{Items: make([]protocol.CompleteAnswer, len(in.Items))}
	collect := func() error { return nil }
	var by *engine.Worker // who polls, if it could be given a task now
	if in.Next != nil {
		w, empty, err := b.admitPoll(ctx, in.Next)
		switch {
		case err != nil:
			return out, err
		case empty != nil:
			out.Next = empty
		default:
			by = w
			// It stands in line before the outcomes are submitted. Behind them, the task that they make would have
			// gone to another worker, and this one would ask for it in vain.
			waiter := b.dispatch.Enter(b.spec(*in.Next, w))
			collect = func() error {
				a, err := b.answer(ctx, *in.Next, waiter.Collect(ctx))
				out.Next = &a
				return err
			}
		}
	}
	if len(in.Items) == 1 {
		out.Items[0] = b.completeOne(ctx, in.Items[0], by)
	} else {
		var wait sync.WaitGroup
		// Submitted all at once, so that they come into one batch of the store. One after the other each would
		// wait for a commit.
		for i, item := range in.Items {
			wait.Go(func() {
				stack.Grow()
				out.Items[i] = b.completeOne(ctx, item, by)
			})
		}
		wait.Wait()
	}
	return out, collect()
}

// completeOne takes one outcome; a refusal stands in the answer. by is who polls with it.
func (b *Broker) completeOne(
	ctx context.Context, in protocol.CompleteItem, by *engine.Worker,
) protocol.CompleteAnswer {
	a := protocol.CompleteAnswer{TaskID: in.TaskID, Attempt: in.Attempt, AttemptID: in.AttemptID, Outcome: "rejected"}
	if err := wantsMembers(in); err != nil {
		return b.refused(a, err)
	}
	if in.Kind.Asked() {
		return b.replied(ctx, in, a)
	}
	in.Namespace = change.Namespace(in.Namespace)
	sight := b.sight(ctx, in.Namespace, in.Kind, in.TaskID, in.Owner)
	turn := b.turn(ctx, in, by)
	defer turn.endWait()
	lines, err := b.logs.Last(ctx, &in)
	var hash string
	if err == nil {
		var o change.Outcome
		for again := 0; again == 0 || errors.Is(err, engine.ErrLookAgain) && again <= 3; again++ {
			// a child may end between the look and the decision; it ends once
			var c store.Change
			if c, hash, err = b.completion(ctx, in, turn); err == nil {
				c, err = sight.through(logs.With(c, lines))
			}
			if err == nil {
				o, err = change.Commit[change.Outcome](ctx, b.store, c)
			}
		}
		if err == nil {
			err = o.Refused
			// A session that ended with this step makes room at its holder, for tasks that lay there and of which
			// no commit tells.
			change.Recheck(b.dispatch, o.Freed)
			// Only a report that was accepted under its lease is a sign of life: anybody could send another.
			if o.By.Owner == in.Owner {
				b.workers.Credit(ctx, engine.WorkerKey{Namespace: o.Run.Namespace, ID: in.Owner}, o.By.Incarnation)
			}
		}
		if err == nil {
			a.RunID, a.Outcome, a.Recorded, a.CreatedTaskIDs, a.NextTaskID = o.Run.ID, o.Outcome, o.Recorded, o.Created,
				protocol.OrNil(o.NextTask)
			a.RunStatus, _, _ = protocol.PublicRun(o.Run.Status, true, o.Run.Task != nil)
			b.opt.Metrics.completed(in.Kind, o.Outcome)
			b.opt.Metrics.rebuilt(in.Recovered)
			if o.Fused {
				a.Then = turn.taken(o)
				b.opt.Metrics.completed(protocol.KindWorkflow, "fused")
			}
			return a
		}
	}
	err = sight.refused(err)
	// The refusal may be about a report that was accepted before and whose answer was lost. Only now is it
	// looked up, so that an ordinary report costs no read for it.
	repeated, ended, ok := b.repeated(ctx, in, hash, err)
	if ok {
		return repeated
	}
	// A refusal says that the outcome does not count; its worker has thrown away what it made of the run. Any
	// other error leaves open what was stored.
	if protocol.ReasonOf(err) != "" {
		b.forgetSticky(in)
		turn.refused()
	}
	if in.Recovered != nil && protocol.ReasonOf(err) != "" {
		// the attempt is over; its history has what its heartbeats told
		b.opt.Metrics.rebuilt(in.Recovered)
		b.log.Info().Str("task_id", in.TaskID).Str("worker_id", in.Owner).Int64("epoch", in.Epoch).Str(
			"rebuild_activity", in.Recovered.Rebuild,
		).Str("reason", in.Recovered.Reason).Msg("session rebuilt in an attempt that is over")
	}
	b.late(in, ended, err)
	return b.refused(a, err)
}

// wantsMembers refuses an outcome that does not say from whom it is, of which task and of which delivery,
// before anything is judged by what it does say.
func wantsMembers(in protocol.CompleteItem) error {
	delivery, said := "workflow_task_attempt", in.Attempt != 0 // as batches call it for questions as well
	if in.Kind == protocol.KindActivity {
		delivery, said = "activity_attempt_id", in.AttemptID != ""
	}
	var missing []string
	for _, m := range []struct {
		name string
		said bool
	}{
		{"task_id", in.TaskID != ""}, {"lease_owner", in.Owner != ""}, {delivery, said},
	} {
		if !m.said {
			missing = append(missing, m.name)
		}
	}
	return protocol.Missing(missing)
}

// late counts an outcome that came too late for its session.
func (b *Broker) late(in protocol.CompleteItem, ended history.Event, refusal error) {
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
	b.opt.Metrics.late(why)
	b.log.Debug().Str("task_id", in.TaskID).Str("worker_id", in.Owner).Int64("epoch", in.Epoch).Str("reason", why).
		Msg("late completion ignored")
}

// replied takes the reply to a question, which is kept nowhere.
func (b *Broker) replied(
	ctx context.Context, in protocol.CompleteItem, a protocol.CompleteAnswer,
) protocol.CompleteAnswer {
	outcome, err := b.completeQuestion(ctx, in)
	if err != nil {
		return b.refused(a, err)
	}
	a.Outcome, a.Recorded = outcome, true
	b.opt.Metrics.completed(in.Kind, outcome)
	return a
}

// refused is the answer to an outcome that was not taken.
func (b *Broker) refused(a protocol.CompleteAnswer, err error) protocol.CompleteAnswer {
	a.Err = err
	var refusal *protocol.Error
	if errors.As(err, &refusal) {
		reason := string(refusal.Reason)
		a.Reason = &reason
		a.Error = &protocol.ErrorBody{
			Reason: refusal.Reason, Message: refusal.Message, Details: refusal.Details, Fields: refusal.Fields,
		}
		b.opt.Metrics.refused(reason)
	} else {
		a.Error = &protocol.ErrorBody{Reason: protocol.ReasonBackendUnavailable, Message: err.Error()}
		a.Uncertain()
	}
	return a
}

// completion makes the change of one outcome, and the hash of what it says.
func (b *Broker) completion(
	ctx context.Context, in protocol.CompleteItem, turn *turn,
) (store.Change, string, error) {
	if in.Kind == protocol.KindWorkflow {
		return b.workflowOutcome(ctx, in)
	}
	return b.activityOutcome(in, turn)
}

// workflowOutcome makes the change of the outcome of a workflow task: it was handed back, it failed, or it
// brought commands. What commands need beside the run (types, carried signals, ends of children) is read here,
// ahead of the change, since a decider reads nothing.
func (b *Broker) workflowOutcome(ctx context.Context, in protocol.CompleteItem) (store.Change, string, error) {
	run, n, ok := engine.ParseTaskID(in.TaskID)
	if !ok {
		return store.Change{}, "", change.NoTask(in.TaskID)
	}
	h := engine.Holder{Owner: in.Owner, Incarnation: in.Incarnation, Delivery: in.Attempt}
	needs := store.Keys{Runs: []string{run}}
	switch {
	case in.Returned != "":
		return change.Step(in.Namespace, run, needs, engine.ReleaseTask{
			Number: n, Delivery: in.Attempt, Owner: in.Owner, Why: in.Returned, Lost: in.LostCount,
		}), "", nil
	case in.Failure != nil:
		b.noteSticky(run, in)
		hash := hashOf(in.Failure)
		return change.Step(in.Namespace, run, needs, engine.FailTask{
			Number: n, Holder: h, Failure: *in.Failure, Hash: hash,
		}), hash, nil
	}
	refused := engine.CompleteTask{
		Number: n, Holder: h, Commands: in.Commands, Streams: in.StreamWaits, Malformed: in.Malformed,
	}
	if in.Malformed != nil || refused.Unsupported() != nil {
		// before any other refusal: this one takes the run out of everybody's hands
		refused.Hash, refused.Former = hashCommands(in.Commands), func() string { return hashOf(in.Commands) }
		//nolint:nilerr // the engine refuses what is unsupported, with all that this entails
		return change.Step(in.Namespace, run, needs, refused), refused.Hash, nil
	}
	b.noteSticky(run, in)
	for i, c := range in.Commands {
		if err := b.commandNeeds(in.Namespace, c, i, &needs); err != nil {
			return store.Change{}, "", err
		}
	}
	types, err := b.upsertTypes(ctx, in.Namespace, in.Commands)
	if err != nil {
		return store.Change{}, "", err
	}
	// The hash is of what the worker sent, so it is taken before arguments are filled in: sent again, the report
	// has none either.
	hash, commands := hashCommands(in.Commands), in.Commands
	if err := b.sameArguments(ctx, run, &in); err != nil {
		return store.Change{}, "", err
	}
	carry, err := b.carried(ctx, run, in.Commands)
	if err != nil {
		return store.Change{}, "", err
	}
	ends, err := b.childEnds(ctx, in.Namespace, in.Commands)
	if err != nil {
		return store.Change{}, "", err
	}
	c := change.Step(in.Namespace, run, needs, engine.CompleteTask{
		Number: n, Holder: h, Commands: in.Commands, Hash: hash, Types: types, Carry: carry, Ends: ends,
		Code:    b.code(ctx, in),
		Streams: in.StreamWaits, Former: func() string { return hashOf(commands) },
	})
	c.Recall = true
	return c, hash, nil
}

// code is what is known of the code whose run goes on as new. If its worker is gone by now, the engine has to
// do without.
func (b *Broker) code(ctx context.Context, in protocol.CompleteItem) engine.Code {
	if last := len(in.Commands) - 1; last < 0 || in.Commands[last].Type != protocol.ContinueAsNew {
		return engine.Code{}
	}
	key := engine.WorkerKey{Namespace: in.Namespace, ID: in.Owner}
	w := b.workers.Get(key)
	if w == nil {
		var err error
		if w, err = b.workers.Stored(ctx, key); err != nil {
			return engine.Code{}
		}
	}
	return engine.Code{Runtime: w.Runtime, Signals: w.Declares("signals")}
}

// sameArguments gives a run that goes on as new without naming arguments those that it was started with.
func (b *Broker) sameArguments(ctx context.Context, run string, in *protocol.CompleteItem) error {
	last := len(in.Commands) - 1
	if last < 0 || in.Commands[last].Type != protocol.ContinueAsNew || !in.Commands[last].Arguments.IsZero() {
		return nil
	}
	var started []history.Event
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		started, err = r.Events(ctx, run, 0, 1, 1, 0)
		return err
	})
	if err != nil || len(started) == 0 {
		return err // without a history there is no run: the step refuses it
	}
	if d, ok := started[0].Data.(*history.WorkflowStarted); ok {
		in.Commands = slices.Clone(in.Commands)
		in.Commands[last].Arguments.Blob = d.Arguments
	}
	return nil
}

// carried reads the signals that a run which goes on as new hands on because its worker kept them: only history
// has them. They are read before the change, since a run's rows hold no payloads.
func (b *Broker) carried(
	ctx context.Context, run string, commands []protocol.Command,
) (list []engine.Signal, err error) {
	last := len(commands) - 1
	if last < 0 || commands[last].Type != protocol.ContinueAsNew || len(commands[last].Unreceived) == 0 {
		return nil, nil
	}
	want := commands[last].Unreceived
	err = b.store.View(ctx, func(r store.Reader) error {
		for after := want[0] - 1; len(want) > 0; {
			events, err := r.Events(ctx, run, after, want[len(want)-1], 1000, 8<<20)
			if err != nil || len(events) == 0 {
				return err // the step refuses what was not found
			}
			for _, e := range events {
				if d, ok := e.Data.(*history.SignalReceived); ok && len(want) > 0 && e.Seq == want[0] {
					list, want = append(list, engine.Signal{Name: d.SignalName, ID: d.SignalID, Value: d.Value}), want[1:]
				}
				after = e.Seq
			}
		}
		return nil
	})
	return list, err
}

// childEnds reads how children have ended that commands attach to: only their histories have their results.
func (b *Broker) childEnds(
	ctx context.Context, ns string, commands []protocol.Command,
) (ends map[string]engine.Message, err error) {
	for i := range commands {
		if commands[i].Type != protocol.AttachChildWorkflow {
			continue
		}
		id := commands[i].WorkflowID
		end, ended, err := b.childEnd(ctx, engine.WorkflowKey{Namespace: ns, ID: id})
		if err != nil {
			return nil, err
		}
		if ended {
			if ends == nil {
				ends = map[string]engine.Message{}
			}
			ends[id] = end
		}
	}
	return ends, nil
}

// childEnd is how the run that a workflow id has now ended, if it is a child's and has.
func (b *Broker) childEnd(ctx context.Context, k engine.WorkflowKey) (end engine.Message, ended bool, err error) {
	err = b.store.View(ctx, func(r store.Reader) error {
		flow, err := r.Workflow(ctx, k)
		if err != nil {
			return err
		}
		run, err := r.Step(ctx, flow.RunID, 0)
		// A run without a parent is somebody else's workflow: there is nothing to attach to, and the step says so.
		if err != nil || run.Status.Open() || run.Parent == nil {
			return err
		}
		last, err := r.LastEvent(ctx, run.ID)
		if err != nil {
			return err
		}
		end, ended = engine.ChildEnd(run, last.Data), true
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return end, ended, err
}

// commandNeeds adds the rows a command wants, and refuses payloads that are none.
func (b *Broker) commandNeeds(ns string, c protocol.Command, i int, needs *store.Keys) error {
	for _, p := range []struct{ field, blob string }{
		{"arguments", c.Arguments.Blob}, {"result", c.Result.Blob}, {"entries", c.Entries.Blob},
	} {
		if p.blob == "" {
			continue
		}
		if err := payload.Valid(p.blob); err != nil {
			return badPayload(fmt.Sprintf("commands.%d.%s", i, p.field), err)
		}
	}
	if id := c.Session(); id != "" {
		needs.Sessions = append(needs.Sessions, engine.SessionKey{Namespace: ns, ID: id})
	}
	switch {
	// A step that ends the run may have to end all that is open in it: attempts in sessions, the sessions of its
	// chain, children with a close policy. A decider reads nothing, so what it may need is loaded with the change.
	// Children outlive a run that continues as new.
	case c.Type.Terminal():
		needs.AllTasks, needs.Chain, needs.Bound = true, true, c.Type != protocol.ContinueAsNew
	case c.Type == protocol.EndSession:
		needs.AllTasks = true
	case c.Type == protocol.CancelActivity:
		needs.Activities = append(needs.Activities, c.Target)
	// A child that names its id may find it taken; one without has an id made for it.
	case c.Type == protocol.StartChildWorkflow && c.WorkflowID != "":
		needs.Workflows = append(needs.Workflows, engine.WorkflowKey{Namespace: ns, ID: c.WorkflowID})
	case c.Type == protocol.AttachChildWorkflow:
		needs.Workflows, needs.Current = append(needs.Workflows, engine.WorkflowKey{Namespace: ns, ID: c.WorkflowID}), true
		needs.Former = append(needs.Former, c.WorkflowID)
	// The target is loaded too, so that the signal arrives in the step that sends it.
	case c.Type == protocol.SignalWorkflow:
		needs.Workflows, needs.Current = append(needs.Workflows, engine.WorkflowKey{Namespace: ns, ID: c.WorkflowID}), true
	}
	return nil
}

// activityOutcome makes the change of the outcome of an attempt.
func (b *Broker) activityOutcome(in protocol.CompleteItem, turn *turn) (store.Change, string, error) {
	run, seq, ok := engine.ParseStepID(in.TaskID)
	if !ok {
		return store.Change{}, "", change.NoTask(in.TaskID)
	}
	delivery, ok := deliveryOf(in.TaskID, in.AttemptID)
	if !ok {
		return store.Change{}, "", protocol.Refuse(
			protocol.ReasonStaleAttempt, "%q is no attempt of task %s", in.AttemptID, in.TaskID,
		).With("can_continue", false)
	}
	h := engine.Holder{Owner: in.Owner, Incarnation: in.Incarnation, Delivery: delivery}
	needs := store.Keys{Runs: []string{run}, Activities: []int64{seq}}
	switch {
	case in.Returned != "":
		return change.Step(in.Namespace, run, needs, engine.ReleaseActivity{
			Seq: seq, Delivery: delivery, Owner: in.Owner, Why: in.Returned, Lost: in.LostCount,
		}), "", nil
	case in.Failure != nil:
		hash := hashOf(in.Failure)
		c := change.Step(in.Namespace, run, needs, engine.FailActivity{
			Seq: seq, Holder: h, Epoch: in.Epoch, Failure: *in.Failure, Hash: hash, Recovered: in.Recovered,
			Version: versionOf(in),
		})
		c.Recall = true
		return c, hash, nil
	}
	if err := Blob("result", in.Result.Blob); err != nil {
		return store.Change{}, "", err
	}
	hash := hashResult(in.Result.Blob)
	done := engine.CompleteActivity{
		Seq: seq, Holder: h, Epoch: in.Epoch, Result: in.Result.Blob, Hash: hash, Recovered: in.Recovered,
		Version: versionOf(in),
	}
	if turn != nil {
		return turn.change(in.Namespace, needs, done), hash, nil
	}
	c := change.Step(in.Namespace, run, needs, done)
	c.Recall = true
	return c, hash, nil
}

// maxVersion is how long a name of a version of code may be that is kept.
const maxVersion = 64

// versionOf is what the worker said of its code, if that is short enough to be a version.
func versionOf(in protocol.CompleteItem) string {
	if len(in.CodeVersion) > maxVersion || !utf8.ValidString(in.CodeVersion) {
		return ""
	}
	return in.CodeVersion
}

// deliveryOf takes the delivery out of an attempt id, if it is one of this task's.
func deliveryOf(task, attempt string) (int64, bool) {
	rest, ok := strings.CutPrefix(attempt, task+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	return n, err == nil && n > 0
}

// repeated answers an outcome that was accepted before, whose answer was lost on the way: the first answer again. It
// also returns the event with which the activity ended, when it had to look for it.
func (b *Broker) repeated(
	ctx context.Context, in protocol.CompleteItem, hash string, refusal error,
) (_ protocol.CompleteAnswer, ended history.Event, again bool) {
	a := protocol.CompleteAnswer{TaskID: in.TaskID, Attempt: in.Attempt, AttemptID: in.AttemptID, Outcome: "completed"}
	reason := string(protocol.ReasonAlreadyCompleted)
	a.Reason = &reason
	var e *protocol.Error
	if !errors.As(refusal, &e) {
		return a, ended, false
	}
	if in.Kind == protocol.KindWorkflow {
		if e.Reason != protocol.ReasonAlreadyCompleted {
			return a, ended, false
		}
		a.RunID, _ = e.Details["run_id"].(string)
		a.CreatedTaskIDs, _ = e.Details["created_task_ids"].([]string)
		a.Outcome, _ = e.Details["outcome"].(string)
		a.RunStatus, _ = e.Details["run_status"].(string)
		if next, _ := e.Details["next_task_id"].(string); next != "" {
			a.NextTaskID = &next
		}
		return a, ended, true
	}
	switch e.Reason {
	// Any of these may be what the first report itself has caused: the attempt is over, or its run closed with
	// it.
	case protocol.ReasonStaleAttempt, protocol.ReasonRunClosed, protocol.ReasonRunCancelled, protocol.ReasonRunTerminated:
	default:
		return a, ended, false
	}
	run, seq, _ := engine.ParseStepID(in.TaskID)
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		ended, err = r.Completion(ctx, run, seq)
		return err
	})
	switch {
	case hash == "" || errors.Is(err, store.ErrNotFound):
		return a, ended, false
	case err != nil: // it may have been accepted: who looks must not be told that it was not
		a.Reason = nil
		return b.refused(a, err), ended, true
	}
	a.RunID = run
	switch d := ended.Data.(type) {
	case *history.ActivityCompleted:
		// The words alone are not enough: two attempts may say the same, and only one of them was taken.
		again = sameOutcome(&in, d.BodyHash, hash) && d.AttemptID == in.AttemptID && d.Worker == in.Owner
		if again {
			if a.Then, err = b.takenBefore(ctx, in, ended, d.ThenHash); err != nil {
				return b.refused(a, err), ended, true // whether the turn counts is not known: it is asked again
			}
		}
		return a, ended, again
	case *history.ActivityFailed:
		a.Outcome = "failed"
		return a, ended, sameOutcome(&in, d.BodyHash, hash) && d.AttemptID == in.AttemptID && d.Worker == in.Owner
	case *history.ActivityTimedOut: // of which the worker told
		a.Outcome = "failed"
		return a, ended, sameOutcome(&in, d.BodyHash, hash) && d.AttemptID == in.AttemptID && d.Worker == in.Owner
	}
	return a, ended, false
}

func secs(n int64) time.Duration { return time.Duration(n) * time.Second }
