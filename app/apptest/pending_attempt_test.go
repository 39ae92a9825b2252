package apptest_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// pendingIn returns the tokens of the pending attempts of the latest run of a workflow.
func (c caller) pendingIn(id string) (tokens []string) {
	c.t.Helper()
	pending, _ := c.want(200, "GET", "/api/workflows/"+id, "").body["pending"].(map[string]any)
	activities, _ := pending["activities"].([]any)
	for _, a := range activities {
		if token := handTask(a.(map[string]any)).text("activity_token"); token != "" {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// A pending attempt in a session stays open while its session moves to a worker of another app, and while its run
// receives signals and a request for cancellation. Its token ends it once. An attempt that is pending when its run
// continues as new or is cancelled ends with the run, and its token is refused.
func TestAPendingAttemptStaysOpenWhileItsSessionMovesAndItsRunIsCancelled(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		here, there := caller{t, a, "default"}, caller{t, b, "default"}
		const capabilities = `,"capabilities":["worker_sessions","cancellation_requests"]`
		w := register(here, "w", capabilities)
		run := here.start("flow")
		w.decide(
			w.poll("workflow"),
			strings.TrimSuffix(inSession("s"), "}")+`,"cancellation_policy":"wait_cancellation_completed"}`, waitForGo,
		)
		token := w.pend().text("activity_attempt_id")
		stays := func(after string) {
			t.Helper()
			for _, c := range []caller{here, there} {
				if got := c.pendingIn("flow"); len(got) != 1 || got[0] != token {
					t.Errorf("after %s: pending attempts %v, want %s", after, got, token)
				}
			}
		}
		stays("the report")

		v := register(there, "v", capabilities)
		there.want(200, "POST", "/api/worker-sessions/s/migrate", `{"worker_id":"v"}`)
		there.want(202, "POST", "/api/workflows/flow/signal/go", `{}`)
		v.decide(v.poll("workflow"), inSession("s"), waitForGo)
		w.empty("activity")
		moved := v.poll("activity")
		stays("the move of the session")
		v.want(200, "POST", stepPath(moved, "complete"), v.stepBody(moved, ""))
		here.want(202, "POST", "/api/workflows/flow/signal/go", `{}`)
		w.decide(w.poll("workflow"), waitForGo)
		stays("the signals")

		there.want(200, "POST", "/api/workflows/flow/request-cancellation", `{"reason":"no stock"}`)
		stays("the request for cancellation")
		task := w.poll("workflow")
		w.decide(task, `{"type":"cancel_activity","target":1}`)
		stays("the cancellation of the activity")
		path := "/api/sojourn/activities/" + token
		cancelled := `{"failure":{"message":"stopped","cancelled":true}}`
		for _, c := range []caller{here, there} {
			if beat := c.want(200, "POST", path+"/heartbeat", `{}`); beat.body["cancel_requested"] != true {
				t.Errorf("a heartbeat after the cancellation: %s", beat.raw)
			}
		}
		for _, c := range []caller{here, there} {
			if r := c.want(200, "POST", path+"/fail", cancelled); r.text("outcome") != "cancelled" {
				t.Errorf("the end: %s", r.raw)
			}
		}
		if n := len(here.eventsOf("flow", run, "ActivityCancelled")); n != 1 {
			t.Errorf("%d events ActivityCancelled, want 1", n)
		}

		// the run continues as new with a pending attempt
		w.decide(w.poll("workflow"), inSession("s"))
		left := v.pend()
		there.want(202, "POST", "/api/workflows/flow/signal/go", `{}`)
		w.decide(w.poll("workflow"), `{"type":"continue_as_new"}`)
		for _, c := range []caller{here, there} {
			if r := c.want(409, "POST", tokenPath(left, "complete"), `{}`); r.text("reason") != "stale_attempt" {
				t.Errorf("an outcome for the run that continued as new: %s", r.raw)
			}
			if got := c.pendingIn("flow"); len(got) != 0 {
				t.Errorf("the new run has the pending attempts %v", got)
			}
		}

		// the new run is cancelled with a pending attempt
		w.decide(w.poll("workflow"), inSession("s"))
		last := v.pend()
		here.want(200, "POST", "/api/workflows/flow/cancel", `{}`)
		for _, c := range []caller{here, there} {
			r := c.want(409, "POST", tokenPath(last, "complete"), `{}`)
			if r.text("reason") != "stale_attempt" || r.body["cancel_requested"] != true {
				t.Errorf("an outcome for the cancelled run: %s", r.raw)
			}
		}
		s := there.want(200, "GET", "/api/worker-sessions/s", "")
		if session, _ := s.body["session"].(map[string]any); session["active_activity_count"] != 0.0 {
			t.Errorf("the session after all attempts have ended: %s", s.raw)
		}
	})
}

// A run is reset, and another one is redriven, while an attempt is pending. The token is
// refused, and late reports of the worker are not recorded. The activity runs again in the new run; its new token ends
// it.
func TestTheTokenOfAResetOrRedrivenRunIsRefused(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		here, there := caller{t, a, "default"}, caller{t, b, "default"}
		w := register(here, "w", "")
		for id, again := range map[string]func(run string, open handTask) response{
			"reset": func(run string, _ handTask) response {
				return there.want(202, "POST", resetPath("reset", run), `{"to":"last_task"}`)
			},
			"redriven": func(run string, open handTask) response {
				w.failActivity(open)
				w.decide(w.poll("workflow"), failRun)
				return there.want(202, "POST", redrivePath("redriven", run), `{}`)
			},
		} {
			run := here.start(id)
			w.decide(w.poll("workflow"), retried, waitForGo)
			failed := w.pend()
			here.want(200, "POST", tokenPath(failed, "fail"), `{"failure":{"message":"no"}}`)
			old := w.pend() // the second attempt
			there.want(202, "POST", "/api/workflows/"+id+"/signal/go", `{}`)
			w.decide(w.poll("workflow"), step)
			open := w.poll("activity")
			next := again(run, open).text("run_id")

			refused := func() {
				t.Helper()
				unchanged(t, a, id+": the token of the earlier run", func() {
					for _, c := range []caller{here, there} {
						for _, verb := range []string{"complete", "heartbeat"} {
							if r := c.want(409, "POST", tokenPath(old, verb), `{}`); r.text("reason") != "stale_attempt" {
								t.Errorf("%s: %s with the token of the earlier run: %s", id, verb, r.raw)
							}
						}
						// the first response to the outcome of the first attempt
						r := c.want(200, "POST", tokenPath(failed, "fail"), `{"failure":{"message":"no"}}`)
						if r.text("run_id") != run || r.body["retry_scheduled"] != true {
							t.Errorf("%s: a repeated outcome: %s", id, r.raw)
						}
					}
					for _, task := range []handTask{old, open} {
						r := w.want(200, "POST", stepPath(task, "fail"), w.stepBody(task, pendingFailure))
						if r.body["recorded"] != false || r.text("reason") != "already_completed" {
							t.Errorf("%s: a late report of a pending attempt: %s", id, r.raw)
						}
					}
				})
			}
			refused()
			var tokens []string
			for range 2 {
				task := w.pend()
				if !strings.HasPrefix(task.text("activity_attempt_id"), next+"-") {
					t.Errorf("%s: attempt %s does not belong to run %s", id, task.text("activity_attempt_id"), next)
				}
				tokens = append(tokens, task.text("activity_attempt_id"))
			}
			refused()
			if got := there.pendingIn(id); len(got) != 2 {
				t.Errorf("%s: pending attempts %v, want %v", id, got, tokens)
			}
			for _, token := range tokens {
				there.want(200, "POST", "/api/sojourn/activities/"+token+"/complete", `{"result":1}`)
			}
			refused()
			w.decide(w.poll("workflow"), finish)
			there.wantCompleted(id)
			for of, want := range map[string]int{run: 0, next: 2} {
				if n := len(here.eventsOf(id, of, "ActivityCompleted")); n != want {
					t.Errorf("%s: run %s has %d events ActivityCompleted, want %d", id, of, n, want)
				}
			}
			refused()
		}
	})
}
