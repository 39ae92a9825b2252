package apptest_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// unknownOutcomes sends the requests that the published SDK retries if their outcome is unknown, and checks the
// responses with the SDK's own parser.
const unknownOutcomes = `
import sys, httpx
from durable_workflow.retry_policy import _backend_unavailable_refusal
url = open(sys.argv[1]).read().strip()
for path, body in {
    "register": {"worker_id": "w", "task_queue": "q", "runtime": "python"},
    "heartbeat": {"worker_id": "w"},
    "workflow-tasks/poll": {"worker_id": "w", "task_queue": "q", "poll_request_id": "p-1", "timeout_seconds": 1},
    "activity-tasks/poll": {"worker_id": "w", "task_queue": "q", "poll_request_id": "p-2", "timeout_seconds": 1},
    "query-tasks/poll": {"worker_id": "w", "task_queue": "q", "poll_request_id": "p-3", "timeout_seconds": 1},
    "workflow-tasks/01ARZ3NDEKTSV4RRFFQ69G5FAV-1-workflow/heartbeat": {"lease_owner": "w", "workflow_task_attempt": 2},
}.items():
    answer = httpx.post(url + "/api/worker/" + path, json=body, headers={"X-Durable-Workflow-Protocol-Version": "1.20"})
    try:
        answer.raise_for_status()
        print("%s: %d %s" % (path, answer.status_code, answer.text[:300]))
    except httpx.HTTPStatusError as e:
        if _backend_unavailable_refusal(e) != (True, 1):
            print("%s: %d %s" % (path, answer.status_code, answer.text[:600]))
`

// The published Python SDK recognizes the responses of an app whose database is unavailable, and retries.
func TestThePublishedClientKnowsAnOutcomeThatIsNotKnown(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	if err := a.Store().Close(); err != nil {
		t.Fatal(err)
	}
	if text := strings.TrimSpace(ran(t, a.URL(), "-c", unknownOutcomes)); text != "" {
		t.Errorf("not in the form that is retried:\n%s", text)
	}
}
