package apptest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/store"
	goclient "github.com/sojourn-run/sojourn/client"
)

func resetPath(id, run string) string {
	return "/api/sojourn/workflows/" + id + "/runs/" + run + "/reset"
}

// typesOf returns the types of the events of a run.
func (c caller) typesOf(id, run string) (types []string) {
	c.t.Helper()
	for _, e := range c.want(200, "GET", "/api/workflows/"+id+"/runs/"+run+"/history", "").body["events"].([]any) {
		types = append(types, e.(map[string]any)["event_type"].(string))
	}
	return types
}

// An open run is reset at an app that did not start it. The run closes as terminated, and a new run begins after the
// event: the completed activity keeps its result, the open one runs again, and reports of the old attempt and the old
// workflow task are refused. A repeated request returns the first response.
func TestAResetContinuesARunFromTheEndOfAWorkflowTask(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		run := h.start("order")
		h.decide(h.poll("workflow"), step) // events 1 and 2
		first := h.poll("activity")
		h.want(200, "POST", stepPath(first, "complete"), h.stepBody(first, "")) // 3
		h.decide(h.poll("workflow"), step)                                      // 4
		open := h.poll("activity")
		h.want(202, "POST", "/api/workflows/order/signal/go", `{"input":[7]}`) // 5

		got := other.want(409, "POST", resetPath("order", run), `{"event":3}`)
		if got.text("reason") != "not_a_reset_point" || got.body["previous_event"] != 2.0 || got.body["next_event"] != 4.0 {
			t.Errorf("an event between two tasks: %s", got.raw)
		}
		for _, body := range []string{`{}`, `{"event":2,"to":"last_task"}`, `{"to":"third_task"}`, `{"event":-1}`} {
			other.want(422, "POST", resetPath("order", run), body)
		}
		body := `{"to":"last_task","reason":"wrong price","request_id":"r1"}`
		done := other.want(202, "POST", resetPath("order", run), body)
		next := done.text("run_id")
		if next == run || done.text("outcome") != "reset" || done.body["event"] != 4.0 ||
			done.text("continued_from_run_id") != run {
			t.Errorf("response: %s", done.raw)
		}
		if again := h.want(200, "POST", resetPath("order", run), body); again.text("run_id") != next {
			t.Errorf("repeated: %s", again.raw)
		}
		h.want(409, "POST", resetPath("order", run), `{"to":"first_task","request_id":"r1"}`)
		refused := h.want(409, "POST", resetPath("order", run), `{"event":2,"request_id":"r2"}`)
		if refused.text("reason") != "historical_run_command_rejected" || refused.text("current_run_id") != next {
			t.Errorf("another request: %s", refused.raw)
		}

		old := h.want(200, "GET", "/api/workflows/order/runs/"+run, "")
		if old.text("status") != "terminated" || old.text("closed_reason") != "terminated" {
			t.Errorf("the run that was reset: %s", old.raw)
		}
		end := h.eventsOf("order", run, "WorkflowTerminated")[0]
		if end["reason"] != "reset" || end["continued_to_run_id"] != next ||
			h.eventsOf("order", run, "TerminateRequested")[0]["reason"] != "wrong price" {
			t.Errorf("the end of the run: %v", end)
		}
		from := h.eventsOf("order", next, "WorkflowStarted")[0]["reset_from"].(map[string]any)
		if from["run_id"] != run || from["event"] != 4.0 || from["seen"] != 3.0 || from["reason"] != "wrong price" {
			t.Errorf("reset_from: %v", from)
		}
		h.want(409, "POST", stepPath(open, "complete"), h.stepBody(open, "")) // the run has closed

		task := h.poll("activity")
		if !strings.HasPrefix(task.text("task_id"), next+"-2") || task.number("attempt_number") != 1 ||
			task.text("idempotency_key") == open.text("idempotency_key") {
			t.Errorf("activity of the new run: %s", task.json())
		}
		h.want(200, "POST", stepPath(task, "complete"), h.stepBody(task, ""))
		flow := h.poll("workflow")
		for kind, n := range map[string]int{
			"ActivityScheduled": 2, "ActivityCompleted": 2, "SignalReceived": 1, "WorkflowTerminated": 0,
		} {
			if got := strings.Count(flow.json(), `"event_type":"`+kind+`"`); got != n {
				t.Errorf("%d times %s, want %d: %s", got, kind, n, flow.json())
			}
		}
		h.decide(flow, finish)
		v := other.want(200, "GET", "/api/workflows/order", "")
		if v.text("status") != "completed" || v.text("run_id") != next || v.body["run_number"] != 2.0 {
			t.Errorf("after the reset: %s", v.raw)
		}
		audit := other.want(200, "GET", "/api/audit", "").raw
		if !strings.Contains(audit, "workflow.reset") ||
			!strings.Contains(audit, run+" to event 4 as "+next+": wrong price") {
			t.Errorf("audit: %s", audit)
		}
		// A caller that waits for the result of the old run gets the result of the new one.
		if r := other.want(200, "GET", "/api/sojourn/workflows/order/runs/"+run+"/result", ""); r.text("run_id") != next {
			t.Errorf("the result of the old run: %s", r.raw)
		}
	})
}

// Signals, an update without a result and the outcome of an awakeable that arrived after the point reach the new run.
// An answered update and signals that the code sent to itself do not. Without reapply, the new run waits for all of
// them.
func TestAResetAppliesWhatArrivedAfterThePointAgain(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		here, other := caller{t, a, "default"}, caller{t, b, "default"}
		h := withAwakeables(here)
		for _, again := range []bool{true, false} {
			id := fmt.Sprint("flow-", again)
			run := h.start(id)
			wait := `{"type":"open_signal_wait","signal_name":"go"}`
			h.decide(h.poll("workflow"), openAwakeable, openAwakeable, wait) // events 2, 3, 4
			path := func(seq int) string { return fmt.Sprintf("/api/sojourn/awakeables/%s-%d/complete", run, seq) }
			other.want(200, "POST", path(1), `{"result":1}`)
			h.decide(h.poll("workflow"), openAwakeable, // command 4
				`{"type":"signal_workflow","workflow_id":"`+id+`","signal_name":"own"}`)
			other.want(202, "POST", "/api/workflows/"+id+"/signal/go", `{"input":[7]}`)
			h.decide(h.poll("workflow"), wait)
			other.want(202, "POST", "/api/workflows/"+id+"/update/first", `{"input":[1]}`)
			task := h.poll("workflow")
			h.decide(task, `{"type":"complete_update","update_id":"`+task.text("workflow_update_id")+`"}`)
			open := other.want(202, "POST", "/api/workflows/"+id+"/update/second", `{"input":[2]}`)

			next := other.want(202, "POST", resetPath(id, run), fmt.Sprintf(`{"event":4,"reapply":%v}`, again)).text("run_id")
			types := here.typesOf(id, next)[1:]
			want := "AwakeableOpened AwakeableOpened SignalWaitOpened"
			if again {
				want += " AwakeableCompleted SignalReceived UpdateAccepted"
			}
			if got := strings.Join(types, " "); got != want {
				t.Errorf("reapply %v: the new run has the events %s, want %s", again, got, want)
			}
			failed := len(here.eventsOf(id, run, "UpdateCompleted")) == 2
			if failed == again {
				t.Errorf("reapply %v: the open update of the old run failed: %v", again, failed)
			}
			// Awakeables of the copied events have their IDs; the later one ended with the old run.
			if got := other.want(409, "POST", path(4), `{"result":1}`); got.text("reason") != "awakeable_closed" {
				t.Errorf("an awakeable that was opened after the point: %s", got.raw)
			}
			first := other.want(200, "POST", path(1), `{"result":1}`)
			other.want(409, "POST", path(1), `{"result":2}`)
			second := other.want(200, "POST", path(2), `{"result":2}`)
			if repeated := here.want(200, "POST", path(2), `{"result":2}`); repeated.raw != second.raw ||
				second.text("run_id") != next || first.text("run_id") != next {
				t.Errorf("awakeables of the new run: %s, %s, %s", first.raw, second.raw, repeated.raw)
			}
			if n := len(here.eventsOf(id, next, "AwakeableCompleted")); n != 2 {
				t.Errorf("%d awakeables completed in the new run", n)
			}
			if again {
				answers := other.later("POST", "/api/workflows/"+id+"/update/third", `{"input":[3],"wait_for":"completed"}`)
				for range 2 { // the update that the old run had not answered, and one for the new run
					for task = h.poll("workflow"); task.text("workflow_update_id") == ""; task = h.poll("workflow") {
						h.want(200, "POST", flowPath(task, "fail"), h.flowBody(
							task, `,"failure":{"type":"WorkflowTaskWaitingForHistory","message":"waits"}`,
						))
					}
					h.decide(task, `{"type":"complete_update","update_id":"`+task.text("workflow_update_id")+`"}`)
				}
				if got := <-answers; got.text("update_status") != "completed" {
					t.Errorf("an update of the new run: %s", got.raw)
				}
				done := here.eventsOf(id, next, "UpdateCompleted")
				if len(done) != 2 || done[0]["update_id"] != open.text("update_id") {
					t.Errorf("updates of the new run: %v", done)
				}
			}
			other.want(200, "POST", "/api/workflows/"+id+"/terminate", `{}`)
		}
	})
}

// Many callers at two apps reset a run and send signals at the same time. One reset wins, and each acknowledged signal
// is in the history of the current run.
func TestConcurrentResetsAndSignalsLoseNothing(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		apps := []caller{{t, a, "default"}, {t, b, "default"}}
		h := register(apps[0], "w", "")
		run := h.start("order")
		h.decide(h.poll("workflow"), step)
		var g sync.WaitGroup
		var mu sync.Mutex
		created := map[string]bool{}
		sent := 0
		for i := range 20 {
			g.Go(func() {
				code, got := apps[i%2].keyed("", resetPath("order", run), fmt.Sprintf(`{"event":2,"request_id":"r%d"}`, i))
				if code == 202 {
					mu.Lock()
					created[got["run_id"].(string)] = true
					mu.Unlock()
				}
			})
			g.Go(func() {
				code, _ := apps[i%2].keyed("", "/api/workflows/order/signal/go", `{"input":[1]}`)
				if code == 202 {
					mu.Lock()
					sent++
					mu.Unlock()
				}
			})
		}
		g.Wait()
		v := apps[1].want(200, "GET", "/api/workflows/order", "")
		n := len(apps[1].eventsOf("order", v.text("run_id"), "SignalReceived"))
		if len(created) != 1 || !created[v.text("run_id")] || v.body["run_count"] != 2.0 || n != sent || sent == 0 {
			t.Errorf("%d runs created, %d of %d signals in the current run: %s", len(created), n, sent, v.raw)
		}
	})
}

// Callers at two apps redrive and reset a failed run at the same time: one request wins, and the others are refused
// since the workflow ID refers to the new run.
func TestConcurrentResetsAndRedrivesCreateOneRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h := register(caller{t, a, "default"}, "w", "")
		apps := []caller{h.caller, {t, b, "default"}}
		for i := range 6 {
			id := fmt.Sprint("order-", i)
			run := h.start(id)
			h.decide(h.poll("workflow"), step)
			task := h.poll("activity")
			h.want(200, "POST", stepPath(task, "complete"), h.stepBody(task, ""))
			h.decide(h.poll("workflow"), failRun)
			var responses []<-chan response
			for n := range 4 {
				responses = append(
					responses, apps[n%2].later("POST", resetPath(id, run), `{"to":"last_task"}`),
					apps[1-n%2].later("POST", redrivePath(id, run), `{}`),
				)
			}
			var won []string
			for _, r := range responses {
				if got := <-r; got.status == 202 {
					won = append(won, got.text("run_id"))
				} else if got.status != 409 || got.text("reason") != "historical_run_command_rejected" {
					t.Errorf("%s: %s", id, got.raw)
				}
			}
			v := apps[1].want(200, "GET", "/api/workflows/"+id, "")
			if len(won) != 1 || v.text("run_id") != won[0] || v.body["run_count"] != 2.0 {
				t.Errorf("%s: the runs %v began: %s", id, won, v.raw)
			}
			apps[1].want(200, "POST", "/api/workflows/"+id+"/terminate", `{}`)
		}
	})
}

// A run is reset at one app while its code completes it at another app and a signal arrives: the run closes once. If
// the completion is acknowledged, the result stays; otherwise the reset ended the run. An acknowledged signal is in the
// new run.
func TestAResetWhileTheCodeClosesTheRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		for i := range 20 {
			id := fmt.Sprint("order-", i)
			run := h.start(id)
			h.decide(h.poll("workflow"), waitForGo)
			h.want(202, "POST", "/api/workflows/"+id+"/signal/go", `{"input":[1]}`)
			task := h.poll("workflow")
			second := h.later("POST", "/api/workflows/"+id+"/signal/go", `{"input":[2]}`)
			reset := func() <-chan response { return other.later("POST", resetPath(id, run), `{"event":2}`) }
			closing := func() <-chan response {
				return h.later("POST", flowPath(task, "complete"), h.flowBody(task, `,"commands":[`+finish+`]`))
			}
			var done, completed <-chan response
			if i%2 == 0 {
				done, completed = reset(), closing()
			} else {
				completed, done = closing(), reset()
			}
			began, end, sent := <-done, <-completed, <-second
			next := began.text("run_id")
			v := other.want(200, "GET", "/api/workflows/"+id, "")
			if began.status != 202 || v.text("run_id") != next || v.text("closed_reason") != "" || v.body["run_count"] != 2.0 {
				t.Errorf("%s: reset: %s, the workflow: %s", id, began.raw, v.raw)
			}
			want := map[int]string{200: "WorkflowCompleted", 409: "WorkflowTerminated"}[end.status]
			types := other.typesOf(id, run)
			closings := 0
			for _, name := range types {
				if name == "WorkflowCompleted" || name == "WorkflowTerminated" {
					closings++
				}
			}
			if closings != 1 || types[len(types)-1] != want {
				t.Errorf("%s: completion: %s, events of the old run: %v", id, end.raw, types)
			}
			signals := 1
			if sent.status == 202 {
				signals++
			} else if sent.status != 409 {
				t.Errorf("%s: signal: %s", id, sent.raw)
			}
			if got := len(other.eventsOf(id, next, "SignalReceived")); got != signals {
				t.Errorf("%s: %d signals in the new run, want %d; the old run: %v", id, got, signals, types)
			}
			other.want(200, "POST", "/api/workflows/"+id+"/terminate", `{}`)
		}
	})
}

// The ID of an awakeable names the run that opened it. After that run was deleted, no request finds the awakeable of
// the new run.
func TestAnAwakeableOfADeletedRunCannotBeResolved(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		here, other := caller{t, a, "default"}, caller{t, b, "default"}
		h := withAwakeables(here)
		run := h.start("flow")
		h.decide(h.poll("workflow"), openAwakeable)
		other.want(202, "POST", resetPath("flow", run), `{"to":"last_task"}`)
		h.want(200, "DELETE", "/api/workflows/flow/runs/"+run, "")
		got := other.want(404, "POST", "/api/sojourn/awakeables/"+run+"-1/complete", `{"result":1}`)
		if got.text("reason") != "awakeable_not_found" {
			t.Errorf("resolved: %s", got.raw)
		}
		other.want(200, "POST", "/api/workflows/flow/terminate", `{}`)
	})
}

// servedChild returns a command that starts a child of type flow in the queue of the worker.
func servedChild(id, more string) string {
	return `{"type":"start_child_workflow","workflow_type":"flow","queue":"` + handQueue + `","workflow_id":"` + id + `"` +
		more + `}`
}

// workflowTask polls until it gets a workflow task of a run. It returns other tasks to their runs as waiting.
func (h hand) workflowTask(run string) handTask {
	h.t.Helper()
	for {
		task := h.poll("workflow")
		if task.text("run_id") == run {
			return task
		}
		h.want(200, "POST", flowPath(task, "fail"), h.flowBody(
			task, `,"failure":{"type":"WorkflowTaskWaitingForHistory","message":"waits"}`,
		))
	}
}

// Children that were open at the point report to the new run: a child that ends afterwards, also after the old run was
// deleted and after the new run was reset again; a child that ended before the reset; and a child that ended after its
// parent had closed. A child that was started after the point is cancelled.
func TestChildrenReportToTheRunAfterAReset(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		run := h.start("parent")
		// events 2 to 7
		h.decide(h.poll("workflow"), servedChild("ended", ""), servedChild("open", ""), servedChild("late", ""))
		children := map[string]handTask{}
		for range 3 {
			task := h.poll("workflow")
			children[task.text("workflow_id")] = task
		}
		h.decide(children["ended"], finish)
		h.decide(h.workflowTask(run), servedChild("later", ""))
		later := h.poll("workflow")
		next := other.want(202, "POST", resetPath("parent", run), `{"to":"first_task"}`).text("run_id")
		h.eventually("/api/workflows/later", func(r response) bool { return r.text("status") == "cancelled" })
		h.want(409, "POST", flowPath(later, "complete"), h.flowBody(later, `,"commands":[`+finish+`]`))
		got := h.eventsOf("parent", next, "ChildRunCompleted")
		if len(got) != 1 || got[0]["child_workflow_instance_id"] != "ended" {
			t.Errorf("ends of children that the new run received again: %v", got)
		}

		h.decide(children["open"], finish)
		h.eventually("/api/workflows/parent/runs/"+next+"/history", func(r response) bool {
			return strings.Count(r.raw, `"event_type":"ChildRunCompleted"`) == 2
		})
		last := other.want(202, "POST", resetPath("parent", next), `{"event":7}`).text("run_id")
		h.want(200, "DELETE", "/api/workflows/parent/runs/"+run, "")
		h.decide(children["late"], finish)
		h.eventually("/api/workflows/parent/runs/"+last+"/history", func(r response) bool {
			return strings.Count(r.raw, `"event_type":"ChildRunCompleted"`) == 3
		})
		h.decide(h.workflowTask(last), finish)

		// The parent closes, and then its child ends: only the child knows how.
		run = h.start("closed")
		h.decide(h.workflowTask(run), servedChild("orphan", ""), servedChild("survivor", ""))
		for range 2 {
			task := h.poll("workflow")
			children[task.text("workflow_id")] = task
		}
		h.want(200, "POST", "/api/workflows/closed/terminate", `{}`)
		h.decide(children["orphan"], finish)
		next = other.want(202, "POST", resetPath("closed", run), `{"event":5}`).text("run_id")
		h.eventually("/api/workflows/closed/runs/"+next+"/history", func(r response) bool {
			return strings.Count(r.raw, `"event_type":"ChildRunCompleted"`) == 1
		})
		if v := h.want(200, "GET", "/api/workflows/closed/runs/"+run, ""); v.text("closed_reason") != "terminated" ||
			len(h.eventsOf("closed", run, "WorkflowTerminated")) != 1 {
			t.Errorf("the closed run: %s", v.raw)
		}
		h.decide(children["survivor"], finish)
		h.eventually("/api/workflows/closed/runs/"+next+"/history", func(r response) bool {
			return strings.Count(r.raw, `"event_type":"ChildRunCompleted"`) == 2
		})
	})
}

// A child is reset while it is open. Its parent waits for the new run and receives its end.
func TestAParentWaitsForTheNewRunOfAResetChild(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		parent := h.start("parent")
		h.decide(h.poll("workflow"), servedChild("child", `,"execution_timeout_seconds":3600`))
		child := h.poll("workflow")
		h.decide(child, waitForGo)
		deadline := h.want(200, "GET", "/api/workflows/child", "").text("execution_deadline_at")
		next := other.want(202, "POST", resetPath("child", child.text("run_id")), `{"to":"last_task"}`).text("run_id")
		v := other.want(200, "GET", "/api/workflows/child", "")
		if v.text("run_id") != next || v.text("parent_run_id") != parent || v.text("execution_deadline_at") != deadline {
			t.Errorf("the new run of the child: %s", v.raw)
		}
		h.eventually("/api/workflows/parent/runs/"+parent+"/history", func(r response) bool {
			return strings.Contains(r.raw, next) && !strings.Contains(r.raw, "ChildRunTerminated")
		})
		other.want(202, "POST", "/api/workflows/child/signal/go", `{"input":[1]}`)
		h.decide(h.workflowTask(next), finish)
		h.decide(h.workflowTask(parent), finish)
		got := h.eventsOf("parent", parent, "ChildRunCompleted")
		if len(got) != 1 || got[0]["child_workflow_run_id"] != next {
			t.Errorf("the end of the child: %v", got)
		}
	})
}

// The session that the code started before the point stays, and the next activity acquires it under a higher epoch with
// new state. The session that the code started later is closed. The session of a closed run is open again.
func TestAResetRaisesTheEpochOfSessions(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		run := h.start("order")
		session := run + "-1"
		h.decide(h.poll("workflow"), `{"type":"start_session"}`, inSession(session)) // events 2 and 3
		epochOf := func(task handTask) (float64, any) {
			held, _ := task["worker_session"].(map[string]any)
			return held["epoch"].(float64), held["is_new"]
		}
		task := h.poll("activity")
		first, _ := epochOf(task)
		h.want(200, "POST", stepPath(task, "complete"), h.stepBody(task, ""))
		h.decide(h.poll("workflow"), `{"type":"start_session"}`, inSession(session), inSession(run+"-3"))
		h.poll("activity")
		closed := func(id string) bool {
			return strings.Contains(other.want(200, "GET", "/api/worker-sessions/"+id, "").raw, `"status":"closed"`)
		}
		epoch := first
		for _, ends := range []bool{false, true} {
			if ends {
				other.want(200, "POST", "/api/workflows/order/terminate", `{}`)
			}
			next := other.want(202, "POST", resetPath("order", run), `{"event":3}`).text("run_id")
			if !ends && !closed(run+"-3") {
				t.Error("the session that was started after the point is open")
			}
			task = h.poll("activity")
			now, isNew := epochOf(task)
			if now <= epoch || isNew != true || !strings.HasPrefix(task.text("task_id"), next+"-2") {
				t.Errorf("epoch %v after %v, new %v: %s", now, epoch, isNew, task.json())
			}
			run, epoch = next, now
		}
		h.want(200, "POST", stepPath(task, "complete"), h.stepBody(task, ""))
		h.decide(h.poll("workflow"), finish)
		if !closed(session) {
			t.Error("the session of the completed run is open")
		}
	})
}

// The response to a reset is lost between the app and the client, which repeats the request at the same or another app:
// one new run begins.
func TestAResetWhoseResponseIsLostCreatesOneRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h := register(caller{t, a, "default"}, "w", "")
		for name, second := range map[string]*apptest.App{"same": a, "other": b} {
			run := h.start(name)
			h.decide(h.poll("workflow"), waitForGo)
			c, lost := losingClient(t, a, second)
			next, err := c.Handle(name, run).Reset(t.Context(), goclient.ResetOptions{Event: 2})
			if err != nil {
				t.Fatal(err)
			}
			v := h.want(200, "GET", "/api/workflows/"+name, "")
			if lost.Load() == 0 || next.RunID == run || v.text("run_id") != next.RunID || v.body["run_count"] != 2.0 {
				t.Errorf("%s app: %d lost responses, the client got run %s: %s", name, lost.Load(), next.RunID, v.raw)
			}
			h.want(200, "POST", "/api/workflows/"+name+"/terminate", `{}`)
		}
	})
}

// The database connection breaks during the commit of a reset, so its outcome is unknown. The repetition finds the
// commit: the run has ended, and one new run exists.
func TestARepeatedResetFindsACommitWhoseResponseIsLost(t *testing.T) {
	t.Parallel()
	gate, a, b := behind(t)
	here, there := register(caller{t, a, ""}, "w", ""), caller{t, b, ""}
	run := here.start("order")
	here.decide(here.poll("workflow"), waitForGo)
	body := `{"event":2,"request_id":"r1"}`
	here.loses(gate, "INSERT INTO events", "POST", resetPath("order", run), body)
	first := there.asks(200, "POST", resetPath("order", run), body)
	if again := here.asks(200, "POST", resetPath("order", run), body); again.raw != first.raw {
		t.Errorf("at the other app %s, at the same app %s", first.raw, again.raw)
	}
	there.asks(409, "POST", resetPath("order", run), `{"event":2}`)
	v := there.want(200, "GET", "/api/workflows/order", "")
	old := there.want(200, "GET", "/api/workflows/order/runs/"+run, "")
	if v.text("run_id") != first.text("run_id") || v.text("run_id") == run || v.body["run_count"] != 2.0 ||
		old.text("status") != "terminated" {
		t.Errorf("repeated %s, the workflow %s, the old run %s", first.raw, v.raw, old.raw)
	}
}

// One run of a chain has a child and a session of an earlier run, a child and a session of its own, an activity in
// progress and a request for cancellation. After the reset, what its code started before the point continues with the
// new run, what it started later ends, and the request is pending only if it arrived before the point. The chain then
// continues as new.
func TestAResetInAChainWithChildrenSessionsAndACancellation(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		other := caller{t, b, "default"}
		h := hand{caller{t, a, "default"}, "w"}
		h.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"`+handQueue+`","runtime":"external",
			"supported_workflow_types":["flow"],"supported_activity_types":["step"],
			"capabilities":["worker_sessions","cancellation_requests"]}`)
		tasks := map[string]handTask{} // workflow tasks that were polled, by workflow ID
		next := func(id string) handTask {
			for tasks[id] == nil {
				task := h.poll("workflow")
				tasks[task.text("workflow_id")] = task
			}
			task := tasks[id]
			delete(tasks, id)
			return task
		}
		for _, early := range []bool{true, false} {
			id := fmt.Sprint("order-", early)
			child := func(name string) string { return servedChild(name+id, `,"parent_close_policy":"terminate"`) }
			status := func(name string) string {
				return other.want(200, "GET", "/api/workflows/"+name+id, "").text("status")
			}
			closed := func(session string) bool {
				return strings.Contains(other.want(200, "GET", "/api/worker-sessions/"+session, "").raw, `"status":"closed"`)
			}
			epochOf := func(task handTask) float64 {
				held, _ := task["worker_session"].(map[string]any)
				return held["epoch"].(float64)
			}
			current := func() string { return other.want(200, "GET", "/api/workflows/"+id, "").text("run_id") }
			cancel := func() { other.want(200, "POST", "/api/workflows/"+id+"/request-cancellation", `{}`) }

			first := h.start(id)
			h.decide(next(id), `{"type":"start_session"}`, child("inherited-"), `{"type":"continue_as_new"}`)
			run := current()
			task := next(id)
			if early {
				cancel()
			}
			h.decide(task, inSession(first+"-1"), `{"type":"start_session"}`, child("own-"), waitForGo)
			before := h.poll("activity")
			if !early {
				cancel()
			}
			h.decide(next(id), `{"type":"start_session"}`, child("later-"))

			body := `{"to":"first_task","request_id":"r1"}`
			began := other.want(202, "POST", resetPath(id, run), body).text("run_id")
			if again := h.want(200, "POST", resetPath(id, run), body); again.text("run_id") != began || current() != began {
				t.Errorf("%s: run %s, repeated: %s", id, began, again.raw)
			}
			h.eventually("/api/workflows/later-"+id, func(r response) bool { return r.text("status") == "cancelled" })
			if !closed(run+"-5") || closed(first+"-1") || closed(run+"-2") {
				t.Errorf("%s: the sessions after the reset", id)
			}
			h.want(409, "POST", stepPath(before, "complete"), h.stepBody(before, ""))
			after := h.poll("activity")
			if !strings.HasPrefix(after.text("task_id"), began+"-1") || epochOf(after) <= epochOf(before) {
				t.Errorf("%s: activity %s after %s", id, after.json(), before.json())
			}
			h.want(200, "POST", stepPath(after, "complete"), h.stepBody(after, ""))
			pending := map[bool]int{true: 1}[early]
			task = next(id)
			if n := strings.Count(task.json(), `"event_type":"WorkflowCancellationRequested"`); n != pending {
				t.Errorf("%s: %d requests for cancellation, want %d: %s", id, n, pending, task.json())
			}
			h.decide(task, `{"type":"start_timer","delay_seconds":3600}`)

			h.decide(next("own-"+id), finish)
			h.eventually("/api/workflows/"+id+"/runs/"+began+"/history", func(r response) bool {
				return strings.Count(r.raw, `"event_type":"ChildRunCompleted"`) == 1
			})
			h.decide(next(id), `{"type":"continue_as_new"}`)
			if last := current(); last == began || status("inherited-") == "terminated" || closed(run+"-2") {
				t.Errorf("%s: run %s after %s", id, last, began)
			}
			h.decide(next(id), finish)
			h.eventually("/api/workflows/inherited-"+id, func(r response) bool { return r.text("status") == "terminated" })
			if !closed(first+"-1") || !closed(run+"-2") {
				t.Errorf("%s: sessions of the completed chain are open", id)
			}
			v := other.want(200, "GET", "/api/workflows/"+id, "")
			if v.text("status") != "completed" || v.body["run_count"] != 4.0 {
				t.Errorf("the chain: %s", v.raw)
			}
		}
	})
}

// A reset of a history of 1,000 events needs as many statements and reads as one of 100 events. The database stores
// about 64 events in a row, so the reset writes 14 more rows.
func TestAResetOfALongHistoryNeedsNoMoreStatements(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		h := register(caller{t, a, "default"}, "w", "")
		const effect = `{"type":"record_side_effect","result":{"codec":"avro","blob":"wwHioz3/VYAiNwwCBAIA"}}`
		cost := func(size, round int) (cost store.Stats) {
			id := fmt.Sprintf("order-%d-%d", size, round)
			run := h.start(id)
			h.decide(h.poll("workflow"), strings.Repeat(effect+",", size-3)+waitForGo) // events 2 to size-1
			h.want(202, "POST", "/api/workflows/"+id+"/signal/go", `{"input":[1]}`)    // event size
			before := a.Store().Stats()
			got := h.want(202, "POST", resetPath(id, run), `{"to":"last_task"}`)
			after := a.Store().Stats()
			if got.body["event"] != float64(size-1) {
				t.Fatalf("reset of %d events: %s", size, got.raw)
			}
			h.decide(h.poll("workflow"), finish)
			return store.Stats{
				Statements: after.Statements - before.Statements, Reads: after.Reads - before.Reads, Rows: after.Rows - before.Rows,
			}
		}
		var costs []store.Stats
		for _, size := range []int{100, 1_000} {
			least := cost(size, 0)
			for round := range 4 { // background work of the app changes the counters, too
				c := cost(size, round+1)
				least.Statements, least.Reads = min(least.Statements, c.Statements), min(least.Reads, c.Reads)
				least.Rows = min(least.Rows, c.Rows)
			}
			costs = append(costs, least)
		}
		small, large := costs[0], costs[1]
		if large.Statements != small.Statements || large.Reads != small.Reads || large.Rows > small.Rows+15 {
			t.Errorf("100 events: %+v, 1,000 events: %+v", small, large)
		}
	})
}
