package workerapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/workerapi"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A write that may have been committed is never reported as rejected: it reports an unknown outcome in the form that
// makes clients retry.
func TestWriteWithAnUnknownOutcomeIsNotRejected(t *testing.T) {
	const ids = `"worker_id":"w","task_queue":"q","lease_owner":"w","workflow_task_attempt":7,"activity_attempt_id":"x-1","query_task_attempt":3,"update_validation_attempt":1,` +
		`"poll_request_id":"p-1","session_id":"x","timeout_seconds":0,"commands":[],"failure":{"message":"m"},"result":null`
	words := map[string]string{
		"register": "register_worker", "worker_heartbeat": "heartbeat_worker", "deregister": "deregister_worker",
	}
	for _, cause := range []error{store.ErrUnavailable, store.ErrClosed, context.DeadlineExceeded} {
		s := server(t, &fake{err: cause}, nil)
		for _, rt := range workerapi.Routes() {
			if rt.Operation == "describe_protocol" || rt.Operation == "worker_settings" {
				continue // these routes do not call the broker
			}
			body := "{" + ids + "}"
			batch := rt.Operation == "complete_tasks" || rt.Operation == "record_logs"
			if batch {
				body = sample(rt)
			}
			if rt.Operation == "worker_heartbeat" { // the request names no queue
				body = `{"worker_id":"w"}`
			}
			path := concrete(rt.Pattern)
			if rt.Method == http.MethodGet || rt.Method == http.MethodDelete {
				body, path = "", path+"?worker_id=w&lease_owner=w&workflow_task_attempt=7&activity_attempt_id=x-1"
			}
			got := ask(t, s, rt.Method, path, body, nil)
			wantEnvelope(t, rt.Operation, got)
			if got.status != 503 || got.text("reason") != "backend_unavailable" || got.body["retryable"] != true ||
				got.body["retry_after_seconds"] != 1.0 ||
				got.header.Get("Retry-After") == "" {
				t.Errorf("%s, %v: got %d %v", rt.Operation, cause, got.status, got.body)
				continue
			}
			if rt.Method == http.MethodGet { // it changes nothing, so its outcome is irrelevant
				continue
			}
			want := map[string]any{"outcome": "unknown", "operation": rt.Operation, "worker_id": "w", "task_queue": "q"}
			if word := words[rt.Operation]; word != "" {
				want["operation"] = word
			}
			switch {
			case rt.Operation == "worker_heartbeat":
				want["task_queue"] = nil
			case strings.Contains(rt.Pattern, "{worker}"):
				want["worker_id"], want["task_queue"] = "x", nil
			case strings.Contains(rt.Pattern, "{task}"):
				want["task_queue"], want["lease_owner"] = nil, "w"
				switch {
				case strings.Contains(rt.Pattern, "/workflow-tasks/"):
					want["task_id"], want["workflow_task_attempt"] = "x", 7.0
				case strings.Contains(rt.Pattern, "/activity-tasks/"):
					want["task_id"], want["activity_attempt_id"] = "x", "x-1"
				case strings.Contains(rt.Pattern, "/query-tasks/"):
					want["query_task_id"], want["query_task_attempt"] = "x", 3.0
				}
			case strings.HasSuffix(rt.Pattern, "/poll"):
				want["task"], want["poll_status"], want["poll_request_id"], want["retry_same_poll_request_id"] = nil,
					"backend_unavailable", "p-1", true
			case strings.Contains(rt.Pattern, "/sessions"), batch:
				delete(want, "task_queue")
				if batch {
					delete(want, "worker_id")
				}
			}
			for name, v := range want {
				if value, there := got.body[name]; !there || value != v {
					t.Errorf("%s, %v: %s is %v, want %v", rt.Operation, cause, name, value, v)
				}
			}
			for name, v := range got.body {
				if v == false || v == "rejected" {
					t.Errorf("%s, %v: %s is %v, of what may be done later", rt.Operation, cause, name, v)
				}
			}
		}
	}
}

// The outcome of one item may be unknown while the other items are stored.
func TestAnOutcomeOfABatchThatIsNotKnownIsNotRejected(t *testing.T) {
	s := server(t, &fake{complete: protocol.CompleteResponse{Err: store.ErrUnavailable}}, nil)
	got := ask(t, s, "POST", "/api/worker/tasks/complete", `{"items":[{"task_id":"t"}]}`, nil)
	items, _ := got.body["items"].([]any)
	if got.status != 200 || len(items) != 1 {
		t.Fatalf("got %d %v", got.status, got.body)
	}
	item := items[0].(map[string]any)
	e, _ := item["error"].(map[string]any)
	if item["outcome"] != "unknown" || e["reason"] != "backend_unavailable" {
		t.Errorf("got %v", item)
	}
}

// An app without its database identifies the request in the error even if it has not read the body: clients retry only
// after such an error.
func TestARequestThatWasNotReadYetIsNamed(t *testing.T) {
	s := serverWith(t, workerapi.Options{Verbs: &fake{}, HasNamespace: func(context.Context, string) error {
		return store.ErrUnavailable
	}})
	got := ask(
		t, s, "POST", "/api/worker/workflow-tasks/r-1-workflow/complete",
		`{"lease_owner":"w","workflow_task_attempt":2,"commands":[]}`, nil,
	)
	if got.status != 503 || got.text("worker_id") != "w" || got.text("task_id") != "r-1-workflow" ||
		got.body["workflow_task_attempt"] != 2.0 ||
		got.text("lease_owner") != "w" || got.text("outcome") != "unknown" {
		t.Errorf("got %d %v", got.status, got.body)
	}
}
