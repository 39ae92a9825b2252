package apptest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
)

// keyed sends a start with an Idempotency-Key and returns the status and the response.
func (c caller) keyed(key, path, body string) (int, map[string]any) {
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.app.URL()+path, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return 0, nil
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Namespace", c.ns)
	r.Header.Set(httpapi.VersionHeader, "2")
	r.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Error(err)
		return 0, nil
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	var got map[string]any
	if err != nil || json.Unmarshal(raw, &got) != nil {
		c.t.Errorf("%s: %v", raw, err)
	}
	return res.StatusCode, got
}

// startOf returns the body of a start of type flow with further members.
func startOf(id, more string) string {
	return `{"workflow_id":"` + id + `","workflow_type":"flow","task_queue":"` + handQueue + `","input":[1]` + more + `}`
}

// Which starts are accepted depends on how the newest run of the ID ended and on the two policies. A refusal names a
// policy with which the same start is accepted. Starts of activities follow the same rules.
func TestPoliciesDecideWhetherAWorkflowIDIsUsedAgain(t *testing.T) {
	const reject, failure, allow = `,"reuse_policy":"reject"`, `,"reuse_policy":"allow-after-failure"`,
		`,"reuse_policy":"allow"`
	ends := []struct {
		name   string
		end    func(h hand, id string)
		failed bool
	}{
		{"completed", func(h hand, _ string) { h.decide(h.poll("workflow"), finish) }, false},
		{"failed", func(h hand, _ string) { h.decide(h.poll("workflow"), `{"type":"fail_workflow","message":"no"}`) }, true},
		{"cancelled", func(h hand, id string) { h.want(200, "POST", "/api/workflows/"+id+"/cancel", `{}`) }, true},
		{"terminated", func(h hand, id string) { h.want(200, "POST", "/api/workflows/"+id+"/terminate", `{}`) }, true},
		{"continued and completed", func(h hand, _ string) {
			h.decide(h.poll("workflow"), `{"type":"continue_as_new"}`)
			h.decide(h.poll("workflow"), finish)
		}, false},
	}
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		for i, end := range ends {
			for j, route := range []string{"/api/workflows", "/api/sojourn/activities"} {
				id := fmt.Sprintf("id-%d-%d", i, j)
				body := func(more string) string {
					if j == 1 {
						return `{"workflow_id":"` + id + `","activity_type":"none","task_queue":"unserved"` + more + `}`
					}
					return startOf(id, more)
				}
				first := h.start(id)
				refused := func(more, allowed string) {
					t.Helper()
					got := other.want(409, "POST", route, body(more))
					if got.text("reason") != "duplicate_not_allowed" || got.text("run_id") == "" ||
						!strings.Contains(got.text("message"), allowed) || got.body["allowed_by"] == nil {
						t.Errorf("%s%s: %s", end.name, more, got.raw)
					}
				}
				for _, more := range []string{
					"", reject, failure, allow, `,"conflict_policy":"fail"`, `,"duplicate_policy":"fail"`,
				} {
					refused(more, "conflict_policy use-existing or terminate-existing")
				}
				for _, more := range []string{`,"conflict_policy":"use-existing"`, `,"duplicate_policy":"use-existing"`} {
					if got := other.want(200, "POST", route, body(more)); got.text("run_id") != first {
						t.Errorf("%s returned another run: %s", more, got.raw)
					}
				}
				both := other.want(422, "POST", route, body(`,"conflict_policy":"fail","duplicate_policy":"fail"`))
				if both.body["errors"].(map[string]any)["conflict_policy"] == nil {
					t.Errorf("both policies: %s", both.raw)
				}
				end.end(h, id)
				named := "reuse_policy allow"
				if end.failed {
					named = "reuse_policy allow-after-failure or allow"
				}
				for _, more := range []string{"", reject, `,"conflict_policy":"use-existing"`, `,"conflict_policy":"terminate-existing"`} {
					refused(more, named)
				}
				more := failure
				if !end.failed {
					refused(failure, named)
					more = allow
				}
				got := other.want(201, "POST", route, body(more))
				if got.text("run_id") == first || got.text("outcome") != "started_new" {
					t.Errorf("%s: %s", end.name, got.raw)
				}
				h.want(200, "POST", "/api/workflows/"+id+"/terminate", `{}`)
			}
		}
	})
}

// A run that is replaced while it is open ends in the commit in which the new run begins. The ID addresses the new run,
// and the old one is found by its run ID. Of the old chain, the new one has only the ID.
func TestANewChainSharesOnlyTheIDWithTheChainBefore(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		first := h.start("order")
		h.decide(h.poll("workflow"), `{"type":"continue_as_new"}`)
		h.decide(
			h.poll("workflow"),
			`{"type":"start_child_workflow","workflow_type":"flow","workflow_id":"child","queue":"unserved"}`,
			`{"type":"start_session","session_id":"s","queue":"`+handQueue+`"}`,
			`{"type":"open_signal_wait","signal_name":"go"}`,
		)
		before := h.want(200, "GET", "/api/workflows/order", "").text("run_id")
		result := "/api/sojourn/workflows/order/runs/" + before + "/result"
		results := make(chan response, 2)
		for _, c := range []caller{h.caller, other} {
			go func() { results <- c.ask("GET", result+"?wait_seconds=30", "") }()
		}
		h.want(202, "POST", "/api/workflows/order/signal/other", `{"request_id":"r"}`)
		started := other.want(201, "POST", "/api/workflows", startOf("order", `,"conflict_policy":"terminate-existing"`))
		run := started.text("run_id")
		for range 2 {
			if r := <-results; r.text("status") != "terminated" || r.body["is_current_run"] != false {
				t.Errorf("a wait for the result of the replaced run returns %s", r.raw)
			}
		}
		for _, c := range []caller{h.caller, other} {
			if r := c.want(200, "GET", result, ""); r.text("run_id") != before || r.body["is_current_run"] != false {
				t.Errorf("the result of the replaced run is %s", r.raw)
			}
		}
		old := h.want(200, "GET", "/api/workflows/order/runs/"+before, "")
		if old.text("status") != "terminated" || !strings.Contains(old.raw, "replaced by a new start") {
			t.Errorf("the replaced run: %s", old.raw)
		}
		audit := h.want(200, "GET", "/api/audit", "").raw
		if strings.Count(audit, `"workflow.terminate"`) != 1 || !strings.Contains(audit, before+": replaced by a new start") {
			t.Errorf("audit: %s", audit)
		}
		now := h.want(200, "GET", "/api/workflows/order", "")
		if at := now.text("started_at"); at == "" || old.text("closed_at") != at { // one decision has one time
			t.Errorf("the old run closed at %s, the new one started at %s", old.text("closed_at"), at)
		}
		if now.text("run_id") != run || now.body["run_number"] != 1.0 || now.body["run_count"] != 1.0 {
			t.Errorf("the ID addresses %s", now.raw)
		}
		var ids []string
		list, _ := h.want(200, "GET", "/api/workflows/order/runs", "").body["runs"].([]any)
		for _, r := range list {
			v := r.(map[string]any)
			ids = append(ids, v["run_id"].(string))
			if v["is_current_run"] != (v["run_id"] == run) {
				t.Errorf("current: %v", v)
			}
		}
		if slices.Sort(ids); len(ids) != 3 || !slices.Contains(ids, first) {
			t.Errorf("runs: %v", ids)
		}
		got := h.want(409, "POST", "/api/workflows/order/runs/"+before+"/signal/go", `{}`)
		if got.text("reason") == "" || got.text("current_run_id") != run {
			t.Errorf("a signal to the old run: %s", got.raw)
		}
		task := h.poll("workflow")
		events, _ := task["history_events"].([]any)
		if task.text("run_id") != run || len(events) == 0 || len(events) > 2 {
			t.Fatalf("the new run's task: %v", task)
		}
		h.decide(task, `{"type":"attach_child_workflow","workflow_id":"child"}`)
		raw := h.want(200, "GET", "/api/workflows/order/runs/"+run+"/history", "").raw
		if !strings.Contains(raw, `"unknown"`) {
			t.Errorf("attached to a child of the old chain: %s", raw)
		}
	})
}

// 50 callers at each of two apps start a workflow at the same time: with a free ID, with the ID of a closed run, and
// with one Idempotency-Key. One run begins.
func TestConcurrentStartsAtTwoAppsCreateOneRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		for _, c := range []struct{ name, policies, key string }{
			{"free", `,"reuse_policy":"allow","conflict_policy":"use-existing"`, ""},
			{"closed", `,"reuse_policy":"allow","conflict_policy":"use-existing"`, ""},
			{"one-key", `,"reuse_policy":"allow","conflict_policy":"terminate-existing"`, "k"},
		} {
			closed := ""
			if c.name != "free" {
				closed = h.start(c.name)
				h.want(200, "POST", "/api/workflows/"+c.name+"/terminate", `{}`)
			}
			var mu sync.Mutex
			runs := map[string]int{}
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					at, key := []caller{h.caller, other}[i%2], c.key
					if key == "" {
						key = fmt.Sprint(c.name, i)
					}
					status, got := at.keyed(key, "/api/workflows", startOf(c.name, c.policies))
					if status != 200 && status != 201 {
						t.Errorf("%s: %d %v", c.name, status, got)
					}
					mu.Lock()
					defer mu.Unlock()
					runs[fmt.Sprint(got["run_id"])]++
				})
			}
			all.Wait()
			stored := rowsOf(a, "runs", `"`+c.name+`"`)
			if len(runs) != 1 || runs[closed] > 0 {
				t.Errorf("%s: the callers got %v", c.name, runs)
			}
			list, _ := h.want(200, "GET", "/api/workflows/"+c.name+"/runs", "").body["runs"].([]any)
			if want := map[bool]int{true: 1, false: 2}[closed == ""]; len(list) != want {
				t.Errorf("%s: %d runs, want %d: %v", c.name, len(list), want, stored)
			}
		}
	})
}

// A start that is repeated with its Idempotency-Key returns the run that it started, whatever its policies: while the
// run is open, after it has continued and closed, and after other starts used the ID. With another content it is
// refused. The key ends with the run.
func TestARepeatedStartReturnsItsRun(t *testing.T) {
	const anyway = `,"reuse_policy":"allow","conflict_policy":"terminate-existing"`
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		const route = "/api/workflows"
		status, got := h.keyed("one", route, startOf("order", anyway))
		first, _ := got["run_id"].(string)
		if status != 201 || first == "" {
			t.Fatalf("%d %v", status, got)
		}
		repeated := func(when string) {
			t.Helper()
			for _, policies := range []string{"", anyway, `,"duplicate_policy":"fail"`} {
				for _, at := range []caller{h.caller, other} {
					status, got := at.keyed("one", route, startOf("order", policies))
					if status != 201 || got["run_id"] != first || got["outcome"] != "started_new" {
						t.Errorf("%s%s: %d %v", when, policies, status, got)
					}
				}
			}
			status, got := other.keyed("one", route, strings.Replace(startOf("order", ""), "[1]", "[2]", 1))
			if status != 409 || got["reason"] != "request_id_conflict" {
				t.Errorf("%s: other content: %d %v", when, status, got)
			}
			status, got = other.keyed("one", "/api/sojourn/activities", strings.Replace(startOf("order", ""), "workflow_type",
				"activity_type", 1))
			if status != 409 || got["reason"] != "request_id_conflict" {
				t.Errorf("%s: an activity with the key of a workflow: %d %v", when, status, got)
			}
		}
		repeated("open")
		h.decide(h.poll("workflow"), `{"type":"continue_as_new"}`)
		repeated("continued")
		h.decide(h.poll("workflow"), finish)
		repeated("closed")
		for _, key := range []string{"two", "three"} {
			if status, got := other.keyed(key, route, startOf("order", anyway)); status != 201 || got["run_id"] == first {
				t.Errorf("another key: %d %v", status, got)
			}
			repeated("after the start " + key)
		}
		if n := len(rowsOf(a, "receipts", "start ")); n != 2 {
			t.Errorf("%d stored responses, want those of the two replaced chains", n)
		}
		h.want(200, "DELETE", "/api/workflows/order/runs/"+first, "")
		if n := len(rowsOf(a, "receipts", "start ")); n != 1 {
			t.Errorf("%d stored responses after one run was deleted, want 1", n)
		}

		// Without a workflow ID, the key is the key of the ID.
		body := strings.Replace(startOf("", ""), `"workflow_id":"",`, "", 1)
		_, one := h.keyed("free", route, body)
		_, two := other.keyed("free", route, body)
		if one["run_id"] == nil || one["run_id"] != two["run_id"] || one["workflow_id"] != two["workflow_id"] {
			t.Errorf("without a workflow ID: %v, then %v", one, two)
		}
		for _, key := range []string{strings.Repeat("k", 256), "k\xff", "caf\xe9"} { // too long; not UTF-8; Latin-1
			for _, path := range []string{route, "/api/sojourn/activities"} {
				if status, got := h.keyed(key, path, body); status != 422 || !strings.Contains(
					fmt.Sprint(got["errors"]), "Idempotency-Key",
				) {
					t.Errorf("%s: a key %q of %d bytes: %d %v", path, key, len(key), status, got)
				}
			}
		}
		status, got = h.keyed("cron", route, startOf("cron", `,"cron":"0 3 * * *"`))
		if status != 422 || !strings.Contains(fmt.Sprint(got["errors"]), "Idempotency-Key") {
			t.Errorf("with cron: %d %v", status, got)
		}
		const activity = `{"workflow_id":"act","activity_type":"none","task_queue":"unserved"}`
		_, one = h.keyed("act", "/api/sojourn/activities", activity)
		h.want(200, "POST", "/api/workflows/act/terminate", `{}`)
		_, two = other.keyed("act", "/api/sojourn/activities", activity)
		if one["run_id"] == nil || one["run_id"] != two["run_id"] {
			t.Errorf("an activity: %v, then %v", one, two)
		}
	})
}

// A repeated start that waits returns the result at once if its run has closed, also at an app that did not close it,
// and also if a run continues it or a later chain has its workflow ID.
func TestARepeatedStartThatWaitsReturnsAResultThatExists(t *testing.T) {
	const anyway = `,"conflict_policy":"terminate-existing"`
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		h.keyed("one", "/api/workflows", startOf("order", anyway))
		repeated := func(when, status string) {
			t.Helper()
			for _, at := range []caller{h.caller, other} {
				got := make(chan map[string]any, 1)
				go func() {
					_, body := at.keyed("one", "/api/workflows", startOf("order", `,"wait_seconds":60`))
					got <- body
				}()
				select {
				case body := <-got:
					if body["is_terminal"] != true || body["status"] != status {
						t.Errorf("%s: %v", when, body)
					}
				case <-time.After(40 * time.Second):
					t.Fatalf("%s: the start waits for a run that has closed", when)
				}
			}
		}
		h.decide(h.poll("workflow"), `{"type":"continue_as_new"}`)
		h.decide(h.poll("workflow"), finish)
		repeated("closed", "completed")
		h.keyed("two", "/api/workflows", startOf("order", `,"reuse_policy":"allow"`))
		repeated("replaced", "completed")
	})
}

// If the first run of a chain is deleted before the later ones, a repeated start returns the current run of the chain,
// which exists. If the chain is replaced, no response is stored, because no removal of a run would remove it.
func TestARepeatedStartReturnsNoDeletedRun(t *testing.T) {
	const anyway = `,"conflict_policy":"terminate-existing"`
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		_, got := h.keyed("one", "/api/workflows", startOf("order", anyway))
		first := fmt.Sprint(got["run_id"])
		h.decide(h.poll("workflow"), `{"type":"continue_as_new"}`)
		h.want(200, "DELETE", "/api/workflows/order/runs/"+first, "")
		current := h.want(200, "GET", "/api/workflows/order", "").text("run_id")
		for _, at := range []caller{h.caller, other} {
			if status, got := at.keyed("one", "/api/workflows", startOf("order", anyway)); status != 201 ||
				got["run_id"] != current || got["status"] != "pending" {
				t.Errorf("the current run is %s: %d %v", current, status, got)
			}
		}
		if status, got := other.keyed("two", "/api/workflows", startOf("order", anyway)); status != 201 {
			t.Errorf("another key: %d %v", status, got)
		}
		if rows := rowsOf(a, "receipts", "start "); len(rows) != 0 {
			t.Errorf("stored responses: %v", rows)
		}
	})
}

// A child is started under a workflow ID in use, by the policies of the command. An open child of the same workflow
// that is replaced ends in the commit in which the new child begins, with an audit entry; other open runs stay. A
// step that uses an open child of its workflow ends with that child. The parent receives the ends of all its
// children, also if one of them is replaced by another.
func TestPoliciesDecideWhetherAChildUsesAWorkflowIDAgain(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		const use, allow = `,"conflict_policy":"use-existing"`, `,"reuse_policy":"allow"`
		stranger := other.want(201, "POST", "/api/workflows",
			`{"workflow_id":"stranger","workflow_type":"none","task_queue":"unserved"}`).text("run_id")
		closed := other.want(201, "POST", "/api/workflows",
			`{"workflow_id":"closed","workflow_type":"none","task_queue":"unserved"}`).text("run_id")
		h.want(200, "POST", "/api/workflows/closed/terminate", `{}`)
		parent := h.start("parent")
		h.decide(
			h.poll("workflow"), startChild("stranger", replaceChild), startChild("closed", allow), startChild("mine", ""),
			`{"type":"open_signal_wait","signal_name":"go"}`,
		)
		current := func(id string) response { return other.want(200, "GET", "/api/workflows/"+id, "") }
		if got := current("stranger"); got.text("run_id") != stranger || got.text("status") != "pending" {
			t.Errorf("the run of another workflow: %s", got.raw)
		}
		first := current("closed")
		if first.text("run_id") == closed || first.text("parent_run_id") != parent {
			t.Errorf("closed: %s", first.raw)
		}
		mine := current("mine").text("run_id")
		h.want(202, "POST", "/api/workflows/parent/signal/go", `{}`)
		h.decide(h.poll("workflow"), startChild("mine", use), startChild("closed", replaceChild),
			startChild("parent", replaceChild), `{"type":"open_signal_wait","signal_name":"go"}`)
		replaced := first.text("run_id")
		if got := h.want(200, "GET", "/api/runs/"+replaced, ""); got.text("status") != "terminated" {
			t.Errorf("the replaced run: %s", got.raw)
		}
		if audit := h.want(200, "GET", "/api/audit", "").raw; !strings.Contains(audit, replaced+": replaced by a new start") {
			t.Errorf("audit: %s", audit)
		}
		if current("mine").text("run_id") != mine || current("parent").text("run_id") != parent {
			t.Error("the open child or the parent was replaced")
		}
		h.decide(h.poll("workflow"), `{"type":"open_signal_wait","signal_name":"go"}`) // for the ends of children
		h.want(200, "POST", "/api/workflows/mine/terminate", `{}`)
		h.poll("workflow")
		ends := map[string]int{}
		list, _ := h.want(200, "GET", "/api/workflows/parent/runs/"+parent+"/history", "").body["events"].([]any)
		for _, e := range list {
			if typ := e.(map[string]any)["event_type"].(string); strings.HasPrefix(typ, "ChildRun") && typ != "ChildRunStarted" {
				ends[typ]++
			}
		}
		// terminated: mine for two steps, and the first child with the ID closed; failed: the children with the IDs of
		// the parent and of another workflow
		if ends["ChildRunTerminated"] != 3 || ends["ChildRunFailed"] != 2 {
			t.Errorf("ends of children: %v", ends)
		}
		runs, _ := h.want(200, "GET", "/api/workflows/closed/runs", "").body["runs"].([]any)
		if len(runs) != 3 {
			t.Errorf("runs of closed: %v", runs)
		}
	})
}

// A backfill repeats the firings of a schedule by the policies of its action: those whose runs have failed, or all.
func TestPoliciesDecideWhetherAFiringIsRepeated(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := caller{t, a, "default"}, caller{t, b, "default"}
		h.want(201, "POST", "/api/schedules", `{"schedule_id":"s","spec":{"cron_expressions":["0 3 * * *"]},"overlap_policy":"allow_all",
			"action":{"workflow_type":"none","task_queue":"unserved","reuse_policy":"allow-after-failure","conflict_policy":"terminate-existing"}}`)
		backfill := func(c caller, outcome string) string {
			t.Helper()
			got := c.want(200, "POST", "/api/schedules/s/backfill", `{"start_time":"2026-01-01T00:00:00Z","end_time":"2026-01-02T00:00:00Z"}`)
			if !strings.Contains(got.raw, `"outcome":"`+outcome+`"`) {
				t.Errorf("want %s: %s", outcome, got.raw)
			}
			return h.want(200, "GET", "/api/workflows/s.20260101T030000Z", "").text("run_id")
		}
		first := backfill(h, "triggered")
		second := backfill(other, "triggered") // replaces the open run
		if got := h.want(200, "GET", "/api/runs/"+first, ""); got.text("status") != "terminated" {
			t.Errorf("the replaced run: %s", got.raw)
		}
		future := h.ask("POST", "/api/schedules/s/backfill", `{"start_time":"2026-01-01T00:00:00Z","end_time":"2999-01-01T00:00:00Z"}`)
		if future.status != 422 || !strings.Contains(future.raw, "is in the future") {
			t.Errorf("a backfill of future times: %s", future.raw)
		}
		h.want(200, "POST", "/api/workflows/s.20260101T030000Z/terminate", `{}`)
		third := backfill(h, "triggered") // after the failure
		h.want(200, "PUT", "/api/schedules/s", `{"action":{"workflow_type":"none","task_queue":"unserved"}}`)
		if first == second || second == third || backfill(other, "skipped") != third {
			t.Errorf("runs %s, %s, %s", first, second, third)
		}
	})
}

// A child and a backfill begin new chains under an ID whose first chain a client has started with an Idempotency-Key.
// The client's repeated start still returns its own run. The stored response is deleted with that run.
func TestARepeatedStartReturnsItsRunAfterAChildOrAFiringUsedTheID(t *testing.T) {
	const anyway, id = `,"reuse_policy":"allow","conflict_policy":"terminate-existing"`, "s.20260101T030000Z"
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		backfill := func(t *testing.T) {
			h.t = t
			h.want(201, "POST", "/api/schedules", `{"schedule_id":"s","spec":{"cron_expressions":["0 3 * * *"]},
				"action":{"workflow_type":"none","task_queue":"unserved"`+anyway+`}}`)
			h.want(200, "POST", "/api/schedules/s/backfill",
				`{"start_time":"2026-01-01T00:00:00Z","end_time":"2026-01-02T00:00:00Z"}`)
		}
		child := func(t *testing.T) {
			h.t = t
			h.want(201, "POST", "/api/workflows", startOf("parent", ""))
			h.decide(h.poll("workflow"), `{"type":"start_child_workflow","workflow_type":"none","workflow_id":"c","queue":"unserved"`+
				anyway+`}`, finish)
		}
		for _, c := range []struct {
			id   string
			uses func(*testing.T)
		}{{id, backfill}, {"c", child}} {
			for _, deleted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, first run deleted: %v", c.id, deleted), func(t *testing.T) {
					h.t, other.t = t, t
					_, got := h.keyed("one", "/api/workflows", startOf(c.id, anyway))
					first := fmt.Sprint(got["run_id"])
					h.decide(h.poll("workflow"), `{"type":"continue_as_new"}`)
					if deleted {
						h.want(200, "DELETE", "/api/workflows/"+c.id+"/runs/"+first, "")
					}
					h.decide(h.poll("workflow"), finish)
					c.uses(t)
					newest := h.want(200, "GET", "/api/workflows/"+c.id, "").text("run_id")
					if n := len(rowsOf(a, "receipts", "start ")); deleted != (n == 0) {
						t.Errorf("%d stored responses", n)
					}
					if !deleted {
						if status, got := other.keyed("one", "/api/workflows", startOf(c.id, anyway)); status != 201 ||
							got["run_id"] != first {
							t.Errorf("first run %s, repeated start: %d %v", first, status, got)
						}
						if got := h.want(200, "GET", "/api/workflows/"+c.id, ""); got.text("run_id") != newest {
							t.Errorf("the repeated start replaced run %s: %s", newest, got.raw)
						}
					}
					// free the IDs
					if c.id == id {
						h.want(200, "DELETE", "/api/schedules/s", "")
					}
					h.want(200, "POST", "/api/workflows/"+c.id+"/terminate", `{}`)
					for _, w := range []string{c.id, "parent"} {
						if w == "parent" && c.id == id {
							continue
						}
						list, _ := h.want(200, "GET", "/api/workflows/"+w+"/runs", "").body["runs"].([]any)
						for _, r := range list {
							h.want(200, "DELETE", "/api/workflows/"+w+"/runs/"+fmt.Sprint(r.(map[string]any)["run_id"]), "")
						}
					}
				})
			}
		}
	})
}

// Two chains of one workflow ID. Lists mark one run as the current one, and the number of runs is that of a run's own
// chain. All runs can be exported and imported into another namespace, in any order, where they look the same.
func TestRunsOfSeveralChainsAreListedExportedAndImported(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		runs := []string{h.start("order")}
		h.decide(h.poll("workflow"), `{"type":"continue_as_new"}`)
		runs = append(runs, h.want(200, "GET", "/api/workflows/order", "").text("run_id"))
		h.decide(h.poll("workflow"), finish)
		status, got := h.keyed("k", "/api/workflows", startOf("order", `,"reuse_policy":"allow"`))
		if status != 201 {
			t.Fatalf("%d %v", status, got)
		}
		runs = append(runs, fmt.Sprint(got["run_id"]))
		h.decide(h.poll("workflow"), finish)
		shown := func(c caller, when string) {
			t.Helper()
			for path, member := range map[string]string{"/api/workflows": "workflows", "/api/workflows/order/runs": "runs"} {
				list, _ := c.want(200, "GET", path, "").body[member].([]any)
				for _, r := range list {
					v := r.(map[string]any)
					i := slices.Index(runs, fmt.Sprint(v["run_id"]))
					if v["is_current_run"] != (i == 2) || (v["chain_run_id"] == runs[2]) != (i == 2) {
						t.Errorf("%s, %s: run %d: %v", when, path, i, v)
					}
				}
				if len(list) != 3 {
					t.Errorf("%s, %s: %d runs", when, path, len(list))
				}
			}
			for i, count := range []float64{2, 2, 1} {
				v := c.want(200, "GET", "/api/workflows/order/runs/"+runs[i], "")
				if v.body["run_count"] != count || v.body["is_current_run"] != (i == 2) {
					t.Errorf("%s, run %d: %s", when, i, v.raw)
				}
			}
		}
		shown(other, "as recorded")
		away := caller{t, apptest.Start(t, apptest.Options{}), "default"}
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
			for _, i := range order {
				document := h.want(200, "GET", "/api/workflows/order/runs/"+runs[i]+"/history/export", "").raw
				if got := away.ask("POST", "/api/workflows/import/bundle", document); got.status >= 300 {
					t.Fatalf("import of run %d, order %v: %s", i, order, got.raw)
				}
			}
			shown(away, fmt.Sprint("imported in the order ", order))
			// the key is not part of an export
			if status, got := away.keyed("k", "/api/workflows", startOf("order", "")); status != 409 ||
				got["reason"] != "duplicate_not_allowed" {
				t.Errorf("a start with the key of an imported run: %d %v", status, got)
			}
			for _, run := range runs {
				away.want(200, "DELETE", "/api/workflows/order/runs/"+run, "")
			}
		}
		// a run of an earlier chain can be imported next to an open run, which stays the current one
		document := h.want(200, "GET", "/api/workflows/order/runs/"+runs[2]+"/history/export", "").raw
		open := away.start("order")
		away.want(201, "POST", "/api/workflows/import/bundle", document)
		if got := away.want(200, "GET", "/api/workflows/order", ""); got.text("run_id") != open {
			t.Errorf("an import replaced the open run: %s", got.raw)
		}
		one := func(when string) {
			t.Helper()
			for path, member := range map[string]string{"/api/workflows": "workflows", "/api/workflows/order/runs": "runs"} {
				list, _ := away.want(200, "GET", path, "").body[member].([]any)
				for _, r := range list {
					if v := r.(map[string]any); v["is_current_run"] != (v["run_id"] == open) {
						t.Errorf("%s, %s: want the current run %s: %v", when, path, open, v)
					}
				}
				if len(list) != 2 {
					t.Errorf("%s, %s: %d runs", when, path, len(list))
				}
			}
		}
		one("with an older run imported")
		away.want(200, "POST", "/api/workflows/order/terminate", `{}`)
		one("after the current run has closed")
	})
}
