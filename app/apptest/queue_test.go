package apptest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// queueWorker is a worker of the HTTP contract, polling by hand.
type queueWorker struct {
	caller
	id string
}

func (c caller) worker(id, build string) queueWorker {
	c.t.Helper()
	body, _ := json.Marshal(map[string]any{
		"worker_id": id, "task_queue": "q", "runtime": "test", "build_id": build, "supported_workflow_types": []string{"wf"},
		"supported_activity_types": []string{"act"},
	})
	c.want(http.StatusCreated, "POST", "/api/worker/register", string(body))
	return queueWorker{c, id}
}

func (w queueWorker) poll(kind string, seconds int) response {
	return w.ask(
		"POST", "/api/worker/"+kind+"-tasks/poll",
		fmt.Sprintf(`{"worker_id":%q,"task_queue":"q","timeout_seconds":%d}`, w.id, seconds),
	)
}

// task returns the task in the response to a poll, nil if there is none.
func (s response) task() map[string]any { v, _ := s.body["task"].(map[string]any); return v }

func (w queueWorker) leased(kind string) map[string]any {
	w.t.Helper()
	a := w.poll(kind, 20)
	if a.task() == nil {
		w.t.Fatalf("%s polled for a %s task and was told %v", w.id, kind, a.body)
	}
	return a.task()
}

func (w queueWorker) complete(task map[string]any, commands string) {
	w.t.Helper()
	w.want(http.StatusOK, "POST", "/api/worker/workflow-tasks/"+task["task_id"].(string)+"/complete",
		fmt.Sprintf(
			`{"lease_owner":%q,"workflow_task_attempt":%v,"commands":[%s]}`, w.id, task["workflow_task_attempt"], commands,
		))
}

func (w queueWorker) finish(task map[string]any) {
	w.t.Helper()
	w.want(http.StatusOK, "POST", "/api/worker/activity-tasks/"+task["task_id"].(string)+"/complete",
		fmt.Sprintf(`{"lease_owner":%q,"activity_attempt_id":%q}`, w.id, task["activity_attempt_id"]))
}

func (c caller) begin(id string) {
	c.t.Helper()
	c.want(
		http.StatusCreated, "POST", "/api/workflows",
		fmt.Sprintf(`{"workflow_id":%q,"workflow_type":"wf","task_queue":"q"}`, id),
	)
}

func TestARolloutMovesNewRunsAndDrainsTheOldBuild(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t: t, app: apptest.Start(t, apptest.Options{Database: database}), ns: "default"}
		old := c.worker("w1", "v1")
		c.begin("before")
		next := c.worker("w2", "v2")
		if a := c.want(
			http.StatusOK, "POST", "/api/task-queues/q/build-ids/promote", `{"build_id":"v2"}`,
		); a.body["new_start_selected"] != true || a.text("promoted_at") == "" {
			t.Errorf("promoted: %v", a.body)
		}
		c.begin("after")
		if got := old.leased("workflow")["workflow_id"]; got != "before" {
			t.Fatalf("the old build took %v, want the run from before the promotion", got)
		}
		if a := old.poll("workflow", 0); a.task() != nil {
			t.Fatalf("the old build took a run pinned to the new one: %v", a.body)
		}
		why := c.want(http.StatusOK, "GET", "/api/workflows/after", "").raw
		if !strings.Contains(why, "w2") {
			t.Errorf("why the pinned run waits: %s", why)
		}
		c.want(http.StatusUnprocessableEntity, "POST", "/api/task-queues/q/build-ids/drain", `{"build_id":"v\u0000"}`)
		// A drain ends a held poll and rejects later polls.
		waiting := make(chan response, 1)
		go func() { waiting <- old.poll("activity", 30) }()
		until(t, "the old build's poll to wait", func() bool {
			a := c.want(http.StatusOK, "GET", "/api/task-queues/q", "")
			return strings.Contains(a.raw, `"waiting_count":1`)
		})
		drained := c.want(http.StatusOK, "POST", "/api/task-queues/q/build-ids/drain", `{"build_id":"v1"}`)
		if drained.text("drain_intent") != "draining" || drained.text("drained_at") == "" {
			t.Errorf("drained: %v", drained.body)
		}
		if repeated := c.want(
			http.StatusOK, "POST", "/api/task-queues/q/build-ids/drain", `{"build_id":"v1"}`,
		); repeated.text("drained_at") != drained.text("drained_at") {
			t.Errorf("drained again: %v, want nothing new", repeated.body)
		}
		for i, a := range []response{<-waiting, old.poll("workflow", 0)} {
			if a.status != http.StatusConflict || a.text("poll_status") != "draining" || a.text("reason") != "worker_draining" ||
				a.text("drain_intent") != "draining" || a.text("build_id") != "v1" {
				t.Errorf("poll %d of the drained build: %d %v", i, a.status, a.body)
			}
		}
		if got := next.leased("workflow")["workflow_id"]; got != "after" {
			t.Errorf("the new build took %v", got)
		}
		if a := c.want(
			http.StatusOK, "GET", "/api/task-queues/q/build-ids", "",
		); !strings.Contains(a.raw, `"build_id":"v1","rollout_status":"draining"`) ||
			!strings.Contains(a.raw, `"build_id":"v2","rollout_status":"active"`) {
			t.Errorf("build ids: %s", a.raw)
		}
		if a := c.want(
			http.StatusOK, "GET", "/api/workers?status=draining", "",
		); !strings.Contains(a.raw, `"build_id":"v1"`) || strings.Contains(a.raw, `"build_id":"v2"`) {
			t.Errorf("workers that are given nothing new: %s", a.raw)
		}
		c.want(http.StatusOK, "POST", "/api/task-queues/q/build-ids/drain", `{"build_id":"unseen"}`)
		if a := c.want(http.StatusOK, "GET", "/api/task-queues/q/build-ids", ""); !strings.Contains(
			a.raw, `"build_id":"unseen","rollout_status":"draining"`,
		) {
			t.Errorf("a build that was drained before a worker of it came: %s", a.raw)
		}
		c.want(http.StatusOK, "POST", "/api/task-queues/q/build-ids/resume", `{"build_id":"unseen"}`)
		c.want(http.StatusOK, "POST", "/api/task-queues/q/build-ids/resume", `{"build_id":"v1"}`)
		if a := c.want(http.StatusOK, "GET", "/api/workers?status=draining", ""); strings.Contains(a.raw, `"build_id":"v1"`) {
			t.Errorf("resumed, it still drains: %s", a.raw)
		}
		if a := old.poll("workflow", 0); a.status != http.StatusOK {
			t.Errorf("after the resume: %d %v", a.status, a.body)
		}
		if a := c.ask(
			"POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w1","task_queue":"q","build_id":"v9","timeout_seconds":0}`,
		); a.status != http.StatusConflict ||
			a.text("reason") != "build_id_mismatch" {
			t.Errorf("a poll as another build: %d %v", a.status, a.body)
		}
		// A task that is drained or over a limit cannot be leased by its ID either.
		c.begin("mine")
		id := c.want(http.StatusOK, "GET", "/api/workflows/mine", "").text("run_id") + "-1-workflow"
		c.want(http.StatusOK, "POST", "/api/task-queues/q/build-ids/drain", `{"build_id":"v2"}`)
		if a := c.ask("POST", claimPath("workflow", id), `{"worker_id":"w2"}`); a.status != http.StatusConflict ||
			a.text("reason") != "worker_draining" {
			t.Errorf("a claim by id of a drained build: %d %v", a.status, a.body)
		}
		c.want(http.StatusOK, "PUT", "/api/task-queues/q/limits", `{"workflow_tasks":{"max_active_leases":5}}`)
		if a := c.ask("POST", claimPath("workflow", id), `{"worker_id":"w1"}`); a.status != http.StatusTooManyRequests ||
			a.text("reason") != "throttled" {
			t.Errorf("a claim by id of a counted task: %d %.300s", a.status, a.raw)
		}
		audits := c.want(http.StatusOK, "GET", "/api/audit", "").raw
		for _, action := range []string{"task_queue.build.promote", "task_queue.build.drain", "task_queue.build.resume"} {
			if !strings.Contains(audits, action) {
				t.Errorf("%s is not in the audit: %s", action, audits)
			}
		}
	})
}

func TestABudgetThrottlesPollsAndItsEndWakesThem(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t: t, app: apptest.Start(t, apptest.Options{Database: database}), ns: "default"}
		w := c.worker("w", "")
		c.want(http.StatusOK, "PUT", "/api/task-queues/q/limits", `{"activity_tasks":{"max_active_leases":1}}`)
		c.begin("run")
		act := `{"type":"schedule_activity","activity_type":"act","queue":"q"}`
		w.complete(w.leased("workflow"), act+","+act)
		first := w.leased("activity")
		a := w.poll("activity", 0)
		if a.status != http.StatusOK || a.text("poll_status") != "throttled" ||
			!strings.Contains(a.text("wait_reason"), "1 of 1 activity tasks leased") || a.task() != nil {
			t.Fatalf("a poll beyond the budget: %d %v", a.status, a.body)
		}
		if m := c.want(http.StatusOK, "GET", "/metrics", "").raw; !strings.Contains(m, "\nsojourn_throttled_claims_total ") ||
			strings.Contains(m, "\nsojourn_throttled_claims_total 0\n") {
			t.Errorf("the budget is not in the metrics: %s", m)
		}
		if why := c.want(http.StatusOK, "GET", "/api/workflows/run", "").raw; !strings.Contains(
			why, "is at its concurrency limit (1 of 1 activity tasks leased)",
		) {
			t.Errorf("why the second activity waits: %s", why)
		}
		queue := c.want(http.StatusOK, "GET", "/api/task-queues/q", "").raw
		for _, want := range []string{
			`"status":"throttled"`, `"server_max_active_leases_per_queue":1`, `"server_remaining_active_lease_capacity":0`,
			first["task_id"].(string),
		} {
			if !strings.Contains(queue, want) {
				t.Errorf("the queue does not say %s: %s", want, queue)
			}
		}
		// The waiting poll receives the task when the lease expires, long before its timeout.
		waiting := make(chan response, 1)
		go func() { waiting <- w.poll("activity", 60) }()
		until(t, "the poll to wait", func() bool {
			return strings.Contains(c.want(http.StatusOK, "GET", "/api/task-queues/q", "").raw, `"waiting_count":1`)
		})
		w.finish(first)
		select {
		case a := <-waiting:
			if a.task() == nil {
				t.Fatalf("the poll that waited was told %v", a.body)
			}
			w.finish(a.task())
		case <-time.After(2 * time.Minute):
			t.Fatal("the end of a lease did not wake the poll")
		}
		for body, field := range map[string]string{
			`{}`: "activity_tasks", `{"activity_tasks":{"max_active_leases":0}}`: "max_active_leases",
			`{"workflow_tasks":{"max_dispatches_per_minute":-1}}`: "workflow_tasks",
		} {
			if a := c.ask("PUT", "/api/task-queues/q/limits", body); a.status != http.StatusUnprocessableEntity ||
				!strings.Contains(a.raw, field) {
				t.Errorf("limits %s: %d %s", body, a.status, a.raw)
			}
		}
		c.want(http.StatusOK, "PUT", "/api/namespaces/default/limits", `{"activity_tasks":{"max_dispatches_per_minute":100}}`)
		if a := c.want(http.StatusOK, "GET", "/api/namespaces/default/limits", ""); !strings.Contains(
			a.raw, `"max_dispatches_per_minute":100`,
		) {
			t.Errorf("limits of the namespace: %s", a.raw)
		}
		if a := c.ask("GET", "/api/task-queues/nowhere", ""); a.status != http.StatusNotFound ||
			a.text("reason") != "task_queue_not_found" {
			t.Errorf("a queue nobody knows: %d %v", a.status, a.body)
		}
	})
}

// Operators' changes at one app affect polls at another app: a drain ends a held poll there, and a lease that ends here
// wakes it.
func TestDecisionsAboutAQueueReachTheOtherApp(t *testing.T) {
	database := apptest.Postgres(t)
	here := caller{t: t, app: apptest.Start(t, apptest.Options{Database: database}), ns: "default"}
	there := caller{t: t, app: apptest.Start(t, apptest.Options{Database: database}), ns: "default"}
	one, two := here.worker("w1", "v1"), there.worker("w2", "v2")
	answer := make(chan response, 1)
	waits := func(c caller) {
		until(t, "a poll to wait", func() bool {
			select {
			case a := <-answer:
				t.Fatalf("the poll did not wait: %d %v", a.status, a.body)
			default:
			}
			return strings.Contains(c.want(http.StatusOK, "GET", "/api/task-queues/q", "").raw, `"waiting_count":1`)
		})
	}
	here.want(http.StatusOK, "PUT", "/api/task-queues/q/limits", `{"activity_tasks":{"max_active_leases":1}}`)
	here.begin("run")
	act := `{"type":"schedule_activity","activity_type":"act","queue":"q"}`
	one.complete(one.leased("workflow"), act+","+act)
	first := one.leased("activity")
	go func() { answer <- two.poll("activity", 60) }()
	waits(there)
	one.finish(first)
	if a := <-answer; a.task() == nil {
		t.Fatalf("the poll at the other app was told %v", a.body)
	}
	go func() { answer <- two.poll("activity", 60) }()
	waits(there)
	here.want(http.StatusOK, "POST", "/api/task-queues/q/build-ids/drain", `{"build_id":"v2"}`)
	if a := <-answer; a.status != http.StatusConflict || a.text("poll_status") != "draining" {
		t.Fatalf("the poll of the build drained at the other app: %d %v", a.status, a.body)
	}
}

func TestABurstOfOneTenantDoesNotDelayAnother(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t: t, app: apptest.Start(t, apptest.Options{Database: database}), ns: "default"}
		begin := func(id, key string) {
			c.want(
				http.StatusCreated, "POST", "/api/workflows",
				fmt.Sprintf(`{"workflow_id":%q,"workflow_type":"wf","task_queue":"q","fairness_key":%q}`, id, key),
			)
		}
		for i := range 20 {
			begin(fmt.Sprint("big-", i), "Big")
		}
		begin("small-0", "small")
		order := c.want(http.StatusOK, "GET", "/api/task-queues/q/priority-fairness", "").raw
		if !strings.Contains(order, `"fairness_key":"big","fairness_weight":1,"ready_count":20`) ||
			!strings.Contains(order, `"enabled":true`) {
			t.Errorf("order: %s", order)
		}
		w := c.worker("w", "")
		var got []string
		for range 3 {
			got = append(got, w.leased("workflow")["workflow_id"].(string))
		}
		if g := strings.Join(got, " "); g != "big-0 small-0 big-1" {
			t.Errorf("runs came as %s", g)
		}
	})
}

// A queue lists its three oldest ready tasks of each kind, the oldest first, with the reasons why they wait.
func TestQueueShowsWaitReasonsOfItsOldestTasks(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
		waiting := func() (list []string) {
			t.Helper()
			all, _ := c.want(http.StatusOK, "GET", "/api/task-queues/q", "").body["waiting"].([]any)
			for _, one := range all {
				w := one.(map[string]any)
				list = append(list, fmt.Sprint(w["kind"], " of ", w["workflow_id"], ": ", w["why"]))
			}
			return list
		}
		same := func(want ...string) {
			t.Helper()
			if got := waiting(); !slices.Equal(got, want) {
				t.Errorf("waiting are %q, want %q", got, want)
			}
		}
		for i := range 5 {
			c.begin(fmt.Sprint("wf-", i))
		}
		const noPoller = `: no live worker is polling queue "q"`
		same("workflow of wf-0"+noPoller, "workflow of wf-1"+noPoller, "workflow of wf-2"+noPoller)
		w := c.worker("w", "")
		for range 4 {
			w.complete(
				w.leased("workflow"),
				`{"type":"schedule_activity","activity_type":"act"},{"type":"schedule_activity","activity_type":"other"}`,
			)
		}
		last := w.leased("workflow")
		w.finish(w.leased("activity"))
		got := waiting()
		if len(got) != 4 || got[0] != "workflow of wf-0: ready; worker w is busy or not polling" ||
			!strings.HasPrefix(got[1], "activity of wf-0: ") ||
			!strings.Contains(got[1], "other") || !strings.HasPrefix(got[3], "activity of wf-1: ") {
			t.Errorf("with a worker that knows one of two activities, waiting are %q", got)
		}
		w.complete(last, `{"type":"complete_workflow"}`)
	})
}

// The published clients read only one response. Lists of workers and queues are complete unless a request has a page
// size.
func TestWorkersAndQueuesArePagedOnRequest(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), ""}
	const all = 120 // more than the default page size
	for i := range all {
		id := fmt.Sprint("w", i)
		c.want(http.StatusCreated, "POST", "/api/worker/register",
			`{"worker_id":"`+id+`","task_queue":"`+id+`","runtime":"external","supported_workflow_types":["flow"]}`)
	}
	for path, list := range map[string]string{"/api/workers": "workers", "/api/task-queues": "task_queues"} {
		for query, want := range map[string]int{"": all, "?page_size=7": 7} {
			a := c.want(http.StatusOK, "GET", path+query, "")
			got, _ := a.body[list].([]any)
			if token := a.body["next_page_token"] != nil; len(got) != want || token != (want < all) {
				t.Errorf("%s%s: %d, want %d; another page: %t", path, query, len(got), want, token)
			}
		}
	}
}
