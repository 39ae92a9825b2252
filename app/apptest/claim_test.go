package apptest_test

import (
	"strconv"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

func claimPath(kind, task string) string { return "/api/worker/" + kind + "-tasks/" + task + "/claim" }

func TestAKnownTaskIsClaimedByItsID(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		one, two := register(c, "one", ""), register(c, "two", "")
		run := c.start("claimed-1")
		id := run + "-1-workflow"
		var status response
		unchanged(t, a, "a claim status", func() {
			status = c.want(200, "GET", claimPath("workflow", id)+"?worker_id=one", "")
		})
		if status.body["claimable"] != true || status.body["claimed"] != false || status.text("task_status") != "ready" ||
			status.body["reason"] != nil {
			t.Errorf("a ready task: %s", status.raw)
		}

		got := c.want(200, "POST", claimPath("workflow", id), `{"worker_id":"one"}`)
		task := taskOf(t, got)
		if got.body["claimed"] != true || task.text("task_id") != id || task.text("lease_owner") != "one" ||
			task.number("workflow_task_attempt") != 1 ||
			task["arguments"] == nil || len(task["history_events"].([]any)) == 0 {
			t.Errorf("the claim: %s", got.raw)
		}
		unchanged(t, a, "the claim once more", func() {
			second := taskOf(t, c.want(200, "POST", claimPath("workflow", id), `{"lease_owner":"one"}`))
			if second.number("workflow_task_attempt") != 1 || second.text("lease_expires_at") != task.text("lease_expires_at") {
				t.Errorf("the claim once more gave another lease: %v", second)
			}
		})
		unchanged(t, a, "a claim of what another has", func() {
			s := c.want(409, "POST", claimPath("workflow", id), `{"worker_id":"two"}`)
			if s.text("reason") != "task_not_claimable" || s.text("lease_owner") != "one" || s.body["claimed"] != false ||
				s.text("task_status") != "leased" {
				t.Errorf("a claim of what another has: %s", s.raw)
			}
			if s = c.want(
				200, "GET", claimPath("workflow", id)+"?worker_id=two", "",
			); s.text("reason") != "task_not_claimable" || s.body["claimable"] != false {
				t.Errorf("its status for the other: %s", s.raw)
			}
			if s = c.want(200, "GET", claimPath("workflow", id)+"?worker_id=one", ""); s.body["claimed"] != true ||
				s.body["reason"] != nil {
				t.Errorf("its status for the holder: %s", s.raw)
			}
		})
		two.empty("workflow")
		one.decide(task, step, inSession("s-1"))

		plain, tied := run+"-1", run+"-2"
		act := taskOf(t, c.want(200, "POST", claimPath("activity", plain), `{"worker_id":"two"}`))
		if act.text("activity_attempt_id") != plain+"-1" || act.text("lease_owner") != "two" {
			t.Errorf("the activity: %v", act)
		}
		first := taskOf(t, c.want(200, "POST", claimPath("activity", tied), `{"worker_id":"one"}`))
		session, _ := first["worker_session"].(map[string]any)
		if session["lease_owner"] != "one" || session["is_new"] != true {
			t.Errorf("the claim of a task of a session did not take the session: %v", first)
		}
		c.want(200, "POST", stepPath(first, "complete"), one.stepBody(first, ""))
		c.want(200, "POST", stepPath(act, "complete"), two.stepBody(act, `,"result":`+envelope(t, `"done"`)))
		one.decide(one.poll("workflow"), inSession("s-1"))
		unchanged(t, a, "a claim against a session's holder", func() {
			s := c.want(409, "POST", claimPath("activity", run+"-3"), `{"worker_id":"two"}`)
			if s.text("reason") != "session_owned_by_another_worker" {
				t.Errorf("a claim against a session's holder: %s", s.raw)
			}
		})
		last := taskOf(t, c.want(200, "POST", claimPath("activity", run+"-3"), `{"worker_id":"one"}`))
		c.want(200, "POST", stepPath(last, "complete"), one.stepBody(last, ""))
		one.decide(one.poll("workflow"), finish)
		unchanged(t, a, "claims of what is over", func() {
			if s := c.want(409, "POST", claimPath("workflow", id), `{"worker_id":"one"}`); s.text("reason") != "run_closed" {
				t.Errorf("a claim in a closed run: %s", s.raw)
			}
			if s := c.want(
				404, "POST", claimPath("activity", run+"-9"), `{"worker_id":"one"}`,
			); s.text("reason") != "task_not_found" {
				t.Errorf("a claim of what never was: %s", s.raw)
			}
		})
	})
}

func TestAClaimPassesTheGatesOfAPoll(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, ""}
	run := c.start("gates-1")
	id := run + "-1-workflow"
	c.want(
		201, "POST", "/api/worker/register",
		`{"worker_id":"elsewhere","task_queue":"other","supported_workflow_types":["flow"]}`,
	)
	c.want(
		201, "POST", "/api/worker/register",
		`{"worker_id":"narrow","task_queue":"`+handQueue+`","supported_workflow_types":["else"]}`,
	)
	c.want(201, "POST", "/api/worker/register", `{"worker_id":"typeless","task_queue":"`+handQueue+`"}`)
	register(c, "drained", "")
	c.want(200, "POST", "/api/worker/heartbeat", `{"worker_id":"drained","draining":true}`)
	register(c, "ours", "")
	for _, k := range []struct {
		what, body, reason string
		status             int
	}{
		{"a worker nobody knows", `{"worker_id":"nobody"}`, "worker_not_registered", 412},
		{"no worker", `{}`, "validation_failed", 422},
		{"another queue's worker", `{"worker_id":"elsewhere"}`, "task_queue_mismatch", 409},
		{"a worker without the type", `{"worker_id":"narrow"}`, "task_not_claimable", 409},
		{"a worker of no type at all", `{"worker_id":"typeless"}`, "task_not_claimable", 409},
		{"another build", `{"worker_id":"ours","build_id":"b-2"}`, "build_id_mismatch", 409},
		{"a worker that drains", `{"worker_id":"drained"}`, "worker_draining", 409},
		{"an older process", `{"worker_id":"ours","incarnation":"old"}`, "stale_worker_registration", 409},
		{"a page out of range", `{"worker_id":"ours","history_page_size":1001}`, "validation_failed", 422},
	} {
		unchanged(t, a, k.what, func() {
			if s := c.ask("POST", claimPath("workflow", id), k.body); s.status != k.status || s.text("reason") != k.reason ||
				s.body["claimed"] != false {
				t.Errorf("%s: %d %s", k.what, s.status, s.raw)
			}
		})
	}
	budget := func(body string) { c.want(200, "PUT", "/api/task-queues/"+handQueue+"/limits", body) }
	budget(`{"workflow_tasks":{"max_active_leases":5}}`)
	unchanged(t, a, "a queue under a budget", func() {
		if s := c.want(429, "POST", claimPath("workflow", id), `{"worker_id":"ours"}`); s.text("reason") != "throttled" {
			t.Errorf("a queue under a budget: %s", s.raw)
		}
	})
	budget(`{"workflow_tasks":{"max_active_leases":null}}`)
	c.want(200, "POST", claimPath("workflow", id), `{"worker_id":"ours"}`)
}

func TestAnAttemptsStatusIsReadWithoutRenewing(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		w := register(c, "w", "")
		run := c.start("status-1")
		w.decide(w.poll("workflow"), step)
		task := w.poll("activity")
		path := stepPath(task, "status")
		ask := func() response { return c.want(200, "POST", path, w.stepBody(task, "")) }
		unchanged(t, a, "a status", func() {
			s := ask()
			if s.body["can_continue"] != true || s.body["cancel_requested"] != false || s.body["heartbeat_recorded"] != false ||
				s.text("attempt_status") != "running" ||
				s.text("lease_expires_at") != task.text("lease_expires_at") || s.body["attempt_number"] != 1.0 ||
				s.text("run_id") != run {
				t.Errorf("a live attempt: %s", s.raw)
			}
			if q := c.want(
				200, "GET", path+"?lease_owner=w&activity_attempt_id="+task.text("activity_attempt_id"), "",
			); q.text("attempt_status") != "running" {
				t.Errorf("by GET: %s", q.raw)
			}
			if s := c.want(
				409, "POST", path, `{"lease_owner":"x","activity_attempt_id":"`+task.text("activity_attempt_id")+`"}`,
			); s.text("reason") != "lease_owner_mismatch" {
				t.Errorf("another owner: %s", s.raw)
			}
			if s := c.want(
				200, "POST", path, `{"lease_owner":"w","activity_attempt_id":"`+run+`-1-7"}`,
			); s.text("reason") != "stale_attempt" || s.body["can_continue"] != false {
				t.Errorf("an attempt that never was: %s", s.raw)
			}
		})
		c.want(200, "POST", "/api/workflows/status-1/cancel", `{}`)
		if s := ask(); s.body["can_continue"] != false || s.body["cancel_requested"] != true ||
			s.text("reason") != "run_cancelled" ||
			s.text("run_closed_reason") != "cancelled" || s.text("attempt_status") != "closed" {
			t.Errorf("after the cancel: %s", s.raw)
		}
	})
}

func TestHistoryIsReadInPagesOrWhole(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, ""}
	w := register(c, "w", "")
	c.start("pages-1")
	for range 60 {
		c.want(202, "POST", "/api/workflows/pages-1/signal/s", `{}`)
	}
	task := w.poll("workflow")
	total := task.number("total_history_events")
	if total < 61 {
		t.Fatalf("the run has %d events", total)
	}
	path := flowPath(task, "history")
	whole := c.want(200, "POST", path+"?all=true", w.flowBody(task, `,"page_size":7`))
	if events, _ := whole.body["history_events"].([]any); int64(len(events)) != total ||
		whole.body["next_history_page_token"] != nil || whole.body["has_more"] != false {
		t.Errorf("the whole history has %d of %d events", len(events), total)
	}
	var seen int64
	after := "0"
	for pages := 0; ; pages++ {
		s := c.want(200, "POST", path, w.flowBody(task, `,"page_size":25,"after_sequence":`+after))
		for _, e := range s.body["history_events"].([]any) {
			if n := int64(e.(map[string]any)["sequence"].(float64)); n != seen+1 {
				t.Fatalf("event %d after %d", n, seen)
			}
			seen++
		}
		if s.body["has_more"] != true {
			break
		}
		if after = strconv.Itoa(int(s.body["next_after_sequence"].(float64))); pages > 10 {
			t.Fatal("the pages do not end")
		}
	}
	if seen != total {
		t.Errorf("the pages have %d of %d events", seen, total)
	}
	for _, encoding := range []string{"gzip", "deflate", "br, deflate"} {
		s := c.want(200, "POST", path+"?all=true", w.flowBody(task, `,"accept_history_encoding":"`+encoding+`"`))
		if len(s.body["history_events"].([]any)) != 0 || s.text("history_events_compressed") == "" ||
			s.text("history_events_encoding") == "" {
			t.Errorf("%s: %.300s", encoding, s.raw)
		}
	}
	if s := c.want(
		200, "POST", path, w.flowBody(task, `,"page_size":49,"accept_history_encoding":"gzip"`),
	); len(s.body["history_events"].([]any)) != 49 {
		t.Errorf("a short page was compressed: %.200s", s.raw)
	}
	if s := c.want(422, "POST", path+"?all=perhaps", w.flowBody(task, "")); s.text("reason") != "validation_failed" {
		t.Errorf("all=perhaps: %s", s.raw)
	}
}
