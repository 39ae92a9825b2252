package broker_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"weak"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The app stores the tasks of a poll only as IDs. A response with a megabyte of history does not stay in memory; a
// repeated poll reads the history again.
func TestAnAnswerIsKeptForItsRetryWithoutItsPage(t *testing.T) {
	apptest.Databases(t, answerIsKeptWithoutItsPage)
}

func answerIsKeptWithoutItsPage(t *testing.T, database string) {
	a := on(t, database)
	a.register("w")
	none, kinds := int64(0), []protocol.TaskKind{protocol.KindWorkflow}
	poll := func(id string) *protocol.WorkflowTask {
		t.Helper()
		got := must[protocol.PollResponse](t)(a.Poll(
			t.Context(), protocol.PollRequest{WorkerID: "w", Kinds: kinds, Timeout: &none, PollID: id},
		))
		if len(got.Tasks) != 1 {
			t.Fatalf("poll %s: got %+v", id, got)
		}
		return got.Tasks[0].Workflow
	}
	const polls = 4
	argument := fmt.Sprintf(`["%s"]`, strings.Repeat("x", 1<<20))
	answers := make([]weak.Pointer[protocol.WorkflowTask], polls)
	first := make([]string, polls)
	for i := range polls {
		must[protocol.StartResponse](t)(a.Start(t.Context(), protocol.StartRequest{
			WorkflowID: fmt.Sprint("big", i), WorkflowType: "wf", Input: []byte(argument),
		}))
		task := poll(fmt.Sprint("p", i))
		first[i] = fmt.Sprint(task.TaskID, task.Attempt, len(task.Events), len(task.Arguments.Blob))
		if len(task.Arguments.Blob) < 1<<20 {
			t.Fatalf("the page has %d bytes", len(task.Arguments.Blob))
		}
		answers[i] = weak.Make(task)
	}
	runtime.GC()
	for i, p := range answers {
		if p.Value() != nil {
			t.Errorf("the response to poll %d is still in memory, with its page", i)
		}
	}
	for i := range polls {
		task := poll(fmt.Sprint("p", i))
		if second := fmt.Sprint(task.TaskID, task.Attempt, len(task.Events), len(task.Arguments.Blob)); second != first[i] {
			t.Errorf("repeated poll: got %s, want %s", second, first[i])
		}
	}
	task := poll("p0")
	a.taken(a.decide(&protocol.Task{Workflow: task}, done()))
	_, err := a.Poll(t.Context(), protocol.PollRequest{WorkerID: "w", Kinds: kinds, Timeout: &none, PollID: "p0"})
	if protocol.ReasonOf(err) != protocol.ReasonPollExpired {
		t.Errorf("after the completion: %v, want %s", err, protocol.ReasonPollExpired)
	}
}
