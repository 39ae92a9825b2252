package apptest_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
)

// prints registers a worker with fingerprints of its code.
func (c caller) prints(id, fingerprints, more string) response {
	c.t.Helper()
	return c.ask("POST", "/api/worker/register", `{"worker_id":"`+id+`","task_queue":"`+handQueue+`","runtime":"python",
		"supported_workflow_types":["flow","other"],"workflow_definition_fingerprints":`+fingerprints+more+`}`)
}

// A live worker cannot be replaced under its ID by a worker with other code of a workflow type; any other replacement
// is allowed.
func TestTheCodeOfALivingWorkerIsNotReplaced(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		registered := func(what string, s response) {
			t.Helper()
			if s.status != 201 {
				t.Errorf("%s: %d %s", what, s.status, s.brief())
			}
		}
		registered("the first", c.prints("w", `{"flow":"1","other":"1"}`, ""))
		registered("the same again", c.prints("w", `{"flow":"1","other":"1"}`, ""))
		registered("not said of one type", c.prints("w", `{"other":"1"}`, ""))
		unchanged(t, a, "changed code", func() {
			s := c.prints("w", `{"flow":"2","other":"1"}`, "")
			if s.status != 409 || s.text("reason") != "workflow_definition_changed" || s.text("workflow_type") != "flow" ||
				s.text("remediation") == "" ||
				s.body["registered"] != false || s.text("worker_id") != "w" {
				t.Errorf("changed code: %d %s", s.status, s.brief())
			}
		})
		registered("another worker", c.prints("v", `{"flow":"2","other":"1"}`, ""))
		c.want(200, "POST", "/api/worker/heartbeat", `{"worker_id":"v","draining":true}`)
		registered("one that drains", c.prints("v", `{"flow":"3","other":"1"}`, ""))
		c.want(200, "DELETE", "/api/worker/registrations/w", "")
		registered("one that has left", c.prints("w", `{"flow":"2"}`, ""))
		c.want(
			201, "POST", "/api/worker/register",
			`{"worker_id":"w","task_queue":"`+handQueue+`","supported_workflow_types":["other"]}`,
		)
		registered("a type given up and taken up again", c.prints("w", `{"flow":"4"}`, ""))
	})
}

// The capabilities of a registration must be consistent and part of the worker's protocol version.
func TestARegistrationKeepsToItsProtocol(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	manifest := func(local, sessions, sticky string) string { // each "SUPPORTED/MINIMUM"
		entry := func(name, versions string) string {
			supported, minimum := versions[:len(versions)-5], versions[len(versions)-4:]
			return `"` + name + `":{"supported":` + supported + `,"minimum_protocol_version":"` + minimum + `"}`
		}
		return `,"capability_manifest":{` + entry("local_activities", local) + `,` + entry("worker_sessions", sessions) +
			`,` + entry("sticky_execution", sticky) + `}`
	}
	plain := manifest("false/1.18", "false/1.18", "false/1.18")
	const tied = `,"capabilities":["worker_sessions"]`
	for _, r := range []struct {
		what, version, more string
		status              int
		reason, capability  string
	}{
		{"no manifest", "1.20", tied, 201, "", ""},
		{"an equal manifest", "1.20", tied + manifest("false/1.18", "true/1.18", "false/1.18"), 201, "", ""},
		{"a manifest of none", "1.18", plain, 201, "", ""},
		{
			"more than the three", "1.20", `,"capability_manifest":{"more":{},` + plain[len(`,"capability_manifest":{`):], 201,
			"", "",
		},
		{
			"offered, and not in the manifest", "1.20", tied + plain, 409, "worker_capability_manifest_mismatch",
			"worker_sessions",
		},
		{
			"in the manifest alone", "1.18", manifest("true/1.18", "false/1.18", "false/1.18"), 409,
			"worker_capability_manifest_mismatch", "local_activities",
		},
		{"the same before 1.18", "1.17", manifest("true/1.18", "false/1.18", "false/1.18"), 201, "", ""},
		{
			"of a protocol too early for it", "1.20", manifest("false/1.17", "false/1.18", "false/1.18"), 409,
			"worker_capability_protocol_floor_mismatch", "local_activities",
		},
		{
			"of a protocol that is not spoken", "1.18", tied + manifest("false/1.18", "true/1.19", "false/1.18"), 409,
			"worker_capability_protocol_floor_mismatch", "worker_sessions",
		},
		{"of a later one, and not offered", "1.18", manifest("false/1.18", "false/1.20", "false/1.18"), 201, "", ""},
		{
			"memo too early", "1.13", `,"capabilities":["memo_upserts"]`, 409, "workflow_metadata_capability_protocol_mismatch",
			"memo_upserts",
		},
		{
			"typed attributes too early", "1.15", `,"capabilities":["memo_upserts","typed_search_attributes"]`, 409,
			"workflow_metadata_capability_protocol_mismatch", "typed_search_attributes",
		},
		{
			"streams too early", "1.14", `,"capabilities":["message_streams"]`, 409, "message_streams_unavailable",
			"message_streams",
		},
		{
			"all of them in time", "1.18",
			`,"capabilities":["memo_upserts","typed_search_attributes","message_streams","anything"]`, 201, "", "",
		},
		{"a manifest that is text", "1.0", `,"capability_manifest":"none"`, 422, "validation_failed", ""},
		{"an entry that is missing", "1.20", `,"capability_manifest":{}`, 422, "validation_failed", ""},
		{
			"an entry that says nothing", "1.20",
			`,"capability_manifest":{"local_activities":{},"worker_sessions":{},"sticky_execution":{}}`, 422,
			"validation_failed", "",
		},
		{"contracts that are a list", "1.20", `,"workflow_command_contracts":[]`, 422, "validation_failed", ""},
		{
			"a fingerprint that is a number", "1.20", `,"workflow_definition_fingerprints":{"flow":1}`, 422, "validation_failed",
			"",
		},
		{"slots that are a number", "1.20", `,"task_slots":3`, 422, "validation_failed", ""},
		{"metrics that are a list", "1.20", `,"process_metrics":[]`, 422, "validation_failed", ""},
	} {
		c := caller{t, a, ""}
		before := a.Dump()
		s := client{t: t, url: a.URL()}.with(workerapi.VersionHeader, r.version).call(
			"POST", "/api/worker/register", `{"worker_id":"w","task_queue":"`+handQueue+`","runtime":"rust"`+r.more+`}`,
		)
		if s.status != r.status || s.text("reason") != r.reason || s.text("capability") != r.capability {
			t.Errorf("%s: got %d %s, want %d %s", r.what, s.status, s.brief(), r.status, r.reason)
		}
		if s.status == 201 {
			c.want(200, "DELETE", "/api/worker/registrations/w", "")
		} else if diff := before.Diff(a.Dump()); diff != "" {
			t.Errorf("%s changed something:\n%s", r.what, diff)
		}
		if s.status == 409 &&
			(s.text("requested_version") != r.version || s.text("minimum_protocol_version") == "" ||
				s.text("remediation") == "") {
			t.Errorf("%s: %s", r.what, s.brief())
		}
	}
}
