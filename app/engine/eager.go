package engine

import (
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Eager workflow tasks. A worker with the run in its sticky cache can run the next workflow task as soon as an activity
// returns. Sending its commands with the activity's result saves a commit and a round trip per step. In any doubt the
// app rejects the eager task and creates an ordinary workflow task instead.

// EagerTask is an eager workflow task: the worker that ran the activity sends the completion of the following workflow
// task together with the result, in the same change. It is accepted only if the run has no event that the worker has
// not seen. Otherwise only the result is recorded and a workflow task is created.
type EagerTask struct {
	SeenThrough int64        // last event the worker had seen, the one before the result
	At          history.Time // of the result's event, as the code saw it; the store checks it and never changes it
	Commands    []protocol.Command
	Hash        string
	Types       map[string]string  // as in CompleteTask
	Ends        map[string]Message // as in CompleteTask
	Lessee      Lessee             // the worker that ran the task, admitted as for a poll
	Queue       *Queue             // settings of the run's queue, nil: none
	Budget      bool               // a budget counts the workflow tasks of the run's queue: they have to be claimed
}

// errEagerRejected means that the eager workflow task is rejected while the result is recorded. It never reaches a
// caller.
var errEagerRejected = errors.New("the eager workflow task is rejected")

// fused applies the result and its eager workflow task in one step. An error concerns only the eager task: the caller
// then decides the result again without it. The history must be the same as if a workflow task had been created, leased
// to this worker and completed at once (TestScripts, then.txt), so all checks of a poll apply here as well.
func (in CompleteActivity) fused(st *step) error {
	t := in.Eager
	a, err := st.holdsActivity(in.Seq, in.Holder, in.Epoch)
	switch {
	case err != nil:
		return err
	// The worker must have seen the whole history. An open workflow task or update means that another task decides, or
	// that the worker does not know all input of the decision.
	case st.superseded(a), !st.HasCode(), st.Task != nil, st.Updates.Len() > 0, t.SeenThrough != st.LastSeq:
		return errEagerRejected
	// The task ran with a given time. Times in a history must not decrease, so it must not be before the last event or
	// the attempt's lease, and a worker whose clock is ahead must not date events in the store's future.
	case t.At.Before(latest(st.ProgressAt, a.LeasedAt).Time), t.At.After(st.now.Time):
		return errEagerRejected
	// The worker must be allowed to lease the task: its queue, its types, its build, and the
	// operators' drains. A budget has to count workflow tasks one by one, which only a claim does.
	case t.Budget, !t.Lessee.Worker.Serves(st.Queue), !Admits(st.eagerRequirements(t.Queue), t.Lessee, st.now.Time):
		return errEagerRejected
	}
	for i := range t.Commands {
		// There is no update that the eager task could be about, and a run that continues as new is decided with its own
		// task.
		if c := &t.Commands[i]; ofUpdate(*c) || c.Type == protocol.ContinueAsNew {
			return errEagerRejected
		}
	}
	st.recordResult(a, in, t.At, t.Hash)
	// Other members of the activity's group are open, so no task would have been made either.
	if st.Wake != st.LastSeq {
		return errEagerRejected
	}
	st.Tasks++
	// A lease for this step alone: with it the task passes the same checks of its holder as any other
	// completion.
	lease := t.Lessee.lease(time.Second, st.now.Time)
	lease.Sessions = t.Lessee.Worker.knowsSessions()
	st.Task = &Task{
		Number: st.Tasks, State: LeasedState, Attempt: 1, Cause: st.why(), Shown: st.LastSeq, Settled: st.Settled,
		Size: st.Bytes, Lease: lease,
	}
	// The worker that completed the last delivered task may still repeat its report and must get its answer, so
	// the eager task does not take that place. A repeated one is known by the hash in the event of its result.
	last := st.Last
	if err := st.applyEagerTask(t); err != nil {
		return err
	}
	st.Last = last
	st.d.Answer.Outcome, st.d.Answer.Recorded, st.d.Answer.Fused = "completed", true, true
	return nil
}

// applyEagerTask applies the commands of an eager workflow task. No commands mean that the code continues to wait, as a
// task reports by "waiting for history".
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
	// In a workflow task's own completion, unsupported commands would quarantine the run. In an eager workflow task
	// they are only rejected; the following workflow task quarantines the run if the worker sends them again.
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
