package workerapi_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Above its limit an app rejects polls with an error that published workers know: they wait for the given time, whereas
// other errors would end them or make them poll in a tight loop.
func TestPollsAboveTheLimitAreRejectedWithARetryTime(t *testing.T) {
	entered, leave := make(chan struct{}, 4), make(chan struct{})
	f := &fake{poll: func(_ context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
		if in.Timeout == nil || *in.Timeout > 0 {
			entered <- struct{}{}
			<-leave
		}
		return protocol.PollResponse{Status: protocol.PollEmpty, Tasks: []protocol.Task{}, Undo: func() {}}, nil
	}}
	s := bounded(t, f, 2)
	ended := make(chan int, 2)
	for range 2 {
		go func() {
			ended <- ask(
				t, s, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":60}`, nil,
			).status
		}()
		select {
		case <-entered:
		case <-time.After(time.Minute):
			t.Fatal("the poll does not reach the broker")
		}
	}
	for path, kind := range map[string]string{
		"workflow-tasks": "workflow_task", "activity-tasks": "activity_task", "query-tasks": "query_task",
		"update-validation-tasks": "update_validation_task",
	} {
		got := ask(t, s, "POST", "/api/worker/"+path+"/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":30}`, nil)
		for _, more := range []string{"message", "error", "protocol_version", "server_capabilities"} {
			delete(got.body, more)
		}
		want := map[string]any{
			"reason": "long_poll_capacity_exhausted", "poll_status": "long_poll_capacity_exhausted", "task": nil,
			"task_kind": kind, "task_queue": "q",
			"retryable": true, "retry_after_seconds": 2.0,
		}
		if diff := cmp.Diff(want, got.body); got.status != 429 || diff != "" || got.header.Get("Retry-After") == "" {
			t.Errorf("%s: got %d\n%s", path, got.status, diff)
		}
		if got := ask(
			t, s, "POST", "/api/worker/"+path+"/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":0}`, nil,
		); got.status != 200 {
			t.Errorf("%s, not to be held: got %d %v", path, got.status, got.body)
		}
	}
	if got := ask(t, s, "POST", "/api/worker/tasks/poll", `{"worker_id":"w","queues":["q"]}`, nil); got.status != 429 {
		t.Errorf("of many kinds: got %d %v", got.status, got.body)
	}
	close(leave)
	for range 2 {
		if got := <-ended; got != 200 {
			t.Errorf("a poll that was held: got %d", got)
		}
	}
	if got := ask(
		t, s, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q"}`, nil,
	); got.status != 200 {
		t.Errorf("with room again: got %d %v", got.status, got.body)
	}
}

// One tenant may use all held polls while no other tenant polls. Then another tenant gets its share, and the polls that
// end for it get the status to poll again.
func TestHeldPollsMakeRoomForOtherCallers(t *testing.T) {
	entered, leave := make(chan string, 20), make(chan struct{})
	f := &fake{poll: func(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
		entered <- in.Namespace
		select {
		case <-ctx.Done():
			return protocol.PollResponse{}, ctx.Err()
		case <-leave:
			return protocol.PollResponse{Status: protocol.PollEmpty, Tasks: []protocol.Task{}, Undo: func() {}}, nil
		}
	}}
	s := bounded(t, f, 4)
	ended := map[string]chan int{"a": make(chan int, 20), "b": make(chan int, 20)}
	poll := func(namespace string) {
		ended[namespace] <- ask(t, s, "POST", "/api/worker/workflow-tasks/poll",
			`{"worker_id":"w","task_queue":"q","timeout_seconds":60}`, map[string]string{"X-Namespace": namespace}).status
	}
	next := func(what string, ch <-chan int) int {
		t.Helper()
		select {
		case status := <-ch:
			return status
		case <-time.After(time.Minute):
			t.Fatalf("%s did not happen", what)
			return 0
		}
	}
	for range 4 {
		go poll("a")
		<-entered
	}
	for range 2 {
		go poll("b")
		if got := <-entered; got != "b" {
			t.Fatalf("a poll of %s was let in", got)
		}
		if got := next("the end of a poll of the tenant that holds all", ended["a"]); got != 429 {
			t.Errorf("the poll that made room got %d, want 429", got)
		}
	}
	for namespace := range ended {
		go poll(namespace)
		if got := next("the refusal of one more", ended[namespace]); got != 429 {
			t.Errorf("a third poll of %s: got %d", namespace, got)
		}
	}
	close(leave)
	for namespace := range ended {
		for range 2 {
			if got := next("the end of a held poll", ended[namespace]); got != 200 {
				t.Errorf("a poll of %s that was held: got %d", namespace, got)
			}
		}
	}
}
