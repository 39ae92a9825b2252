package apptest_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/storetest"
)

// behind starts an app whose connections to PostgreSQL go through a gate, and another on the same database without it.
func behind(t *testing.T) (*storetest.Gate, *apptest.App, *apptest.App) {
	t.Helper()
	database := apptest.Postgres(t)
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	gate := storetest.NewGate(t, u.Host)
	u.Host = gate.Addr()
	a := apptest.Start(t, apptest.Options{Database: u.String()})
	t.Cleanup(gate.Open)
	return gate, a, apptest.Start(t, apptest.Options{Database: database})
}

// loses makes a request whose transaction commits, but whose commit response is lost together with the database
// connection. The call returns 503 with an unknown outcome.
func (c caller) loses(gate *storetest.Gate, at, method, path, body string) response {
	c.t.Helper()
	lost := gate.LoseCommit(at)
	s := c.want(503, method, path, body)
	select {
	case <-lost:
	case <-time.After(time.Minute):
		c.t.Fatalf("%s %s: no transaction with %s", method, path, at)
	}
	gate.Open()
	if !strings.HasSuffix(s.text("reason"), "_unavailable") || s.text("outcome") != "unknown" ||
		s.body["retryable"] != true || s.body["recorded"] != nil {
		c.t.Errorf("%s %s: %s", method, path, s.brief())
	}
	return s
}

// asks repeats a call until the database is available: the app detects broken connections one by one.
func (c caller) asks(status int, method, path, body string) response {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		if s := c.ask(method, path, body); s.status == status || s.status != 503 || time.Now().After(end) {
			if s.status != status {
				c.t.Fatalf("%s %s: %d, want %d: %s", method, path, s.status, status, s.brief())
			}
			return s
		}
	}
}

// If the database fails during a commit, the outcome is unknown, and the response reports this. A repetition at the
// same or another app determines the outcome: nothing is done twice, and no task stays leased to a worker that does not
// know of it.
func TestRetryFindsACommitWhoseResponseIsLost(t *testing.T) {
	t.Parallel()
	gate, a, b := behind(t)
	here := register(caller{t, a, ""}, "w", "")
	for name, x := range map[string]hand{"same": here, "other": {caller{t, b, ""}, "w"}} {
		id := "lost-" + name
		begin := `{"workflow_id":"` + id + `","workflow_type":"flow","task_queue":"` + handQueue + `"}`
		if s := here.loses(gate, "INSERT INTO events", "POST", "/api/workflows", begin); s.text("workflow_id") != id ||
			s.text("command_status") != "unknown" {
			t.Errorf("a start: %s", s.brief())
		}
		if s := x.asks(409, "POST", "/api/workflows", begin); s.text("reason") != "duplicate_not_allowed" {
			t.Errorf("the start again: %s", s.brief())
		}
		poll := func(kind string) handTask {
			t.Helper()
			path, body := "/api/worker/"+kind+"-tasks/poll",
				`{"worker_id":"w","task_queue":"`+handQueue+`","poll_request_id":"`+name+`","timeout_seconds":30}`
			s := here.loses(gate, "SKIP LOCKED", "POST", path, body)
			if s.text("poll_status") != "backend_unavailable" || s.text("poll_request_id") != name ||
				s.body["retry_same_poll_request_id"] != true {
				t.Errorf("a poll: %s", s.brief())
			}
			return taskOf(t, x.asks(200, "POST", path, body))
		}
		complete := func(path, body string) {
			t.Helper()
			here.loses(gate, "INSERT INTO events", "POST", path, body)
			if s := x.asks(200, "POST", path, body); s.body["recorded"] != false || s.text("reason") != "already_completed" {
				t.Errorf("%s again: %s", path, s.brief())
			}
		}
		flow := poll("workflow")
		complete(flowPath(flow, "complete"), here.flowBody(flow, `,"commands":[`+step+`]`))
		act := poll("activity")
		if flow.number("workflow_task_attempt") != 1 || act.number("attempt_number") != 1 {
			t.Errorf("a task was leased more than once: %v, %v", flow, act)
		}
		complete(stepPath(act, "complete"), here.stepBody(act, `,"result":`+envelope(t, `{"n":1}`)))
		here.decide(here.poll("workflow"), finish)
		remove := "/api/workflows/" + id + "/runs/" + flow.text("run_id")
		here.loses(gate, "DELETE FROM runs", "DELETE", remove, "")
		x.asks(404, "DELETE", remove, "")
		if rows := mentions(b, flow.text("run_id")); len(rows) != 0 {
			t.Errorf("rows left by a deletion whose commit response was lost: %v", rows)
		}
	}
}

// The same for commands: at both apps the repetition gets the stored receipt, also if the command closed the run. The
// same ID with other arguments is refused.
func TestARepeatedCommandFindsACommitWhoseResponseIsLost(t *testing.T) {
	t.Parallel()
	gate, a, b := behind(t)
	here, there := register(caller{t, a, ""}, "w", ""), caller{t, b, ""}
	run := here.start("order")
	here.decide(here.poll("workflow"), waitForGo)
	for _, c := range []struct {
		path, body, other, event string
		status                   int
	}{
		{"signal/note", `{"input":[1],"request_id":"r1"}`, `{"input":[2],"request_id":"r1"}`, "SignalReceived", 202},
		{"terminate", `{"request_id":"r2"}`, `{"reason":"other","request_id":"r2"}`, "WorkflowTerminated", 200},
	} {
		path := "/api/workflows/order/" + c.path
		here.loses(gate, "INSERT INTO events", "POST", path, c.body)
		first := there.asks(c.status, "POST", path, c.body)
		again := here.asks(c.status, "POST", path, c.body)
		if first.body["retained"] != true || again.raw != first.raw {
			t.Errorf("%s at the other app %s, at the same app %s", c.path, first.raw, again.raw)
		}
		there.asks(409, "POST", path, c.other)
		types, n := there.typesOf("order", run), 0
		for _, is := range types {
			if is == c.event {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s: %d events %s in %v, want 1", c.path, n, c.event, types)
		}
	}
}

// The same for the outcome of an awakeable: the repetition gets the response to the first request.
func TestRetryFindsTheOutcomeOfAnAwakeableWhoseCommitResponseIsLost(t *testing.T) {
	t.Parallel()
	gate, a, b := behind(t)
	here, there := caller{t, a, "default"}, caller{t, b, "default"}
	w := withAwakeables(here)
	run := here.start("flow")
	w.decide(w.poll("workflow"), openAwakeable, openAwakeable)
	const yes = `{"result":"yes"}`
	for i, c := range []caller{here, there} {
		path := fmt.Sprintf("/api/sojourn/awakeables/%s-%d/complete", run, i+1)
		here.loses(gate, "INSERT INTO events", "POST", path, yes)
		if s := c.asks(200, "POST", path, yes); s.text("outcome") != "completed" {
			t.Errorf("the repetition: %s", s.brief())
		}
		here.asks(409, "POST", path, `{"result":"no"}`)
	}
	if n := len(there.eventsOf("flow", run, "AwakeableCompleted")); n != 2 {
		t.Errorf("%d completions of 2 awakeables", n)
	}
}

// With a load balancer, a retried poll may reach another app. Here the worker is registered at that app and sent it
// heartbeats, so that app has no sign that the first poll went elsewhere.
func TestRepeatedPollFindsItsTaskAtAnAppWithTheWorkersHeartbeats(t *testing.T) {
	t.Parallel()
	gate, a, b := behind(t)
	there := register(caller{t, b, ""}, "w", "")
	here := hand{caller{t, a, ""}, "w"}
	there.start("one")
	poll := func(kind string) handTask {
		t.Helper()
		path, body := "/api/worker/"+kind+"-tasks/poll",
			`{"worker_id":"w","task_queue":"`+handQueue+`","poll_request_id":"p","timeout_seconds":0}`
		here.loses(gate, "SKIP LOCKED", "POST", path, body)
		return taskOf(t, there.asks(200, "POST", path, body))
	}
	there.decide(poll("workflow"), step)
	act := poll("activity")
	there.want(200, "POST", stepPath(act, "complete"), there.stepBody(act, ""))
	there.decide(there.poll("workflow"), finish)
}

// If the commit response for a task of a held poll is lost, the poll returns backend_unavailable at once. The worker
// polls again with the same ID and receives the task; else the task would wait for the end of a lease that no worker
// knows.
func TestWaitingPollerIsNotifiedOfACommitWhoseResponseIsLost(t *testing.T) {
	gate, a, _ := behind(t)
	w := register(caller{t, a, ""}, "w", "")
	const path, body = "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"` + handQueue +
		`","poll_request_id":"p","timeout_seconds":60}`
	answer := make(chan response, 1)
	go func() { answer <- w.ask("POST", path, body) }()
	waiting(t, a, 1)
	w.loses(
		gate, "INSERT INTO events", "POST", "/api/workflows",
		`{"workflow_id":"one","workflow_type":"flow","task_queue":"`+handQueue+`"}`,
	)
	s := <-answer
	if s.status != 503 || s.text("poll_status") != "backend_unavailable" {
		t.Fatalf("the poll: %d %s", s.status, s.brief())
	}
	w.decide(taskOf(t, w.asks(200, "POST", path, body)), finish)
}

// A read that fails because the database connection broke is retried.
func TestAReadIsRetriedAfterALostDatabaseConnection(t *testing.T) {
	gate, a, _ := behind(t)
	w := register(caller{t, a, ""}, "w", "")
	w.start("one")
	flow := w.poll("workflow")
	w.decide(flow, inSession("s"))
	run := flow.text("run_id")
	for _, path := range []string{
		"/api/workflows", "/api/workflows/one", "/api/workflows/one/runs", "/api/workflows/one/runs/" + run,
		"/api/workflows/one/runs/" + run + "/history",
		"/api/workflows/one/debug", "/api/workers", "/api/workers/w", "/api/worker-sessions", "/api/worker-sessions/s",
		"/api/task-queues", "/api/schedules",
		"/api/namespaces", "/api/runs/" + run, "/api/search-attributes",
	} {
		w.asks(200, "GET", path, "")
		for met := false; !met; gate.Open() {
			lost := gate.LoseRead("FROM ")
			s := w.ask("GET", path, "")
			select {
			case <-lost:
				if met = s.status != 200; met &&
					(s.status != 503 || s.text("reason") != "store_unavailable" || s.body["outcome"] != nil) {
					t.Errorf("%s: %d %s", path, s.status, s.brief())
				}
				// the broken connection was used by a read of the app itself, not by this request
			case <-time.After(time.Second):
				t.Logf("%s reads nothing: %d", path, s.status)
				met = true
			}
		}
	}
}
