package apptest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The details of an attempt's last heartbeat reach the next attempt at another app: after a failure, and after the
// attempt was returned. describe shows them, and they are gone when the activity closes.
func TestHeartbeatDetailsReachTheNextAttempt(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		here := register(caller{t, a, "default"}, "here", "")
		there := register(caller{t, b, "default"}, "there", "")
		run := here.start("copy")
		here.decide(here.poll("workflow"), strings.TrimSuffix(step, "}")+`,"retry_policy":{"max_attempts":3}}`)
		task := here.poll("activity")
		if task["last_heartbeat"] != nil {
			t.Errorf("the first attempt: %v", task["last_heartbeat"])
		}
		for _, beat := range []string{`,"details":{"line":16}`, `,"details":{"line":17}`, ``} {
			here.want(200, "POST", stepPath(task, "heartbeat"), here.stepBody(task, beat))
		}
		here.want(200, "POST", stepPath(task, "fail"), here.stepBody(task, `,"failure":{"message":"m"}`))
		received := func(task handTask, details string) {
			t.Helper()
			got, _ := task["last_heartbeat"].(map[string]any)
			var want any
			if err := json.Unmarshal([]byte(details), &want); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got["details"]); d != "" || got["attempt_number"] != task["attempt_number"].(float64)-1 ||
				got["at"] == nil {
				t.Errorf("got %v, details: %s", got, d)
			}
		}
		task = there.poll("activity")
		received(task, `{"line":17}`)
		v, err := a.View().Describe(t.Context(), protocol.Target{WorkflowID: "copy", RunID: run})
		if err != nil {
			t.Fatal(err)
		}
		if h := v.Pending.Activities[0].LastHeartbeat; h == nil || string(h.Details) != `{"line":17}` || h.Attempt != 1 {
			t.Errorf("described: %+v", h)
		}
		there.want(200, "POST", stepPath(task, "heartbeat"), there.stepBody(task, `,"message":"half","current":1,"details":2`))
		// the worker process of the attempt is replaced by another one
		there.want(200, "POST", stepPath(task, "fail"), there.stepBody(task, `,"failure":{"message":"m"}`))
		task = here.poll("activity")
		received(task, `{"message":"half","current":1,"details":2}`)
		here.want(200, "POST", stepPath(task, "complete"), here.stepBody(task, ""))
		if left := rowsOf(a, "tasks", run); strings.Contains(fmt.Sprint(left), "last_heartbeat") {
			t.Errorf("left: %v", left)
		}
	})
}
