package apptest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	goclient "github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// pendingFailure is the failure by which a worker reports a pending attempt.
const pendingFailure = `,"failure":{"type":"ActivityPending","message":"m","non_retryable":true}`

// retried is a step with three attempts.
var retried = strings.TrimSuffix(step, "}") + `,"retry_policy":{"max_attempts":3}}`

// tokenPath returns the path of a request about the attempt of a task, by its token.
func tokenPath(task handTask, verb string) string {
	return "/api/sojourn/activities/" + task.text("activity_attempt_id") + "/" + verb
}

// pend polls an activity and reports that it is pending.
func (h hand) pend() handTask {
	h.t.Helper()
	task := h.poll("activity")
	if r := h.want(200, "POST", stepPath(task, "fail"), h.stepBody(task, pendingFailure)); r.text("outcome") != "pending" {
		h.t.Fatalf("the report: %s", r.raw)
	}
	return task
}

// The attempt of a worker that returned without an outcome stays open without a lease, also after the worker has
// left. A caller reports its outcome once, at any app; every other outcome, and every token of an earlier attempt,
// is refused.
func TestAPendingAttemptIsResolvedOnceAtAnyApp(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		here, there := caller{t, a, "default"}, caller{t, b, "default"}
		w := register(here, "w", "")
		run := here.start("flow")
		w.decide(w.poll("workflow"), retried)
		first := w.pend()
		repeated := w.want(200, "POST", stepPath(first, "fail"), w.stepBody(first, pendingFailure))
		if repeated.text("outcome") != "pending" {
			t.Errorf("the repeated report: %s", repeated.raw)
		}
		beat := w.want(200, "POST", stepPath(first, "heartbeat"), w.stepBody(first, ""))
		if beat.body["can_continue"] != false || beat.text("reason") != "stale_attempt" {
			t.Errorf("a heartbeat of the worker: %s", beat.raw)
		}
		token := first.text("activity_attempt_id")
		for _, c := range []caller{here, there} {
			v := c.want(200, "GET", "/api/workflows/flow", "")
			for _, part := range []string{
				`"state":"pending"`, `"activity_token":"` + token + `"`, `"reason":"activity_pending"`,
				"to complete it run: sojourn activity complete " + token,
			} {
				if !strings.Contains(v.raw, part) {
					t.Errorf("describe does not contain %s: %s", part, v.raw)
				}
			}
		}
		for _, row := range rowsOf(a, "tasks", run) {
			if strings.Contains(row, `"until"`) {
				t.Errorf("the pending attempt has a lease: %s", row)
			}
		}
		here.want(200, "DELETE", "/api/workers/w", "")
		w = register(there, "w2", "")
		w.empty("activity")

		// 20 callers at two apps report the same failure; the retry policy allows another attempt
		here.want(200, "POST", tokenPath(first, "heartbeat"), `{"message":"half","details":{"line":17}}`)
		receipts := make([]string, 20)
		var all sync.WaitGroup
		for i := range receipts {
			all.Go(func() {
				body := `{"failure":{"type":"Down","message":"no"}}`
				receipts[i] = []caller{here, there}[i%2].want(200, "POST", tokenPath(first, "fail"), body).raw
			})
		}
		all.Wait()
		for _, r := range receipts {
			if r != receipts[0] || !strings.Contains(r, `"outcome":"failed","retry_scheduled":true`) {
				t.Errorf("receipts %s and %s", receipts[0], r)
			}
		}
		second := w.pend()
		if fmt.Sprint(second["last_heartbeat"]) == "<nil>" || second["attempt_number"] != 2.0 {
			t.Errorf("the second attempt: %v", second)
		}
		old := here.want(409, "POST", tokenPath(first, "complete"), `{"result":1}`)
		if old.text("reason") != "conflicting_completion" {
			t.Errorf("an outcome with the token of the first attempt: %s", old.raw)
		}
		if r := here.want(409, "POST", tokenPath(first, "heartbeat"), `{}`); r.text("reason") != "stale_attempt" {
			t.Errorf("a heartbeat with the token of the first attempt: %s", r.raw)
		}
		complete := `{"result":{"by":"Ada"}}`
		for i := range receipts {
			all.Go(func() {
				receipts[i] = []caller{here, there}[i%2].want(200, "POST", tokenPath(second, "complete"), complete).raw
			})
		}
		all.Wait()
		for _, r := range receipts {
			if r != receipts[0] || !strings.Contains(r, `"outcome":"completed"`) {
				t.Errorf("receipts %s and %s", receipts[0], r)
			}
		}
		for _, body := range []string{`{"result":{"by":"Bob"}}`, `{}`} {
			if r := there.want(409, "POST", tokenPath(second, "complete"), body); r.text("reason") != "conflicting_completion" {
				t.Errorf("another result: %s", r.raw)
			}
		}
		there.want(409, "POST", tokenPath(second, "fail"), `{"failure":{"message":"no"}}`)
		there.want(422, "POST", tokenPath(second, "fail"), `{"failure":{"type":"Down"}}`)
		there.want(422, "POST", tokenPath(second, "fail"), `{}`)
		for _, bad := range []string{
			run + "-7-1", run + "-1", "none", strings.Replace(token, "0", "1", 1), run + "-1-01", run + "-1-+1",
			run + "-01-1", run + "-1--1", run + "-1-0", run + "-1-9223372036854775808",
		} {
			r := here.want(404, "POST", "/api/sojourn/activities/"+bad+"/complete", `{}`)
			if r.text("reason") != "task_not_found" {
				t.Errorf("%s: %s", bad, r.raw)
			}
		}
		here.want(201, "POST", "/api/namespaces", `{"name":"other"}`)
		elsewhere := caller{t, a, "other"}
		for _, verb := range []string{"complete", "heartbeat"} {
			if r := elsewhere.want(404, "POST", tokenPath(second, verb), complete); r.text("reason") != "task_not_found" {
				t.Errorf("another namespace: %s", r.raw)
			}
		}
		ended := here.eventsOf("flow", run, "ActivityCompleted")
		if len(ended) != 1 || !strings.Contains(fmt.Sprint(ended[0]), "w2") {
			t.Errorf("completions: %v", ended)
		}

		// repetitions for the closed run get their first response
		w.decide(w.poll("workflow"), finish)
		for _, c := range []caller{here, there} {
			if r := c.want(200, "POST", tokenPath(second, "complete"), complete); r.raw != receipts[0] {
				t.Errorf("a repetition after the run has closed: %s", r.raw)
			}
			r := c.want(200, "POST", tokenPath(first, "fail"), `{"failure":{"type":"Down","message":"no"}}`)
			if r.body["retry_scheduled"] != true {
				t.Errorf("a repetition of the failure: %s", r.raw)
			}
		}
	})
}

// An outcome may arrive before the worker has reported that the attempt is pending: it counts, and the report of the
// worker is accepted.
func TestAnOutcomeMayArriveBeforeThePendingReport(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, "default"}
	w := register(c, "w", "")
	for id, verb := range map[string]string{"done": "complete", "again": "fail"} {
		run := c.start(id)
		w.decide(w.poll("workflow"), retried)
		task := w.poll("activity")
		c.want(200, "POST", tokenPath(task, verb), `{"failure":{"message":"no"}}`)
		for range 2 {
			r := c.want(200, "POST", stepPath(task, "fail"), w.stepBody(task, pendingFailure))
			if r.text("outcome") != "pending" || r.text("reason") != "already_completed" {
				t.Errorf("%s: the report: %s", verb, r.raw)
			}
		}
		if verb == "fail" {
			c.want(409, "POST", stepPath(task, "complete"), w.stepBody(task, ""))
			task = w.poll("activity")
			c.want(200, "POST", tokenPath(task, "complete"), `{}`)
		}
		w.decide(w.poll("workflow"), finish)
		if n := len(c.eventsOf(id, run, "ActivityCompleted")); n != 1 {
			t.Errorf("%s: %d completions", verb, n)
		}
	}
}

// payWorker runs a Go worker with the activity pay, which sends its token and returns activity.ErrPending, and a
// workflow that runs it with two attempts.
func payWorker(t *testing.T, url string, slots int) <-chan string {
	t.Helper()
	tokens, r := make(chan string, 100), worker.NewRegistry()
	r.Activity("pay", func(ctx context.Context) (string, error) {
		tokens <- activity.Token(ctx)
		return "", activity.ErrPending
	})
	r.Workflow("flow", func(ctx workflow.Context) (string, error) {
		return workflow.Execute[string](workflow.WithActivity(ctx, workflow.ActivityOptions{
			StartToClose: time.Hour, Retry: &workflow.RetryPolicy{MaxAttempts: 2},
		}), "pay")
	})
	w, err := worker.New(workeropt.Over(link.To(link.WayHTTP, []string{url}), worker.Options{
		Registry: r, Release: "test", Concurrency: slots, Sessions: worker.SessionOptions{Max: 10},
		Logger: slogbridge.Slog(apptest.Log(t)), Executors: worker.ExecutorOptions{Disabled: true},
	}))
	if err != nil {
		t.Fatal(err)
	}
	runWorker(t, w)
	return tokens
}

// next returns the next token that an activity passed on.
func next(t *testing.T, tokens <-chan string) string {
	t.Helper()
	select {
	case token := <-tokens:
		return token
	case <-time.After(time.Minute):
		t.Fatal("no activity has begun for a minute")
		return ""
	}
}

// The connection of the caller breaks after the app has committed its request.
func TestAPendingAttemptIsResolvedOnceIfResponsesAreLost(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		var way lossy
		url := way.serve(t, a)
		tokens := payWorker(t, a.URL(), 2)
		c, err := goclient.New(goclient.Options{URLs: []string{url}})
		if err != nil {
			t.Fatal(err)
		}
		h, err := c.Start(t.Context(), "flow", nil, goclient.StartOptions{WorkflowID: "f"})
		if err != nil {
			t.Fatal(err)
		}
		report := func(verb string, call func() error) {
			t.Helper()
			before := way.lost[verb]
			for range 3 { // the client itself may repeat the first request
				if err = call(); err == nil {
					break
				}
			}
			if err != nil || way.lost[verb] != before+1 {
				t.Errorf("%s: %v after %d lost responses", verb, err, way.lost[verb]-before)
			}
		}
		first := next(t, tokens)
		report("fail", func() error { return c.FailActivity(t.Context(), first, activity.NewError("Down", "no")) })
		second := next(t, tokens)
		report("complete", func() error { return c.CompleteActivity(t.Context(), second, "paid") })
		var result string
		if err := h.Result(t.Context(), &result); err != nil || result != "paid" {
			t.Errorf("result %q, %v", result, err)
		}
		here := caller{t, a, "default"}
		for event, want := range map[string]int{"ActivityRetryScheduled": 1, "ActivityCompleted": 1} {
			if n := len(here.eventsOf("f", h.RunID, event)); n != want {
				t.Errorf("%d events %s", n, event)
			}
		}
	})
}

// The connection of the worker breaks after the app has committed its report of a pending attempt. The worker repeats
// the report; no other attempt begins, even if the outcome arrives before the repetition.
func TestALostResponseToAPendingReportBeginsNoOtherAttempt(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		way := lossy{only: `"type":"ActivityPending"`}
		const n = 10
		tokens := payWorker(t, way.serve(t, a), 2)
		c, err := goclient.New(goclient.Options{URLs: []string{a.URL()}})
		if err != nil {
			t.Fatal(err)
		}
		runs := map[string]*goclient.Workflow{}
		for i := range n {
			h, err := c.Start(t.Context(), "flow", nil, goclient.StartOptions{WorkflowID: fmt.Sprint("f", i)})
			if err != nil {
				t.Fatal(err)
			}
			runs[next(t, tokens)] = h
		}
		here := caller{t, a, "default"}
		for token, h := range runs {
			if err := c.CompleteActivity(t.Context(), token, token); err != nil {
				t.Error(err)
			}
			var result string
			if err := h.Result(t.Context(), &result); err != nil || result != token {
				t.Errorf("result %q, %v", result, err)
			}
			done := here.eventsOf(h.ID, h.RunID, "ActivityCompleted")
			if again := here.eventsOf(h.ID, h.RunID, "ActivityRetryScheduled"); len(done) != 1 || len(again) != 0 {
				t.Errorf("%d completions after %d retries", len(done), len(again))
			}
		}
		way.mu.Lock()
		defer way.mu.Unlock()
		if way.lost["complete"] == 0 || len(tokens) != 0 {
			t.Errorf("%d attempts more after lost responses %v", len(tokens), way.lost)
		}
	})
}

// A completion request has a pending report, an outcome and an invalid item, in every order: the report and the outcome
// are accepted, and only the invalid item is refused. An invalid pending report affects no other item either.
func TestAPendingReportAndInvalidItemsShareARequest(t *testing.T) {
	bad := maps.Clone(badOutcomes)
	maps.DeleteFunc(bad, func(name string, _ struct{ item, reason string }) bool {
		return !slices.Contains([]string{"null", "an unknown task", "a result above the limit"}, name)
	})
	for name, more := range map[string]string{
		"the report of another worker": `"lease_owner":"v"`, "a report with an epoch that is text": `"session_epoch":"one"`,
		"a report in another namespace": `"namespace":"other"`,
	} {
		one := badOutcomes["another worker's lease"]
		if !strings.Contains(more, "lease_owner") {
			one.reason = "validation_failed"
		}
		one.item = "{%s," + more + pendingFailure + "}"
		bad[name] = one
	}
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		w, n := register(caller{t, a, ""}, "w", ""), 0
		through := caller{t, b, ""}
		for _, name := range slices.Sorted(maps.Keys(bad)) {
			for place := range 3 {
				var items []string
				var tasks []handTask
				for i := range 3 {
					n++
					task, of := w.activityRun(fmt.Sprint("run-", n))
					tasks = append(tasks, task)
					item := "{" + of + pendingFailure + "}"
					switch {
					case i == place:
						item = strings.Replace(bad[name].item, "%s", of, 1)
					case i == (place+1)%3:
						item = fmt.Sprintf(`{%s,"result":%s}`, of, envelope(t, fmt.Sprint(n)))
					}
					items = append(items, item)
				}
				got, answers := through.completeItems(items)
				for i, answer := range answers {
					outcome := []string{"rejected", "completed", "pending"}[(i-place+3)%3]
					if answer.text("outcome") != outcome || answer["recorded"] != (i != place) ||
						i == place && answer.text("reason") != bad[name].reason {
						t.Errorf("%s at %d: item %d: want %s: %s", name, place, i, outcome, got.raw)
					}
				}
				through.want(200, "POST", tokenPath(tasks[(place+2)%3], "complete"), `{"result":1}`)
				w.want(200, "POST", stepPath(tasks[place], "complete"), w.stepBody(tasks[place], ""))
				for i := range tasks {
					through.wantCompleted(fmt.Sprint("run-", n-2+i))
				}
			}
		}
	})
}

// A worker with two slots and a session that runs one activity at a time have 40 attempts pending at once.
func TestPendingAttemptsUseNoSlotAndNoPlaceInTheirSession(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		const n = 40
		tokens := payWorker(t, a.URL(), 2)
		c, err := goclient.New(goclient.Options{URLs: []string{b.URL()}})
		if err != nil {
			t.Fatal(err)
		}
		runs := make([]*goclient.Workflow, n)
		for i := range runs {
			in := goclient.ActivityOptions{StartToClose: time.Hour}
			in.WorkflowID = fmt.Sprint("r", i)
			if i%2 == 0 {
				in.SessionID, in.Session = "s", &goclient.SessionOptions{MaxActivities: 1}
			}
			if runs[i], err = c.StartActivity(t.Context(), "pay", nil, in); err != nil {
				t.Fatal(err)
			}
		}
		var all []string
		for range n {
			all = append(all, next(t, tokens))
		}
		if rows := rowsOf(b, "tasks", `"until"`); len(rows) > 2 {
			t.Errorf("%d attempts have leases", len(rows))
		}
		for _, token := range all {
			if err := c.CompleteActivity(t.Context(), token, token); err != nil {
				t.Error(err)
			}
		}
		for _, r := range runs {
			var token string
			if err := r.Result(t.Context(), &token); err != nil || !strings.HasPrefix(token, r.RunID+"-1-") {
				t.Errorf("run %s: %q, %v", r.RunID, token, err)
			}
		}
	})
}

// A caller keeps the attempt of an activity run alive with heartbeats, and learns from their responses that the run is
// asked to stop.
func TestHeartbeatsByTokenReportCancellation(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, "default"}
	w := register(c, "w", "")
	run := c.start("flow")
	w.decide(
		w.poll("workflow"),
		strings.TrimSuffix(step, "}")+
			`,"heartbeat_timeout":60,"cancellation_policy":"wait_cancellation_completed"}`,
		`{"type":"start_timer","delay_seconds":0}`,
	)
	task := w.pend()
	beat := c.want(200, "POST", tokenPath(task, "heartbeat"), ``)
	if beat.body["cancel_requested"] != false || beat.text("last_heartbeat_at") == "" ||
		beat.text("activity_type") != "step" {
		t.Errorf("heartbeat: %s", beat.raw)
	}
	w.decide(w.poll("workflow"), `{"type":"cancel_activity","target":1}`)
	if beat = c.want(200, "POST", tokenPath(task, "heartbeat"), `{}`); beat.body["cancel_requested"] != true {
		t.Errorf("heartbeat after the cancellation: %s", beat.raw)
	}
	cancelled := `{"failure":{"message":"stopped","cancelled":true}}`
	for range 2 {
		if r := c.want(200, "POST", tokenPath(task, "fail"), cancelled); r.text("outcome") != "cancelled" {
			t.Errorf("the end: %s", r.raw)
		}
	}
	if r := c.want(409, "POST", tokenPath(task, "heartbeat"), `{}`); r.body["cancel_requested"] != true {
		t.Errorf("a heartbeat after the end: %s", r.raw)
	}
	if n := len(c.eventsOf("flow", run, "ActivityCancelled")); n != 1 {
		t.Errorf("%d events", n)
	}
	w.decide(w.poll("workflow"), finish)

	// an activity run that is cancelled ends at once; the caller learns that from the refusal
	c.want(
		201, "POST", "/api/sojourn/activities",
		`{"activity_type":"step","workflow_id":"alone","task_queue":"`+handQueue+`"}`,
	)
	task = w.pend()
	c.want(200, "POST", "/api/workflows/alone/cancel", `{}`)
	r := c.want(409, "POST", tokenPath(task, "complete"), `{}`)
	if r.text("reason") != "stale_attempt" || r.body["cancel_requested"] != true {
		t.Errorf("an outcome after the cancellation: %s", r.raw)
	}
}

// A token with the role completer reports outcomes and heartbeats of attempts in its namespaces.
func TestACompleterReportsOutcomesOfItsNamespaces(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.NoAuth, o.Token = false, admin }})
	root := client{t: t, url: a.URL()}.as(admin)
	bank := root.as(root.want(
		201, "POST", "/tokens", `{"name":"bank","roles":["completer"],"namespaces":["default"]}`,
	).text("token"))
	viewer := root.as(root.want(201, "POST", "/tokens", `{"name":"all","roles":["viewer"]}`).text("token"))
	root.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"q","supported_activity_types":["pay"]}`)
	root.want(201, "POST", "/api/sojourn/activities", `{"activity_type":"pay","task_queue":"q"}`)
	task := taskOf(t, root.want(200, "POST", "/api/worker/activity-tasks/poll",
		`{"worker_id":"w","task_queue":"q","timeout_seconds":30}`))
	root.want(200, "POST", stepPath(task, "fail"), fmt.Sprintf(
		`{"lease_owner":"w","activity_attempt_id":%q%s}`, task.text("activity_attempt_id"), pendingFailure,
	))
	for _, verb := range []string{"complete", "fail", "heartbeat"} {
		viewer.want(403, "POST", tokenPath(task, verb), `{"failure":{"message":"no"}}`)
	}
	bank.want(403, "POST", "/api/sojourn/activities", `{"activity_type":"pay"}`)
	bank.want(403, "POST", tokenPath(task, "complete")+"?namespace=other", `{}`)
	bank.want(200, "POST", tokenPath(task, "heartbeat"), `{"details":1}`)
	bank.want(200, "POST", tokenPath(task, "complete"), `{"result":1}`)
	bank.want(409, "POST", tokenPath(task, "fail"), `{"failure":{"message":"no"}}`)
}
