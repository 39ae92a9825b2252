package apptest_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

const (
	batchJobsPath = "/api/sojourn/batch-jobs"
	flowRuns      = `"query":"WorkflowType = 'flow'"`
)

// batchJob creates a batch job for all runs of type flow and returns its path.
func (c caller) batchJob(action, more string) string {
	c.t.Helper()
	return batchJobsPath + "/" + c.want(
		201, "POST", batchJobsPath, `{`+flowRuns+`,"action":"`+action+`"`+more+`}`,
	).text("job_id")
}

// closedJob waits until a batch job closes.
func (c caller) closedJob(t *testing.T, path string) response {
	t.Helper()
	var got response
	until(t, "the batch job closes", func() bool {
		got = c.want(200, "GET", path, "")
		return got.body["closed_at"] != nil
	})
	return got
}

// startMany starts runs of type flow, several at a time, so that they share commits.
func startMany(t *testing.T, a *apptest.App, prefix string, count int) {
	t.Helper()
	var starting sync.WaitGroup
	for part := range 32 {
		starting.Go(func() {
			for i := part; i < count; i += 32 {
				if _, err := a.Broker().Start(t.Context(), protocol.StartRequest{
					WorkflowType: "flow", WorkflowID: fmt.Sprintf("%s-%d", prefix, i), TaskQueue: "unserved",
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	starting.Wait()
}

// signalsOf returns the number of signals that the current run of a workflow received.
func (c caller) signalsOf(id string) int {
	c.t.Helper()
	return len(c.eventsOf(id, c.want(200, "GET", "/api/workflows/"+id, "").text("run_id"), "SignalReceived"))
}

// numbers checks the state and the progress of a batch job.
func (c caller) numbers(got response, state string, runs, done, refused float64) {
	c.t.Helper()
	if got.text("state") != state || got.body["runs"] != runs || got.body["done"] != done ||
		got.body["refused"] != refused || got.body["pending"] != runs-done-refused {
		c.t.Errorf("want %s with %v runs, %v done, %v refused: %s", state, runs, done, refused, got.raw)
	}
}

// Each action reaches the runs that match the filter and are open or closed as the action requires, and no others. The
// audit entries name the job.
func TestABatchJobAppliesItsActionToTheMatchingRuns(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		c, other := caller{t, a, "default"}, caller{t, b, "default"}
		startMany(t, a, "one", 20)
		c.want(201, "POST", "/api/workflows", `{"workflow_id":"bystander","workflow_type":"other","task_queue":"unserved"}`)

		got := c.want(200, "GET", "/api/sojourn/batch-preview?action=signal&query=WorkflowType+%3D+'flow'", "")
		if got.body["runs"] != 20.0 || got.body["complete"] != true {
			t.Errorf("preview: %s", got.raw)
		}
		job := c.batchJob("signal", `,"signal_name":"go","input":[1],"limit":15,"rate_per_second":1000`)
		c.numbers(other.closedJob(t, job), "completed", 15, 15, 0)
		signals := 0
		for i := range 20 {
			signals += c.signalsOf(fmt.Sprintf("one-%d", i))
		}
		if signals != 15 {
			t.Errorf("%d signals, want 15", signals)
		}

		job = other.batchJob("cancel", `,"reason":"faulty import","rate_per_second":1000`)
		c.numbers(c.closedJob(t, job), "completed", 20, 20, 0)
		for i := range 20 {
			if got := c.want(200, "GET", fmt.Sprintf("/api/workflows/one-%d", i), ""); got.text("status") != "cancelled" {
				t.Errorf("one-%d: %s", i, got.text("status"))
			}
		}
		id := strings.TrimPrefix(job, batchJobsPath+"/")
		audit := c.want(200, "GET", "/api/audit?limit=500", "").raw
		if n := strings.Count(audit, ": faulty import (batch job "+id+")"); n != 20 {
			t.Errorf("%d audit entries name the job, want 20", n)
		}
		if strings.Count(audit, `"batch_job.create"`) != 2 {
			t.Errorf("audit: %s", audit)
		}

		c.numbers(c.closedJob(t, c.batchJob("terminate", "")), "completed", 0, 0, 0) // no run is open
		c.numbers(c.closedJob(t, c.batchJob("archive", `,"rate_per_second":1000`)), "completed", 20, 20, 0)
		c.numbers(c.closedJob(t, c.batchJob("delete", `,"rate_per_second":1000,"limit":19`)), "completed", 19, 19, 0)
		c.numbers(c.closedJob(t, c.batchJob("delete", `,"rate_per_second":1000`)), "completed", 1, 1, 0)
		if got := c.found("WorkflowType = 'flow'", 200); len(got) != 0 {
			t.Errorf("not deleted: %v", got)
		}
		if got := c.want(200, "GET", "/api/workflows/bystander", ""); got.text("status") != "pending" &&
			got.text("status") != "running" {
			t.Errorf("bystander: %s", got.raw)
		}

		// lists have the newest job first, in pages
		page := c.want(200, "GET", batchJobsPath+"?page_size=4", "")
		first, _ := page.body["batch_jobs"].([]any)
		next := c.want(200, "GET", batchJobsPath+"?next_page_token="+page.text("next_page_token"), "")
		rest, _ := next.body["batch_jobs"].([]any)
		if len(first) != 4 || len(rest) != 2 || first[0].(map[string]any)["action"] != "delete" ||
			rest[1].(map[string]any)["action"] != "signal" {
			t.Errorf("pages: %s, %s", page.raw, next.raw)
		}
		results := c.want(200, "GET", job+"/results?page_size=12", "")
		list, _ := results.body["results"].([]any)
		after := c.want(200, "GET", job+"/results?state=done&next_page_token="+results.text("next_page_token"), "")
		more, _ := after.body["results"].([]any)
		if len(list) != 12 || len(more) != 8 || after.body["next_page_token"] != nil {
			t.Errorf("results: %s, %s", results.raw, after.raw)
		}
	})
}

// A run that refuses the action, here because another caller closed it, is a result with the reason of the refusal. A
// stopped job leaves its other runs unchanged.
func TestABatchJobRecordsRefusalsAndStops(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		c, other := caller{t, a, "default"}, caller{t, b, "default"}
		startMany(t, a, "slow", 4)
		job := c.batchJob("terminate", `,"rate_per_second":1`)
		until(t, "the job has collected its runs", func() bool {
			return c.want(200, "GET", job, "").text("state") == "running"
		})
		for i := range 4 {
			c.ask("POST", fmt.Sprintf("/api/workflows/slow-%d/cancel", i), `{"reason":"by hand"}`)
		}
		got := c.closedJob(t, job)
		refused := c.want(200, "GET", job+"/results?state=refused", "")
		list, _ := refused.body["results"].([]any)
		if got.text("state") != "completed" || len(list) == 0 || got.body["refused"] != float64(len(list)) {
			t.Fatalf("job %s, refused %s", got.raw, refused.raw)
		}
		for _, r := range list {
			if r := r.(map[string]any); r["reason"] != "run_not_active" || r["message"] == nil || r["at"] == nil {
				t.Errorf("refused: %v", r)
			}
		}

		startMany(t, a, "kept", 10)
		job = c.batchJob("cancel", `,"rate_per_second":1`)
		got = other.want(200, "POST", job+"/stop", `{"reason":"wrong filter"}`)
		if got.text("state") != "stopped" || got.text("end_reason") != "wrong filter" {
			t.Errorf("stopped: %s", got.raw)
		}
		if again := c.want(200, "POST", job+"/stop", `{}`); again.raw != got.raw {
			t.Errorf("stopped again: %s, first %s", again.raw, got.raw)
		}
		changed := c.want(200, "GET", job, "").body["done"].(float64)
		if cancelled := len(c.found("Status = 'cancelled' AND WorkflowId STARTS_WITH 'kept'", 200)); changed > 2 ||
			float64(cancelled) != changed {
			t.Errorf("%v runs done, %d cancelled", changed, cancelled)
		}
		done := c.batchJob("repair", `,"rate_per_second":1000`)
		c.closedJob(t, done)
		if got := c.want(409, "POST", done+"/stop", `{}`); got.text("reason") != "batch_job_closed" {
			t.Errorf("a completed job: %s", got.raw)
		}
		for _, path := range []string{batchJobsPath + "/none", batchJobsPath + "/none/results"} {
			if got := c.want(404, "GET", path, ""); got.text("reason") != "batch_job_not_found" {
				t.Errorf("%s: %s", path, got.raw)
			}
		}
		c.want(404, "POST", batchJobsPath+"/none/stop", `{}`)
	})
}

// A namespace has at most ten open jobs, at all apps together. A closed job makes room for another one.
func TestANamespaceHasAtMostTenOpenBatchJobs(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		c := caller{t, a, "default"}
		startMany(t, a, "run", 100)
		var jobs, refused []string
		var mu sync.Mutex // guards jobs and refused
		var creating sync.WaitGroup
		for i := range 14 {
			creating.Go(func() {
				at := caller{t, []*apptest.App{a, b}[i%2], "default"}
				got := at.ask("POST", batchJobsPath, `{`+flowRuns+`,"action":"repair","rate_per_second":1}`)
				mu.Lock()
				defer mu.Unlock()
				if got.status == 201 {
					jobs = append(jobs, batchJobsPath+"/"+got.text("job_id"))
				} else {
					refused = append(refused, fmt.Sprint(got.status, " ", got.text("reason")))
				}
			})
		}
		creating.Wait()
		if len(jobs) != protocol.MaxBatchJobs || len(refused) != 4 || refused[0] != "429 batch_job_limit_reached" {
			t.Fatalf("%d jobs, refused %v", len(jobs), refused)
		}
		c.want(200, "POST", jobs[3]+"/stop", `{}`)
		jobs[3] = c.batchJob("repair", `,"rate_per_second":1`)
		c.want(429, "POST", batchJobsPath, `{`+flowRuns+`,"action":"repair"}`)
		for _, job := range jobs {
			c.want(200, "POST", job+"/stop", `{}`)
		}
		c.numbers(c.closedJob(t, c.batchJob("repair", `,"rate_per_second":1000`)), "completed", 100, 100, 0)
	})
}

// Jobs with a low rate in some namespaces do not delay the job of another namespace.
func TestSlowBatchJobsDoNotDelayOtherNamespaces(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, "default"}
		slow := map[string][]string{}
		for _, ns := range []string{"blue", "green"} {
			c.want(201, "POST", "/api/namespaces", `{"name":"`+ns+`"}`)
			at := caller{t, a, ns}
			for i := range 60 {
				at.start(fmt.Sprint("run-", i))
			}
			for range protocol.MaxBatchJobs {
				slow[ns] = append(slow[ns], at.batchJob("repair", `,"rate_per_second":1`))
			}
		}
		c.start("run")
		c.numbers(c.closedJob(t, c.batchJob("repair", "")), "completed", 1, 1, 0)
		for ns, jobs := range slow {
			for _, job := range jobs {
				if got := (caller{t, a, ns}).want(200, "GET", job, ""); got.body["closed_at"] != nil {
					t.Errorf("the job waited for %s", got.raw)
				}
			}
		}
	})
}

// A repeated request with the same request ID returns the first job, at any app.
func TestARepeatedRequestCreatesOneBatchJob(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		c, other := caller{t, a, "default"}, caller{t, b, "default"}
		const body = `{` + flowRuns + `,"action":"cancel","request_id":"r1"`
		first := c.want(201, "POST", batchJobsPath, body+`}`).text("job_id")
		if got := other.want(201, "POST", batchJobsPath, body+`}`).text("job_id"); got != first {
			t.Errorf("repeated: job %s, first %s", got, first)
		}
		if got := other.want(409, "POST", batchJobsPath, body+`,"limit":5}`); got.text("reason") != "request_id_conflict" {
			t.Errorf("another request: %s", got.raw)
		}
		for _, wrong := range []string{
			`{"action":"cancel"}`, `{` + flowRuns + `}`, `{` + flowRuns + `,"action":"pause"}`,
			`{"query":"just text","action":"cancel"}`, `{"query":"WorkflowType =","action":"cancel"}`,
			`{` + flowRuns + `,"action":"signal"}`, `{` + flowRuns + `,"action":"cancel","signal_name":"x"}`,
			`{` + flowRuns + `,"action":"cancel","input":[1]}`, `{` + flowRuns + `,"action":"cancel","limit":100001}`,
			`{` + flowRuns + `,"action":"cancel","rate_per_second":1001}`,
		} {
			c.want(422, "POST", batchJobsPath, wrong)
		}
		large := `{` + flowRuns + `,"action":"signal","signal_name":"go","input":["` + strings.Repeat("x", protocol.MaxBatchInput) + `"]}`
		c.want(413, "POST", batchJobsPath, large)
		if list, _ := c.want(200, "GET", batchJobsPath, "").body["batch_jobs"].([]any); len(list) != 1 {
			t.Errorf("%d jobs, want 1", len(list))
		}
	})
}

// A batch job needs the role that its action needs for a single run, and is bound to the namespace of the token.
func TestABatchJobNeedsTheRoleOfItsAction(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.NoAuth, o.Token = false, admin }})
	c := client{t: t, url: a.URL()}.as(admin)
	c.want(201, "POST", "/namespaces", `{"name":"blue"}`)
	token := func(role, namespaces string) client {
		return c.as(c.want(201, "POST", "/tokens", `{"roles":["`+role+`"],"namespaces":[`+namespaces+`]}`).text("token"))
	}
	const jobs = "/sojourn/batch-jobs"
	viewer, writer, operator := token("viewer", ""), token("writer", ""), token("operator", "")
	viewer.want(403, "POST", jobs, `{`+flowRuns+`,"action":"cancel"}`)
	job := writer.want(201, "POST", jobs, `{`+flowRuns+`,"action":"cancel"}`).text("job_id")
	writer.want(403, "POST", jobs, `{`+flowRuns+`,"action":"delete"}`)
	operator.want(201, "POST", jobs, `{`+flowRuns+`,"action":"delete"}`)
	viewer.want(200, "GET", jobs+"/"+job, "")
	viewer.want(403, "POST", jobs+"/"+job+"/stop", `{}`)
	bound := token("operator", `"blue"`)
	bound.want(403, "GET", jobs+"/"+job, "")
	bound.want(403, "POST", jobs, `{`+flowRuns+`,"action":"cancel"}`)
}

// An app that ends in the middle of a job continues it after its restart, and so does another app. Every run gets the
// action once.
func TestABatchJobContinuesAfterTheEndOfItsApp(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, "default"}
		startMany(t, a, "run", 60)
		job := c.batchJob("signal", `,"signal_name":"go","rate_per_second":20`)
		until(t, "the job has signalled some runs", func() bool { return c.want(200, "GET", job, "").body["done"] != 0.0 })
		a.Stop()
		next := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
		next.numbers(next.closedJob(t, job), "completed", 60, 60, 0)
		for i := range 60 {
			if n := next.signalsOf(fmt.Sprintf("run-%d", i)); n != 1 {
				t.Errorf("run-%d received %d signals", i, n)
			}
		}
	})
}

// The jobs of a deleted namespace are deleted with it, also while they run.
func TestADeletedNamespaceHasNoBatchJobs(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		root, c := caller{t, a, "default"}, caller{t, a, "blue"}
		root.want(201, "POST", "/api/namespaces", `{"name":"blue"}`)
		for i := range 5 {
			c.start(fmt.Sprintf("blue-%d", i))
		}
		job := c.batchJob("repair", `,"rate_per_second":1`)
		until(t, "the job runs", func() bool { return c.want(200, "GET", job, "").text("state") == "running" })
		(caller{t, b, "default"}).want(200, "DELETE", "/api/namespaces/blue", "")
		for table, rows := range a.Dump() {
			if strings.HasPrefix(table, "batch_") && len(rows) != 0 {
				t.Errorf("%s: %v", table, rows)
			}
		}
	})
}

// A closed job and its results are deleted after the retention of the namespace, not before.
func TestBatchJobsAreDeletedAfterTheRetention(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		var shift atomic.Int64
		a := shifted(t, database, &shift)
		c := caller{t, a, "default"}
		startMany(t, a, "run", 250)
		job := c.batchJob("repair", `,"rate_per_second":1000`)
		c.closedJob(t, job)
		prune := func(after time.Duration) {
			t.Helper()
			shift.Store(int64(after))
			if _, err := a.Broker().Prune(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		prune(30*24*time.Hour - 10*time.Minute)
		c.want(200, "GET", job, "")
		prune(30*24*time.Hour + 10*time.Minute)
		c.want(404, "GET", job, "")
		for table, rows := range a.Dump() {
			if strings.HasPrefix(table, "batch_") && len(rows) != 0 {
				t.Errorf("%d rows of %s", len(rows), table)
			}
		}
	})
}

// The commits of a job and their size depend on its rate and not on its size: 10,000 runs need as many commits per run
// as 1,000, and each commit contains one group. While the job runs, other requests are committed.
func TestALargeBatchJobDelaysNoOtherWork(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, "default"}
		var perRun []float64
		for i, size := range []int{1_000, 10_000} {
			startMany(t, a, fmt.Sprintf("size%d", i), size)
			bystander := fmt.Sprintf("bystander-%d", i)
			c.want(201, "POST", "/api/workflows",
				`{"workflow_id":"`+bystander+`","workflow_type":"other","task_queue":"unserved"}`)
			before := a.Store().Stats()
			job := c.batchJob("cancel", `,"rate_per_second":1000`)
			const requests = 10
			for range requests {
				c.want(202, "POST", "/api/workflows/"+bystander+"/signal/go", `{}`)
			}
			if got := c.want(200, "GET", job, ""); got.body["done"] == float64(size) {
				t.Errorf("%d runs: the requests of a bystander took as long as the job", size)
			}
			c.numbers(c.closedJob(t, job), "completed", float64(size), float64(size), 0)
			after := a.Store().Stats()
			commits := float64(after.Commits - before.Commits)
			perRun = append(perRun, commits/float64(size))
			// one commit per group of 64 runs, if all of a group share it, and at least one per 64 runs
			if commits < float64(size)/64 || commits > float64(size)/4 {
				t.Errorf("%d runs: %v commits", size, commits)
			}
		}
		if perRun[1] > 2*perRun[0] {
			t.Errorf("commits per run: %v", perRun)
		}
	})
}

// A job redrives the failed runs that match. A failed run that was redriven before is not the current run of its
// workflow ID and refuses the action.
func TestABatchJobRedrivesFailedRuns(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		failed := map[string]string{}
		for i := range 3 {
			id := fmt.Sprintf("failed-%d", i)
			failed[id] = h.start(id)
			h.decide(h.poll("workflow"), failRun)
		}
		h.start("open")
		h.numbers(h.closedJob(t, other.batchJob("redrive", `,"rate_per_second":1000`)), "completed", 3, 3, 0)
		for id, run := range failed {
			got := other.want(200, "GET", "/api/workflows/"+id, "")
			if got.text("run_id") == run || got.body["run_count"] != 2.0 {
				t.Errorf("%s was not redriven once: %s", id, got.raw)
			}
		}
		again := other.batchJob("redrive", `,"rate_per_second":1000`)
		h.numbers(h.closedJob(t, again), "completed", 3, 0, 3)
		if got := h.want(200, "GET", again+"/results", ""); strings.Count(got.raw, "historical_run_command_rejected") != 3 {
			t.Errorf("results: %s", got.raw)
		}
	})
}

// The action request_cancellation reaches the code of each run once, and the code decides how the run ends. A run whose
// queue has no worker that supports the requests refuses the action and does not change.
func TestABatchJobRequestsTheCancellationOfRuns(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		c, other := caller{t, a, "default"}, caller{t, b, "default"}
		c.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"`+handQueue+`","runtime":"external",
			"supported_workflow_types":["flow"],"capabilities":["cancellation_requests"]}`)
		h := hand{c, "w"}
		const served, unserved = 5, 3
		ids := map[string]string{} // by run ID
		for i := range served {
			id := fmt.Sprintf("served-%d", i)
			ids[c.start(id)] = id
		}
		startMany(t, a, "unserved", unserved)
		requests := func(id string) []map[string]any {
			run := c.want(200, "GET", "/api/workflows/"+id, "").text("run_id")
			return c.eventsOf(id, run, "WorkflowCancellationRequested")
		}

		job := other.batchJob("request_cancellation", `,"reason":"faulty import","rate_per_second":1000`)
		c.numbers(c.closedJob(t, job), "completed", served+unserved, served, unserved)
		refused := c.want(200, "GET", job+"/results?state=refused", "").raw
		if strings.Count(refused, `"reason":"cancellation_not_supported"`) != unserved {
			t.Errorf("refused: %s", refused)
		}
		for _, id := range ids {
			if got := requests(id); len(got) != 1 || got[0]["reason"] != "faulty import" {
				t.Errorf("%s: requests %v, want one with the reason of the job", id, got)
			}
		}
		for i := range unserved {
			if got := requests(fmt.Sprintf("unserved-%d", i)); len(got) != 0 {
				t.Errorf("unserved-%d: requests %v", i, got)
			}
		}
		for range served {
			task := h.poll("workflow")
			id := ids[task.text("run_id")]
			if n := strings.Count(fmt.Sprint(task["history_events"]), "WorkflowCancellationRequested"); n != 1 {
				t.Errorf("%s: the task contains %d requests, want 1", id, n)
			}
			h.decide(task, finish)
			if got := c.want(200, "GET", "/api/workflows/"+id, ""); got.text("status") != "completed" {
				t.Errorf("%s: %s", id, got.raw)
			}
		}
	})
}

// A batch job resets the open and the closed runs that match, each to the end of its last workflow task. A run of
// another type does not change, and a run without such a task refuses the action.
func TestABatchJobResetsOpenAndClosedRuns(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		runs := map[string]string{}
		for _, id := range []string{"open", "closed"} {
			runs[id] = h.start(id)
			h.decide(h.poll("workflow"), waitForGo)
		}
		h.want(200, "POST", "/api/workflows/closed/terminate", `{}`)
		h.start("new")
		bystander := h.want(201, "POST", "/api/workflows",
			`{"workflow_id":"bystander","workflow_type":"other","task_queue":"unserved"}`).text("run_id")
		body := `{` + flowRuns + `,"action":"reset"`
		for _, refused := range []string{`}`, `,"reset_to":"third_task"}`} {
			other.want(422, "POST", batchJobsPath, body+refused)
		}
		other.want(422, "POST", batchJobsPath, `{`+flowRuns+`,"action":"cancel","reset_to":"last_task"}`)
		job := other.batchJob("reset", `,"reset_to":"last_task","rate_per_second":1000,"reason":"faulty release"`)
		h.numbers(h.closedJob(t, job), "completed", 3, 2, 1)
		for id, run := range runs {
			got := other.want(200, "GET", "/api/workflows/"+id, "")
			if got.text("run_id") == run || got.body["run_count"] != 2.0 || got.text("status") != "waiting" {
				t.Errorf("%s was not reset once: %s", id, got.raw)
			}
		}
		if got := h.want(200, "GET", job+"/results", ""); strings.Count(got.raw, "not_a_reset_point") != 1 {
			t.Errorf("results: %s", got.raw)
		}
		if got := h.want(200, "GET", "/api/workflows/bystander", ""); got.text("run_id") != bystander {
			t.Errorf("a run of another type: %s", got.raw)
		}
	})
}
