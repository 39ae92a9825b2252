package engine

import (
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Then is the turn that the result of an activity causes, decided by the worker that had the activity and sent with its
// result: what would be the completion of the workflow task that follows, in the same change. It counts only if the run
// has nothing that the worker has not seen. Whatever is wrong with it leaves the result as it is; the workflow task is
// made as without it.
type Then struct {
	SeenThrough int64        // last event the worker had seen, the one before the result
	At          history.Time // of the result's event, as the code was told; the store judges it and never changes it
	Commands    []protocol.Command
	Hash        string
	Types       map[string]string  // as in CompleteTask
	Ends        map[string]Message // as in CompleteTask
	Lessee      Lessee             // who decided it, admitted as for a poll
	Queue       *Queue             // what was decided about the run's queue, nil: nothing
	Budget      bool               // a budget counts the workflow tasks of the run's queue: they have to be claimed
}

// errNoTurn says that a turn does not count; the result does.
var errNoTurn = errors.New("the turn does not count")

// fused is the result and its turn in one step. An error is of the turn, and nothing was decided.
func (in CompleteActivity) fused(st *step) error {
	t := in.Then
	a, err := st.holdsActivity(in.Seq, in.Holder, in.Epoch)
	switch {
	case err != nil:
		return err
	case st.superseded(a), !st.HasCode(), st.Task != nil, st.Updates.Len() > 0, t.SeenThrough != st.LastSeq:
		return errNoTurn
	case t.At.Before(latest(st.ProgressAt, a.LeasedAt).Time), t.At.After(st.now.Time):
		return errNoTurn
	case t.Budget, !t.Lessee.Worker.Serves(st.Queue), !Admits(st.turn(t.Queue), t.Lessee, st.now.Time):
		return errNoTurn
	}
	for i := range t.Commands {
		if c := &t.Commands[i]; ofUpdate(*c) || c.Type == protocol.ContinueAsNew {
			return errNoTurn
		}
	}
	st.end(a, in, t.At, t.Hash)
	if st.Wake != st.LastSeq { // it wakes nobody: others of its group are open
		return errNoTurn
	}
	st.Tasks++
	lease := t.Lessee.lease(time.Second, st.now.Time) // it begins and ends here
	lease.Sessions = t.Lessee.Worker.knowsSessions()
	st.Task = &Task{
		Number: st.Tasks, State: LeasedState, Attempt: 1, Cause: st.why(), Shown: st.LastSeq, Settled: st.Settled,
		Lease: lease,
	}
	last := st.Last // of the task that was delivered last: its worker may ask again
	if err := st.take(t); err != nil {
		return err
	}
	st.Last = last
	st.d.Answer.Outcome, st.d.Answer.Recorded, st.d.Answer.Fused = "completed", true, true
	return nil
}

// take applies the commands of a turn as those of its task; without any the code waits on.
func (st *step) take(t *Then) error {
	if len(t.Commands) == 0 {
		shown := st.Task.Shown
		st.Task = nil
		st.saw(shown)
		st.overdue()
		return nil
	}
	task := CompleteTask{
		Number: st.Tasks, Holder: Holder{Owner: st.Task.Owner, Incarnation: st.Task.Incarnation}, Commands: t.Commands,
		Hash: t.Hash, Types: t.Types, Ends: t.Ends,
	}
	if err := task.Unsupported(); err != nil {
		return err // as the completion of a task it would take the run out of everybody's hands
	}
	return task.decide(st)
}

// turn is what the workflow task would ask of its worker.
func (h *Head) turn(q *Queue) Wanted {
	w := h.Wanted()
	w.Queue = q
	return w
}
