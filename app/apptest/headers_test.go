package apptest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// headersJSON returns n headers with values of equal size as the last member of a request.
func headersJSON(n, size int) string {
	h := map[string]string{}
	for i := range n {
		h[fmt.Sprintf("h%02d", i)] = strings.Repeat("v", size)
	}
	raw, _ := json.Marshal(h)
	return `,"headers":` + string(raw)
}

// eventsOf returns the payloads of a run's events of a type.
func (c caller) eventsOf(id, run, eventType string) (payloads []map[string]any) {
	c.t.Helper()
	for _, e := range c.want(200, "GET", "/api/workflows/"+id+"/runs/"+run+"/history", "").body["events"].([]any) {
		if e := e.(map[string]any); e["event_type"] == eventType {
			payloads = append(payloads, e["payload"].(map[string]any))
		}
	}
	return payloads
}

// Headers of requests and commands are in the events and tasks that they cause, at any app: also after a retry of an
// activity or a child, and after a run continued as new. They are not passed on further.
func TestHeadersReachEventsAndTasks(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		here, there := caller{t, a, "default"}, caller{t, b, "default"}
		w := register(there, "w", "")
		want := func(what string, got any, value string) {
			t.Helper()
			var headers any
			if value != "" {
				headers = map[string]any{"tenant": value}
			}
			if d := cmp.Diff(headers, got); d != "" {
				t.Errorf("%s: %s", what, d)
			}
		}
		with := func(value string) string { return `,"headers":{"tenant":"` + value + `"}` }
		run := here.want(201, "POST", "/api/workflows", startOf("flow", with("start"))).text("run_id")
		here.start("other")
		w.decide(w.poll("workflow"), `{"type":"open_signal_wait","signal_name":"s"}`) // one of the two tasks
		w.decide(w.poll("workflow"), `{"type":"open_signal_wait","signal_name":"s"}`)
		want("WorkflowStarted", here.eventsOf("flow", run, "WorkflowStarted")[0]["headers"], "start")

		there.want(202, "POST", "/api/workflows/flow/signal/s", `{"input":[1],"request_id":"r"`+with("signal")+`}`)
		again := here.want(202, "POST", "/api/workflows/flow/signal/s", `{"input":[1],"request_id":"r"`+with("later")+`}`)
		if again.body["retained"] != true {
			t.Errorf("a repeated signal with other headers: %s", again.raw)
		}
		signals := here.eventsOf("flow", run, "SignalReceived")
		if len(signals) != 1 {
			t.Fatalf("%d signals", len(signals))
		}
		want("SignalReceived", signals[0]["headers"], "signal")

		task := w.poll("workflow")
		want("workflow task", task["headers"], "start")
		w.decide(task,
			strings.TrimSuffix(step, "}")+`,"retry_policy":{"max_attempts":2}`+with("activity")+`}`,
			`{"type":"start_child_workflow","workflow_type":"flow","workflow_id":"child","queue":"`+handQueue+
				`","retry_policy":{"max_attempts":2}`+with("child")+`}`,
			`{"type":"signal_workflow","workflow_id":"other","signal_name":"s"`+with("sent")+`}`,
			`{"type":"open_signal_wait","signal_name":"more"}`)
		want("ActivityScheduled", here.eventsOf("flow", run, "ActivityScheduled")[0]["headers"], "activity")
		want("ChildWorkflowScheduled", here.eventsOf("flow", run, "ChildWorkflowScheduled")[0]["headers"], "child")
		attempt := w.poll("activity")
		want("activity task", attempt["headers"], "activity")
		w.want(200, "POST", stepPath(attempt, "fail"), w.stepBody(attempt, `,"failure":{"message":"m"}`))
		attempt = w.poll("activity")
		want("activity task of the second attempt", attempt["headers"], "activity")

		tasks := map[string]handTask{}
		for range 2 { // the child, and the receiver of the signal
			task := w.poll("workflow")
			tasks[task.text("workflow_id")] = task
		}
		want("task of the child", tasks["child"]["headers"], "child")
		want("task without headers", tasks["other"]["headers"], "")
		want("signal of a workflow", here.eventsOf("other", tasks["other"].text("run_id"), "SignalReceived")[0]["headers"],
			"sent")
		w.decide(tasks["child"], `{"type":"fail_workflow","message":"no"}`)
		task = w.poll("workflow")
		want("second run of the child", task["headers"], "child")
		w.decide(task, finish)
		w.decide(tasks["other"], finish)

		// the run continues as new with a signal and an update that it has not handled
		task = w.poll("workflow")
		there.want(202, "POST", "/api/workflows/flow/signal/unhandled", `{"input":[1]`+with("inherited")+`}`)
		there.want(202, "POST", "/api/workflows/flow/update/u", `{"input":[1]`+with("update")+`}`)
		want("UpdateAccepted", here.eventsOf("flow", run, "UpdateAccepted")[0]["headers"], "update")
		w.decide(task, `{"type":"continue_as_new"`+with("next")+`}`)
		next := here.want(200, "GET", "/api/workflows/flow", "").text("run_id")
		want("next run", here.eventsOf("flow", next, "WorkflowStarted")[0]["headers"], "next")
		want("inherited signal", here.eventsOf("flow", next, "SignalReceived")[0]["headers"], "inherited")
		want("inherited update", here.eventsOf("flow", next, "UpdateAccepted")[0]["headers"], "update")

		asked := here.later("POST", "/api/workflows/flow/query/q", `{"input":[]`+with("query")+`}`)
		question := w.poll("query")
		want("query task", question["headers"], "query")
		w.answer(question, "1")
		if s := <-asked; s.status != 200 {
			t.Errorf("query: %s", s.raw)
		}
		w.decide(w.poll("workflow"), `{"type":"continue_as_new"}`)
		next = here.want(200, "GET", "/api/workflows/flow", "").text("run_id")
		want("a run without headers", here.eventsOf("flow", next, "WorkflowStarted")[0]["headers"], "")
	})
}

// Headers of a start with a signal apply to both, and those of a schedule's action to the runs that it starts.
func TestHeadersOfStartsThatDoMore(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
		w := register(c, "w", "")
		const with = `,"headers":{"k":"v"}`
		check := func(what string, headers any) {
			t.Helper()
			if d := cmp.Diff(any(map[string]any{"k": "v"}), headers); d != "" {
				t.Errorf("%s: %s", what, d)
			}
		}
		const start = `{"workflow_type":"flow","task_queue":"` + handQueue + `"` + with
		run := c.want(201, "POST", "/api/sojourn/workflows/s/signal-with-start", start+`,"signal_name":"s"}`).text("run_id")
		check("signal-with-start", c.eventsOf("s", run, "WorkflowStarted")[0]["headers"])
		check("its signal", c.eventsOf("s", run, "SignalReceived")[0]["headers"])
		run = c.want(202, "POST", "/api/sojourn/workflows/u/update-with-start", start+`,"update_name":"u"}`).text("run_id")
		check("update-with-start", c.eventsOf("u", run, "WorkflowStarted")[0]["headers"])
		check("its update", c.eventsOf("u", run, "UpdateAccepted")[0]["headers"])

		c.want(201, "POST", "/api/sojourn/activities", `{"activity_type":"step","task_queue":"`+handQueue+`"`+with+`}`)
		attempt := w.poll("activity")
		check("activity run", attempt["headers"])
		w.want(200, "POST", stepPath(attempt, "complete"), w.stepBody(attempt, `,"result":1`))
		for _, of := range []string{"workflow_type", "activity_type"} {
			types := map[string]string{"workflow_type": "flow", "activity_type": "step"}
			c.want(201, "POST", "/api/schedules", `{"schedule_id":"`+of+`","spec":{"cron_expressions":["0 0 1 1 *"]},
				"action":{"`+of+`":"`+types[of]+`","task_queue":"`+handQueue+`"`+with+`}}`)
			fired := c.want(200, "POST", "/api/schedules/"+of+"/trigger", `{}`)
			started := c.eventsOf(fired.text("workflow_id"), fired.text("run_id"), "WorkflowStarted")
			check("schedule with "+of, started[0]["headers"])
		}
		check("activity run of a schedule", w.poll("activity")["headers"])
	})
}

// A request or command may have 32 headers, and 8 KiB of names and values. More are refused with the name of the
// member, and nothing changes.
func TestHeadersHaveLimits(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, "default"}
		w := register(c, "w", "")
		c.start("f")
		task := w.poll("workflow")
		valid := []string{
			headersJSON(32, 253), `,"headers":{"a":"` + strings.Repeat("v", 8191) + `"}`, `,"headers":{}`, `,"headers":null`,
		}
		tooMuch := []string{
			headersJSON(33, 1), `,"headers":{"a":"` + strings.Repeat("v", 8192) + `"}`, headersJSON(32, 254),
			`,"headers":{"":"v"}`, `,"headers":{"` + strings.Repeat("n", 256) + `":"v"}`, `,"headers":{"a":"\u0000"}`,
			`,"headers":{"a":1}`, `,"headers":["a"]`,
		}
		requests := map[string]string{
			"/api/workflows":                             startOf("new", "%s"),
			"/api/sojourn/activities":                    `{"activity_type":"step"%s}`,
			"/api/workflows/f/signal/s":                  `{"input":[]%s}`,
			"/api/workflows/f/update/u":                  `{"input":[]%s}`,
			"/api/workflows/f/query/q":                   `{"input":[]%s}`,
			"/api/sojourn/workflows/g/signal-with-start": `{"workflow_type":"flow","signal_name":"s"%s}`,
			"/api/sojourn/workflows/g/update-with-start": `{"workflow_type":"flow","update_name":"u"%s}`,
			"/api/schedules":                             `{"spec":{"cron_expressions":["0 0 1 1 *"]},"action":{"workflow_type":"flow"%s}}`,
		}
		for path, body := range requests {
			unchanged(t, a, path, func() {
				for _, headers := range tooMuch {
					got := c.want(422, "POST", path, fmt.Sprintf(body, headers))
					if named, _ := json.Marshal(got.body["errors"]); !strings.Contains(string(named), `headers`) {
						t.Errorf("%s with %.40s: %s", path, headers, got.raw)
					}
				}
			})
		}
		for _, command := range []string{
			`{"type":"schedule_activity","activity_type":"step"%s}`, `{"type":"start_child_workflow","workflow_type":"flow"%s}`,
			`{"type":"continue_as_new"%s}`, `{"type":"signal_workflow","workflow_id":"g","signal_name":"s"%s}`,
		} {
			unchanged(t, a, command, func() {
				for _, headers := range tooMuch {
					got := c.want(422, "POST", flowPath(task, "complete"),
						w.flowBody(task, `,"commands":[`+fmt.Sprintf(command, headers)+`]`))
					if !strings.Contains(got.raw, "headers") {
						t.Errorf("%s with %.40s: %s", command, headers, got.raw)
					}
				}
			})
		}
		for i, headers := range valid {
			c.want(201, "POST", "/api/workflows", startOf(fmt.Sprint("valid-", i), headers))
			c.want(202, "POST", "/api/workflows/f/signal/s", `{"input":[]`+headers+`}`)
		}
		w.decide(task, `{"type":"schedule_activity","activity_type":"step","queue":"`+handQueue+`"`+valid[1]+`}`)
		if h, _ := w.poll("activity")["headers"].(map[string]any); len(fmt.Sprint(h["a"])) != 8191 {
			t.Errorf("activity task: %.100v", h)
		}
	})
}
