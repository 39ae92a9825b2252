package apptest_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
)

// mentions lists the rows of the database that contain one of the texts, except audit entries.
func mentions(a *apptest.App, texts ...string) (rows []string) {
	for table, list := range a.Dump() {
		for _, row := range list {
			for _, text := range texts {
				if table != "audit" && strings.Contains(row, text) {
					rows = append(rows, table+" "+row)
				}
			}
		}
	}
	return rows
}

// completeWithAllData completes a workflow that has search attributes, a memo, a worker session, an activity with logs,
// a child that stays open, and a signal with a request ID. It returns the IDs of the run, the session and the child.
func (h hand) completeWithAllData(id string) (run, session, child string) {
	h.t.Helper()
	run = h.want(201, "POST", "/api/workflows", `{"workflow_id":"`+id+`","workflow_type":"flow","task_queue":"`+handQueue+
		`","search_attributes":{"Who":"`+id+`"},"memo":{"note":"`+id+`"}}`).text("run_id")
	h.want(202, "POST", "/api/workflows/"+id+"/signal/go", `{"request_id":"`+id+`-request"}`)
	session = run + "-1"
	h.decide(h.poll("workflow"), `{"type":"start_session"}`, inSession(session),
		`{"type":"start_child_workflow","workflow_type":"flow","queue":"`+handQueue+`","parent_close_policy":"abandon"}`)
	act := h.poll("activity")
	if got := h.logs(logItem(act, h.id, 1, "hello "+id)); got != "recorded" {
		h.t.Fatal(got)
	}
	h.want(200, "POST", stepPath(act, "complete"), h.stepBody(act, ""))
	for child == "" || !strings.HasPrefix(h.want(200, "GET", "/api/workflows/"+id, "").text("status"), "completed") {
		if task := h.poll("workflow"); task.text("workflow_id") == id {
			h.decide(task, finish)
		} else {
			child = task.text("workflow_id")
			h.decide(task, step)
			h.poll("activity")
		}
	}
	return run, session, child
}

// Two workflows have the same kinds of rows, and another app deletes one of them. Afterwards only the audit entry
// contains the deleted workflow, its run or its session, and the other workflow still has all its rows.
func TestADeletedRunLeavesOnlyItsAuditEntry(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		c, other := caller{t, a, "default"}, caller{t, b, "default"}
		h := register(c, "w", "")
		gone, session, child := h.completeWithAllData("doomed")
		kept, keptSession, _ := h.completeWithAllData("bystander")
		c.start("open")
		open := c.want(200, "GET", "/api/workflows/open", "").text("run_id")
		if got := c.want(409, "DELETE", "/api/workflows/open/runs/"+open, ""); got.text("reason") != "run_not_closed" {
			t.Errorf("an open run: %s", got.raw)
		}
		other.want(404, "DELETE", "/api/workflows/open/runs/"+gone, "") // a run of another workflow
		bytes := c.uses("stored_bytes")
		before := mentions(a, kept, keptSession, "bystander")

		got := other.want(200, "DELETE", "/api/workflows/doomed/runs/"+gone+"?reason=erasure", "")
		if got.text("outcome") != "deleted" || got.body["worker_sessions"] != 1.0 || got.body["current_run_id"] != nil ||
			got.body["history_length"].(float64) < 5 {
			t.Errorf("response: %s", got.raw)
		}
		for _, x := range []caller{c, other} {
			x.want(404, "GET", "/api/workflows/doomed", "")
			x.want(404, "GET", "/api/workflows/doomed/runs/"+gone+"/history", "")
			x.want(404, "GET", "/api/runs/"+gone, "")
			x.want(404, "DELETE", "/api/workflows/doomed/runs/"+gone, "")
			x.want(404, "GET", "/api/worker-sessions/"+session, "")
			if ids := x.found("Who = 'doomed'", 200); len(ids) != 0 {
				t.Errorf("found by its search attribute: %v", ids)
			}
		}
		for _, row := range mentions(a, gone, session, "doomed") {
			// The child workflow is open, and its rows name its parent.
			if !strings.Contains(row, child) && !strings.Contains(row, `"parent"`) {
				t.Errorf("not deleted: %s", row)
			}
		}
		if after := mentions(a, kept, keptSession, "bystander"); strings.Join(before, "\n") == "" ||
			len(after) != len(before) {
			t.Errorf("rows of the bystander: %d before, %d after", len(before), len(after))
		}
		c.want(200, "GET", "/api/workflows/"+child, "")
		c.want(200, "GET", "/api/worker-sessions/"+keptSession, "")
		until(t, "the stored bytes of the namespace decrease", func() bool { return c.uses("stored_bytes") < bytes })
		audit := c.want(200, "GET", "/api/audit", "").raw
		if strings.Count(audit, `"workflow.delete"`) != 1 || !strings.Contains(audit, gone+": erasure") {
			t.Errorf("audit: %s", audit)
		}
		c.start("doomed") // the workflow ID can be used again
	})
}

// Each closed run of a continue-as-new chain can be deleted on its own. The workflow ID stays in use until the last run
// is deleted.
func TestRunsOfAChainAreDeletedOneByOne(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
		h := register(c, "w", "")
		runs := []string{c.start("chain")}
		for range 3 {
			h.decide(h.poll("workflow"), `{"type":"continue_as_new"}`)
			runs = append(runs, c.want(200, "GET", "/api/workflows/chain", "").text("run_id"))
		}
		remove := func(i int, current any) {
			t.Helper()
			got := c.want(200, "DELETE", "/api/workflows/chain/runs/"+runs[i], "")
			if got.body["current_run_id"] != current {
				t.Errorf("after run %d: %s, want current run %v", i+1, got.raw, current)
			}
			if current == nil {
				return
			}
			if now := c.want(200, "GET", "/api/workflows/chain", ""); now.text("run_id") != current {
				t.Errorf("after run %d the current run is %s, want %v", i+1, now.raw, current)
			}
			list := c.want(200, "GET", "/api/workflows/chain/runs", "").raw
			if strings.Contains(list, runs[i]) || strings.Count(list, `"is_current_run":true`) != 1 {
				t.Errorf("after run %d: %s", i+1, list)
			}
		}
		remove(1, runs[3]) // while the last run is open
		c.want(409, "DELETE", "/api/workflows/chain/runs/"+runs[3], "")
		h.decide(h.poll("workflow"), finish)
		remove(3, runs[2])
		c.want(409, "POST", "/api/workflows", c.run("chain"))
		if s := c.want(200, "GET", "/api/workflows/chain", "").text("status"); s != "completed" {
			t.Errorf("the current run is %s", s)
		}
		remove(0, runs[2])
		remove(2, nil)
		c.want(404, "GET", "/api/workflows/chain", "")
		c.start("chain")
	})
}

// The outbox of a closed run may contain messages to other runs. The app delivers them before it deletes the run.
func TestADeletionDeliversTheMessagesOfTheRunFirst(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		// The app delivers no messages in the background.
		a := apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) { o.ManualTime = true }})
		c := caller{t, a, "default"}
		h := register(c, "w", "")
		parent := c.start("parent")
		h.decide(h.poll("workflow"), `{"type":"start_child_workflow","workflow_type":"flow","queue":"`+handQueue+
			`","parent_close_policy":"terminate"}`)
		child := h.poll("workflow").text("workflow_id")
		c.want(200, "POST", "/api/workflows/parent/terminate", `{}`)
		if s := c.want(200, "GET", "/api/workflows/"+child, "").text("status"); s == "terminated" {
			t.Fatal("the outbox of the parent is empty, so this test checks nothing")
		}
		c.want(200, "DELETE", "/api/workflows/parent/runs/"+parent, "")
		if s := c.want(200, "GET", "/api/workflows/"+child, "").text("status"); s != "terminated" {
			t.Errorf("the child is %s, want terminated", s)
		}
	})
}

// Two apps get concurrent requests to delete one run. One request succeeds.
func TestARunIsDeletedOnce(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		c := caller{t, a, "default"}
		run := c.start("twice")
		c.want(200, "POST", "/api/workflows/twice/terminate", `{}`)
		var all sync.WaitGroup
		status := make([]int, 8)
		for i := range status {
			all.Go(func() {
				status[i] = (caller{t, []*apptest.App{a, b}[i%2], "default"}).ask(
					"DELETE", "/api/workflows/twice/runs/"+run, "",
				).status
			})
		}
		all.Wait()
		count := map[int]int{}
		for _, s := range status {
			count[s]++
		}
		if count[200] != 1 || count[200]+count[404] != len(status) {
			t.Errorf("responses by status: %v, want one 200 and otherwise 404", count)
		}
		if n := strings.Count(c.want(200, "GET", "/api/audit", "").raw, `"workflow.delete"`); n != 1 {
			t.Errorf("%d audit entries", n)
		}
	})
}
