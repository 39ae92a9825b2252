package apptest_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
)

// startChild returns a start_child_workflow command with additional members. replaceChild contains the members with
// which the command replaces an open child.
func startChild(id, more string) string {
	return `{"type":"start_child_workflow","workflow_type":"child","workflow_id":"` + id + `","queue":"unserved"` +
		more + `}`
}

const (
	replaceChild = `,"conflict_policy":"terminate-existing"`
	waitForGo    = `{"type":"open_signal_wait","signal_name":"go"}`
)

// parentOf starts a parent with a child x and returns the parent and the first run of the child. The parent's next
// workflow task is ready.
func parentOf(h hand, id, more string) (parent, child string) {
	h.t.Helper()
	parent = h.start(id)
	h.decide(h.poll("workflow"), startChild("x", more), waitForGo)
	child = h.want(200, "GET", "/api/workflows/x", "").text("run_id")
	h.want(202, "POST", "/api/workflows/"+id+"/signal/go", `{}`)
	return parent, child
}

// delivered waits until the parent has no undelivered message.
func delivered(t *testing.T, a *apptest.App, run string) {
	t.Helper()
	until(t, "the messages of the parent are delivered", func() bool {
		for _, row := range rowsOf(a, "runs", run) {
			if strings.Contains(row, "close_child") {
				return false
			}
		}
		return true
	})
}

// A message that closes or cancels a child concerns the child that it was sent to. A later child with the same workflow
// ID keeps running, although the message is delivered after it began.
func TestTheEndOfAChildDoesNotAffectItsReplacement(t *testing.T) {
	const closes = `,"parent_close_policy":"terminate"`
	const cancel = `{"type":"cancel_child_workflow","target":1}`
	for _, c := range []struct {
		name, policy string
		commands     []string
	}{
		{"closed in the same task", closes, []string{startChild("x", replaceChild), finish}},
		{"cancelled in the same task", "", []string{cancel, startChild("x", replaceChild), waitForGo}},
		{"cancelled, with try_cancel", `,"cancellation_policy":"try_cancel"`, []string{
			cancel, startChild("x", replaceChild), waitForGo,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			apptest.Databases(t, func(t *testing.T, database string) {
				a := apptest.Start(t, apptest.Options{Database: database})
				h := register(caller{t, a, "default"}, "w", "")
				parent, old := parentOf(h, "parent", c.policy)
				h.decide(h.poll("workflow"), c.commands...)
				delivered(t, a, parent)
				if got := h.want(200, "GET", "/api/runs/"+old, ""); got.text("status") != "terminated" {
					t.Errorf("the replaced child: %s", got.raw)
				}
				if got := h.want(200, "GET", "/api/workflows/x", ""); got.text("run_id") == old || got.text("status") != "pending" {
					t.Errorf("the replacement: %s", got.raw)
				}
			})
		})
	}
}

// A child that replaces another one needs no room for open runs, since it replaces one, but it is a start. A held child
// has no room that its replacement could use.
func TestAChildThatReplacesAnotherCountsTowardsQuotas(t *testing.T) {
	reason := func(h hand, id string) string {
		return h.want(200, "GET", "/api/workflows/"+id, "").text("wait_reason")
	}
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		busy, _ := quotas(t, a, `{"open_runs":2}`)
		h := register(busy, "w", "")
		parentOf(h, "parent", "")
		h.decide(h.poll("workflow"), startChild("x", replaceChild), waitForGo)
		if got := reason(h, "x"); strings.Contains(got, "quota") {
			t.Errorf("the replacement of a counted child waits for %s", got)
		}
		busy.want(200, "POST", "/api/workflows/x/terminate", `{}`)
		h.decide(h.poll("workflow"), waitForGo) // for the end of the child
		busy.want(201, "POST", "/api/workflows", `{"workflow_id":"other","workflow_type":"none","task_queue":"unserved"}`)
		busy.want(202, "POST", "/api/workflows/parent/signal/go", `{}`)
		h.decide(h.poll("workflow"), startChild("y", ""), waitForGo)
		busy.want(202, "POST", "/api/workflows/parent/signal/go", `{}`)
		h.decide(h.poll("workflow"), startChild("y", replaceChild), waitForGo)
		if got := reason(h, "y"); !strings.Contains(got, "quota") {
			t.Errorf("the replacement of a held child runs above the quota: %s", got)
		}
		busy.setQuotas(`{"open_runs":-1}`)
		until(t, "the held child begins", func() bool { return !strings.Contains(reason(h, "y"), "quota") })
		busy.setQuotas(`{"open_runs":-1,"starts_per_second":0}`)
		busy.want(202, "POST", "/api/workflows/parent/signal/go", `{}`)
		h.decide(h.poll("workflow"), startChild("y", replaceChild), startChild("z", ""), waitForGo)
		for _, id := range []string{"y", "z"} {
			if got := reason(h, id); !strings.Contains(got, "quota") {
				t.Errorf("%s starts above the quota of starts: %s", id, got)
			}
		}
	})
}

// A worker with a token for one queue cannot end workflows of other queues by a child with their workflow ID, under any
// policy. The child fails, and the failure says why.
func TestAWorkerTokenCannotEndOtherWorkflows(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.NoAuth, o.Token = false, admin }})
	c := client{t: t, url: a.URL()}.as(admin)
	w := c.as(c.want(201, "POST", "/tokens", `{"name":"w","roles":["worker"],"queues":["blue"]}`).text("token"))
	w.want(201, "POST", "/api/worker/register",
		`{"worker_id":"x","task_queue":"blue","supported_workflow_types":["flow"],"supported_activity_types":["step"]}`)
	victim := c.want(201, "POST", "/workflows", `{"workflow_id":"victim","workflow_type":"bank","task_queue":"red"}`)
	mine := c.want(201, "POST", "/workflows", `{"workflow_id":"mine","workflow_type":"flow","task_queue":"blue"}`)
	w.want(403, "POST", "/workflows/victim/terminate", `{}`)
	task := taskOf(t, w.want(200, "POST", "/api/worker/workflow-tasks/poll",
		`{"worker_id":"x","task_queue":"blue","timeout_seconds":30}`))
	child := func(policy string) string { return startChild("victim", `,"conflict_policy":"`+policy+`"`) }
	w.want(200, "POST", "/api/worker/workflow-tasks/"+task.text("task_id")+"/complete",
		`{"lease_owner":"x","workflow_task_attempt":1,"commands":[`+child("terminate-existing")+`,`+child("use-existing")+
			`,`+child("fail")+`,{"type":"complete_workflow"}]}`)
	got := c.want(200, "GET", "/workflows/victim", "")
	if got.text("run_id") != victim.text("run_id") || got.text("status") != "pending" {
		t.Errorf("the run of another workflow: %s", got.raw)
	}
	history := c.want(200, "GET", "/workflows/mine/runs/"+mine.text("run_id")+"/history", "").raw
	if n := strings.Count(history, "an open run that is no child of this workflow"); n != 3 {
		t.Errorf("%d refusals, want 3: %s", n, history)
	}
}
