package apptest_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// A wait has members for its reason, its subjects, its end, and whether an operator must act.
func TestAWaitIsData(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		const register = `{"worker_id":"%s","task_queue":"q","runtime":"go","supported_workflow_types":["t"],"supported_activity_types":["a"],` +
			`"capabilities":["worker_sessions"],"max_concurrent_worker_sessions":1}`
		c.want(201, "POST", "/api/worker/register", fmt.Sprintf(register, "w"))
		of := func(path, member string) map[string]any {
			t.Helper()
			v := c.want(200, "GET", path, "").body
			if member != "" {
				v, _ = v[member].(map[string]any)
			}
			w, _ := v["wait"].(map[string]any)
			if w == nil {
				t.Fatalf("%s has no wait: %v", path, v)
			}
			return w
		}
		is := func(w map[string]any, want map[string]any) {
			t.Helper()
			for name, value := range want {
				if !reflect.DeepEqual(w[name], value) {
					t.Errorf("%s is %v, want %v: %v", name, w[name], value, w)
				}
			}
		}
		begin := func(id, more, commands string) {
			t.Helper()
			c.want(201, "POST", "/api/workflows", `{"workflow_id":"`+id+`","workflow_type":"t","task_queue":"q"`+more+`}`)
			if commands == "" {
				return
			}
			task := c.want(
				200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":30}`,
			).body["task"].(map[string]any)
			c.want(200, "POST", "/api/worker/workflow-tasks/"+task["task_id"].(string)+"/complete",
				`{"lease_owner":"w","workflow_task_attempt":1,"commands":[`+commands+`]}`)
		}
		begin("later", `,"start_delay_seconds":3600`, "")
		later := of("/api/workflows/later", "")
		at, err := time.Parse(time.RFC3339, fmt.Sprint(later["until"]))
		if is(later, map[string]any{"reason": "start_delay", "needs_attention": false}); err != nil ||
			time.Until(at) < 50*time.Minute {
			t.Errorf("it starts at %v", later["until"])
		}
		begin("gpu", "", `{"type":"schedule_activity","activity_type":"a","requirements":["gpu"]}`)
		is(
			of("/api/workflows/gpu", ""),
			map[string]any{
				"reason": "capability_missing", "missing": []any{"gpu"}, "worker_id": "w", "needs_attention": true,
				"kind": "activity",
			},
		)
		c.want(
			201, "POST", "/api/worker/sessions", `{"worker_id":"w","session_id":"s","ttl_seconds":6000,"lease_seconds":6000}`,
		)
		begin("cap", "", `{"type":"schedule_activity","activity_type":"a","session_id":"other"}`)
		is(of("/api/workflows/cap", ""), map[string]any{"reason": "worker_sessions_full", "limit": 1.0, "worker_id": "w"})
		is(of("/api/worker-sessions/other", "session"), map[string]any{"reason": "worker_sessions_full", "limit": 1.0})
		begin("held", "", `{"type":"schedule_activity","activity_type":"a","session_id":"s"}`)
		is(
			of("/api/workflows/held", ""),
			map[string]any{"reason": "session_holder_busy", "session_id": "s", "worker_id": "w", "needs_attention": false},
		)
		is(of("/api/worker-sessions/s", "session"), map[string]any{"reason": "session_holder_busy"})
		c.want(
			200, "PUT", "/api/task-queues/q/limits", `{"activity_tasks":{"max_dispatches_per_minute":1,"max_active_leases":1}}`,
		)
		c.want(200, "POST", "/api/worker/activity-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":30}`)
		is(
			of("/api/workflows/gpu", ""),
			map[string]any{"reason": "budget_leases", "limit": 1.0, "used": 1.0, "task_queue": "q", "needs_attention": false},
		)
		for _, v := range c.want(200, "GET", "/api/workflows?wait_reasons=true", "").body["workflows"].([]any) {
			run := v.(map[string]any)
			if w := run["wait"].(map[string]any); w["message"] != run["wait_reason"] || w["kind"] != run["wait_kind"] {
				t.Errorf("%v says %v in words and %v to programs", run["workflow_id"], run["wait_reason"], w)
			}
		}
	})
}

// A list has the waits of open runs only on request: reading the open steps of every run costs more than the list.
func TestListShowsWaitReasonsOfOpenRuns(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		c.want(
			201, "POST", "/api/worker/register",
			`{"worker_id":"w","task_queue":"q","runtime":"go","supported_workflow_types":["t"]}`,
		)
		c.want(201, "POST", "/api/workflows", `{"workflow_id":"signal","workflow_type":"t","task_queue":"q"}`)
		task := c.want(
			200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":30}`,
		).body["task"].(map[string]any)
		c.want(200, "POST", "/api/worker/workflow-tasks/"+task["task_id"].(string)+"/complete",
			`{"lease_owner":"w","workflow_task_attempt":1,"commands":[{"type":"open_signal_wait","signal_name":"go"}]}`)
		c.want(201, "POST", "/api/workflows", `{"workflow_id":"nobody","workflow_type":"t","task_queue":"elsewhere"}`)
		c.want(201, "POST", "/api/workflows", `{"workflow_id":"closed","workflow_type":"t","task_queue":"q"}`)
		c.want(200, "POST", "/api/workflows/closed/terminate", `{}`)
		reasons := func(path string) map[string]string {
			got := map[string]string{}
			for _, w := range c.want(200, "GET", path, "").body["workflows"].([]any) {
				v := w.(map[string]any)
				got[v["workflow_id"].(string)], _ = v["wait_reason"].(string)
			}
			return got
		}
		got := reasons("/api/workflows?wait_reasons=true")
		for id, want := range map[string]string{
			"signal": `waiting for signal "go"`, "nobody": `no live worker is polling queue "elsewhere"`, "closed": "",
		} {
			if reason, listed := got[id]; !listed || want == "" && reason != "" || !strings.Contains(reason, want) {
				t.Errorf("%s: %q, want %q", id, reason, want)
			}
		}
		for id, reason := range reasons("/api/workflows") {
			if reason != "" {
				t.Errorf("%s has the reason %q although no request caused it", id, reason)
			}
		}
	})
}
