package apptest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
)

// continued starts a workflow that continues as new once, and returns its first run, which is no longer the current
// one.
func continued(t *testing.T, c client, id string) (first string) {
	t.Helper()
	c.want(201, "POST", "/workflows", `{"workflow_id":"`+id+`","workflow_type":"again","task_queue":"again","input":[1]}`)
	c.want(
		201, "POST", "/worker/register",
		`{"worker_id":"again","task_queue":"again","runtime":"test","supported_workflow_types":["again"]}`,
	)
	task, _ := c.want(
		200, "POST", "/worker/workflow-tasks/poll", `{"worker_id":"again","task_queue":"again","timeout_seconds":20}`,
	).body["task"].(map[string]any)
	args, err := json.Marshal(task["arguments"])
	if err != nil {
		t.Fatal(err)
	}
	c.want(200, "POST", fmt.Sprintf("/worker/workflow-tasks/%v/complete", task["task_id"]),
		fmt.Sprintf(
			`{"lease_owner":"again","workflow_task_attempt":1,"commands":[{"type":"continue_as_new","queue":"again","arguments":%s}]}`,
			args,
		))
	return task["run_id"].(string)
}

// W5: the errors of the control plane's requests, with a real broker. No refused request changes a row.
func TestControlVerbsRefuseAndChangeNothing(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) {
			o.NoAuth, o.Token = false, admin
		}})
		c := client{t: t, url: a.URL()}.as(admin)
		populate(t, c)
		old := "/workflows/twice/runs/" + continued(t, c, "twice")
		c.want(202, "POST", "/workflows/open/signal/sig2", `{"request_id":"r1","input":[1]}`)
		c.want(202, "POST", "/workflows/open/update/up", `{"request_id":"u1","input":[1]}`)
		sum := c.want(201, "POST", "/tokens", `{"name":"one","roles":["viewer"]}`).text("id")
		long := strings.Repeat("x", 1001)
		for _, x := range []struct {
			name, method, path, body string
			status                   int
			reason, about            string // about: a member of the response, as NAME=VALUE, or of errors
		}{
			{
				"a cancel of a historical run", "POST", old + "/cancel", `{}`, 409, "historical_run_command_rejected",
				"target_scope=run",
			},
			{
				"a terminate of a historical run", "POST", old + "/terminate", `{}`, 409, "historical_run_command_rejected",
				"target_scope=run",
			},
			{
				"a signal to a historical run", "POST", old + "/signal/s", `{}`, 409, "historical_run_command_rejected",
				"signal_name=s",
			},
			{
				"an update of a historical run", "POST", old + "/update/u", `{}`, 409, "historical_run_command_rejected",
				"update_name=u",
			},
			{
				"a repair of a historical run", "POST", old + "/repair", `{}`, 409, "historical_run_command_rejected",
				"outcome=rejected_not_current",
			},
			{
				"a request for cancellation of a historical run", "POST", old + "/request-cancellation", `{}`, 409,
				"historical_run_command_rejected", "",
			},
			{
				"a cancel of a closed run", "POST", "/workflows/closed/cancel", `{}`, 409, "run_not_active",
				"outcome=rejected_not_active",
			},
			{
				"a terminate of a closed run", "POST", "/workflows/closed/terminate", `{}`, 409, "run_not_active",
				"rejection_reason=run_not_active",
			},
			{
				"a signal to a closed run", "POST", "/workflows/closed/signal/s", `{}`, 409, "run_not_active",
				"command_status=rejected",
			},
			{"an update of a closed run", "POST", "/workflows/closed/update/u", `{}`, 409, "run_not_active", ""},
			{
				"a request for cancellation of a closed run", "POST", "/workflows/closed/request-cancellation", `{}`, 409,
				"run_not_active", "",
			},
			{
				"a request for cancellation that no worker understands", "POST", "/workflows/open/request-cancellation", `{}`, 409,
				"cancellation_not_supported", "",
			},
			{
				"a query that no worker can answer", "POST", "/workflows/open/query/q", `{}`, 409, "query_worker_unavailable",
				"query_name=q",
			},
			{
				"a signal id with another content", "POST", "/workflows/open/signal/sig2", `{"request_id":"r1","input":[2]}`, 409,
				"request_id_conflict", "",
			},
			{
				"a signal id with another name", "POST", "/workflows/open/signal/other", `{"request_id":"r1","input":[1]}`, 409,
				"request_id_conflict", "",
			},
			{
				"an update id with another content", "POST", "/workflows/open/update/up", `{"request_id":"u1","input":[2]}`, 409,
				"request_id_conflict", "",
			},
			{
				"a taken id", "POST", "/workflows", `{"workflow_id":"open","workflow_type":"wf"}`, 409, "duplicate_not_allowed",
				"outcome=rejected_duplicate",
			},
			{
				"a used id", "POST", "/workflows",
				`{"workflow_id":"closed","workflow_type":"wf","duplicate_policy":"use-existing"}`, 409, "duplicate_not_allowed", "",
			},
			{
				"an empty id", "POST", "/workflows", `{"workflow_id":"","workflow_type":"wf"}`, 422, "validation_failed",
				"workflow_id",
			},
			{
				"an alias of a policy", "POST", "/workflows", `{"workflow_type":"wf","duplicate_policy":"use_existing"}`, 422,
				"validation_failed", "duplicate_policy",
			},
			{"no type", "POST", "/workflows", `{}`, 422, "validation_failed", "workflow_type"},
			{
				"an id with a tab", "POST", "/workflows", `{"workflow_id":"a\tb","workflow_type":"wf"}`, 422, "validation_failed",
				"workflow_id",
			},
			{
				"an id that is too long", "POST", "/workflows", `{"workflow_id":"` + long[:256] + `","workflow_type":"wf"}`, 422,
				"validation_failed", "workflow_id",
			},
			{
				"another namespace in the body", "POST", "/workflows", `{"namespace":"ns1","workflow_type":"wf"}`, 422,
				"validation_failed", "namespace",
			},
			{
				"a codec there is not", "POST", "/workflows", `{"workflow_type":"wf","input":{"codec":"json","blob":"e30="}}`, 422,
				"unsupported_payload_codec", "",
			},
			{
				"a codec by name", "POST", "/workflows", `{"workflow_type":"wf","payload_codec":"json"}`, 422,
				"unsupported_payload_codec", "",
			},
			{
				"a blob that is none", "POST", "/workflows", `{"workflow_type":"wf","input":{"codec":"avro","blob":"AAAA"}}`, 422,
				"validation_failed", "input",
			},
			{
				"input that is no list and no envelope", "POST", "/workflows", `{"workflow_type":"wf","input":{"a":1}}`, 422,
				"unsupported_payload_codec", "",
			},
			{
				"a timeout below one second", "POST", "/workflows", `{"workflow_type":"wf","run_timeout_seconds":-1}`, 422,
				"validation_failed", "run_timeout_seconds",
			},
			{
				"a priority out of range", "POST", "/workflows", `{"workflow_type":"wf","priority":10}`, 422, "validation_failed",
				"priority",
			},
			{
				"a member of another system", "POST", "/workflows", `{"workflow_type":"wf","retry_policy":{}}`, 422,
				"validation_failed", "retry_policy",
			},
			{
				"a reason that is too long", "POST", "/workflows/open/cancel", `{"reason":"` + long + `"}`, 422,
				"validation_failed", "reason",
			},
			{
				"a wait for something else", "POST", "/workflows/open/update/up", `{"wait_for":"applied"}`, 422,
				"validation_failed", "wait_for",
			},
			{
				"an unknown workflow", "POST", "/workflows/none/cancel", `{}`, 404, "instance_not_found",
				"outcome=rejected_not_started",
			},
			{"an unknown run", "POST", "/workflows/open/runs/none/cancel", `{}`, 404, "run_not_found", "run_id=none"},
			{"a run of another workflow", "GET", strings.Replace(old, "twice", "open", 1), ``, 404, "run_not_found", ""},
			{"an unknown run by its id", "GET", "/runs/none", ``, 404, "run_not_found", ""},
			{"a page token of nobody: runs", "GET", "/workflows?next_page_token=x", ``, 400, "invalid_page_token", ""},
			{"a page token of nobody: history", "GET", old + "/history?next_page_token=x", ``, 400, "invalid_page_token", ""},
			{"a page token of nobody: sessions", "GET", "/worker-sessions?next_page_token=x", ``, 400, "invalid_page_token", ""},
			{"a page of none", "GET", "/workflows?page_size=0", ``, 422, "validation_failed", "page_size"},
			{"a page of too many events", "GET", old + "/history?page_size=1001", ``, 422, "validation_failed", "page_size"},
			{
				"a flag that is none", "GET", old + "/history?wait_new_event=perhaps", ``, 422, "validation_failed",
				"wait_new_event",
			},
			{"an unknown worker", "GET", "/workers/none", ``, 404, "worker_not_found", ""},
			{"an unknown worker's registration", "DELETE", "/workers/none", ``, 404, "worker_not_found", ""},
			{"an unknown session", "GET", "/worker-sessions/none", ``, 404, "worker_session_not_found", ""},
			{
				"the close of an unknown session", "POST", "/worker-sessions/none/close", `{}`, 404, "worker_session_not_found", "",
			},
			{
				"the move of an unknown session", "POST", "/worker-sessions/none/migrate", `{}`, 404, "worker_session_not_found",
				"",
			},
			{
				"a move to an unknown worker", "POST", "/worker-sessions/sn1/migrate", `{"worker_id":"none"}`, 404,
				"worker_not_found", "",
			},
			{"a taken namespace", "POST", "/namespaces", `{"name":"ns1"}`, 409, "namespace_already_exists", ""},
			{"a name that is none", "POST", "/namespaces", `{"name":"No Name"}`, 422, "validation_failed", "name"},
			{
				"a retention of a year and a day", "POST", "/namespaces", `{"name":"ns2","retention_days":366}`, 422,
				"validation_failed", "retention_days",
			},
			{"an unknown namespace", "GET", "/namespaces/none", ``, 404, "namespace_not_found", ""},
			{"a change of an unknown namespace", "PUT", "/namespaces/none", `{}`, 404, "namespace_not_found", ""},
			{"the removal of an unknown namespace", "DELETE", "/namespaces/none", ``, 404, "namespace_not_found", ""},
			{"the removal of the built-in namespace", "DELETE", "/namespaces/default", ``, 409, "namespace_built_in", ""},
			{
				"a taken schedule", "POST", "/schedules",
				`{"schedule_id":"s1","spec":{"cron_expressions":["@daily"]},"action":{"workflow_type":"wf"}}`, 409,
				"schedule_already_exists", "",
			},
			{
				"a schedule that never fires", "POST", "/schedules", `{"spec":{},"action":{"workflow_type":"wf"}}`, 422,
				"validation_failed", "",
			},
			{
				"a cron expression that is none", "POST", "/schedules",
				`{"spec":{"cron_expressions":["often"]},"action":{"workflow_type":"wf"}}`, 422, "validation_failed", "",
			},
			{
				"a time zone there is not", "POST", "/schedules",
				`{"spec":{"cron_expressions":["@daily"],"timezone":"Mars/Olympus"},"action":{"workflow_type":"wf"}}`, 422,
				"validation_failed", "",
			},
			{
				"an overlap there is not", "POST", "/schedules",
				`{"spec":{"cron_expressions":["@daily"]},"action":{"workflow_type":"wf"},"overlap_policy":"both"}`, 422,
				"validation_failed", "overlap_policy",
			},
			{"an unknown schedule", "GET", "/schedules/none", ``, 404, "schedule_not_found", ""},
			{"a pause of an unknown schedule", "POST", "/schedules/none/pause", `{}`, 404, "schedule_not_found", ""},
			{"a trigger of an unknown schedule", "POST", "/schedules/none/trigger", `{}`, 404, "schedule_not_found", ""},
			{"a backfill without times", "POST", "/schedules/s1/backfill", `{}`, 422, "validation_failed", "start_time"},
			{"a system attribute", "POST", "/search-attributes", `{"name":"RunId","type":"keyword"}`, 409, "name_reserved", ""},
			{
				"an attribute of no type", "POST", "/search-attributes", `{"name":"Colour","type":"colour"}`, 422,
				"validation_failed", "type",
			},
			{"an unknown attribute", "DELETE", "/search-attributes/Colour", ``, 404, "attribute_not_found", ""},
			{"a token without roles", "POST", "/tokens", `{"name":"n"}`, 422, "validation_failed", "roles"},
			{
				"a token bound by a misspelled member", "POST", "/tokens", `{"name":"n","roles":["worker"],"task_queues":["q"]}`, 422,
				"validation_failed", "task_queues",
			},
			{"a token of no role", "POST", "/tokens", `{"name":"n","roles":["king"]}`, 422, "validation_failed", "roles.0"},
			{"an unknown token", "DELETE", "/tokens/none", ``, 404, "token_not_found", ""},
			{
				"a flag of a removal that is none", "DELETE", "/tokens/" + sum + "?forget=perhaps", ``, 422, "validation_failed",
				"forget",
			},
			{"an audit of too many", "GET", "/audit?limit=1001", ``, 422, "validation_failed", "limit"},
		} {
			t.Run(x.name, func(t *testing.T) {
				c.t = t
				before := a.Dump()
				got := c.call(x.method, x.path, x.body)
				if got.status != x.status || got.text("reason") != x.reason {
					t.Errorf("got %d %.400s, want %d %s", got.status, got.raw, x.status, x.reason)
				}
				if name, value, ok := strings.Cut(x.about, "="); ok && got.text(name) != value {
					t.Errorf("got %s %q, want %q: %.400s", name, got.text(name), value, got.raw)
				} else if fields, _ := got.body["errors"].(map[string]any); !ok && x.about != "" && fields[x.about] == nil {
					t.Errorf("nothing is said of %s: %.400s", x.about, got.raw)
				}
				sameRows(t, before, a.Dump())
			})
		}
		c.t = t
		// A failed sign-in is recorded for the operator, and changes nothing else.
		before := a.Dump()
		c.want(401, "POST", "/sojourn/login", `{"token":"sjn_wrong"}`)
		after := a.Dump()
		if len(after["audit"]) != len(before["audit"])+1 {
			t.Errorf("a failed sign-in left %d audit entries", len(after["audit"])-len(before["audit"]))
		}
		if diff := before.Diff(after, "audit", "workers"); diff != "" {
			t.Errorf("a failed sign-in changed what is stored:\n%s", diff)
		}
	})
}
