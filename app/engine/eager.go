package engine

import (
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker with the run in its sticky cache can run the next workflow task as soon as an activity returns. It sends the
// commands with the activity's result (an eager workflow task), which saves a commit and a round trip per step. If in
// doubt, the app rejects the eager task and creates an ordinary workflow task instead.

// EagerTask is an eager workflow task: the worker that ran the activity sends the completion of the following workflow
// task together with the result, in the same change. It is accepted only if the run has no event that the worker has
// not seen. Otherwise only the result is recorded and a workflow task is created.
type EagerTask struct {
	SeenThrough int64 // number of the last event that the worker had seen before the result
	// time of the result's event as the code saw it; the store checks it and does not change it
	At       history.Time
	Commands []protocol.Command
	Hash     string
	Types    map[string]string  // as in CompleteTask
	Ends     map[string]Message // as in CompleteTask
	Lessee   Lessee             // the worker that ran the task, checked as for a poll
	Queue    *Queue             // settings of the run's queue; nil: none
	Budget   bool               // the run's queue limits workflow tasks, so they must be claimed
}

// errEagerRejected rejects an eager workflow task while the result is recorded. Callers never receive it.
var errEagerRejected = errors.New("the eager workflow task is rejected")

// applyWithEagerTask applies the result and its eager workflow task in one step. If it fails, the caller applies the
// result again without the eager task. The history must be the same as if a workflow task had been created, leased to
// this worker and completed immediately (TestScripts, then.txt), so all checks of a poll apply here as well.
func (in CompleteActivity) applyWithEagerTask(st *step) error {
	t := in.Eager
	a, err := st.holdsActivity(in.Seq, in.Holder, in.Epoch)
	switch {
	case err != nil:
		return err
	// The worker must have seen the whole history. If a workflow task or an update is open, that task decides, or the
	// worker does not know all events.
	case st.superseded(a), !st.HasCode(), st.Task != nil, st.Updates.Len() > 0, t.SeenThrough != st.LastSeq:
		return errEagerRejected
	// The task ran with a given time. Times in a history must not decrease, so it must not be before the last event or
	// the attempt's lease; and the worker's clock must not put events in the future of the store's clock.
	case t.At.Before(latest(st.ProgressAt, a.LeasedAt).Time), t.At.After(st.now.Time):
		return errEagerRejected
	// The worker must be allowed to lease the task: its queue, its types, its build and the operators' drains are
	// checked. If a limit counts workflow tasks, only a claim can do that.
	case t.Budget, !t.Lessee.Worker.Serves(st.Queue), !Admits(st.eagerRequirements(t.Queue), t.Lessee, st.now.Time):
		return errEagerRejected
	}
	for i := range t.Commands {
		// An eager task cannot belong to an update, and a run continues as new only in a workflow task.
		// Resources are compared with those of the live workers, which only a workflow task knows.
		if c := &t.Commands[i]; ofUpdate(*c) || c.Type == protocol.ContinueAsNew || NeedsResources(c) {
			return errEagerRejected
		}
	}
	st.recordResult(a, in, t.At, t.Hash)
	// Other members of the activity's group are open, so an ordinary workflow task would not have been created either.
	if st.Wake != st.LastSeq {
		return errEagerRejected
	}
	st.Tasks++
	// This lease lasts for the step only: with it, the task passes the same checks of its owner as any other
	// completion.
	lease := t.Lessee.lease(time.Second, st.now.Time)
	lease.Sessions = t.Lessee.Worker.knowsSessions()
	st.Task = &Task{
		Number: st.Tasks, State: LeasedState, Attempt: 1, Cause: st.nextTaskCause(), Shown: st.LastSeq, Settled: st.Settled,
		Size: st.Bytes, Lease: lease,
	}
	// The worker that completed the last delivered task may still repeat its report and must get its response, so the
	// eager task does not replace Last. A repeated eager task is recognized by the hash in the event of its result.
	last := st.Last
	if err := st.applyEagerTask(t); err != nil {
		return err
	}
	st.Last = last
	st.d.Answer.Outcome, st.d.Answer.Recorded, st.d.Answer.Fused = "completed", true, true
	return nil
}

// applyEagerTask applies the commands of an eager workflow task. No commands mean that the code continues to wait, as
// if a task reported "waiting for history".
func (st *step) applyEagerTask(t *EagerTask) error {
	if len(t.Commands) == 0 {
		shown := st.Task.Shown
		st.SeenBytes, st.Task = st.Task.Size, nil
		st.markSeen(shown)
		st.overdue()
		return nil
	}
	task := CompleteTask{
		Number: st.Tasks, Holder: Holder{Owner: st.Task.Owner, Incarnation: st.Task.Incarnation}, Commands: t.Commands,
		Hash: t.Hash, Types: t.Types, Ends: t.Ends,
	}
	// In a workflow task, unsupported commands would quarantine the run. In an eager workflow task they are only
	// rejected; if the worker sends them again in the following workflow task, that task quarantines the run.
	if err := task.Unsupported(); err != nil {
		return err
	}
	return task.decide(st)
}

// eagerRequirements returns the requirements of the workflow task, with the settings of its queue.
func (h *Head) eagerRequirements(q *Queue) TaskRequirements {
	w := h.TaskRequirements()
	w.Queue = q
	return w
}
