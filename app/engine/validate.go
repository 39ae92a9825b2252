package engine

import (
	"fmt"
	"slices"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A completion is applied completely or refused completely, so all of it is checked before anything is written. For
// authors of SDKs, the error names the field of the first wrong command.

// Supported lists the commands that this engine accepts, in the order of the list of capabilities: terminal commands
// first.
var Supported = []protocol.CommandType{
	protocol.CompleteWorkflow, protocol.FailWorkflow, protocol.ContinueAsNew, protocol.ScheduleActivity,
	protocol.StartTimer,
	protocol.OpenSignalWait, protocol.RecordSideEffect, protocol.RecordVersionMarker, protocol.StartSession,
	protocol.EndSession,
	protocol.CancelActivity, protocol.CancelTimer, protocol.SignalWorkflow, protocol.OpenConditionWait,
	protocol.ApplyUpdate, protocol.CompleteUpdate, protocol.FailUpdate, protocol.StartChildWorkflow,
	protocol.CancelChildWorkflow,
	protocol.AttachChildWorkflow,
	protocol.UpsertMemo, protocol.UpsertSearchAttributes, protocol.CancelSelection, protocol.RecordLocalActivity,
	protocol.OpenAwakeable, protocol.CancelAwakeable,
}

// Validate checks all commands. The error names the field of the first invalid command, like commands.3.activity_type.
// Limits include the steps that are already open: every step of a run loads all of them.
func Validate(s *Run, commands []protocol.Command) error {
	if len(commands) == 0 {
		return protocol.Invalid(
			"commands", "at least one command is required; report a failure of type %s if there is none",
			protocol.FailureWaiting,
		)
	}
	if len(commands) > protocol.MaxCommands {
		return protocol.Refuse(protocol.ReasonStructuralLimit, "%d commands in one completion", len(commands)).
			With("limit_kind", "command_batch_size").With("current_value", len(commands)).
			With("configured_limit", protocol.MaxCommands)
	}
	awakeables, timeouts := s.openAwakeables()
	activities, timers := s.Activities.Len(), s.Timers.Len()-timeouts
	children := s.Children.Len() + s.Attached.Len() + s.Inherited.Bound
	waits := s.Waits.Len() - awakeables
	seq, memo, attributes := s.CommandSeq, s.Memo, s.SearchAttributes
	for i, c := range commands {
		at := func(field string) string { return fmt.Sprintf("commands.%d.%s", i, field) }
		if c.Type.Terminal() && i != len(commands)-1 {
			return protocol.Invalid(at("type"), "%s ends the run and must be the last command", c.Type)
		}
		if err := validate(&commands[i], at); err != nil {
			return err
		}
		if s.isRepeatedMember(c) {
			continue
		}
		if !ofUpdate(c) && c.Type != protocol.CancelSelection {
			seq++
		}
		if err := checkGroup(c, seq, at); err != nil {
			return err
		}
		switch c.Type {
		case protocol.ScheduleActivity:
			activities++
		case protocol.StartTimer:
			timers++
		case protocol.OpenSignalWait, protocol.OpenConditionWait:
			waits++
		case protocol.OpenAwakeable:
			awakeables++
		case protocol.StartChildWorkflow, protocol.AttachChildWorkflow:
			children++
		case protocol.UpsertMemo, protocol.UpsertSearchAttributes:
			merged, err := upsert(c, memo, attributes, at)
			if err != nil {
				return err
			}
			if c.Type == protocol.UpsertMemo {
				memo = merged
			} else {
				attributes = merged
			}
		}
	}
	if err := s.checkGroups(commands); err != nil {
		return err
	}
	if children > protocol.MaxPending {
		return protocol.Refuse(protocol.ReasonStructuralLimit, "the run would have %d open children", children).
			With("limit_kind", "pending_child_count").With("current_value", children).
			With("configured_limit", protocol.MaxPending)
	}
	if awakeables > protocol.MaxPending {
		return protocol.Refuse(protocol.ReasonStructuralLimit, "the run would have %d open awakeables", awakeables).
			With("limit_kind", "pending_awakeable_count").With("current_value", awakeables).
			With("configured_limit", protocol.MaxPending)
	}
	if n := max(activities, timers, waits); n > protocol.MaxPending {
		return protocol.Refuse(protocol.ReasonStructuralLimit, "the run would have %d open activities, timers or waits", n).
			With("limit_kind", "pending_activity_count").With("current_value", n).With("configured_limit", protocol.MaxPending)
	}
	return nil
}

// validate checks one command, regardless of the run.
func validate(c *protocol.Command, at func(string) string) error {
	switch {
	case c.Type == "":
		return protocol.Invalid(at("type"), "is needed")
	case !slices.Contains(Supported, c.Type):
		return protocol.Invalid(at("type"), "unknown command %q", c.Type)
	}
	if err := protocol.CheckCommand(c, at); err != nil {
		return err
	}
	if c.Type != protocol.StartChildWorkflow { // for an upsert, the resulting size is checked together with the run
		return nil
	}
	_, _, err := memoAndAttributes(*c, at)
	return err
}
