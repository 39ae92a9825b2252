package apptest_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// A list says what each open run waits for, when it is asked to: reading what is open in every run costs more than the list itself.
func TestAListSaysWhatEachOpenRunWaitsFor(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		c.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"q","runtime":"go","supported_workflow_types":["t"]}`)
		c.want(201, "POST", "/api/workflows", `{"workflow_id":"signal","workflow_type":"t","task_queue":"q"}`)
		task := c.want(200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":30}`).body["task"].(map[string]any)
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
		for id, want := range map[string]string{"signal": "waits for signal go", "nobody": "no live worker serves queue elsewhere", "closed": ""} {
			if said, listed := got[id]; !listed || want == "" && said != "" || !strings.Contains(said, want) {
				t.Errorf("%s: %q, want %q", id, said, want)
			}
		}
		for id, said := range reasons("/api/workflows") {
			if said != "" {
				t.Errorf("%s says %q though nobody asked", id, said)
			}
		}
	})
}
