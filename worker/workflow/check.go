package workflow

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// check rejects a command that the app would reject, by the same rules and limits, so that only the call fails and not
// the workflow task. Call it immediately before issuing the command. It accepts an invalid command if history records a
// similar invalid command at this position: the build that recorded it did not have the rule.
func (m *machine) check(c *protocol.Command) error {
	err := m.invalidCommand(c)
	if err == nil || m.recordedInvalid(c) {
		return nil
	}
	return invalid(err)
}

func (m *machine) invalidCommand(c *protocol.Command) error {
	at := func(member string) string { return member }
	if err := protocol.CheckCommand(c, at); err != nil {
		return err
	}
	if m.rules > 0 {
		return protocol.CheckCommandNames(c, m.info.Queue, at)
	}
	return nil
}

// recordedInvalid reports whether the next command in history is like c and also violates the rules. If the next
// recorded command is valid, then the call that creates c failed when the history was recorded, and the code issued the
// recorded command afterwards.
func (m *machine) recordedInvalid(c *protocol.Command) bool {
	if c.Type == protocol.ContinueAsNew {
		return m.continued
	}
	e := m.recorded[m.sequence+1]
	if e == nil || describe(e.Data) != describeCommand(c) {
		return false
	}
	was := recordedCommand(e.Data)
	return was == nil || m.invalidCommand(was) != nil
}

// recordedCommand returns the command that an event records, with the members to which rules apply. It returns nil if
// describe already covers all these members.
func recordedCommand(d history.Data) *protocol.Command {
	switch d := d.(type) {
	case *history.ActivityScheduled:
		c := &protocol.Command{
			Type: protocol.ScheduleActivity, ActivityType: d.ActivityType, SessionID: d.SessionID,
			WorkerSession: recordedSession(d.Session), Requirements: d.Requirements, MaxBlamedLosses: d.MaxBlamed,
			StartToClose: protocol.Timeout(d.StartToClose), ScheduleToStart: protocol.Timeout(d.ScheduleToStart),
			ScheduleToClose: protocol.Timeout(d.ScheduleToClose), Heartbeat: protocol.Timeout(d.Heartbeat),
		}
		if d.Activity != nil {
			c.Queue, c.RetryPolicy = d.Activity.Queue, d.Activity.RetryPolicy
		}
		return c
	case *history.ChildWorkflowScheduled:
		c := &protocol.Command{
			Type: protocol.StartChildWorkflow, WorkflowType: d.Child.Type, WorkflowID: d.WorkflowID, Queue: d.TaskQueue,
			RetryPolicy: d.RetryPolicy, ExecutionTimeout: protocol.Timeout(d.ExecutionTimeout),
			RunTimeout: protocol.Timeout(d.RunTimeout),
		}
		if derivedChildID.MatchString(c.WorkflowID) { // an ID derived by the app: the command had none
			c.WorkflowID = ""
		}
		return c
	case *history.SessionStarted:
		return &protocol.Command{
			Type: protocol.StartSession, SessionID: d.SessionID, WorkerSession: recordedSession(d.Options),
		}
	}
	return nil
}

func recordedSession(raw json.RawMessage) *protocol.SessionOptions {
	var o protocol.SessionOptions
	if len(raw) == 0 || json.Unmarshal(raw, &o) != nil {
		return nil
	}
	return &o
}

// invalid returns ErrInvalidOptions with the message of err, or nil if err is nil.
func invalid(err error) error {
	if refusal, ok := errors.AsType[*protocol.Error](err); ok {
		return fmt.Errorf("%w: %s", ErrInvalidOptions, refusal.Message)
	}
	return err
}
