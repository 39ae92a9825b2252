package apptest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
)

// later sends a request in the background.
func (c caller) later(method, path, body string) <-chan response {
	done := make(chan response, 1)
	go func() { done <- c.ask(method, path, body) }()
	return done
}

// questionBody is the body of a reply to a query or validation task.
func (h hand) questionBody(kind string, t handTask, more string) string {
	return fmt.Sprintf(`{"lease_owner":%q,%q:%d%s}`, h.id, kind+"_attempt", t.number(kind+"_attempt"), more)
}

func questionPath(kind, id, verb string) string {
	return "/api/worker/" + strings.ReplaceAll(strings.TrimSuffix(kind, "_task"), "_", "-") + "-tasks/" + id + "/" + verb
}

// answer completes a query task.
func (h hand) answer(t handTask, value string) response {
	h.t.Helper()
	return h.want(200, "POST", questionPath("query_task", t.text("query_task_id"), "complete"),
		h.questionBody("query_task", t, `,"result":`+value+`,"result_envelope":`+envelope(h.t, value)))
}

// A caller queries one app, and the worker that can execute the query polls another.
func TestAQueryReachesAWorkerOfAnotherApp(t *testing.T) {
	database := apptest.Postgres(t)
	a, b := apptest.Start(t, apptest.Options{Database: database}), apptest.Start(t, apptest.Options{Database: database})
	here, there := caller{t, a, ""}, caller{t, b, ""}
	w := register(there, "w", "")
	here.start("asked-1")
	w.decide(w.poll("workflow"), `{"type":"open_signal_wait","signal_name":"go"}`)
	before := a.Dump()
	for _, held := range []bool{false, true} { // false: the poll is sent after the query; true: before it
		if held {
			polled := w.later(
				"POST", "/api/worker/query-tasks/poll", `{"worker_id":"w","task_queue":"`+handQueue+`","timeout_seconds":60}`,
			)
			waiting(t, b, 1)
			asked := here.later("POST", "/api/workflows/asked-1/query/state", `{"input":["k"]}`)
			w.answer(taskOf(t, <-polled), `{"at":2}`)
			if s := <-asked; s.status != 200 || s.body["result"].(map[string]any)["at"] != 2.0 {
				t.Errorf("the caller of the other app: %d %s", s.status, s.raw)
			}
			continue
		}
		asked := here.later("POST", "/api/workflows/asked-1/query/state", `{"input":["k"]}`)
		task := w.poll("query")
		if task.text("query_name") != "state" || task.text("workflow_id") != "asked-1" ||
			task.number("total_history_events") < 2 ||
			int64(len(task["history_events"].([]any))) != task.number("total_history_events") ||
			task["workflow_arguments"] == nil {
			t.Errorf("the query task: %v", task)
		}
		path := questionPath("query_task", task.text("query_task_id"), "complete")
		if s := there.ask("POST", path, `{"lease_owner":"x","query_task_attempt":1,"result":1}`); s.status != 409 ||
			s.text("reason") != "lease_owner_mismatch" {
			t.Errorf("another's answer: %s", s.raw)
		}
		if s := here.ask(
			"POST", path, `{"lease_owner":"w","query_task_attempt":2,"result":1}`,
		); s.text("reason") != "query_task_attempt_mismatch" {
			t.Errorf("another attempt's answer, given to the other app: %s", s.raw)
		}
		w.answer(task, `7`)
		if s := <-asked; s.status != 200 || s.body["result"] != 7.0 {
			t.Errorf("the caller of the other app: %d %s", s.status, s.raw)
		}
		if s := there.ask("POST", path, `{"lease_owner":"w","query_task_attempt":1,"result":1}`); s.status != 404 &&
			s.status != 409 {
			t.Errorf("a second answer: %d %s", s.status, s.raw)
		}
	}
	fails := here.later("POST", "/api/workflows/asked-1/query/none", `{}`)
	task := w.poll("query")
	w.want(200, "POST", questionPath("query_task", task.text("query_task_id"), "fail"),
		w.questionBody("query_task", task, `,"failure":{"message":"no such query","reason":"rejected_unknown_query"}`))
	if s := <-fails; s.status != 404 || s.text("reason") != "rejected_unknown_query" {
		t.Errorf("a query nobody knows: %d %s", s.status, s.raw)
	}
	if diff := before.Diff(a.Dump(), "workers"); diff != "" {
		t.Errorf("queries left something behind:\n%s", diff)
	}
}

// If the caller disconnects, its query is dropped: no worker receives it, and a late result is refused.
func TestAQueryEndsWithItsCaller(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		w := register(c, "w", "")
		c.start("left-1")
		leave := func(polled bool) handTask {
			ctx, cancel := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(
				ctx, "POST", a.URL()+"/api/workflows/left-1/query/state", strings.NewReader(`{}`),
			)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set(httpapi.VersionHeader, "2")
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				if res, err := http.DefaultClient.Do(r); err == nil {
					res.Body.Close()
				}
			}()
			var task handTask
			if polled {
				task = w.poll("query")
			} else {
				time.Sleep(20 * time.Millisecond) // the query has usually reached the app by then
			}
			cancel()
			<-gone
			return task
		}
		leave(false)
		task := leave(true)
		path := questionPath("query_task", task.text("query_task_id"), "complete")
		until(t, "the query to be gone", func() bool {
			s := w.ask("POST", path, `{"lease_owner":"nobody","query_task_attempt":1,"result":1}`)
			return s.status == 404 && s.text("reason") == "query_task_not_found"
		})
		if s := w.ask("POST", path, w.questionBody("query_task", task, `,"result":1`)); s.status != 404 {
			t.Errorf("a late answer: %d %s", s.status, s.raw)
		}
		const poll = `{"worker_id":"w","task_queue":"by-hand","timeout_seconds":0}`
		until(t, "no query is left", func() bool { // the app may still be handling the query
			return w.ask("POST", "/api/worker/query-tasks/poll", poll).text("poll_status") == "empty"
		})
	})
}

// Several waiting queries are all dispatched, although each poll receives one.
func TestWaitingQueriesAreAllDispatched(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		w := register(c, "w", "")
		c.start("many-1")
		var asked []<-chan response
		for range 5 {
			asked = append(asked, c.later("POST", "/api/workflows/many-1/query/state", `{}`))
		}
		for i := range asked {
			w.answer(w.poll("query"), fmt.Sprint(i))
		}
		for _, s := range asked {
			if got := <-s; got.status != 200 {
				t.Errorf("a query: %d %s", got.status, got.raw)
			}
		}
	})
}
