package apptest_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	goclient "github.com/sojourn-run/sojourn/client"
)

// twice repeats a call as if the first response was lost. The second response must equal the first one except for the
// named members, and must not change anything.
func (h hand) twice(method, path, body string, members ...string) response {
	h.t.Helper()
	first := h.ask(method, path, body)
	if first.status >= 300 {
		h.t.Fatalf("%s %s: %d %s", method, path, first.status, first.brief())
	}
	var repeated response
	unchanged(h.t, h.app, "the second "+method+" "+path, func() { repeated = h.ask(method, path, body) })
	for _, member := range members {
		delete(first.body, member)
		delete(repeated.body, member)
	}
	if repeated.status != first.status || !reflect.DeepEqual(repeated.body, first.body) {
		h.t.Errorf(
			"%s %s, first:\n%d %s\nagain:\n%d %s", method, path, first.status, first.brief(), repeated.status, repeated.brief(),
		)
	}
	return first
}

// losingProxy returns the URL of a proxy of an app. It aborts the connection instead of returning a response for which
// lose, called after the app has responded, returns true.
func losingProxy(t *testing.T, app string, lose func() bool) string {
	t.Helper()
	target, err := url.Parse(app)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: func(*http.Response) error {
			if lose() {
				return errors.New("the response is lost")
			}
			return nil
		},
	})
	t.Cleanup(s.Close)
	return s.URL
}

// losingClient returns a client that loses the first response of an app and repeats the request at another one. lost
// counts the responses of the first app.
func losingClient(t *testing.T, a, next *apptest.App) (c *goclient.Client, lost *atomic.Int64) {
	t.Helper()
	lost = new(atomic.Int64)
	proxy := losingProxy(t, a.URL(), func() bool { return lost.Add(1) == 1 })
	c, err := goclient.New(goclient.Options{URLs: []string{proxy, next.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	return c, lost
}

// The response to every call of a worker may be lost. A repetition returns the same task and the same outcome, and has
// no further effect.
func TestLostResponseIsRepeated(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		w := register(caller{t, a, ""}, "w", "")
		poll := func(kind, id string) handTask {
			return taskOf(t, w.twice("POST", "/api/worker/"+kind+"-tasks/poll",
				`{"worker_id":"w","task_queue":"`+handQueue+`","poll_request_id":"`+id+`","timeout_seconds":30}`))
		}
		// recorded reports whether this call recorded the outcome, reason whether an earlier one did; run_status is
		// current
		members := []string{"recorded", "reason", "run_status", "run_id"}
		complete := func(path, body string) { w.twice("POST", path, body, members...) }

		w.start("lost-1")
		flow := poll("workflow", "p-1")
		complete(
			flowPath(flow, "complete"),
			w.flowBody(flow, `,"commands":[`+step+`,`+inSession("s")+`,{"type":"start_timer","delay_seconds":900},`+step+`]`),
		)
		act, tied, fails := poll("activity", "p-2"), poll("activity", "p-3"), poll("activity", "p-4")
		complete(stepPath(act, "complete"), w.stepBody(act, `,"result":`+envelope(t, `{"n":1}`)))
		complete(stepPath(tied, "complete"), w.stepBody(tied, `,"session_epoch":0`))
		complete(stepPath(fails, "fail"), w.stepBody(fails, `,"failure":{"message":"no","non_retryable":true}`))
		broken := poll("workflow", "p-5")
		complete(flowPath(broken, "fail"), w.flowBody(broken, `,"failure":{"message":"out of memory"}`))
		second := poll("workflow", "p-6")
		w.twice("POST", flowPath(second, "history"), w.flowBody(second, ""))
		complete(
			flowPath(second, "fail"),
			w.flowBody(second, `,"failure":{"message":"waits","type":"WorkflowTaskWaitingForHistory"}`),
		)

		// A session is acquired, renewed and closed. Each renewal extends the lease, also a repeated one, so the
		// responses are not compared as a whole.
		moving := []string{"status", "outcome", "session"}
		for _, call := range [][3]string{
			{"POST", "/api/worker/sessions", `{"worker_id":"w","session_id":"mine"}`},
			{"POST", "/api/worker/sessions/mine/heartbeat", `{"worker_id":"w"}`},
		} {
			first, repeated := w.ask(call[0], call[1], call[2]), w.ask(call[0], call[1], call[2])
			one, _ := first.body["session"].(map[string]any)
			two, _ := repeated.body["session"].(map[string]any)
			if first.status > 201 || repeated.status != 200 || repeated.body["admitted"] != true || one["lease_owner"] != "w" ||
				two["lease_owner"] != "w" ||
				two["created_at"] != one["created_at"] || two["epoch"] != one["epoch"] {
				t.Errorf("%s %s: %s, again %s", call[0], call[1], first.brief(), repeated.brief())
			}
		}
		w.twice("DELETE", "/api/worker/sessions/mine", `{"worker_id":"w"}`, moving...)

		// Batch requests: a poll for tasks of several kinds, and their outcomes. store_time is the time of each
		// response, so it is not compared.
		for _, id := range []string{"lost-2", "lost-3"} {
			w.start(id)
		}
		batch := w.twice(
			"POST", "/api/worker/tasks/poll",
			`{"worker_id":"w","max":2,"kinds":["workflow"],"poll_request_id":"b-1","timeout_seconds":30}`, "store_time",
		)
		var items []string
		for _, got := range batch.body["tasks"].([]any) {
			task := handTask(got.(map[string]any)["workflow"].(map[string]any))
			items = append(
				items,
				`{"kind":"workflow","task_id":"`+task.text("task_id")+`","lease_owner":"w","workflow_task_attempt":1,"commands":[`+
					finish+`]}`,
			)
		}
		body := `{"items":[` + strings.Join(items, ",") + `]}`
		first := w.want(200, "POST", "/api/worker/tasks/complete", body)
		unchanged(t, a, "a second batch", func() {
			repeated := w.want(200, "POST", "/api/worker/tasks/complete", body)
			for i, got := range repeated.body["items"].([]any) {
				one, two := first.body["items"].([]any)[i].(map[string]any), got.(map[string]any)
				if two["outcome"] != one["outcome"] || two["task_id"] != one["task_id"] || two["error"] != nil ||
					two["reason"] != "already_completed" {
					t.Errorf("item %d: %v, again %v", i, one, two)
				}
			}
		})
		w.want(200, "DELETE", "/api/worker/registrations/w", "")
	})
}
