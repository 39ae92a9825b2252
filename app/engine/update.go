package engine

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An update is a request to running code, for whose result its caller waits. Once it is accepted, history must contain
// its outcome in every case: the result of its handler, the failure of a run that closed or, after
// continue-as-new, the result in the next run. Decisions 0007 and 0008 say how handlers are replayed.

// MaxUpdates is the maximum number of open updates of a run; each gets its own task.
const MaxUpdates = 500

// UpdateTask is the cause of a workflow task for one update: the code completes the update, or reports that its handler
// has started.
const UpdateTask = "workflow_update"

// Update is an update that was accepted and is not completed.
type Update struct {
	ID        string               `json:"id"`
	Name      string               `json:"name"`
	Arguments string               `json:"arguments,omitempty"`
	Headers   history.Headers      `json:"headers,omitempty"`
	Trace     history.TraceContext `json:"trace,omitzero"`
	Taken     bool                 `json:"taken,omitempty"` // its handler has started and will complete the update
}

// AcceptUpdate accepts an update. Value is the encoded argument array, or empty.
type AcceptUpdate struct {
	Name      string
	Value     string
	RequestID string
	Identity  string
	Headers   history.Headers
	Trace     history.TraceContext
}

func (in AcceptUpdate) decide(st *step) error {
	if err := st.notActive(); err != nil {
		return err
	}
	if err := st.CheckHasCode("updates"); err != nil {
		return err
	}
	if n := st.Updates.Len(); n >= MaxUpdates {
		return protocol.Refuse(protocol.ReasonStructuralLimit, "the run has %d unanswered updates", n).
			With("limit_kind", "pending_update_count").With("current_value", n).With("configured_limit", MaxUpdates)
	}
	id := st.eventID("u")
	st.emit(&history.UpdateAccepted{
		UpdateID: id, UpdateName: in.Name, Arguments: in.Value, PayloadCodec: codecOf(in.Value), RequestID: in.RequestID,
		Identity: in.Identity, Headers: in.Headers, Trace: in.Trace,
	})
	st.d.Answer.Outcome, st.d.Answer.Update = "update_accepted", id
	return nil
}

// checkUpdates refuses commands that apply an update twice or complete one that is not open. It also refuses the
// completion of an update's task that does neither, since the update would be dispatched again and again. Exempt are a
// command that closes the run, after which the open updates fail or are passed on, and a report of local steps, whose
// task stays leased.
func (st *step) checkUpdates(commands []protocol.Command, taskStays bool) error {
	named := map[string]bool{}
	for i, c := range commands {
		if !ofUpdate(c) {
			continue
		}
		u, ok := st.update(c.UpdateID)
		if !ok || named[c.UpdateID] || u.Taken && c.Type == protocol.ApplyUpdate {
			waits := "an answer"
			if c.Type == protocol.ApplyUpdate {
				waits = "its handler"
			}
			return protocol.Refuse(
				protocol.ReasonInvalidCommands, "commands.%d: update %q does not wait for %s", i, c.UpdateID, waits,
			).With("update_id", c.UpdateID)
		}
		named[c.UpdateID] = true
	}
	ends := len(commands) > 0 && commands[len(commands)-1].Type.Terminal()
	c := st.Task.Cause
	if u, _ := st.update(c.ID); c.Kind == UpdateTask && !u.Taken && !named[c.ID] && !ends && !taskStays {
		return protocol.Refuse(protocol.ReasonInvalidCommands, "the workflow task must complete or reject update %s", c.ID).
			With("update_id", c.ID)
	}
	return nil
}

// endsUpdate reports whether a command completes or fails an update.
func endsUpdate(c protocol.Command) bool {
	return c.Type == protocol.CompleteUpdate || c.Type == protocol.FailUpdate
}

// ofUpdate reports whether a command concerns an update. Such a command uses no command number, so that code that
// completes the update immediately numbers its other commands as if there were no update.
func ofUpdate(c protocol.Command) bool { return endsUpdate(c) || c.Type == protocol.ApplyUpdate }

// firstUnhandledUpdate returns the first update whose handler has not started, with the number of the event that
// accepted it.
func (s *Run) firstUnhandledUpdate() (Update, int64, bool) {
	for k, u := range s.Updates.All() {
		if !u.Taken {
			return u, k, true
		}
	}
	return Update{}, 0, false
}

// update returns an open update by its ID.
func (s *Run) update(id string) (Update, bool) {
	for _, u := range s.Updates.All() {
		if u.ID == id {
			return u, true
		}
	}
	return Update{}, false
}

// applyUpdate records that the handler of an update has started.
func (st *step) applyUpdate(c protocol.Command) {
	u, _ := st.update(c.UpdateID)
	st.emit(&history.UpdateApplied{
		UpdateID: u.ID, UpdateName: u.Name, Sequence: st.CommandSeq + 1, Arguments: u.Arguments,
		PayloadCodec: codecOf(u.Arguments),
	})
}

// completeUpdate records the result of an update. If the handler completes it in its first task, it records both events
// together, as histories did before handlers could wait.
func (st *step) completeUpdate(c protocol.Command) {
	u, _ := st.update(c.UpdateID)
	if !u.Taken {
		st.applyUpdate(c)
	}
	seq := st.CommandSeq + 1
	st.emit(&history.UpdateCompleted{
		UpdateID: u.ID, UpdateName: u.Name, Sequence: seq, Result: c.Result.Blob, PayloadCodec: codecOf(c.Result.Blob),
	})
	st.endSelectionWaits()
}

// failUpdate records that the handler of an update failed.
func (st *step) failUpdate(c protocol.Command) {
	u, _ := st.update(c.UpdateID)
	st.updateFailed(u, st.CommandSeq+1, history.Failure{
		Category: "update", Message: c.Message, ExceptionType: c.ExceptionType, ExceptionCls: c.ExceptionClass,
		NonRetryable: c.NonRetryable,
		Exception:    c.Exception,
	})
}

// updateFailed records that an update failed. seq 0 marks a failure that did not come from the code, so that a replay
// expects no handler.
func (st *step) updateFailed(u Update, seq int64, f history.Failure) {
	f.ID = st.failureID()
	st.emit(&history.UpdateCompleted{UpdateID: u.ID, UpdateName: u.Name, Sequence: seq, Failed: true, Failure: f})
}

// closeUpdates fails the open updates of a run that closes, since their callers wait.
func (st *step) closeUpdates(why string) {
	for _, u := range st.Updates.All() {
		st.updateFailed(
			u, 0, history.Failure{Category: "run_closed", ExceptionType: "run_closed", NonRetryable: true, Message: why},
		)
	}
}

// updateApplied records that the update's handler has started.
func (s *Run) updateApplied(d *history.UpdateApplied) {
	for k, u := range s.Updates.All() {
		if u.ID == d.UpdateID {
			u.Taken = true
			s.Updates.Put(k, u)
			return
		}
	}
}

// updateAnswered removes a completed update. If a handler completed it, the handler may have changed the workflow's
// variables, so conditions may be true now.
func (s *Run) updateAnswered(d *history.UpdateCompleted, e history.Event) {
	for k, u := range s.Updates.All() {
		if u.ID == d.UpdateID {
			s.Updates.Delete(k)
		}
	}
	if !d.Failed && d.Sequence > 0 {
		s.wakeConditions(e, Cause{Kind: "condition", ID: d.UpdateID, Name: d.UpdateName})
	}
}
