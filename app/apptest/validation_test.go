package apptest_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

const validators = `,"capabilities":["update_validation_tasks","workflow_updates"],
	"workflow_command_contracts":{"flow":{"queries":[],"signals":[],"updates":["set","free"],"update_validators":["set"]}}`

// verdict completes a validation task.
func (h hand) verdict(t handTask, verb, more string) response {
	h.t.Helper()
	return h.ask("POST", questionPath("update_validation_task", t.text("update_validation_task_id"), verb),
		h.questionBody("update_validation", t, more))
}

func TestAnUpdateIsAcceptedOnlyAfterItsValidatorApproved(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		b := a
		if database[:6] != "sqlite" {
			b = apptest.Start(t, apptest.Options{Database: database}) // the worker is another app's
		}
		c := caller{t, a, ""}
		w := register(caller{t, b, ""}, "w", validators)
		c.start("judged-1")
		w.decide(w.poll("workflow"), `{"type":"open_condition_wait","condition_key":"k"}`)
		const path = "/api/workflows/judged-1/update/"
		multiplexed := `{"worker_id":"w","task_queue":"` + handQueue +
			`","task_kinds":["workflow","update_validation"],"timeout_seconds":30}`

		before := a.Dump()
		asked := c.later("POST", path+"set", `{"input":[1],"request_id":"r-1"}`)
		task := taskOf(t, w.want(200, "POST", "/api/worker/workflow-tasks/poll", multiplexed))
		if task.text("task_kind") != "update_validation" || task.text("update_name") != "set" ||
			task["update_arguments"] == nil || task.text("run_id") == "" ||
			task.number("update_validation_attempt") != 1 {
			t.Fatalf("the validation task: %v", task)
		}
		if s := w.verdict(handTask{
			"update_validation_task_id": task["update_validation_task_id"], "update_validation_attempt": 4.0,
		}, "approve", ""); s.status != 409 ||
			s.text("reason") != "stale_update_validation_completion" {
			t.Errorf("another attempt's verdict: %s", s.raw)
		}
		if diff := before.Diff(a.Dump(), "questions", "workers"); diff != "" {
			t.Errorf("before the verdict something was written:\n%s", diff)
		}
		if s := w.verdict(
			task, "reject",
			`,"failure":{"message":"too low","reason":"update_validator_rejected","type":"ValueError","validation_errors":{"n":["low"]}}`,
		); s.status != 200 ||
			s.text("outcome") != "rejected" {
			t.Errorf("the rejection: %s", s.raw)
		}
		if s := <-asked; s.status != 422 || s.text("reason") != "update_validator_rejected" ||
			s.body["validation_errors"].(map[string]any)["n"] == nil {
			t.Errorf("the caller of a rejected update: %d %s", s.status, s.raw)
		}
		if diff := before.Diff(a.Dump(), "workers"); diff != "" {
			t.Errorf("a rejected update changed something:\n%s", diff)
		}

		asked = c.later("POST", path+"set", `{"input":[2],"request_id":"r-1"}`) // the request id was not used up
		task = taskOf(
			t,
			w.want(
				200, "POST", "/api/worker/update-validation-tasks/poll",
				`{"worker_id":"w","task_queue":"`+handQueue+`","timeout_seconds":30}`,
			),
		)
		if s := w.verdict(task, "approve", ""); s.status != 200 || s.text("outcome") != "approved" {
			t.Errorf("the approval: %s", s.raw)
		}
		got := <-asked
		if got.status != 202 || got.text("update_status") != "accepted" {
			t.Fatalf("the caller of an approved update: %d %s", got.status, got.raw)
		}
		if s := w.verdict(task, "approve", ""); s.status != 404 && s.status != 409 {
			t.Errorf("a second approval: %d %s", s.status, s.raw)
		}
		if s := c.want(
			202, "POST", path+"set", `{"input":[2],"request_id":"r-1"}`,
		); s.text("update_id") != got.text("update_id") {
			t.Errorf("the same request again was judged again or is another update: %s", s.raw)
		}
		flow := taskOf(t, w.want(200, "POST", "/api/worker/workflow-tasks/poll", multiplexed))
		if flow.text("task_kind") != "workflow" || flow.text("workflow_update_id") != got.text("update_id") {
			t.Errorf("the update's task: %v", flow)
		}
		w.decide(flow, `{"type":"complete_update","update_id":"`+got.text("update_id")+`","result":`+envelope(t, `"set"`)+`}`)
		c.want(202, "POST", path+"free", `{"input":[1]}`) // this update has no validator

		asked = c.later("POST", path+"set", `{"input":[3]}`)
		task = taskOf(
			t,
			w.want(
				200, "POST", "/api/worker/update-validation-tasks/poll",
				`{"worker_id":"w","task_queue":"`+handQueue+`","timeout_seconds":30}`,
			),
		)
		w.verdict(task, "reject", `,"failure":{"message":"replay broke","reason":"update_validation_worker_failed"}`)
		if s := <-asked; s.status != 409 || s.text("reason") != "update_validation_worker_failed" {
			t.Errorf("a validator that broke: %d %s", s.status, s.raw)
		}
		if s := w.ask(
			"POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"`+handQueue+`","task_kinds":["query"]}`,
		); s.status != 422 {
			t.Errorf("a kind that no poll of this route has: %d", s.status)
		}
	})
}

// The result of a validation applies to one run. Later events of the run do not invalidate it. If another run has
// replaced the run, the app requests a validation by the new run's code.
func TestApprovalAppliesToTheValidatedRunOnly(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, ""}
	w := register(c, "w", validators)
	judge := func() handTask {
		t.Helper()
		return taskOf(
			t,
			w.want(
				200, "POST", "/api/worker/update-validation-tasks/poll",
				`{"worker_id":"w","task_queue":"`+handQueue+`","timeout_seconds":30}`,
			),
		)
	}
	run := c.start("moves")
	w.decide(w.poll("workflow"), `{"type":"open_condition_wait","condition_key":"k"}`)

	asked := c.later("POST", "/api/workflows/moves/update/set", `{"input":[1]}`)
	task := judge()
	c.want(202, "POST", "/api/workflows/moves/signal/x", `{}`)
	w.verdict(task, "approve", "")
	if s := <-asked; s.status != 202 || s.text("run_id") != run {
		t.Errorf("approved while the history grew: %d %s", s.status, s.raw)
	}
	flow := w.poll("workflow")
	w.decide(flow, `{"type":"open_condition_wait","condition_key":"k"}`)
	flow = w.poll("workflow")

	asked = c.later("POST", "/api/workflows/moves/update/set", `{"input":[2]}`)
	task = judge()
	w.decide(flow, `{"type":"complete_update","update_id":"`+flow.text("workflow_update_id")+`"}`)
	w.decide(w.poll("workflow"), `{"type":"continue_as_new"}`)
	w.verdict(task, "approve", "")
	redelivered := judge()
	if task.text("run_id") != run || redelivered.text("run_id") == run {
		t.Errorf("the run judged first is %s, then %s; it began as %s", task.text("run_id"), redelivered.text("run_id"), run)
	}
	w.verdict(redelivered, "approve", "")
	if s := <-asked; s.status != 202 || s.text("run_id") != redelivered.text("run_id") {
		t.Errorf("approved for the run that went on: %d %s", s.status, s.raw)
	}
}
