package apptest_test

import (
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// Also over HTTP, an invalid eager workflow task does not affect the activity result that it was sent with.
func TestInvalidEagerTaskKeepsItsResult(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	w := register(caller{t, a, ""}, "w", `,"incarnation":"w1"`)
	for i, then := range []string{
		`"nonsense"`, `7`, `[]`, `null`, `{}`, `{"seen_through":"many"}`, `{"seen_through":2,"commands":[7]}`,
		`{"seen_through":2,"commands":[{"type":7}]}`, `{"seen_through":2,"time":"soon"}`,
		`{"seen_through":2,"time":"2026-01-01T00:00:00Z","commands":[{"type":"launch_rocket"}]}`,
		`{"seen_through":2,"time":"2999-01-01T00:00:00Z","commands":[` + finish + `]}`,
	} {
		run := w.start(fmt.Sprintf("then-%d", i))
		w.decide(w.poll("workflow"), step)
		act := w.poll("activity")
		s := w.want(200, "POST", "/api/worker/tasks/complete", fmt.Sprintf(`{"items":[{"task_id":%q,"lease_owner":"w",
			"incarnation":"w1","activity_attempt_id":%q,"then":%s}],"next":{"worker_id":"w","incarnation":"w1","timeout_seconds":0}}`,
			act.text("task_id"), act.text("activity_attempt_id"), then,
		))
		item := s.body["items"].([]any)[0].(map[string]any)
		if item["outcome"] != "completed" || item["recorded"] != true || item["then"] != nil || item["run_id"] != run {
			t.Errorf("%s: %s", then, s.raw)
		}
		// a plain workflow task was created and leased by the next poll of the same call
		tasks := s.body["next"].(map[string]any)["tasks"].([]any)
		if len(tasks) != 1 {
			t.Fatalf("%s: %s", then, s.raw)
		}
		w.decide(handTask(tasks[0].(map[string]any)["workflow"].(map[string]any)), finish)
	}
}
