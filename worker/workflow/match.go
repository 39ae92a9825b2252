package workflow

import (
	"encoding/json"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// issue takes a command of the code. If history records a command of that sequence, it must be the same one.
func (m *Machine) issue(c *protocol.Command) int64 {
	m.sequence++
	p := issued{command: c, seq: m.sequence}
	if e := m.recorded[p.seq]; e != nil {
		if was, is := describe(e.Data), describeCommand(c); was != is {
			fault := m.mismatch(p.seq, e, was, is)
			if m.current != nil {
				m.current.stop(fault)
			}
			m.fault = fault
		}
		p.known = true
	}
	m.queue = append(m.queue, p)
	return p.seq
}

// confirm matches an event that records a command with the first command that is not confirmed.
func (m *Machine) confirm(seq int64, e *history.Event) {
	if m.head == len(m.queue) || m.queue[m.head].seq == 0 {
		m.fault = m.mismatch(seq, e, describe(e.Data), "no further command")
		return
	}
	p := &m.queue[m.head]
	switch {
	case p.seq != seq:
		m.fault = m.mismatch(seq, e, describe(e.Data), fmt.Sprintf("%s as command %d first", describeCommand(p.command), p.seq))
		return
	case !p.known:
		if is := describeCommand(p.command); is != describe(e.Data) {
			m.fault = m.mismatch(seq, e, describe(e.Data), is)
			return
		}
		if !remembers(p.command, e.Data) {
			m.fault = fmt.Errorf("%w: event %d of run %s (%s)", ErrStale, e.Seq, m.info.RunID, e.Type())
			return
		}
	}
	*p = issued{}
	if m.head++; m.head == len(m.queue) {
		m.queue, m.head = m.queue[:0], 0
	}
}

// remembers says whether a value that the machine made up itself is the recorded one.
func remembers(c *protocol.Command, d history.Data) bool {
	switch d := d.(type) {
	case *history.SideEffectRecorded:
		return d.Result == c.Result.Blob
	case *history.VersionMarkerRecorded:
		return d.Version == *c.Version
	}
	return true
}

// conclude matches the event that ends the run with the code's last word.
func (m *Machine) conclude(e *history.Event) {
	want := protocol.CompleteWorkflow
	if _, ok := e.Data.(*history.WorkflowContinuedAsNew); ok {
		want = protocol.ContinueAsNew
	}
	is := "no further command"
	if m.head < len(m.queue) {
		if is = describeCommand(m.queue[m.head].command); m.queue[m.head].command.Type == want {
			m.queue, m.head, m.finished, m.answers = nil, 0, true, nil
			return
		}
	}
	m.fault = m.mismatch(0, e, describeCommand(&protocol.Command{Type: want}), is)
}

func (m *Machine) mismatch(seq int64, e *history.Event, recorded, is string) *NonDeterminismError {
	return &NonDeterminismError{RunID: m.info.RunID, EventSeq: e.Seq, EventType: e.Type(), Command: seq, Recorded: recorded, Issued: is}
}

// commandOf is the sequence of the command an event records; 0 for events that record none.
func commandOf(d history.Data) int64 {
	switch d := d.(type) {
	case *history.ActivityScheduled:
		return d.Sequence
	case *history.TimerScheduled:
		if d.Kind == "" {
			return d.Sequence
		}
	case *history.SignalWaitOpened:
		return d.Sequence
	case *history.ChildWorkflowScheduled:
		return d.Sequence
	case *history.ChildCancelRequested:
		return d.CommandSequence
	case *history.MemoUpserted:
		return d.Sequence
	case *history.SearchAttributesUpserted:
		return d.Sequence
	case *history.SideEffectRecorded:
		return d.Sequence
	case *history.VersionMarkerRecorded:
		return d.Sequence
	case *history.SessionStarted:
		return d.CommandSequence
	case *history.SessionEnded:
		return d.CommandSequence
	case *history.ActivityCancelRequested:
		return d.CommandSequence
	case *history.TimerCancelRequested:
		return d.CommandSequence
	case *history.SignalSent:
		return d.CommandSequence
	}
	return 0
}

// describe and describeCommand say the same about an event and the command it records; what they say is what must not change between
// the run and its replay. Arguments, options and the length of timers may.
func describe(d history.Data) string {
	switch d := d.(type) {
	case *history.ActivityScheduled:
		return inSession(d.ActivityType, sessionOf(d))
	case *history.TimerScheduled:
		return "a timer"
	case *history.SignalWaitOpened:
		return waitFor(d.SignalName)
	case *history.ChildWorkflowScheduled:
		return childOf(d.Child.Type)
	case *history.ChildCancelRequested:
		return cancelOf("child workflow", d.Target)
	case *history.MemoUpserted:
		return memoUpsert
	case *history.SearchAttributesUpserted:
		return attributeUpsert
	case *history.SideEffectRecorded:
		return "a side effect"
	case *history.VersionMarkerRecorded:
		return versionOf(d.ChangeID)
	case *history.SessionStarted:
		return "start of session " + quote(d.SessionID)
	case *history.SessionEnded:
		return "end of session " + quote(d.SessionID)
	case *history.ActivityCancelRequested:
		return cancelOf("activity", d.Target)
	case *history.TimerCancelRequested:
		return cancelOf("timer", d.Target)
	case *history.SignalSent:
		return signalTo(d.SignalName, d.WorkflowID)
	}
	return d.Type()
}

func describeCommand(c *protocol.Command) string {
	switch c.Type {
	case protocol.ScheduleActivity:
		if c.WorkerSession != nil {
			return inSession(c.ActivityType, c.WorkerSession.SessionID)
		}
		return inSession(c.ActivityType, c.SessionID)
	case protocol.StartTimer:
		return "a timer"
	case protocol.OpenSignalWait:
		return waitFor(c.SignalName)
	case protocol.StartChildWorkflow:
		return childOf(c.WorkflowType)
	case protocol.CancelChildWorkflow:
		return cancelOf("child workflow", c.Target)
	case protocol.UpsertMemo:
		return memoUpsert
	case protocol.UpsertSearchAttributes:
		return attributeUpsert
	case protocol.ApplyUpdate:
		return "start of the handler of update"
	case protocol.CompleteUpdate:
		return "completion of update"
	case protocol.FailUpdate:
		return "failure of update"
	case protocol.RecordSideEffect:
		return "a side effect"
	case protocol.RecordVersionMarker:
		return versionOf(c.ChangeID)
	case protocol.StartSession:
		return "start of session " + quote(c.SessionID)
	case protocol.EndSession:
		return "end of session " + quote(c.SessionID)
	case protocol.CancelActivity:
		return cancelOf("activity", c.Target)
	case protocol.CancelTimer:
		return cancelOf("timer", c.Target)
	case protocol.SignalWorkflow:
		return signalTo(c.SignalName, c.WorkflowID)
	case protocol.CompleteWorkflow:
		return "completion of the workflow"
	case protocol.FailWorkflow:
		return "failure of the workflow"
	case protocol.ContinueAsNew:
		return "continuation as a new run"
	}
	return string(c.Type)
}

func inSession(name, session string) string {
	if session == "" {
		return "activity " + quote(name) + " without a session"
	}
	return "activity " + quote(name) + " in session " + quote(session)
}

func sessionOf(d *history.ActivityScheduled) string {
	if d.SessionID != "" || len(d.Session) == 0 {
		return d.SessionID
	}
	var s struct {
		ID string `json:"session_id"`
	}
	if json.Unmarshal(d.Session, &s) != nil {
		return string(d.Session)
	}
	return s.ID
}

const (
	memoUpsert      = "an upsert of the memo"
	attributeUpsert = "an upsert of search attributes"
)

func quote(s string) string          { return `"` + s + `"` }
func childOf(name string) string     { return "child workflow " + quote(name) }
func waitFor(name string) string     { return "wait for signal " + quote(name) }
func versionOf(change string) string { return "version of change " + quote(change) }
func signalTo(name, workflow string) string {
	return "signal " + quote(name) + " to workflow " + quote(workflow)
}
func cancelOf(what string, target int64) string {
	return fmt.Sprintf("cancellation of %s %d", what, target)
}
