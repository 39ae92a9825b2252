package workerapi_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/workerapi"
)

// A route reports all missing members by name before it calls the broker, so an incomplete request never reaches a
// lease check.
func TestMissingMembersAreNamedOnEveryRoute(t *testing.T) {
	f := &fake{}
	s := server(t, f, nil)
	routes := 0
	for _, rt := range workerapi.Routes() {
		if len(rt.Shape.Needs) == 0 {
			continue
		}
		routes++
		path := strings.NewReplacer("{task}", "r-1", "{session}", "s", "{worker}", "w").Replace(rt.Pattern)
		for _, body := range []string{
			`{}`,
			`{"lease_owner":null,"workflow_task_attempt":0,"activity_attempt_id":"","failure":null,"commands":null,"worker_id":""}`,
		} {
			got := ask(t, s, rt.Method, path, body, nil)
			named, _ := got.body["errors"].(map[string]any)
			for _, need := range rt.Shape.Needs {
				name, _, _ := strings.Cut(need, "|")
				if got.status != 422 || named[name] == nil {
					t.Errorf("%s %s: got %d, errors %v, want %s named", rt.Operation, body, got.status, named, name)
				}
			}
			if len(named) != len(rt.Shape.Needs) {
				t.Errorf("%s: errors %v, want those of %v", rt.Operation, named, rt.Shape.Needs)
			}
		}
	}
	if routes < 15 {
		t.Errorf("only %d routes need anything", routes)
	}
	got := ask(t, s, "GET", "/api/worker/activity-tasks/r-1/status", "", nil)
	if named, _ := got.body["errors"].(map[string]any); got.status != 422 || named["lease_owner"] == nil ||
		named["activity_attempt_id"] == nil {
		t.Errorf("the status by GET: got %d %v", got.status, got.body["errors"])
	}
	if calls := f.called(); calls != 0 {
		t.Errorf("the broker was called %d times", calls)
	}
}
