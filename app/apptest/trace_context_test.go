package apptest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// traceOf returns a trace context whose trace and span consist of one digit, as the last member of a request.
func traceOf(digit, baggage string) string {
	if baggage != "" {
		baggage = `,"baggage":"` + baggage + `"`
	}
	return `,"observability_context":` + traceValue(digit, baggage)
}

func traceValue(digit, more string) string {
	return `{"schema":"durable-workflow.trace-context","version":1,"carrier":{"traceparent":"` + traceparent(digit) + `"` +
		more + `}}`
}

func traceparent(digit string) string {
	return "00-" + strings.Repeat(digit, 32) + "-" + strings.Repeat(digit, 16) + "-01"
}

// The trace context of a start is in the tasks of its runs, its children and its next runs, at any app; a command may
// replace it. Those of signals, updates and cancellations are links of the task that first contains them.
func TestTraceContextsReachEventsAndTasks(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		here, there := caller{t, a, "default"}, caller{t, b, "default"}
		w := register(there, "w", `,"workflow_definitions":{}`)
		want := func(what string, got any, digit, baggage string) {
			t.Helper()
			carrier := map[string]any{"traceparent": traceparent(digit)}
			if baggage != "" {
				carrier["baggage"] = baggage
			}
			if d := cmp.Diff(any(map[string]any{
				"schema": "durable-workflow.trace-context", "version": 1.0, "carrier": carrier,
			}), got); d != "" {
				t.Errorf("%s: %s", what, d)
			}
		}
		run := here.want(201, "POST", "/api/workflows", startOf("flow", traceOf("1", "k=v"))).text("run_id")
		want("WorkflowStarted", here.eventsOf("flow", run, "WorkflowStarted")[0]["observability_context"], "1", "k=v")
		task := w.poll("workflow")
		want("first workflow task", task["observability_context"], "1", "k=v")
		if task["observability_links"] != nil {
			t.Errorf("links of the first task: %v", task["observability_links"])
		}
		w.decide(task, step, `{"type":"open_signal_wait","signal_name":"s"}`)
		attempt := w.poll("activity")
		want("activity task", attempt["observability_context"], "1", "k=v")
		w.want(200, "POST", stepPath(attempt, "fail"), w.stepBody(attempt, `,"failure":{"message":"m","non_retryable":true}`))
		task = w.poll("workflow")
		here.want(202, "POST", "/api/workflows/flow/signal/s", `{"request_id":"r"`+traceOf("2", "k=v")+`}`)
		w.decide(task, `{"type":"open_signal_wait","signal_name":"more"}`)
		if r := here.want(202, "POST", "/api/workflows/flow/signal/s", `{"request_id":"r"`+traceOf("3", "")+`}`); r.
			body["retained"] != true {
			t.Errorf("a repeated signal with another trace context: %s", r.raw)
		}
		signal := here.eventsOf("flow", run, "SignalReceived")[0]
		want("SignalReceived", signal["observability_context"], "2", "k=v")
		task = w.poll("workflow")
		want("workflow task after the signal", task["observability_context"], "1", "k=v")
		links, _ := task["observability_links"].(map[string]any)
		list, _ := links["links"].([]any)
		if links["schema"] != "durable-workflow.trace-links" || links["task_id"] != task.text("task_id") ||
			links["run_id"] != run || links["namespace"] != "default" || len(list) != 1 {
			t.Fatalf("links: %v", links)
		}
		link := list[0].(map[string]any)
		want("link of the signal", link["context"], "2", "")
		if link["kind"] != "command" || link["command_id"] != signal["workflow_signal_id"] {
			t.Errorf("link of the signal: %v", link)
		}
		child := func(id, more string) string {
			return `{"type":"start_child_workflow","workflow_type":"flow","workflow_id":"` + id + `","queue":"` + handQueue +
				`"` + more + `}`
		}
		w.decide(task, child("inherits", ""), child("replaces", traceOf("4", "")),
			`{"type":"continue_as_new","workflow_type":"flow"}`)
		digits := map[string]string{"inherits": "1", "replaces": "4", "flow": "1"}
		for range digits {
			task := w.poll("workflow")
			id, baggage := task.text("workflow_id"), ""
			if digits[id] == "1" {
				baggage = "k=v"
			}
			want("task of "+id, task["observability_context"], digits[id], baggage)
			if task["observability_links"] != nil {
				t.Errorf("links of a task of %s: %v", id, task["observability_links"])
			}
			if id == "flow" {
				w.decide(task, `{"type":"continue_as_new"`+traceOf("5", "")+`}`)
			}
		}
		task = w.poll("workflow")
		want("task of the next run", task["observability_context"], "5", "")
		here.want(202, "POST", "/api/workflows/flow/update/u", `{"wait_for":"accepted"`+traceOf("6", "")+`}`)
		here.want(200, "POST", "/api/workflows/flow/cancel", `{"reason":"enough"`+traceOf("7", "")+`}`)
		last := task.text("run_id")
		want("UpdateAccepted", here.eventsOf("flow", last, "UpdateAccepted")[0]["observability_context"], "6", "")
		want("CancelRequested", here.eventsOf("flow", last, "CancelRequested")[0]["observability_context"], "7", "")
	})
}

// A malformed trace context never fails or changes a request: the app discards it.
func TestMalformedTraceContextsAreDiscarded(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), "default"}
	for id, context := range map[string]string{
		"text":     `"00-1-1-01"`,
		"number":   `7`,
		"null":     `null`,
		"zero":     traceValue("0", ""),
		"unknown":  traceValue("1", `,"b3":"1"`),
		"tooLarge": traceValue("1", `,"baggage":"`+strings.Repeat("v", 4096)+`"`),
	} {
		run := c.want(201, "POST", "/api/workflows", startOf(id, `,"observability_context":`+context)).text("run_id")
		c.want(202, "POST", "/api/workflows/"+id+"/signal/s", `{"observability_context":`+context+`}`)
		if s := c.want(200, "GET", "/api/workflows/"+id+"/runs/"+run+"/history", ""); strings.Contains(
			s.raw, "observability_context",
		) {
			t.Errorf("%s: %s", id, s.raw)
		}
	}
}
