package apptest_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
)

// pollWith polls with further members of the body and returns the whole response.
func (h hand) pollWith(kind, more string) response {
	h.t.Helper()
	return h.ask(
		"POST", "/api/worker/"+kind+"-tasks/poll", `{"worker_id":"`+h.id+`","task_queue":"`+handQueue+`"`+more+`}`,
	)
}

// waiting waits until that many polls are held.
func waiting(t *testing.T, a *apptest.App, n int) {
	t.Helper()
	until(t, "polls to be held", func() bool { return a.Broker().Dispatch().Counts().Waiting == n })
}

// The drain or deregistration of a worker, or its removal by an operator, at one app ends the held polls of the worker
// at every app although no task is ready. Other workers do not receive the worker's running task before it ends.
func TestDrainOfAWorkerEndsItsOpenPolls(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		here, there := caller{t, a, ""}, caller{t, b, ""}
		register(here, "w", "")
		w, other := hand{there, "w"}, register(there, "other", "")
		ended := func(status int, reason, method, path, body string) {
			t.Helper()
			answers := make(chan response, 3)
			for _, kind := range []string{"workflow", "activity", "query"} {
				go func() { answers <- w.pollWith(kind, `,"timeout_seconds":8`) }()
			}
			waiting(t, b, 3)
			here.want(200, method, path, body)
			for range 3 {
				if s := <-answers; s.status != status || s.text("reason") != reason || s.body["task"] != nil {
					t.Errorf("%s: a poll that it had open: %d %.300s", path, s.status, s.raw)
				}
			}
			if s := w.pollWith("workflow", `,"timeout_seconds":60`); s.status != status || s.text("reason") != reason {
				t.Errorf("%s: a poll afterwards: %d %.300s", path, s.status, s.raw)
			}
			there.start("after " + path)
			other.decide(other.poll("workflow"), finish)
		}
		ended(409, "worker_draining", "POST", "/api/worker/heartbeat", `{"worker_id":"w","draining":true}`)
		here.want(200, "POST", "/api/worker/heartbeat", `{"worker_id":"w"}`)
		there.start("again")
		w.decide(w.poll("workflow"), finish)
		ended(412, "worker_not_registered", "DELETE", "/api/worker/registrations/w", "")
		register(here, "w", "")
		there.start("runs")
		task := w.poll("workflow")
		ended(412, "worker_not_registered", "DELETE", "/api/workers/w", "")
		other.empty("workflow")
		w.decide(task, finish)
	})
}

// If the response to a poll is lost and the app restarts, the repeated poll receives the same task, because the stored
// lease contains the ID of the poll.
func TestAPollIsRepeatedAfterTheAppRestarted(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		w := register(caller{t, a, ""}, "w", "")
		w.start("restart-1")
		first := taskOf(t, w.pollWith("workflow", `,"poll_request_id":"flow-poll"`))
		w.decide(first, step, inSession("s"))
		acts := map[string]handTask{}
		for _, id := range []string{"act-poll-1", "act-poll-2"} {
			acts[id] = taskOf(t, w.pollWith("activity", `,"poll_request_id":"`+id+`"`))
		}
		w.start("restart-2")
		second := taskOf(t, w.pollWith("workflow", `,"poll_request_id":"second"`))
		a.Stop()

		a = apptest.Start(t, apptest.Options{Database: database})
		w.app = a
		if redelivered := taskOf(
			t, w.pollWith("workflow", `,"poll_request_id":"second","timeout_seconds":0`),
		); redelivered.text("task_id") != second.text("task_id") ||
			redelivered.number("workflow_task_attempt") != 1 {
			t.Errorf("the workflow task's poll: %v", redelivered)
		}
		for id, act := range acts {
			for range 2 { // the second response comes from memory
				redelivered := taskOf(t, w.pollWith("activity", `,"poll_request_id":"`+id+`","timeout_seconds":0`))
				if redelivered.text("activity_attempt_id") != act.text("activity_attempt_id") ||
					redelivered.text("lease_expires_at") != act.text("lease_expires_at") {
					t.Errorf("the activity's poll: %v, first %v", redelivered, act)
				}
				if s, ok := act["worker_session"].(map[string]any); ok &&
					redelivered["worker_session"].(map[string]any)["epoch"] != s["epoch"] {
					t.Errorf("its session: %v, first %v", redelivered, act)
				}
			}
			w.want(200, "POST", stepPath(act, "complete"), w.stepBody(act, ""))
		}
		w.decide(second, finish)
		w.decide(w.poll("workflow"), finish)
		w.empty("workflow")
		if s := w.pollWith("activity", `,"poll_request_id":"act-poll-1","timeout_seconds":0`); s.body["task"] != nil {
			t.Errorf("the poll of a task that is done: %s", s.raw)
		}
	})
}

// A poll whose connection broke leases no task: another worker receives the task, and it costs no attempt.
func TestAPollWhoseConnectionDiedIsUndone(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, ""}
	dead, alive := register(c, "dead", ""), register(c, "alive", "")
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "POST", a.URL()+"/api/worker/workflow-tasks/poll",
			strings.NewReader(
				`{"worker_id":"`+dead.id+`","task_queue":"`+handQueue+`","timeout_seconds":60,"poll_request_id":"p"}`,
			))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(workerapi.VersionHeader, "1.20")
		gone := make(chan error, 1)
		go func() {
			res, err := http.DefaultClient.Do(r)
			if err == nil {
				res.Body.Close()
			}
			gone <- err
		}()
		waiting(t, a, 1)
		cancel()
		if err := <-gone; err == nil {
			t.Fatal("the poll was answered")
		}
		id := "dead-" + time.Now().Format("150405.000000000")
		c.start(id) // the poll whose end the app has not noticed yet may receive it, and then the app requeues it
		task := alive.poll("workflow")
		if task.text("workflow_id") != id {
			t.Fatalf("a task of %s, want %s", task.text("workflow_id"), id)
		}
		alive.decide(task, finish)
	}
}
