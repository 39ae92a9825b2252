package broker

import (
	"context"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// HTTP workers learn from the workflow task, not from the history, why their run resumes. The cause is stored with the
// task, so every delivery of the task contains the same one.

// resume sets the members of a task that say why the run resumes, from the stored cause.
func resume(t *protocol.WorkflowTask, c engine.Cause, events []history.Event) {
	if c.Kind == "" || c.Kind == "start" {
		return
	}
	r := &t.Resume
	r.SourceKind, r.SourceID, r.EventType = &c.Kind, protocol.OrNil(c.ID), protocol.OrNil(c.Type)
	if c.Sequence > 0 {
		r.Sequence = &c.Sequence
	}
	if c.Wait > 0 {
		resumeCondition(t, c.Wait, events)
	}
	// The ID of a wait is derived from the step that opened it, so it is the same in every delivery.
	id := engine.StepID(t.RunID, c.Sequence)
	wait := func(kind, open string) { r.WaitKind, r.OpenWaitID = &kind, &open }
	switch c.Kind {
	case "workflow_signal":
		resumeSignal(t, c, id, events)
	case "activity":
		r.ActivityID, r.ActivityType, r.ActivityAttemptID = &id, &c.Name, protocol.OrNil(c.ID)
	case "child_workflow_run":
		r.ChildCallID, r.ChildRunID = &id, protocol.OrNil(c.ID)
		wait("child", "child:"+id)
	case engine.UpdateTask:
		r.UpdateID = &c.ID
		wait("update", "update:"+c.ID)
		r.CommandID = commandID(t.RunID, c.Event)
	case "cancellation":
		r.CommandID = commandID(t.RunID, c.Event)
	case "timer":
		r.TimerID = &id
		switch {
		case c.Name != "": // the name of a signal wait
			r.SignalName, r.SignalWaitID = &c.Name, &id
			wait("signal", "signal:"+id)
		case c.Wait == 0:
			wait("timer", "timer:"+id)
		}
	}
}

// commandID returns the command_id in the receipt of a client's command. It is derived from the first event that the
// command wrote.
func commandID(runID string, event int64) *string {
	if event == 0 {
		return nil
	}
	id := engine.StepID(runID, event)
	return &id
}

// resumeSignal sets the signal and the wait that it resolves. A signal without a wait is identified by its own ID.
func resumeSignal(t *protocol.WorkflowTask, c engine.Cause, wait string, events []history.Event) {
	r := &t.Resume
	kind, open := "signal", "signal-application:"+c.ID
	if c.Sequence == 0 {
		wait = "signal-command:" + c.ID
	}
	r.SignalName, r.SignalID, r.SignalWaitID = &c.Name, protocol.OrNil(c.ID), &wait
	r.CommandID = commandID(t.RunID, c.Event)
	r.WaitKind, r.OpenWaitID = &kind, &open
	for _, e := range events {
		if s, ok := e.Data.(*history.SignalReceived); ok && e.Seq == c.Event {
			r.SignalArguments = &payload.Payload{Blob: s.Value}
		}
	}
}

// resumeArguments reads the arguments of a signal that arrived before the first event of the page.
func (b *Broker) resumeArguments(ctx context.Context, t *protocol.WorkflowTask, c engine.Cause) error {
	if c.Kind != "workflow_signal" || c.Event == 0 || t.Resume.SignalArguments != nil {
		return nil
	}
	page, err := transaction.Page(ctx, b.store, t.RunID, c.Event-1, c.Event, 1)
	if err != nil {
		return err
	}
	resumeSignal(t, c, *t.Resume.SignalWaitID, page.Events)
	return nil
}

// resumeCondition sets the condition wait that the worker must evaluate, or that has timed out.
func resumeCondition(t *protocol.WorkflowTask, seq int64, events []history.Event) {
	r := &t.Resume
	kind, id := "condition", engine.StepID(t.RunID, seq)
	open := "condition:" + id
	r.WaitKind, r.OpenWaitID, r.ConditionWaitID = &kind, &open, &id
	for _, e := range events {
		if w, ok := e.Data.(*history.ConditionWaitOpened); ok && w.Sequence == seq {
			r.ConditionKey, r.Fingerprint = protocol.OrNil(w.Key), protocol.OrNil(w.Fingerprint)
		}
	}
}
