package engine

import (
	"errors"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/retry"
)

// MaxCommands is the most one completion may carry; MaxPending the most activities or timers a run may have open.
const (
	MaxCommands = 1000
	MaxPending  = 2000
)

// Supported lists the commands this engine takes, terminal ones first, as the capability list announces them.
var Supported = []protocol.CommandType{
	protocol.CompleteWorkflow, protocol.FailWorkflow, protocol.ContinueAsNew, protocol.ScheduleActivity, protocol.StartTimer,
	protocol.OpenSignalWait, protocol.RecordSideEffect, protocol.RecordVersionMarker, protocol.StartSession, protocol.EndSession,
	protocol.CancelActivity, protocol.CancelTimer, protocol.SignalWorkflow, protocol.OpenConditionWait,
	protocol.ApplyUpdate, protocol.CompleteUpdate, protocol.FailUpdate, protocol.StartChildWorkflow, protocol.CancelChildWorkflow,
	protocol.UpsertMemo, protocol.UpsertSearchAttributes, protocol.CancelSelection,
}

// Validate checks a whole batch of commands before anything is written; the error names the field of the first wrong one, like
// commands.3.activity_type.
func Validate(s *Run, commands []protocol.Command) error {
	if len(commands) == 0 {
		return protocol.Invalid("commands", "at least one command is needed; answer fail with type %s when there is none", protocol.FailureWaiting)
	}
	if len(commands) > MaxCommands {
		return protocol.Refuse(protocol.ReasonStructuralLimit, "%d commands in one completion", len(commands)).
			With("limit_kind", "command_batch_size").With("current_value", len(commands)).With("configured_limit", MaxCommands)
	}
	activities, timers, waits, children := s.Activities.Len(), s.Timers.Len(), s.Waits.Len(), s.Children.Len()
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
		case protocol.StartChildWorkflow:
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
	if children > MaxPending {
		return protocol.Refuse(protocol.ReasonStructuralLimit, "the run would have %d open children", children).
			With("limit_kind", "pending_child_count").With("current_value", children).With("configured_limit", MaxPending)
	}
	if n := max(activities, timers, waits); n > MaxPending {
		return protocol.Refuse(protocol.ReasonStructuralLimit, "the run would have %d open activities, timers or waits", n).
			With("limit_kind", "pending_activity_count").With("current_value", n).With("configured_limit", MaxPending)
	}
	return nil
}

func validate(c protocol.Command, at func(string) string) error {
	limit, _ := c.Wait()
	delay := int64(0)
	if c.Delay != nil {
		delay = *c.Delay
	}
	for _, d := range []struct {
		field string
		value int64
	}{
		{"start_to_close_timeout", c.StartToClose},
		{"schedule_to_start_timeout", c.ScheduleToStart},
		{"schedule_to_close_timeout", c.ScheduleToClose},
		{"heartbeat_timeout", c.Heartbeat},
		{"delay_seconds", delay},
		{"delay_micros", c.DelayMicros},
		{"timeout_seconds", limit},
		{"execution_timeout_seconds", c.ExecutionTimeout},
		{"run_timeout_seconds", c.RunTimeout},
	} {
		if d.value < 0 {
			return protocol.Invalid(at(d.field), "must not be negative")
		}
		if d.value > 10*365*24*3600 && d.field != "delay_micros" {
			return protocol.Invalid(at(d.field), "must not be longer than ten years")
		}
	}
	short := func(field, value string) error {
		if len(value) > 255 {
			return protocol.Invalid(at(field), "is longer than 255 bytes")
		}
		return nil
	}
	need := func(field, value string) error {
		if value == "" {
			return missing(at(field))
		}
		return short(field, value)
	}
	if err := short("queue", c.Queue); err != nil {
		return err
	}
	switch c.Type {
	case protocol.FailWorkflow:
		return explained(c, at)
	case protocol.ContinueAsNew:
		return short("workflow_type", c.WorkflowType)
	case protocol.StartSession:
		if o := c.WorkerSession; o != nil {
			return CheckAffinity(o.Affinity, o.FallbackAfter, nil, func(f string) string { return at("worker_session." + f) })
		}
		return nil
	case protocol.CompleteWorkflow,
		protocol.UpsertMemo, protocol.UpsertSearchAttributes: // what an upsert leaves is checked with the run
		return nil
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
		if c.WorkerSession != nil {
			if err := need("worker_session.session_id", c.WorkerSession.SessionID); err != nil {
				return err
			}
			if !KnownPolicy(c.WorkerSession.ReleasePolicy) {
				return protocol.Invalid(at("worker_session.release_policy"), "must be migrate, finish or fail, not %q", c.WorkerSession.ReleasePolicy)
			}
		}
		if o := c.WorkerSession; o != nil {
			err := CheckAffinity(o.Affinity, o.FallbackAfter, o.Reacquire, func(f string) string { return at("worker_session." + f) })
			if err != nil {
				return err
			}
		}
		if c.WorkerSession == nil && c.SessionID == "" && c.Affinity != "" {
			return protocol.Invalid(at("affinity"), "is for activities in a session")
		}
		if err := CheckAffinity(c.Affinity, c.FallbackAfter, nil, at); err != nil {
			return err
		}
		if err := retryable(c.RetryPolicy, at); err != nil {
			return err
		}
		if err := short("session_id", c.SessionID); err != nil {
			return err
		}
		if c.Priority != nil && (*c.Priority < 0 || *c.Priority > 9) {
			return protocol.Invalid(at("priority"), "must be between 0 and 9")
		}
		if err := CheckFairness(c.FairnessKey, c.FairnessWeight, at); err != nil {
			return err
		}
		return need("activity_type", c.ActivityType)
	case protocol.OpenSignalWait:
		return need("signal_name", c.SignalName)
	case protocol.OpenConditionWait:
		for field, value := range map[string]string{
			"condition_key": c.ConditionKey, "condition_definition_fingerprint": c.ConditionFingerprint, "condition_wait_occurrence_id": c.ConditionOccurrence,
		} {
			if err := short(field, value); err != nil {
				return err
			}
		}
		return nil
	case protocol.ApplyUpdate, protocol.CompleteUpdate, protocol.FailUpdate:
		if c.Type == protocol.FailUpdate {
			if err := explained(c, at); err != nil {
				return err
			}
		}
		return need("update_id", c.UpdateID)
	case protocol.RecordVersionMarker:
		for _, n := range []struct {
			field string
			value *int
		}{{"version", c.Version}, {"min_supported", c.MinSupported}, {"max_supported", c.MaxSupported}} {
			if n.value == nil {
				return missing(at(n.field))
			}
		}
		return need("change_id", c.ChangeID)
	case protocol.EndSession:
		return need("session_id", c.SessionID)
	case protocol.CancelSelection:
		if c.MemberBase < 1 || c.MemberSize < 1 || c.MemberSize > MaxPending {
			return protocol.Invalid(at("member_base_sequence"), "a member has a base sequence and a size of 1 or more")
		}
		return need("selection_group_id", c.SelectionGroup)
	case protocol.StartChildWorkflow:
		switch c.ParentClosePolicy {
		case "", Abandon, RequestCancel, Terminate, CancelByRequest:
		default:
			return protocol.Invalid(at("parent_close_policy"), "must be abandon, request_cancel, terminate or request_cancellation")
		}
		if c.ExecutionTimeout > 0 && c.RunTimeout > c.ExecutionTimeout {
			return protocol.Invalid(at("run_timeout_seconds"), "must not be longer than execution_timeout_seconds")
		}
		if err := retryable(c.RetryPolicy, at); err != nil {
			return err
		}
		return need("workflow_type", c.WorkflowType)
	case protocol.CancelActivity, protocol.CancelTimer, protocol.CancelChildWorkflow:
		if c.Target < 1 {
			return protocol.Invalid(at("target"), "must be the command sequence of what is cancelled")
		}
		return nil
	case protocol.SignalWorkflow:
		if err := need("workflow_id", c.WorkflowID); err != nil {
			return err
		}
		return need("signal_name", c.SignalName)
	case "":
		return missing(at("type"))
	default:
		return protocol.Invalid(at("type"), "unknown command %q", c.Type)
	}
}

func missing(field string) error { return protocol.Invalid(field, "is needed") }

func retryable(p *retry.Policy, at func(string) string) error {
	var wrong *retry.FieldError
	if errors.As(p.Validate(at("retry_policy")), &wrong) {
		return protocol.Invalid(wrong.Field, "%s", wrong.Reason)
	}
	return nil
}

// explained refuses a failure that says nothing at all; an exception's message may be empty, as long as its type is there.
func explained(c protocol.Command, at func(string) string) error {
	if c.Message == "" && c.ExceptionType == "" && c.ExceptionClass == "" && len(c.Exception) == 0 {
		return missing(at("message"))
	}
	return nil
}
