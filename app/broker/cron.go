package broker

import (
	"context"
	"errors"
	"strings"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A start with a cron expression creates a schedule, which is then listed, paused and deleted like any other. Options
// that a schedule cannot store are rejected, since silently dropping them would mislead the caller.

// startCron creates the schedule of a start with a cron expression. The schedule ID is the workflow ID of the start.
// Each firing starts a workflow whose ID consists of the schedule ID and the time of the firing.
func (b *Broker) startCron(ctx context.Context, in protocol.StartRequest) (protocol.StartResponse, error) {
	in, _, err := b.startRequest(in)
	if err != nil {
		return protocol.StartResponse{}, err
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"start_delay_seconds", in.StartDelay != 0},
		{"priority", in.Priority != nil},
		{"fairness_key", in.FairnessKey != ""},
		{"fairness_weight", in.FairnessWeight != 0},
		{"build_id", in.BuildID != ""},
		{"wait_seconds", in.WaitSeconds != 0},
		{"reuse_policy", in.ReusePolicy != ""},
		{"conflict_policy", in.ConflictPolicy != ""},
		{protocol.HeaderIdempotencyKey, in.IdempotencyKey != ""},
	} {
		if f.set {
			return protocol.StartResponse{}, protocol.Invalid(f.name, "cannot be combined with cron")
		}
	}
	spec := protocol.ScheduleSpec{Cron: []string{in.Cron}, TimeZone: in.CronTimezone}
	out := protocol.StartResponse{
		WorkflowID: in.WorkflowID, WorkflowType: in.WorkflowType, Namespace: in.Namespace, Status: "scheduled",
		BusinessKey:  protocol.OrNil(in.BusinessKey),
		PayloadCodec: payload.Codec, Outcome: "schedule_created", ScheduleID: in.WorkflowID, New: true,
	}
	_, err = b.CreateSchedule(ctx, protocol.ScheduleRequest{
		Namespace: in.Namespace, ID: in.WorkflowID, Spec: &spec, Action: &protocol.ScheduleAction{
			WorkflowType: in.WorkflowType, TaskQueue: in.TaskQueue, Input: in.Input, BusinessKey: in.BusinessKey, Memo: in.Memo,
			SearchAttributes: in.SearchAttributes, ExecutionTimeout: protocol.Timeout(in.ExecutionTimeout),
			RunTimeout: protocol.Timeout(in.RunTimeout), Headers: in.Headers,
		},
	})
	// The duplicate policy of a second start applies to the schedule, which has the workflow ID of the start.
	if protocol.ReasonOf(err) == protocol.ReasonScheduleExists && in.DuplicatePolicy == "use-existing" {
		out.Outcome, out.New = "returned_existing_schedule", false
		return out, nil
	}
	return out, withStartFields(err)
}

// startMembers maps members of a schedule request to the corresponding members of a start.
var startMembers = map[string]string{
	"spec.cron_expressions.0": "cron", "spec.timezone": "cron_timezone", "schedule_id": "workflow_id",
}

// withStartFields renames the members in an error about the schedule to those of the start, so that the caller finds
// them in the request.
func withStartFields(err error) error {
	var e *protocol.Error
	if !errors.As(err, &e) || e.Reason != protocol.ReasonValidation {
		return err
	}
	out := &protocol.Error{Reason: e.Reason, Message: e.Message, Details: e.Details, Fields: map[string][]string{}}
	for name, what := range e.Fields {
		member := strings.TrimPrefix(name, "action.")
		if m := startMembers[name]; m != "" {
			member = m
		}
		out.Fields[member], out.Message = what, member+": "+strings.Join(what, "; ")
	}
	return out
}
