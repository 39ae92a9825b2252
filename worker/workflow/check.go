package workflow

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// check refuses a command that the app would refuse, by the same rules and limits, so that the call fails and not the
// workflow task. It must be called right before the command is issued. A command that history records at this place is
// valid if history records it with the same violation: an earlier build did not have the rule.
func (m *Machine) check(c *protocol.Command) error {
	err := m.refusal(c)
	if err == nil || m.records(c) {
		return nil
	}
	return invalid(err)
}

func (m *Machine) refusal(c *protocol.Command) error {
	at := func(member string) string { return member }
	if err := protocol.CheckCommand(c, at); err != nil {
		return err
	}
	if m.rules > 0 {
		return protocol.CheckCommandNames(c, m.info.Queue, at)
	}
	return nil
}

// records reports whether history has, at the place of the next command, a command like c that breaks the rules, too.
// A valid one there was issued after the call of c failed.
func (m *Machine) records(c *protocol.Command) bool {
	if c.Type == protocol.ContinueAsNew {
		return m.continued
	}
	e := m.recorded[m.sequence+1]
	if e == nil || describe(e.Data) != describeCommand(c) {
		return false
	}
	was := recordedCommand(e.Data)
	return was == nil || m.refusal(was) != nil
}

// recordedCommand returns the command that an event records; nil if all that can break a rule is part of its
// description.
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
		if ofAChild.MatchString(c.WorkflowID) { // the command chose none
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

// invalid wraps the message of a refusal in ErrInvalidOptions; nil for nil.
func invalid(err error) error {
	if refusal, ok := errors.AsType[*protocol.Error](err); ok {
		return fmt.Errorf("%w: %s", ErrInvalidOptions, refusal.Message)
	}
	return err
}
