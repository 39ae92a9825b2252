package apptest_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

func TestARunThatContinuesWithoutArgumentsKeepsItsOwn(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		w := register(c, "w", "")
		c.start("again-1") // the input is [1]
		first := w.poll("workflow")
		const continueAsNew = `{"type":"continue_as_new"}`
		w.decide(first, continueAsNew)
		if s := c.want(
			200, "POST", flowPath(first, "complete"), w.flowBody(first, `,"commands":[`+continueAsNew+`]`),
		); s.text("reason") != "already_completed" {
			t.Errorf("the same once more: %s", s.brief())
		}
		second := w.poll("workflow")
		was, is := first["arguments"].(map[string]any), second["arguments"].(map[string]any)
		if second.text("run_id") == first.text("run_id") || is["blob"] != was["blob"] {
			t.Errorf("the second run has %v, the first had %v", is, was)
		}
		w.decide(second, `{"type":"continue_as_new","arguments":`+envelope(t, `[2]`)+`}`)
		third := w.poll("workflow")
		if third["arguments"].(map[string]any)["blob"] == was["blob"] {
			t.Errorf("the third run has %v", third["arguments"])
		}
		w.decide(third, finish)
	})
}

// A parent that continues as new keeps its children. Later runs are not notified of their ends. The parent-close policy
// applies to open children when the last run ends.
func TestChildrenOutliveAParentThatContinuesAsNew(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		w := register(c, "w", "")
		c.start("parent-1")
		parent := w.poll("workflow")
		const child = `{"type":"start_child_workflow","workflow_type":"flow","queue":"` + handQueue +
			`","parent_close_policy":"terminate"}`
		w.decide(parent, child, child, `{"type":"open_condition_wait","condition_key":"k"}`)
		one, two := w.poll("workflow"), w.poll("workflow")
		c.want(202, "POST", "/api/workflows/parent-1/signal/go", `{}`)
		w.decide(w.poll("workflow"), `{"type":"continue_as_new"}`)
		next := w.poll("workflow")
		if next.text("workflow_id") != "parent-1" || next.text("run_id") == parent.text("run_id") {
			t.Fatalf("the next run: %v", next)
		}
		w.decide(next, `{"type":"open_condition_wait","condition_key":"k"}`)
		w.decide(one, finish)
		if s := c.want(200, "GET", "/api/workflows/"+one.text("workflow_id"), ""); s.text("status") != "completed" {
			t.Errorf("the child: %s", s.brief())
		}
		w.empty("workflow")
		until(t, "the chain hears of its end", func() bool {
			pending, _ := c.want(200, "GET", "/api/workflows/parent-1", "").body["pending"].(map[string]any)
			open, _ := pending["children"].([]any)
			return len(open) == 1
		})
		c.want(200, "POST", "/api/workflows/parent-1/cancel", `{}`)
		until(t, "the other child is terminated", func() bool {
			return c.want(200, "GET", "/api/workflows/"+two.text("workflow_id"), "").text("status") == "terminated"
		})
		events := ""
		for _, e := range c.want(200, "GET", "/api/workflows/parent-1/runs/"+next.text("run_id")+"/history", "").
			body["events"].([]any) {
			events += e.(map[string]any)["event_type"].(string) + " "
		}
		if events != "WorkflowStarted ConditionWaitOpened CancelRequested ParentClosePolicyApplied WorkflowCancelled " {
			t.Errorf("the second run's history: %s", events)
		}
	})
}
