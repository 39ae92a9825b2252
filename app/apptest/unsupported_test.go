package apptest_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// lost are completions whose run would behave differently if an unsupported member were ignored, in every form of the
// member, with the name of the refused member. Completions without one are invalid, and their task stays leased.
var lost = []struct {
	name, body, member string
}{
	{"a wait on a stream", `"commands":[],"message_stream_waits":[{"stream_name":"s"}]`, "message_stream_waits"},
	{"a wait that is no list", `"commands":[],"message_stream_waits":{"stream_name":"s"}`, "message_stream_waits"},
	{"a wait that is a text", `"commands":[],"message_stream_waits":"s"`, "message_stream_waits"},
	{"a cursor", `"commands":[],"message_stream_cursors":[{"stream_name":"s"}]`, "message_stream_cursors"},
	{"a cursor that is no list", `"commands":[],"message_stream_cursors":{"s":1}`, "message_stream_cursors"},
	{
		"a directive to a stream", `"commands":[{"type":"record_side_effect","workflow_stream":{"operation":"append"}}]`,
		"commands.0.workflow_stream",
	},
	{
		"a scope", `"commands":[{"type":"start_timer","delay_seconds":60,"cancellation_scope_id":"s"}]`,
		"commands.0.cancellation_scope_id",
	},
	{
		"a cleanup", `"commands":[{"type":"start_timer","delay_seconds":60,"cancellation_cleanup":true}]`,
		"commands.0.cancellation_cleanup",
	},
	{"a command nobody knows", `"commands":[{"type":"brew_tea"}]`, "commands.0.type"},
	{
		"one behind a good one", `"commands":[{"type":"start_timer","delay_seconds":60},{"type":"brew_tea"}]`,
		"commands.1.type",
	},
	{
		"one behind a wrong one", `"commands":[{"type":"start_timer","delay_seconds":-60},{"type":"brew_tea"}]`,
		"commands.1.type",
	},
	{
		"one with an activity in a session that cannot be",
		`"commands":[{"type":"schedule_activity","activity_type":"a","worker_session":{"session_id":"s","lease_seconds":-1}}],"message_stream_waits":[1]`,
		"message_stream_waits",
	},
	{
		"one with members of other types",
		`"commands":[{"type":"brew_tea","activity_type":7,"arguments":["milk"],"delay_seconds":"soon"}]`, "commands.0.type",
	},
	{
		"a scope beside a member of another type",
		`"commands":[{"type":"start_timer","delay_seconds":"soon","cancellation_scope_id":"s"}]`,
		"commands.0.cancellation_scope_id",
	},
	{
		"an unknown cancellation policy",
		`"commands":[{"type":"schedule_activity","activity_type":"a","cancellation_policy":"perhaps"}]`, "",
	},
	{
		"an unknown cancellation policy of a child",
		`"commands":[{"type":"start_child_workflow","workflow_type":"a","cancellation_policy":"perhaps"}]`, "",
	},
	{"nothing of that", `"commands":[{"type":"start_timer","delay_seconds":"soon"}]`, ""},
	{
		"empty lists",
		`"commands":[{"type":"start_timer","delay_seconds":-1,"cancellation_scope_id":null}],"message_stream_waits":[],"message_stream_cursors":null`,
		"",
	},
	{"commands that are none", `"commands":7`, ""},
}

// A command with an unsupported member is refused by its path, and the same transaction quarantines the run, so that it
// does not fail on one worker after another. An invalid command does not change the task.
func TestUnsupportedMembersAreRejectedAndTheRunQuarantined(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		w := register(caller{t, a, "default"}, "w", "")
		for i, c := range lost {
			for _, batch := range []bool{false, true} {
				id := "lost-" + string(rune('a'+i))
				if batch {
					id += "-batch"
				}
				w.start(id)
				task := w.poll("workflow")
				var output string
				if batch {
					got := w.want(
						200, "POST", "/api/worker/tasks/complete",
						`{"items":[{"kind":"workflow","task_id":"`+task.text("task_id")+`",`+w.flowBody(task, ","+c.body)[1:]+`]}`,
					)
					output = got.raw
					if !strings.Contains(output, `"validation_failed"`) {
						t.Errorf("%s, in a batch: %s", c.name, output)
					}
				} else {
					got := w.want(422, "POST", flowPath(task, "complete"), w.flowBody(task, ","+c.body))
					output = got.raw
					if got.text("reason") != "validation_failed" || got.body["recorded"] != false {
						t.Errorf("%s: %s", c.name, output)
					}
				}
				if !strings.Contains(output, `"`+c.member) && !strings.Contains(output, `"items.0.`+c.member) {
					t.Errorf("%s, batch %v: %s does not name %s", c.name, batch, output, c.member)
				}
				_, held := w.want(200, "GET", "/api/workflows/"+id, "").body["blocked_reason"]
				if held != (c.member != "") {
					t.Errorf("%s, batch %v: the run is quarantined: %v", c.name, batch, held)
				}
				if held {
					w.want(409, "POST", flowPath(task, "heartbeat"), w.flowBody(task, ""))
					continue
				}
				w.decide(task, finish)
			}
		}
		// A worker that has not leased the task cannot quarantine the run.
		w.start("held")
		task := w.poll("workflow")
		other := register(w.caller, "other", "")
		for _, body := range []string{lost[0].body, `"commands":[{"type":"brew_tea","delay_seconds":"soon"}]`} {
			if got := other.ask("POST", flowPath(task, "complete"), other.flowBody(task, ","+body)); got.status != 409 &&
				got.status != 422 {
				t.Errorf("by another worker: %s", got.raw)
			}
		}
		w.decide(task, finish)
	})
}
