package workflow

import (
	"encoding/json"
	"fmt"
	"math"
	"path"
	"reflect"
	"runtime"
	"strings"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// issue queues a command of the code. If history records a command with that number, both must be equal.
func (m *machine) issue(c *protocol.Command) int64 {
	m.sequence++
	p := issued{command: c, seq: m.sequence}
	if e := m.recorded[p.seq]; e != nil {
		if was, is := describe(e.Data), describeCommand(c); was != is {
			fault := m.mismatch(p.seq, e, was, is)
			fault.At = userCode()
			if blob, ok := argumentsOf(e.Data); ok {
				fault.RecordedArguments = showBlob(blob)
			}
			if c.Type == protocol.ScheduleActivity || c.Type == protocol.StartChildWorkflow {
				fault.IssuedArguments = showBlob(c.Arguments.Blob)
			}
			if m.current != nil {
				m.current.stop(fault)
			}
			m.fault = fault
		} else {
			m.compareArguments(p.seq, e, c)
		}
		p.matched = true
	}
	m.queue = append(m.queue, p)
	return p.seq
}

// compareArguments compares the arguments of a command with the recorded ones.
func (m *machine) compareArguments(seq int64, e *history.Event, c *protocol.Command) {
	was, ok := argumentsOf(e.Data)
	if !ok || was == c.Arguments.Blob {
		return
	}
	if !m.strictArguments {
		// log one line per replay, because each call in a loop may differ
		if !m.forQueries && !m.argumentsDiffer && was != "" {
			m.argumentsDiffer = true
			m.log.Warn().Int64("event", e.Seq).Int64("command", seq).Str("call", describeCommand(c)).Str("at", userCode()).
				Msg("replayed workflow code passes other arguments than recorded; using the recorded arguments")
		}
		return
	}
	fault := m.mismatch(seq, e, describe(e.Data), describeCommand(c))
	fault.At, fault.RecordedArguments, fault.IssuedArguments = userCode(), showBlob(was), showBlob(c.Arguments.Blob)
	m.fault = fault
	if m.current != nil {
		m.current.stop(m.fault)
	}
}

// argumentsOf returns the arguments of the activity or child that an event records.
func argumentsOf(d history.Data) (blob string, ok bool) {
	switch d := d.(type) {
	case *history.ActivityScheduled:
		return d.Arguments, true
	case *history.ChildWorkflowScheduled:
		return d.Arguments, true
	}
	return "", false
}

// ownCode is the prefix of the names of this package's functions.
var ownCode = reflect.TypeFor[machine]().PkgPath() + "."

// userCode returns the file and line of the nearest caller outside of this package, or an empty string.
func userCode() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, ownCode) {
			if strings.HasPrefix(f.Function, "reflect.") || strings.HasPrefix(f.Function, "runtime.") {
				return ""
			}
			return fmt.Sprintf("%s:%d", path.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

// shownArguments is the maximum length of an argument list in a message.
const shownArguments = 500

// showBlob returns an encoded argument list as readable text.
func showBlob(blob string) string {
	if blob == "" {
		return "none"
	}
	raw, err := payload.ToJSON(payload.Payload{Blob: blob})
	if err != nil {
		return "cannot be read"
	}
	text := strings.ToValidUTF8(string(raw), "\uFFFD")
	if len(text) > shownArguments {
		text = strings.ToValidUTF8(text[:shownArguments], "") + " …"
	}
	return text
}

// skipEnds removes from the head of the queue the ends of sessions whose number is below that of a recorded command.
// The app writes no event for the end of a session that was never started, but the command keeps its number. Until
// history records a later command, the app may also have refused the completion, so Apply returns the end again.
func (m *machine) skipEnds(below int64) {
	for m.head < len(m.queue) {
		p := &m.queue[m.head]
		if p.command.Type != protocol.EndSession || p.matched || p.seq >= below {
			return
		}
		m.pop()
	}
}

// markPassedEnds marks the ends of sessions at the head of the queue that an earlier call of Apply returned. No
// unconfirmed command precedes them, so the app has either accepted their completion without an event, or refused it.
func (m *machine) markPassedEnds() {
	for i := m.head; i < len(m.queue); i++ {
		p := &m.queue[i]
		if p.command.Type != protocol.EndSession || !p.sent {
			return
		}
		p.passed = true
	}
}

// pop removes the command at the head of the queue.
func (m *machine) pop() {
	m.queue[m.head] = issued{}
	if m.head++; m.head == len(m.queue) {
		m.queue, m.head = m.queue[:0], 0
	}
}

// confirm compares an event that records a command with the first unconfirmed command.
func (m *machine) confirm(seq int64, e *history.Event) {
	m.skipEnds(seq)
	if m.head == len(m.queue) || m.queue[m.head].seq == 0 {
		m.fault = m.mismatch(seq, e, describe(e.Data), "no further command")
		return
	}
	p := &m.queue[m.head]
	switch {
	case p.seq != seq:
		m.fault = m.mismatch(
			seq, e, describe(e.Data), fmt.Sprintf("%s as command %d first", describeCommand(p.command), p.seq),
		)
		return
	case !p.matched:
		if is := describeCommand(p.command); is != describe(e.Data) {
			m.fault = m.mismatch(seq, e, describe(e.Data), is)
			return
		}
		if !m.equalsRecorded(p.command, e.Data) {
			m.fault = fmt.Errorf("%w: event %d of run %s (%s)", replay.ErrStale, e.Seq, m.info.RunID, e.Type())
			return
		}
	}
	m.pop()
}

// equalsRecorded reports whether a value that the machine generated equals the recorded value.
func (m *machine) equalsRecorded(c *protocol.Command, d history.Data) bool {
	switch d := d.(type) {
	case *history.ActivityScheduled:
		if end := m.localEnds[d.Sequence]; end != nil {
			var was protocol.Command
			recallOutcome(&was, end)
			return was.Outcome == c.Outcome && was.Result.Blob == c.Result.Blob && was.Message == c.Message
		}
	case *history.SideEffectRecorded:
		return d.Result == c.Result.Blob
	case *history.VersionMarkerRecorded:
		return d.Version == *c.Version
	}
	return true
}

// confirmRunEnd compares the event that closes the run with the terminal command of the code.
func (m *machine) confirmRunEnd(e *history.Event) {
	want := protocol.CompleteWorkflow
	if _, ok := e.Data.(*history.WorkflowContinuedAsNew); ok {
		want = protocol.ContinueAsNew
	}
	m.skipEnds(math.MaxInt64)
	is := "no further command"
	if m.head < len(m.queue) {
		if is = describeCommand(m.queue[m.head].command); m.queue[m.head].command.Type == want {
			m.queue, m.head, m.finished, m.answers = nil, 0, true, nil
			return
		}
	}
	m.fault = m.mismatch(0, e, describeCommand(&protocol.Command{Type: want}), is)
}

func (m *machine) mismatch(seq int64, e *history.Event, recorded, is string) *NonDeterminismError {
	return &NonDeterminismError{
		RunID: m.info.RunID, EventSeq: e.Seq, EventType: e.Type(), Command: seq, Recorded: recorded, Issued: is,
		Around: m.around(seq),
	}
}

// around describes the recorded commands before and after a command.
func (m *machine) around(seq int64) string {
	if seq == 0 {
		return ""
	}
	var neighbours []string
	for _, n := range []struct {
		word string
		seq  int64
	}{{"before it", seq - 1}, {"after it", seq + 1}} {
		if e := m.recorded[n.seq]; e != nil {
			neighbours = append(neighbours, fmt.Sprintf("%s event %d is %s", n.word, e.Seq, describe(e.Data)))
		}
	}
	return strings.Join(neighbours, ", ")
}

// commandOf returns the number of the command that an event records, or 0 for events that record none.
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
	case *history.AttachedToChild:
		return d.CommandSequence
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
	case *history.AwakeableOpened:
		return d.Sequence
	case *history.AwakeableCancelRequested:
		return d.CommandSequence
	}
	return 0
}

func loanFrom(pool string) string { return "loan of a session of pool " + quote(pool) }

// describe and describeCommand return equal texts for an event and for the command that it records. The texts contain
// the members that a replay must not change. Arguments, options and the durations of timers may change.
func describe(d history.Data) string {
	switch d := d.(type) {
	case *history.ActivityScheduled:
		if d.ExecutionMode == history.ModeLocal {
			return localStep(d.ActivityType)
		}
		if d.Borrow != nil {
			return loanFrom(d.Borrow.Pool)
		}
		return inSession(d.ActivityType, sessionOf(d))
	case *history.TimerScheduled:
		return "a timer"
	case *history.SignalWaitOpened:
		return waitFor(d.SignalName)
	case *history.ChildWorkflowScheduled:
		return childOf(d.Child.Type)
	case *history.AttachedToChild:
		return attachmentTo(d.WorkflowID)
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
	case *history.AwakeableOpened:
		return anAwakeable
	case *history.AwakeableCancelRequested:
		return cancelOf("awakeable", d.Target)
	}
	return d.Type()
}

func describeCommand(c *protocol.Command) string {
	switch c.Type {
	case protocol.ScheduleActivity:
		if c.Borrow != nil {
			return loanFrom(c.Borrow.Pool)
		}
		if c.WorkerSession != nil {
			return inSession(c.ActivityType, c.WorkerSession.SessionID)
		}
		return inSession(c.ActivityType, c.SessionID)
	case protocol.RecordLocalActivity:
		return localStep(c.ActivityType)
	case protocol.StartTimer:
		return "a timer"
	case protocol.OpenSignalWait:
		return waitFor(c.SignalName)
	case protocol.StartChildWorkflow:
		return childOf(c.WorkflowType)
	case protocol.AttachChildWorkflow:
		return attachmentTo(c.WorkflowID)
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
	case protocol.OpenAwakeable:
		return anAwakeable
	case protocol.CancelAwakeable:
		return cancelOf("awakeable", c.Target)
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
	anAwakeable     = "an awakeable"
)

func localStep(name string) string   { return "local step " + quote(name) }
func quote(s string) string          { return `"` + s + `"` }
func attachmentTo(id string) string  { return "attachment to child workflow " + quote(id) }
func childOf(name string) string     { return "child workflow " + quote(name) }
func waitFor(name string) string     { return "wait for signal " + quote(name) }
func versionOf(change string) string { return "version of change " + quote(change) }
func signalTo(name, workflow string) string {
	return "signal " + quote(name) + " to workflow " + quote(workflow)
}

func cancelOf(what string, target int64) string {
	return fmt.Sprintf("cancellation of %s %d", what, target)
}
