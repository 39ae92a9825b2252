package engine

import (
	"encoding/json"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A completed workflow task contains commands. This file converts each command to events in the given order, because a
// replayer issues the same commands in the same order and matches them to these events.

// MaxUnrecorded is the maximum number of consecutive end_session commands without an event. Workers send such commands
// again with each completion until a later command is recorded; beyond the maximum, the engine records the next one.
const MaxUnrecorded = 100

// applyCommands applies the commands of an accepted completion. An end_session command for a session that was never
// started leaves no event. It still uses a command number, because workers number all commands, unless it is the last
// command: then the worker sends it again, under the same number, with the next completion.
func (st *step) applyCommands(commands []protocol.Command) error {
	unrecorded := int64(0) // number of commands since the last recorded one
	for _, c := range commands {
		before := st.CommandSeq
		if c.Type == protocol.EndSession && !st.startedSession(c.SessionID) {
			st.d.Answer.Warnings = append(st.d.Answer.Warnings, protocol.Warning{
				Code: protocol.WarnSessionMissing, Subject: c.SessionID,
				Message: "the workflow never started the session; end_session had no effect",
			})
			if unrecorded < MaxUnrecorded {
				st.CommandSeq++
				unrecorded++
				continue
			}
		}
		if err := st.applyCommand(c); err != nil {
			return err
		}
		if st.CommandSeq > before {
			unrecorded = 0
		}
	}
	st.CommandSeq -= unrecorded
	return nil
}

// applyCommand applies one command. Each command adds at least one event and uses the next command number, except
// commands for updates and selections.
func (st *step) applyCommand(c protocol.Command) error {
	seq := st.CommandSeq + 1
	switch c.Type {
	case protocol.ScheduleActivity:
		st.scheduleActivity(c, seq)
	case protocol.RecordLocalActivity:
		st.recordLocal(c, seq)
	case protocol.StartTimer:
		st.startTimer(c, seq)
	case protocol.OpenSignalWait:
		st.openWait(c, seq)
	case protocol.OpenConditionWait:
		st.openCondition(c, seq)
	case protocol.RecordSideEffect:
		st.emit(&history.SideEffectRecorded{Sequence: seq, Result: c.Result.Blob, PayloadCodec: codecOf(c.Result.Blob)})
	case protocol.RecordVersionMarker:
		st.emit(&history.VersionMarkerRecorded{
			Sequence: seq, ChangeID: c.ChangeID, Version: *c.Version, MinSupported: *c.MinSupported,
			MaxSupported: *c.MaxSupported,
		})
	case protocol.StartSession:
		st.startSession(c, seq)
	case protocol.EndSession:
		st.endSession(c, seq)
	case protocol.CancelActivity:
		st.cancelActivity(c, seq)
	case protocol.CancelTimer:
		st.cancelTimer(c.Target, seq)
	case protocol.SignalWorkflow:
		st.sendSignal(c, seq)
	case protocol.UpsertMemo:
		return st.upsertMemo(c, seq)
	case protocol.UpsertSearchAttributes:
		return st.upsertAttributes(c, seq)
	case protocol.CancelSelection:
		st.cancelMember(c)
	case protocol.StartChildWorkflow:
		return st.startChild(c, seq)
	case protocol.CancelChildWorkflow:
		st.cancelChild(c.Target, seq)
	case protocol.AttachChildWorkflow:
		return st.attachChild(c, seq)
	case protocol.OpenAwakeable:
		st.openAwakeable(c, seq)
	case protocol.CancelAwakeable:
		st.cancelAwakeable(c.Target, seq)
	case protocol.ApplyUpdate:
		st.applyUpdate(c)
	case protocol.CompleteUpdate:
		st.completeUpdate(c)
	case protocol.FailUpdate:
		st.failUpdate(c)
	case protocol.CompleteWorkflow:
		st.endOpenSteps("workflow completed")
		st.emit(&history.WorkflowCompleted{Output: c.Result.Blob, PayloadCodec: codecOf(c.Result.Blob)})
	case protocol.FailWorkflow:
		st.failRun(c)
	case protocol.ContinueAsNew:
		return st.continueAsNew(c, seq)
	default:
		return protocol.Invalid("type", "unknown command %q", c.Type)
	}
	return nil
}

// typeCancelled is the failure type with which code reports that it ended because of a cancellation.
const typeCancelled = "Cancelled"

// failRun closes the run with the code's error. If cancellation was requested and the code fails with a cancellation
// error, the run counts as cancelled. Without a request, the run has failed.
func (st *step) failRun(c protocol.Command) {
	if st.CancelRequested && c.ExceptionType == typeCancelled {
		st.endOpenSteps("workflow cancelled")
		st.emit(&history.WorkflowCancelled{ClosedReason: "cancelled", Failure: history.Failure{
			ID: st.failureID(), Category: "cancelled", Message: c.Message, ExceptionType: c.ExceptionType,
			ExceptionCls: c.ExceptionClass, Exception: c.Exception,
		}})
		return
	}
	st.endOpenSteps("workflow failed")
	f := &history.WorkflowFailed{SourceKind: "workflow_run", SourceID: st.ID, Failure: history.Failure{
		ID: st.failureID(), Category: "application", Message: c.Message, ExceptionType: c.ExceptionType,
		ExceptionCls: c.ExceptionClass,
		NonRetryable: c.NonRetryable, Exception: c.Exception,
	}}
	failed := c.FailedActivityID
	if failed == "" && c.FailedSequence > 0 && c.FailedSequence <= st.CommandSeq {
		failed = StepID(st.ID, c.FailedSequence)
	}
	if failed != "" {
		f.SourceKind, f.SourceID, f.Category = "activity_execution", failed, "activity"
	}
	st.emit(f)
}

// endOpenSteps ends everything that is open in the run or depends on it, before the event that closes the workflow,
// which must be the last event. It also ends sessions and children of the whole chain; therefore continueAsNew does not
// call it.
func (st *step) endOpenSteps(why string) {
	st.closeOpen(why)
	st.closeUpdates(why)
	st.closeChildren()
	st.endChain(why)
}

// continueAsNew closes the run and creates the next run. It passes on unhandled signals and open updates; otherwise
// they would be lost between the two runs. Sessions of the workflow ID stay open, and children are transferred to the
// chain.
func (st *step) continueAsNew(c protocol.Command, seq int64) error {
	was := *st.Run
	next := Start{
		RunID: DerivedRunID(st.ID, seq, st.now.Time), Number: st.Number + 1, Arguments: c.Arguments.Blob, ContinuedFrom: &was,
		Request: protocol.StartRequest{
			Namespace: st.Namespace, WorkflowID: st.WorkflowID, WorkflowType: st.Type, TaskQueue: st.Queue,
			BusinessKey: st.BusinessKey,
			Memo:        st.Memo, SearchAttributes: st.SearchAttributes, RunTimeout: st.RunTimeout, Priority: &was.Priority,
			FairnessKey: st.FairnessKey, FairnessWeight: st.FairnessWeight, Headers: c.Headers,
			Trace: c.Trace.Or(st.Trace),
		},
	}
	if c.WorkflowType != "" {
		next.Request.WorkflowType = c.WorkflowType
	}
	if c.Queue != "" {
		next.Request.TaskQueue = c.Queue
	}
	// A pinned build applies to one queue. On another queue, no worker may have that build.
	if next.Request.TaskQueue == st.Queue {
		next.BuildID = st.BuildID
	}
	events, own := st.signalsForNextRun(c)
	if err := st.inherit(&next, events, own); err != nil {
		return err
	}
	for _, u := range st.Updates.All() {
		next.Updates = append(next.Updates, u)
	}
	st.closeOpen("workflow continued as new")
	st.transferChildren(&next)
	st.emit(&history.WorkflowContinuedAsNew{
		Sequence: seq, NewRunID: next.RunID, NewRunNumber: next.Number, ClosedReason: "continued",
	})
	st.d.Continue = &next
	return nil
}

// closeOpen ends everything that is open in the run, with events, before the event that closes the run. While closing
// is set, these ends do not select winners of selections, because no code reads them.
func (st *step) closeOpen(why string) {
	st.closing = true
	for _, a := range st.Activities.All() {
		if !st.staysOpenAfterClose(a) {
			st.cancelled(a, why)
		}
	}
	for k, t := range st.Timers.All() {
		st.emit(&history.TimerCancelled{Sequence: k, TimerID: StepID(st.ID, k), Kind: t.Kind, Parallel: t.Parallel})
	}
	for k, w := range st.Waits.All() {
		if w.Kind == AwakeableWait {
			st.closeAwakeable(k, why)
		}
	}
}

// EndRun closes a run by an operator's request, cancel or terminate. Neither waits for a worker: a run whose worker is
// dead must still be closable.
type EndRun struct {
	Terminate bool
	Reason    string
	Identity  string
	Trace     history.TraceContext // of a cancellation
}

func (in EndRun) decide(st *step) error {
	if err := st.notActive(); err != nil {
		return err
	}
	id := st.eventID("c")
	if in.Terminate {
		st.emit(&history.TerminateRequested{CommandID: id, Reason: in.Reason, Identity: in.Identity})
		st.endOpenSteps("workflow terminated")
		st.emit(&history.WorkflowTerminated{
			Reason: in.Reason, ClosedReason: "terminated", Failure: st.ended("terminated", in.Reason),
		})
		st.d.Answer.Outcome = "terminated"
		return nil
	}
	st.emit(&history.CancelRequested{CommandID: id, Reason: in.Reason, Identity: in.Identity, Trace: in.Trace})
	st.endOpenSteps("workflow cancelled")
	st.emit(&history.WorkflowCancelled{
		Reason: in.Reason, ClosedReason: "cancelled", Failure: st.ended("cancelled", in.Reason),
	})
	st.d.Answer.Outcome = "cancelled"
	return nil
}

// ended returns the failure of a run that was not closed by its own code.
func (st *step) ended(how, reason string) history.Failure {
	text := "Workflow " + how
	if reason != "" {
		text += ": " + reason
	}
	return history.Failure{
		ID: st.failureID(), Category: how, Message: text, ExceptionCls: "Workflow" + string(how[0]-32) + how[1:],
	}
}

// RequestCancellation asks the workflow's code to end the run. Unlike EndRun, it lets the code clean up. It has no
// effect on code that does not check for cancellation.
type RequestCancellation struct {
	Reason, Identity string
	Trace            history.TraceContext
}

func (in RequestCancellation) decide(st *step) error {
	if err := st.notActive(); err != nil {
		return err
	}
	if err := st.CheckHasCode("requests to end by itself"); err != nil {
		return err
	}
	st.emit(&history.WorkflowCancellationRequested{Reason: in.Reason, Identity: in.Identity, Trace: in.Trace})
	st.clearHeld() // a quota must not delay a cancellation
	st.d.Answer.Outcome = "cancellation_requested"
	return nil
}

// timeOut closes a run that exceeded one of its timeouts.
func (st *step) timeOut(kind string) {
	st.endOpenSteps("workflow timed out")
	f := st.ended("timed out", kind)
	f.Category, f.ExceptionCls = "timeout", "WorkflowTimedOut"
	st.emit(&history.WorkflowTimedOut{
		TimeoutKind: kind, RunDeadline: st.RunDeadline, ExecutionDeadline: st.ExecutionDeadline, Failure: f,
	})
}

// notActive refuses input of callers and operators that requires an open run; runClosed does so for workers.
func (st *step) notActive() error {
	if st.Status.Open() {
		return nil
	}
	status, _, closed := protocol.PublicRun(st.Status, true, false)
	return protocol.Refuse(protocol.ReasonRunNotActive, "run %s is %s", st.ID, st.Status).
		With("run_id", st.ID).With("run_status", status).With("rejection_reason", "run_not_active").With(
		"command_status", "rejected",
	).With("outcome", "rejected_not_active").With("run_closed_reason", closed).With("run_closed_at", st.ClosedAt)
}

// eventID returns the ID of the object that the next event creates, derived from the number of that event.
func (st *step) eventID(kind string) string { return fmt.Sprintf("%s-%s%d", st.ID, kind, st.LastSeq+1) }

func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}
