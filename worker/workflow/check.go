package workflow

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// check rejects a command that the app would reject, by the same rules and limits, so that the call fails and not the
// workflow task. It must be called right before the command is issued. An invalid command is accepted if history
// records an invalid command like it at this place: the build that recorded it did not have the rule.
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

// recordedInvalid reports whether history has, as the next command, a command like c that also breaks the rules. If the
// recorded command is valid, the code issued it after the call of c had failed.
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

// recordedCommand returns the command that an event records; nil if the description of the command has all members that
// can break a rule.
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
		if derivedChildID.MatchString(c.WorkflowID) { // the command had no ID
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

// invalid returns ErrInvalidOptions with the message of a refusal; nil for nil.
func invalid(err error) error {
	if refusal, ok := errors.AsType[*protocol.Error](err); ok {
		return fmt.Errorf("%w: %s", ErrInvalidOptions, refusal.Message)
	}
	return err
}
