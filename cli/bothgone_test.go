package cli_test

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// What a worker of the HTTP contract has, and the app that heard it, end in the same moment, on real processes and real
// time: the case of app/broker has both in virtual time, where there is one database.

// orphaned is within which another app hands on what such a worker had, counted from its last heartbeat.
const orphaned = 65 * time.Second

// contractWorker calls an app as a worker of the HTTP contract.
type contractWorker struct {
	client
	id string
}

func (w contractWorker) registers() {
	w.t.Helper()
	w.must(http.MethodPost, "/api/worker/register", map[string]any{
		"worker_id": w.id, "task_queue": "q", "supported_workflow_types": []string{"t"},
		"supported_activity_types": []string{"a"},
	}, nil)
}

func (w contractWorker) beats() {
	w.t.Helper()
	w.must(http.MethodPost, "/api/worker/heartbeat", map[string]any{"worker_id": w.id}, nil)
}

// heldTask is what a poll brought.
type heldTask struct {
	TaskID  string `json:"task_id"`
	RunID   string `json:"run_id"`
	Attempt int    `json:"workflow_task_attempt"`
}

// polls asks for tasks of a kind until there is one.
func (w contractWorker) polls(kind string) heldTask {
	w.t.Helper()
	for end := time.Now().Add(ceiling); time.Now().Before(end); {
		var answer struct {
			Task *heldTask `json:"task"`
		}
		w.must(http.MethodPost, "/api/worker/"+kind+"-tasks/poll", map[string]any{
			"worker_id": w.id, "task_queue": "q", "timeout_seconds": 30,
		}, &answer)
		if answer.Task != nil {
			return *answer.Task
		}
	}
	w.t.Fatalf("%s gets no task of a %s", w.id, kind)
	return heldTask{}
}

// starts starts a run of the workflow that all of them can do.
func (w contractWorker) starts(id string) {
	w.t.Helper()
	w.must(http.MethodPost, "/api/workflows", map[string]any{
		"workflow_id": id, "workflow_type": "t", "task_queue": "q",
	}, nil)
}

// Nobody set anything. A workflow task and an attempt, leased for minutes, are at another worker within 65 s of the
// last heartbeat of who had them.
func TestWhatEndsWithItsAppIsHandedOnByAnotherByDefault(t *testing.T) {
	t.Parallel()
	p := byDefault(t, true)
	_, other := p.another("app-2", address(t))
	gone, next := contractWorker{p.client, "gone"}, contractWorker{p.client, "next"}
	next.base = other

	gone.registers()
	gone.starts("attempt")
	turn := gone.polls("workflow")
	gone.must(http.MethodPost, "/api/worker/workflow-tasks/"+turn.TaskID+"/complete", map[string]any{
		"lease_owner": gone.id, "workflow_task_attempt": turn.Attempt,
		"commands": []any{map[string]any{"type": "schedule_activity", "activity_type": "a", "queue": "q"}},
	}, nil)
	gone.starts("turn")
	had := map[string]heldTask{"activity": gone.polls("activity"), "workflow": gone.polls("workflow")}
	gone.beats()
	heard := time.Now()
	p.app.kill()

	next.registers()
	var all sync.WaitGroup
	for kind, task := range had {
		all.Go(func() {
			got := next.polls(kind)
			after := time.Since(heard)
			t.Logf("the %s task after %.1f s", kind, after.Seconds())
			if got.TaskID != task.TaskID || got.RunID != task.RunID {
				t.Errorf("the next worker got %+v, the last one had %+v", got, task)
			}
			if after < orphaned-10*time.Second || after > orphaned+slack {
				t.Errorf("the %s task was handed on %s after its worker was heard", kind, after)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	alive := time.NewTicker(15 * time.Second)
	defer alive.Stop()
	for {
		select {
		case <-alive.C:
			next.beats()
		case <-done:
			return
		}
	}
}
