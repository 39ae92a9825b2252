package cli_test

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// An HTTP worker and the app that received its heartbeats end at the same moment, with real processes and in real time.
// The test in app/broker covers both in virtual time with one database.

// orphaned is the time within which another app requeues the tasks of the worker, from its last heartbeat.
const orphaned = 65 * time.Second

// contractWorker calls an app like an HTTP worker with only the published API.
type contractWorker struct {
	client
	id string
}

func (w contractWorker) registers() {
	w.t.Helper()
	w.must(http.MethodPost, "/api/worker/register", map[string]any{
		"worker_id": w.id, "task_queue": "q", "supported_workflow_types": []string{"t"},
		"supported_activity_types": []string{"a"}, "capabilities": []string{"worker_sessions"},
	}, nil)
}

func (w contractWorker) beats() {
	w.t.Helper()
	w.must(http.MethodPost, "/api/worker/heartbeat", map[string]any{"worker_id": w.id}, nil)
}

// heldTask is a task from a poll.
type heldTask struct {
	TaskID  string `json:"task_id"`
	RunID   string `json:"run_id"`
	Attempt int    `json:"workflow_task_attempt"`
}

// polls polls for a kind of task until it receives one.
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

// starts starts a run of the workflow that all workers can run.
func (w contractWorker) starts(id string) {
	w.t.Helper()
	w.must(http.MethodPost, "/api/workflows", map[string]any{
		"workflow_id": id, "workflow_type": "t", "task_queue": "q",
	}, nil)
}

// decides completes a workflow task with an activity, in a session or in none, and polls for that activity.
func (w contractWorker) decides(turn heldTask, session string) heldTask {
	w.t.Helper()
	step := map[string]any{"type": "schedule_activity", "activity_type": "a", "queue": "q"}
	if session != "" {
		step["worker_session"] = map[string]any{"session_id": session}
	}
	w.must(http.MethodPost, "/api/worker/workflow-tasks/"+turn.TaskID+"/complete", map[string]any{
		"lease_owner": w.id, "workflow_task_attempt": turn.Attempt, "commands": []any{step},
	}, nil)
	return w.polls("activity")
}

// clearing is the time that the app has to clear a suspect that has run for long enough and to lease the next one.
const clearing = 2 * time.Second

// With default settings a workflow task, an attempt and an attempt in a session, leased for minutes, are dispatched to
// another worker: the first within 65 s of the last heartbeat of the worker that held them. All three are suspects of
// that loss, and a process runs one suspect at a time, so each of the others follows when the previous one has run for
// 10 s.
func TestTasksOfADeadAppAreRedeliveredByAnotherByDefault(t *testing.T) {
	t.Parallel()
	p := byDefault(t, true)
	_, other := p.another("app-2", address(t))
	gone, next := contractWorker{p.client, "gone"}, contractWorker{p.client, "next"}
	next.base = other

	gone.registers()
	had := map[string]string{} // kind of each task, by its ID
	for what, session := range map[string]string{"an attempt": "", "an attempt in a session": "s"} {
		gone.starts(what)
		had[gone.decides(gone.polls("workflow"), session).TaskID] = what
	}
	gone.starts("a turn")
	had[gone.polls("workflow").TaskID] = "a turn"
	gone.beats()
	last := time.Now()
	p.app.kill()

	next.registers()
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, kind := range []string{"activity", "activity", "workflow"} {
		all.Go(func() {
			got := next.polls(kind)
			after := time.Since(last)
			mu.Lock()
			defer mu.Unlock()
			what, known := had[got.TaskID]
			delete(had, got.TaskID)
			t.Logf("%s after %.1f s", what, after.Seconds())
			if !known {
				t.Errorf("the next worker got %+v, which the last one did not have, or once more", got)
			}
			latest := orphaned + time.Duration(3-1-len(had))*(10*time.Second+clearing)
			if after < orphaned-10*time.Second || after > latest {
				t.Errorf("%s was handed on %s after its worker was heard", what, after)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	alive := time.NewTicker(15 * time.Second)
	defer alive.Stop()
	for waits := true; waits; {
		select {
		case <-alive.C:
			next.beats()
		case <-done:
			waits = false
		}
	}
	p.client.base = other
	if v := p.session("s"); owner(v) != "next" {
		t.Errorf("the session is %q's", owner(v))
	}
}
