package apptest_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
)

// The messages to the children at the end of a chain are stored in the transaction that ends the chain: if the app dies
// before their delivery, the next app delivers them. The same applies if an app dies between the run that started the
// child and the run that ends the chain.
func TestAnAppThatDiesBeforeTheClosePolicyTakesEffectLeavesItToTheNext(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		// no background deliveries and timers: as if the app died after each commit
		still := func(o *app.Options) { o.ManualTime = true }
		a := apptest.Start(t, apptest.Options{Database: database, Change: still})
		c := caller{t, a, ""}
		w := register(c, "w", "")
		c.start("parent")
		w.decide(w.poll("workflow"), `{"type":"start_child_workflow","workflow_type":"flow","queue":"`+handQueue+
			`","parent_close_policy":"terminate"}`,
			`{"type":"open_condition_wait","condition_key":"k"}`)
		child := w.poll("workflow").text("workflow_id")
		c.want(202, "POST", "/api/workflows/parent/signal/go", `{}`)
		w.decide(w.poll("workflow"), `{"type":"continue_as_new"}`)
		a.Stop()

		a = apptest.Start(t, apptest.Options{Database: database, Change: still})
		c = caller{t, a, ""}
		w = register(c, "w", "")
		next := w.poll("workflow")
		for next.text("workflow_id") != "parent" { // the child's task was returned with the worker
			next = w.poll("workflow")
		}
		w.decide(next, finish)
		if s := c.want(200, "GET", "/api/workflows/parent", "").text("status"); s != "completed" {
			t.Fatalf("the parent is %s", s)
		}
		if s := c.want(200, "GET", "/api/workflows/"+child, "").text("status"); s == "terminated" {
			t.Fatal("the policy took effect already: nothing is tested")
		}
		a.Stop()

		c = caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		until(t, "the child is terminated", func() bool {
			return c.want(200, "GET", "/api/workflows/"+child, "").text("status") == "terminated"
		})
	})
}

// All runs of a chain with children are exported from one server and imported by another without changes. No history of
// the chain has the ends of some of these children.
func TestAChainWithChildrenIsExportedAndImported(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		home := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
		w := register(home, "w", "")
		home.start("parent")
		const start = `{"type":"start_child_workflow","workflow_type":"flow","queue":"` + handQueue +
			`","parent_close_policy":"terminate"}`
		first := w.poll("workflow")
		w.decide(first, start, start, `{"type":"open_condition_wait","condition_key":"k"}`)
		one, two := w.poll("workflow"), w.poll("workflow")
		home.want(202, "POST", "/api/workflows/parent/signal/go", `{}`)
		w.decide(w.poll("workflow"), `{"type":"continue_as_new"}`)
		second := w.poll("workflow")
		w.decide(two, finish) // no run receives it
		until(t, "the chain hears of its end", func() bool {
			pending, _ := home.want(200, "GET", "/api/workflows/parent", "").body["pending"].(map[string]any)
			open, _ := pending["children"].([]any)
			return len(open) == 1
		})
		w.decide(second, finish)
		until(t, "the other child is terminated", func() bool {
			return home.want(200, "GET", "/api/workflows/"+one.text("workflow_id"), "").text("status") == "terminated"
		})
		away := caller{t, apptest.Start(t, apptest.Options{}), "default"}
		for _, run := range []handTask{first, second, one, two} {
			id, number := run.text("workflow_id"), run.text("run_id")
			raw, events := home.bundle(id, number)
			got := away.ask("POST", "/api/workflows/import/bundle", raw)
			if got.status != 201 {
				t.Fatalf("%s: %s", id, got.raw)
			}
			if _, repeated := away.bundle(id, number); !cmp.Equal(events, repeated) {
				t.Errorf("%s has another history:\n%s", id, cmp.Diff(events, repeated))
			}
		}
		var types []string
		for _, e := range away.want(200, "GET", "/api/workflows/parent/runs/"+second.text("run_id")+"/history", "").
			body["events"].([]any) {
			types = append(types, e.(map[string]any)["event_type"].(string))
		}
		if want := []string{"WorkflowStarted", "ParentClosePolicyApplied", "WorkflowCompleted"}; !slices.Equal(types, want) {
			t.Errorf("the second run's history is %v, want %v", types, want)
		}
	})
}
