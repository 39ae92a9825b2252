package channel_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The socket rejects members that the run would lose, in any form and in batches, and the same change quarantines the
// run. Members that are only invalid leave the job leased.
func TestUnsupportedMembersAreRejectedOnTheSocket(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: withTokens})
	w := enter(t, a, mint(t, a, "blue", ""), "w", "blue")
	large := `{"codec":"avro","blob":"` + strings.Repeat("A", payload.MaxBytes+1) + `"}`
	for _, c := range []struct {
		name, response, member string
		reason                 string // "" for members that the run would lose
	}{
		{
			"a wait on a stream", `{"commands":[],"message_stream_waits":[{"stream_name":"s"}]}`, "message_stream_waits", "",
		},
		{"a cursor", `{"commands":[],"message_stream_cursors":{"s":1}}`, "message_stream_cursors", ""},
		{
			"a scope", `{"commands":[{"type":"start_timer","delay_seconds":60,"cancellation_scope_id":"s"}]}`,
			"commands.0.cancellation_scope_id", "",
		},
		{
			"a cleanup", `{"commands":[{"type":"start_timer","delay_seconds":60,"cancellation_cleanup":true}]}`,
			"commands.0.cancellation_cleanup", "",
		},
		{"a command nobody knows", `{"commands":[{"type":"brew_tea"}]}`, "commands.0.type", ""},
		{
			"one with members of other types", `{"commands":[{"type":"brew_tea","activity_type":7,"delay_seconds":"soon"}]}`,
			"commands.0.type", "",
		},
		{
			"a directive beside a member of another type",
			`{"commands":[{"type":"start_timer","delay_seconds":"soon","workflow_stream":{}}]}`,
			"commands.0.workflow_stream", "",
		},
		{
			"a wait beside commands that are none", `{"commands":7,"message_stream_waits":[{}]}`, "message_stream_waits", "",
		},
		{"one behind what is no command", `{"commands":[7,{"type":8},{"type":"brew_tea"}]}`, "commands.2.type", ""},
		{
			"one behind a value that is too large", `{"commands":[{"type":"schedule_activity","activity_type":"a","arguments":` +
				large + `},{"type":"brew_tea"}]}`,
			"commands.1.type", "",
		},
		{"nothing of that", `{"commands":[{"type":"start_timer","delay_seconds":"soon"}]}`, "", "validation_failed"},
		{"commands that are none", `{"commands":7}`, "", "validation_failed"},
		{"a response that is none", `[]`, "", "validation_failed"},
		{
			"a value that is too large",
			`{"commands":[{"type":"schedule_activity","activity_type":"a","arguments":` + large + `}]}`, "", "payload_too_large",
		},
	} {
		for _, batch := range []bool{false, true} {
			started, err := a.Broker().Start(within(t), protocol.StartRequest{WorkflowType: "one", TaskQueue: "blue"})
			if err != nil {
				t.Fatal(err)
			}
			j := w.job(nil)
			in := map[string]any{"jobId": j.ID, "token": j.Token, "status": "OK", "response": json.RawMessage(c.response)}
			reason := c.reason
			if reason == "" {
				reason = "validation_failed"
			}
			var output string
			switch {
			case batch:
				out := call[protocol.ChannelCompleteResponse](w, protocol.MethodCompleteJob, map[string]any{"items": []any{in}})
				if output = text(out); len(out.Items) != 1 || out.Items[0].Recorded || out.Items[0].Reason != reason {
					t.Errorf("%s, in a batch: %s", c.name, output)
				}
			default:
				output = text(w.refusal(reason, protocol.MethodCompleteJob, in).Details)
			}
			if !strings.Contains(output, c.member) {
				t.Errorf("%s, batch %v: %s does not name %s", c.name, batch, output, c.member)
			}
			v, err := a.View().Describe(within(t), protocol.Target{WorkflowID: started.WorkflowID})
			if held := err == nil && v.Quarantined != nil; err != nil || held != (c.member != "") {
				t.Errorf("%s, batch %v: the run is quarantined: %v, %v", c.name, batch, held, err)
			}
			if c.member == "" {
				w.ok(j, map[string]any{"commands": []protocol.Command{{Type: protocol.CompleteWorkflow}}})
			}
		}
	}
}

// A caller without the lease cannot quarantine a run with an unreadable completion or failure report.
func TestUndecodableOutcomeNeedsAValidLease(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: withTokens})
	w, other := enter(t, a, mint(t, a, "blue", ""), "w", "blue"), enter(t, a, mint(t, a, "red", ""), "o", "red")
	if _, err := a.Broker().Start(within(t), protocol.StartRequest{WorkflowType: "one", TaskQueue: "blue"}); err != nil {
		t.Fatal(err)
	}
	j := w.job(nil)
	in := map[string]any{
		"jobId": j.ID, "token": j.Token, "status": "OK",
		"response": json.RawMessage(`{"commands":[{"type":"brew_tea","delay_seconds":"soon"}]}`),
	}
	before := a.Dump()
	other.refusal("task_not_found", protocol.MethodCompleteJob, in)
	in["status"] = "USER_FAILURE"
	w.refusal("validation_failed", protocol.MethodCompleteJob, in)
	if diff := before.Diff(a.Dump()); diff != "" {
		t.Errorf("that changed:\n%s", diff)
	}
	w.ok(j, map[string]any{"commands": []protocol.Command{{Type: protocol.CompleteWorkflow}}})
}
