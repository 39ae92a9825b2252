package engine

import (
	"errors"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/retry"
)

// A completion is taken whole or not at all, so all of it is checked before anything is written. The error
// names the field of the first wrong command: the author of an SDK reads it.

// Supported lists the commands this engine takes, terminal ones first, as the capability list announces them.
var Supported = []protocol.CommandType{
	protocol.CompleteWorkflow, protocol.FailWorkflow, protocol.ContinueAsNew, protocol.ScheduleActivity,
	protocol.StartTimer,
	protocol.OpenSignalWait, protocol.RecordSideEffect, protocol.RecordVersionMarker, protocol.StartSession,
	protocol.EndSession,
	protocol.CancelActivity, protocol.CancelTimer, protocol.SignalWorkflow, protocol.OpenConditionWait,
	protocol.ApplyUpdate, protocol.CompleteUpdate, protocol.FailUpdate, protocol.StartChildWorkflow,
	protocol.CancelChildWorkflow,
	protocol.AttachChildWorkflow,
	protocol.UpsertMemo, protocol.UpsertSearchAttributes, protocol.CancelSelection,
}

// Validate checks a whole batch of commands before anything is written. The error names the field of the first
// wrong one, like commands.3.activity_type. Limits on open steps are counted with what the run has already: a
// run loads all of them at every step.
func Validate(s *Run, commands []protocol.Command) error {
	if len(commands) == 0 {
		return protocol.Invalid(
			"commands", "at least one command is needed; answer fail with type %s when there is none", protocol.FailureWaiting,
		)
	}
	if len(commands) > protocol.MaxCommands {
		return protocol.Refuse(protocol.ReasonStructuralLimit, "%d commands in one completion", len(commands)).
			With("limit_kind", "command_batch_size").With("current_value", len(commands)).
			With("configured_limit", protocol.MaxCommands)
	}
	activities, timers, waits, children := s.Activities.Len(), s.Timers.Len(), s.Waits.Len(),
		s.Children.Len()+s.Attached.Len()+s.Former.Bound
	seq, memo, attributes := s.CommandSeq, s.Memo, s.SearchAttributes
	for i, c := range commands {
		at := func(field string) string { return fmt.Sprintf("commands.%d.%s", i, field) }
		if c.Type.Terminal() && i != len(commands)-1 {
			return protocol.Invalid(at("type"), "%s ends the run and must be the last command", c.Type)
		}
		if err := validate(c, at); err != nil {
			return err
		}
		if s.repeats(c) {
			continue
		}
		if !ofUpdate(c) && c.Type != protocol.CancelSelection {
			seq++
		}
		if err := grouped(c, seq, at); err != nil {
			return err
		}
		switch c.Type {
		case protocol.ScheduleActivity:
			activities++
		case protocol.StartTimer:
			timers++
		case protocol.OpenSignalWait, protocol.OpenConditionWait:
			waits++
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
	if err := s.whole(commands); err != nil {
		return err
	}
	if children > protocol.MaxPending {
		return protocol.Refuse(protocol.ReasonStructuralLimit, "the run would have %d open children", children).
			With("limit_kind", "pending_child_count").With("current_value", children).
			With("configured_limit", protocol.MaxPending)
	}
	if n := max(activities, timers, waits); n > protocol.MaxPending {
		return protocol.Refuse(protocol.ReasonStructuralLimit, "the run would have %d open activities, timers or waits", n).
			With("limit_kind", "pending_activity_count").With("current_value", n).With("configured_limit", protocol.MaxPending)
	}
	return nil
}

// validate checks one command by itself.
func validate(c protocol.Command, at func(string) string) error {
	v := checker{c, at}
	if err := v.durations(); err != nil {
		return err
	}
	if err := v.short("queue", c.Queue); err != nil {
		return err
	}
	switch c.Type {
	case protocol.CompleteWorkflow,
		protocol.UpsertMemo, protocol.UpsertSearchAttributes: // what an upsert leaves is checked with the run
		return nil
	case protocol.StartSession:
		return v.session(nil)
	case protocol.FailWorkflow:
		return explained(c, at)
	case protocol.ContinueAsNew:
		return v.short("workflow_type", c.WorkflowType)
	case protocol.StartTimer:
		if c.Delay == nil {
			return missing(at("delay_seconds"))
		}
		return nil
	case protocol.RecordSideEffect:
		if c.Result.IsZero() {
			return missing(at("result"))
		}
		return nil
	case protocol.ScheduleActivity:
		return v.activity()
	case protocol.OpenSignalWait:
		return v.need("signal_name", c.SignalName)
	case protocol.OpenConditionWait:
		return v.condition()
	case protocol.FailUpdate:
		if err := explained(c, at); err != nil {
			return err
		}
		return v.need("update_id", c.UpdateID)
	case protocol.ApplyUpdate, protocol.CompleteUpdate:
		return v.need("update_id", c.UpdateID)
	case protocol.RecordVersionMarker:
		return v.version()
	case protocol.EndSession:
		return v.need("session_id", c.SessionID)
	case protocol.CancelSelection:
		if c.MemberBase < 1 || c.MemberSize < 1 || c.MemberSize > protocol.MaxPending {
			return protocol.Invalid(at("member_base_sequence"), "a member has a base sequence and a size of 1 or more")
		}
		return v.need("selection_group_id", c.SelectionGroup)
	case protocol.StartChildWorkflow:
		return v.child()
	case protocol.CancelActivity, protocol.CancelTimer, protocol.CancelChildWorkflow:
		if c.Target < 1 {
			return protocol.Invalid(at("target"), "must be the command sequence of what is cancelled")
		}
		return nil
	case protocol.AttachChildWorkflow:
		return v.need("workflow_id", c.WorkflowID)
	case protocol.SignalWorkflow:
		if err := v.need("workflow_id", c.WorkflowID); err != nil {
			return err
		}
		return v.need("signal_name", c.SignalName)
	case "":
		return missing(at("type"))
	default:
		return protocol.Invalid(at("type"), "unknown command %q", c.Type)
	}
}

func missing(field string) error { return protocol.Invalid(field, "is needed") }

// retryable checks a retry policy.
func retryable(p *retry.Policy, at func(string) string) error {
	if p == nil {
		return nil
	}
	var wrong *retry.FieldError
	if errors.As(p.Validate(at("retry_policy")), &wrong) {
		return protocol.Invalid(wrong.Field, "%s", wrong.Reason)
	}
	return nil
}

// explained refuses a failure that says nothing at all. An exception's message may be empty as long as its type
// is there.
func explained(c protocol.Command, at func(string) string) error {
	if c.Message == "" && c.ExceptionType == "" && c.ExceptionClass == "" && len(c.Exception) == 0 {
		return missing(at("message"))
	}
	return nil
}
