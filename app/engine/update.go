package engine

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// MaxUpdates is the most updates a run may have unanswered.
const MaxUpdates = 500

// UpdateTask is the cause of a task that asks the workflow to answer one update, and nothing else.
const UpdateTask = "workflow_update"

// Update is one that was accepted and has not been answered.
type Update struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments,omitempty"`
}

// AcceptUpdate takes an update in. Value is the argument-array blob, or empty.
type AcceptUpdate struct {
	Name      string
	Value     string
	RequestID string
	Identity  string
}

func (in AcceptUpdate) decide(st *step) error {
	if err := st.notActive(); err != nil {
		return err
	}
	if n := st.Updates.Len(); n >= MaxUpdates {
		return protocol.Refuse(protocol.ReasonStructuralLimit, "the run has %d unanswered updates", n).
			With("limit_kind", "pending_update_count").With("current_value", n).With("configured_limit", MaxUpdates)
	}
	id := st.eventID("u")
	st.emit(&history.UpdateAccepted{
		UpdateID: id, UpdateName: in.Name, Arguments: in.Value, PayloadCodec: codecOf(in.Value), RequestID: in.RequestID, Identity: in.Identity,
	})
	st.d.Answer.Outcome, st.d.Answer.Update = "update_accepted", id
	return nil
}

// checkUpdates refuses answers to updates that do not wait for one, and a task made for an update that does not answer it.
func (st *step) checkUpdates(commands []protocol.Command) error {
	answered := map[string]bool{}
	for i, c := range commands {
		if !answers(c) {
			continue
		}
		if _, ok := st.update(c.UpdateID); !ok || answered[c.UpdateID] {
			return protocol.Refuse(protocol.ReasonInvalidCommands, "commands.%d: update %q does not wait for an answer", i, c.UpdateID).
				With("update_id", c.UpdateID)
		}
		answered[c.UpdateID] = true
	}
	if c := st.Task.Cause; c.Kind == UpdateTask && !answered[c.ID] {
		return protocol.Refuse(protocol.ReasonInvalidCommands, "the task is to answer update %s", c.ID).With("update_id", c.ID)
	}
	return nil
}

func answers(c protocol.Command) bool {
	return c.Type == protocol.CompleteUpdate || c.Type == protocol.FailUpdate
}

// update finds an unanswered update by id.
func (s *Run) update(id string) (Update, bool) {
	for _, u := range s.Updates.All() {
		if u.ID == id {
			return u, true
		}
	}
	return Update{}, false
}

func (st *step) completeUpdate(c protocol.Command) {
	u, _ := st.update(c.UpdateID)
	seq := st.CommandSeq + 1
	st.emit(&history.UpdateApplied{UpdateID: u.ID, UpdateName: u.Name, Sequence: seq, Arguments: u.Arguments, PayloadCodec: codecOf(u.Arguments)})
	st.emit(&history.UpdateCompleted{
		UpdateID: u.ID, UpdateName: u.Name, Sequence: seq, Result: c.Result.Blob, PayloadCodec: codecOf(c.Result.Blob),
	})
	st.satisfied()
}

func (st *step) failUpdate(c protocol.Command) {
	u, _ := st.update(c.UpdateID)
	st.updateFailed(u, st.CommandSeq+1, history.Failure{
		Category: "update", Message: c.Message, ExceptionType: c.ExceptionType, ExceptionCls: c.ExceptionClass, NonRetryable: c.NonRetryable,
		Exception: c.Exception,
	})
}

func (st *step) updateFailed(u Update, seq int64, f history.Failure) {
	f.ID = st.failureID()
	st.emit(&history.UpdateCompleted{UpdateID: u.ID, UpdateName: u.Name, Sequence: seq, Failed: true, Failure: f})
}

// closeUpdates fails the updates nobody will answer any more.
func (st *step) closeUpdates(why string) {
	for _, u := range st.Updates.All() {
		st.updateFailed(u, 0, history.Failure{Category: "run_closed", ExceptionType: "run_closed", NonRetryable: true, Message: why})
	}
}

// updateAnswered takes the update away; one that was applied may have made conditions true.
func (s *Run) updateAnswered(d *history.UpdateCompleted, e history.Event) {
	for k, u := range s.Updates.All() {
		if u.ID == d.UpdateID {
			s.Updates.Delete(k)
		}
	}
	if !d.Failed {
		s.mayHold(e, Cause{Kind: "condition", ID: d.UpdateID, Name: d.UpdateName})
	}
}
