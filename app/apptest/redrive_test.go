package apptest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/history"
)

const failRun = `{"type":"fail_workflow","message":"no"}`

func (t handTask) json() string {
	raw, _ := json.Marshal(t)
	return string(raw)
}

func (h hand) failActivity(task handTask) {
	h.t.Helper()
	h.want(200, "POST", stepPath(task, "fail"), h.stepBody(task, `,"failure":{"message":"declined","non_retryable":true}`))
}

func redrivePath(id, run string) string { return "/api/workflows/" + id + "/runs/" + run + "/redrive" }

// The activity that failed the run runs again; the one that completed does not. A repeated request returns the first
// response at another app, and other requests for the failed run are refused.
func TestARedriveContinuesAFailedRunWithItsCompletedActivities(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		run := h.start("order")
		if got := h.want(409, "POST", redrivePath("order", run), `{}`); got.text("reason") != "run_not_failed" {
			t.Errorf("an open run: %s", got.raw)
		}
		h.decide(h.poll("workflow"), step)
		charge := h.poll("activity")
		h.want(200, "POST", stepPath(charge, "complete"), h.stepBody(charge, ""))
		h.decide(h.poll("workflow"), step)
		h.failActivity(h.poll("activity"))
		h.decide(h.poll("workflow"), failRun)

		first := h.want(202, "POST", redrivePath("order", run), `{"request_id":"r1"}`)
		next := first.text("run_id")
		if next == run || first.text("outcome") != "redriven" || first.text("command_status") != "accepted" ||
			first.text("continued_from_run_id") != run || first.body["resume_step_sequence"] != 2.0 {
			t.Errorf("response: %s", first.raw)
		}
		again := other.want(200, "POST", redrivePath("order", run), `{"request_id":"r1"}`)
		if again.text("run_id") != next || again.body["resume_step_sequence"] != 2.0 {
			t.Errorf("repeated: %s", again.raw)
		}
		refused := other.want(409, "POST", redrivePath("order", run), `{"request_id":"r2"}`)
		if refused.text("reason") != "historical_run_command_rejected" || refused.text("current_run_id") != next {
			t.Errorf("another request: %s", refused.raw)
		}
		if got := other.want(409, "POST", redrivePath("order", next), `{}`); got.text("reason") != "run_not_failed" {
			t.Errorf("the open new run: %s", got.raw)
		}

		task := h.poll("activity")
		if !strings.HasPrefix(task.text("task_id"), next+"-2") || task.number("attempt_number") != 1 {
			t.Errorf("activity of the new run: %s", task.json())
		}
		h.want(200, "POST", stepPath(task, "complete"), h.stepBody(task, ""))
		flow := h.poll("workflow")
		if n := strings.Count(flow.json(), `"event_type":"ActivityCompleted"`); n != 2 || strings.Contains(flow.json(), `"ActivityFailed"`) {
			t.Errorf("history of the new run: %s", flow.json())
		}
		if !strings.Contains(flow.json(), `"reused_from_run_id":"`+run+`"`) {
			t.Errorf("the copied result does not name the failed run: %s", flow.json())
		}
		h.decide(flow, finish)
		done := other.want(200, "GET", "/api/workflows/order", "")
		if done.text("status") != "completed" || done.text("run_id") != next || done.body["run_number"] != 2.0 {
			t.Errorf("after the redrive: %s", done.raw)
		}
		old := other.want(200, "GET", "/api/workflows/order/runs/"+run, "")
		if old.text("status") != "failed" {
			t.Errorf("the failed run: %s", old.raw)
		}
		if got := other.want(409, "POST", redrivePath("order", next), `{}`); got.text("reason") != "run_not_failed" {
			t.Errorf("a completed run: %s", got.raw)
		}
		audit := other.want(200, "GET", "/api/audit", "").raw
		if !strings.Contains(audit, "workflow.redrive") || !strings.Contains(audit, run+" as "+next) {
			t.Errorf("audit: %s", audit)
		}
	})
}

// Many callers at two apps redrive the same run, each with its own request ID: one new run begins.
func TestConcurrentRedrivesCreateOneRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		apps := []caller{{t, a, "default"}, {t, b, "default"}}
		h := register(apps[0], "w", "")
		run := h.start("order")
		h.decide(h.poll("workflow"), failRun)
		var g sync.WaitGroup
		var mu sync.Mutex
		created := map[string]bool{}
		for i := range 20 {
			g.Go(func() {
				code, got := apps[i%2].keyed("", redrivePath("order", run), fmt.Sprintf(`{"request_id":"r%d"}`, i))
				if code != 202 {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				created[got["run_id"].(string)] = true
			})
		}
		g.Wait()
		n := len(apps[1].want(200, "GET", "/api/workflows/order/runs", "").body["runs"].([]any))
		if len(created) != 1 || n != 2 {
			t.Errorf("%d runs created, %d listed, want 1 and 2", len(created), n)
		}
	})
}

// A run that failed in its code executes its last workflow task again, with the side effect that the task recorded and
// without the activity that the failure cancelled. An activity that was open runs again.
func TestARedriveWithoutAFailedActivityRunsTheLastTaskAgain(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		run := h.start("order")
		h.decide(h.poll("workflow"), step, `{"type":"open_signal_wait","signal_name":"go"}`)
		h.poll("activity") // stays open
		h.want(202, "POST", "/api/workflows/order/signal/go", `{"input":[1]}`)
		h.decide(h.poll("workflow"), `{"type":"record_side_effect","result":{"codec":"avro","blob":"wwHioz3/VYAiNwwCBAIA"}}`, step, failRun)

		got := other.want(202, "POST", redrivePath("order", run), `{}`)
		next := got.text("run_id")
		if got.body["resume_step_sequence"] != 4.0 {
			t.Errorf("response: %s", got.raw)
		}
		task := h.poll("activity")
		if !strings.HasPrefix(task.text("task_id"), next+"-1") {
			t.Errorf("activity of the new run: %s", task.json())
		}
		flow := h.poll("workflow")
		if strings.Count(flow.json(), `"SideEffectRecorded"`) != 1 ||
			strings.Count(flow.json(), `"ActivityScheduled"`) != 1 ||
			strings.Count(flow.json(), `"SignalReceived"`) != 1 || strings.Contains(flow.json(), `"WorkflowFailed"`) {
			t.Errorf("history of the new run: %s", flow.json())
		}
		h.decide(flow, finish)
		if s := other.want(200, "GET", "/api/workflows/order", "").text("status"); s != "completed" {
			t.Errorf("status %s", s)
		}
	})
}

// The workflow-scoped session of the failed run is open again. The next worker acquires it under a higher epoch and
// learns that the state is new.
func TestARedriveOpensTheSessionsOfTheFailedRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		run := h.start("order")
		session := run + "-1"
		h.decide(h.poll("workflow"), `{"type":"start_session"}`, inSession(session))
		task := h.poll("activity")
		held, _ := task["worker_session"].(map[string]any)
		h.failActivity(task)
		h.decide(h.poll("workflow"), failRun)
		if s := other.want(200, "GET", "/api/worker-sessions/"+session, "").raw; !strings.Contains(s, `"status":"closed"`) {
			t.Errorf("after the failure, the session is %s", s)
		}
		other.want(202, "POST", redrivePath("order", run), `{}`)
		task = h.poll("activity")
		now, _ := task["worker_session"].(map[string]any)
		if held["epoch"].(float64) >= now["epoch"].(float64) || now["is_new"] != true || now["session_id"] != session {
			t.Errorf("session of the failed run %v, of the new run %v", held, now)
		}
		h.want(200, "POST", stepPath(task, "complete"), h.stepBody(task, ""))
		h.decide(h.poll("workflow"), finish)
		if s := other.want(200, "GET", "/api/worker-sessions/"+session, "").raw; !strings.Contains(s, `"status":"closed"`) {
			t.Errorf("the session of the completed run is %s", s)
		}
	})
}

// A child is redriven without its parent, which has received the failure and is not affected by the new run. The new
// run has its own timeouts, and its signals and updates arrive.
func TestARedrivenChildHasNoParent(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		parent := h.start("parent")
		h.decide(h.poll("workflow"), `{"type":"start_child_workflow","workflow_type":"flow","queue":"`+handQueue+
			`","workflow_id":"child","execution_timeout_seconds":3600}`)
		child := h.poll("workflow")
		run := child.text("run_id")
		h.decide(child, failRun)
		h.decide(h.poll("workflow"), waitForGo) // the parent handles the failure
		next := other.want(202, "POST", redrivePath("child", run), `{}`).text("run_id")
		v := other.want(200, "GET", "/api/workflows/child", "")
		if v.text("run_id") != next || v.body["parent_run_id"] != nil {
			t.Errorf("the redriven child: %s", v.raw)
		}
		old := other.want(200, "GET", "/api/workflows/child/runs/"+run, "")
		if v.text("execution_deadline_at") <= old.text("execution_deadline_at") {
			t.Errorf("deadline %s, of the failed run %s", v.text("execution_deadline_at"), old.text("execution_deadline_at"))
		}
		other.want(202, "POST", "/api/workflows/child/signal/go", `{"input":[1]}`)
		h.decide(h.poll("workflow"), finish)
		events := other.want(200, "GET", "/api/workflows/parent/runs/"+parent+"/history", "").raw
		if strings.Count(events, `"ChildRunFailed"`) != 1 || strings.Contains(events, `"ChildRunCompleted"`) {
			t.Errorf("the history of the parent: %s", events)
		}
		other.want(202, "POST", "/api/workflows/parent/signal/go", `{"input":[1]}`)
		h.decide(h.poll("workflow"), finish)
	})
}

// Signals that an earlier run of the chain passed on, a handled signal, a fired timer and an update are part of the
// copied history. The redriven run can be exported, and it counts as a run of the chain.
func TestARedriveCopiesWhatARunReceived(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		h.start("order")
		first := h.poll("workflow")
		h.want(202, "POST", "/api/workflows/order/signal/early", `{"input":[1]}`)
		h.decide(first, `{"type":"continue_as_new"}`)
		h.want(202, "POST", "/api/workflows/order/update/change", `{"input":[2]}`)
		h.decide(h.poll("workflow"), `{"type":"open_signal_wait","signal_name":"early"}`,
			`{"type":"start_timer","delay_seconds":1}`)
		var run string
		for fired := false; !fired; {
			task := h.poll("workflow")
			run, fired = task.text("run_id"), strings.Contains(task.json(), `"TimerFired"`)
			if id := task.text("workflow_update_id"); id != "" {
				h.decide(task, `{"type":"complete_update","update_id":"`+id+`"}`)
			} else if fired {
				h.decide(task, failRun)
			} else {
				h.want(200, "POST", flowPath(task, "fail"), h.flowBody(
					task, `,"failure":{"type":"WorkflowTaskWaitingForHistory","message":"waits"}`,
				))
			}
		}
		next := other.want(202, "POST", redrivePath("order", run), `{}`).text("run_id")
		task := h.poll("workflow")
		for _, once := range []string{"SignalReceived", "UpdateCompleted", "TimerFired"} {
			if n := strings.Count(task.json(), `"event_type":"`+once+`"`); n != 1 {
				t.Errorf("%d times %s in the history of the new run: %s", n, once, task.json())
			}
		}
		h.decide(task, finish)
		v := other.want(200, "GET", "/api/workflows/order", "")
		if v.text("status") != "completed" || v.text("run_id") != next || v.body["run_count"] != 3.0 {
			t.Errorf("after the redrive: %s", v.raw)
		}
		other.want(200, "GET", "/api/workflows/order/runs/"+next+"/history/export", "")
	})
}

// The response to a redrive is lost between the app and the client. The client repeats the request with the same
// request ID, at the same or another app, and gets the run of the first request: no second run begins.
func TestARedriveWhoseResponseIsLostCreatesOneRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h := register(caller{t, a, "default"}, "w", "")
		for name, second := range map[string]*apptest.App{"same": a, "other": b} {
			run := h.start(name)
			h.decide(h.poll("workflow"), failRun)
			c, lost := losingClient(t, a, second)
			next, err := c.Handle(name, run).Redrive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			v := h.want(200, "GET", "/api/workflows/"+name, "")
			if lost.Load() == 0 || next.RunID == run || v.text("run_id") != next.RunID || v.body["run_count"] != 2.0 {
				t.Errorf("%s app: %d lost responses, the client got run %s: %s", name, lost.Load(), next.RunID, v.raw)
			}
			h.decide(h.poll("workflow"), finish)
		}
	})
}

// The database connection breaks during the commit of a redrive, so its outcome is unknown. The repetition finds the
// commit; a request without the ID does not create a second run.
func TestARepeatedRedriveFindsACommitWhoseResponseIsLost(t *testing.T) {
	t.Parallel()
	gate, a, b := behind(t)
	here, there := register(caller{t, a, ""}, "w", ""), caller{t, b, ""}
	run := here.start("order")
	here.decide(here.poll("workflow"), failRun)
	here.loses(gate, "INSERT INTO events", "POST", redrivePath("order", run), `{"request_id":"r1"}`)
	first := there.asks(200, "POST", redrivePath("order", run), `{"request_id":"r1"}`)
	if again := here.asks(200, "POST", redrivePath("order", run), `{"request_id":"r1"}`); again.raw != first.raw {
		t.Errorf("at the other app %s, at the same app %s", first.raw, again.raw)
	}
	there.asks(409, "POST", redrivePath("order", run), `{}`)
	v := there.want(200, "GET", "/api/workflows/order", "")
	if v.text("run_id") != first.text("run_id") || v.text("run_id") == run || v.body["run_count"] != 2.0 {
		t.Errorf("repeated %s, the workflow %s", first.raw, v.raw)
	}
}

// A chain continues as new, fails, is redriven, continues as new again, fails and is redriven again. A signal that no
// run has handled arrives once in each run, and the last run completes the chain.
func TestARedrivenRunContinuesAsNewAndIsRedrivenAgain(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		h.start("order")
		task := h.poll("workflow")
		h.want(202, "POST", "/api/workflows/order/signal/early", `{"input":[1]}`)
		h.decide(task, `{"type":"continue_as_new"}`)
		for i := range 2 {
			h.decide(h.poll("workflow"), step)
			done := h.poll("activity")
			h.want(200, "POST", stepPath(done, "complete"), h.stepBody(done, ""))
			failing := h.poll("workflow")
			run := failing.text("run_id")
			h.decide(failing, failRun)
			next := other.want(202, "POST", redrivePath("order", run), `{}`).text("run_id")
			task = h.poll("workflow")
			if n := strings.Count(task.json(), `"event_type":"SignalReceived"`); n != 1 || task.text("run_id") != next {
				t.Errorf("round %d: %d signals in run %s, want 1 in run %s", i, n, task.text("run_id"), next)
			}
			if i == 0 {
				h.decide(task, `{"type":"continue_as_new"}`)
			}
		}
		h.decide(task, finish)
		refused := other.want(409, "POST", redrivePath("order", task.text("run_id")), `{}`)
		if refused.text("reason") != "run_not_failed" {
			t.Errorf("the completed run: %s", refused.raw)
		}
		v := other.want(200, "GET", "/api/workflows/order", "")
		if v.text("status") != "completed" || v.text("run_id") != task.text("run_id") || v.body["run_count"] != 5.0 {
			t.Errorf("after two redrives: %s", v.raw)
		}
		runs := other.want(200, "GET", "/api/workflows/order/runs", "").body["runs"].([]any)
		var reasons []string
		for _, r := range runs {
			reasons = append(reasons, fmt.Sprint(r.(map[string]any)["closed_reason"]))
		}
		want := "continued failed continued failed completed" // the oldest first
		if got := strings.Join(reasons, " "); got != want {
			t.Errorf("the runs are %s, want %s", got, want)
		}
	})
}

// The import of a redriven run does not replace the failed run while that run is open here, for example after a restore
// of the database.
func TestAnImportOfARedrivenRunReplacesNoOpenRun(t *testing.T) {
	home := caller{t, apptest.Start(t, apptest.Options{}), "default"}
	h := register(home, "w", "")
	run := h.start("order")
	h.decide(h.poll("workflow"), failRun)
	failed, _ := home.bundle("order", run)
	next := home.want(202, "POST", redrivePath("order", run), `{}`).text("run_id")
	h.decide(h.poll("workflow"), finish)
	redriven, _ := home.bundle("order", next)

	away := caller{t, apptest.Start(t, apptest.Options{}), "default"}
	open := away.start("order")
	renamed := strings.ReplaceAll(redriven, run, open)
	refused := away.want(422, "POST", "/api/workflows/import/bundle", renamed) // its checksum is that of the old names
	_, sum, _ := strings.Cut(refused.text("message"), "its checksum is ")
	renamed = strings.ReplaceAll(renamed, refused.text("expected"), sum)
	if got := away.want(
		409, "POST", "/api/workflows/import/bundle", renamed,
	); got.text("reason") != "instance_already_started" {
		t.Errorf("over an open run: %s", got.raw)
	}
	if got := away.want(200, "GET", "/api/workflows/order", ""); got.text("run_id") != open {
		t.Errorf("the current run: %s", got.raw)
	}

	away = caller{t, apptest.Start(t, apptest.Options{}), "default"}
	away.want(201, "POST", "/api/workflows/import/bundle", failed)
	away.want(201, "POST", "/api/workflows/import/bundle", redriven)
	got := away.want(200, "GET", "/api/workflows/order", "")
	if got.text("run_id") != next || got.body["run_count"] != 2.0 {
		t.Errorf("after both imports: %s", got.raw)
	}
}

// An update that was open at the failure, whose caller has received run_closed, is open in the new run.
func TestARedrivenRunHandlesTheUpdatesThatWereOpen(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), "default"}
	h := register(c, "w", "")
	run := h.start("order")
	task := h.poll("workflow")
	id := h.want(202, "POST", "/api/workflows/order/update/change", `{"input":[2]}`).text("update_id")
	h.decide(task, failRun)
	old := h.want(200, "GET", "/api/workflows/order/runs/"+run+"/history", "").raw
	if !strings.Contains(old, `"run_closed"`) {
		t.Errorf("history of the failed run: %s", old)
	}
	h.want(202, "POST", redrivePath("order", run), `{}`)
	for {
		if task = h.poll("workflow"); task.text("workflow_update_id") == id {
			break
		}
		h.want(200, "POST", flowPath(task, "fail"), h.flowBody(
			task, `,"failure":{"type":"WorkflowTaskWaitingForHistory","message":"waits"}`,
		))
	}
	h.decide(task, `{"type":"complete_update","update_id":"`+id+`"}`, finish)
}

// A session that an earlier run of the chain started has ended with the failed run, and no event of the failed run
// describes it.
func TestARedriveWithASessionOfAnEarlierRunIsRefused(t *testing.T) {
	c := caller{t, apptest.Start(t, apptest.Options{}), "default"}
	h := register(c, "w", "")
	session := h.start("order") + "-1"
	h.decide(h.poll("workflow"), `{"type":"start_session"}`, `{"type":"continue_as_new"}`)
	task := h.poll("workflow")
	run := task.text("run_id")
	h.decide(task, inSession(session))
	h.failActivity(h.poll("activity"))
	h.decide(h.poll("workflow"), failRun)
	if got := h.want(409, "POST", redrivePath("order", run), `{}`); got.text("reason") != "session_closed" {
		t.Errorf("response: %s", got.raw)
	}
}

// openHistories counts the views of a store that have read events and are open.
type openHistories struct {
	store.Store
	now, most *atomic.Int64
}

func (s openHistories) View(ctx context.Context, fn func(store.Reader) error) error {
	r := &historyReader{histories: s}
	defer func() {
		if r.reads {
			s.now.Add(-1)
		}
	}()
	return s.Store.View(ctx, func(reader store.Reader) error {
		r.Reader = reader
		return fn(r)
	})
}

type historyReader struct {
	store.Reader
	histories openHistories
	reads     bool
}

func (r *historyReader) Events(
	ctx context.Context, run string, after, through int64, limit, size int,
) ([]history.Event, error) {
	if !r.reads {
		r.reads = true
		n := r.histories.now.Add(1)
		for most := r.histories.most.Load(); n > most && !r.histories.most.CompareAndSwap(most, n); {
			most = r.histories.most.Load()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return r.Reader.Events(ctx, run, after, through, limit, size)
}

// An app holds at most two large histories for redrives at the same time: otherwise a few requests would fill its
// memory.
func TestFewLargeHistoriesAreRedrivenAtOnce(t *testing.T) {
	var now, most atomic.Int64
	c := caller{t, apptest.Start(t, apptest.Options{Change: func(o *app.Options) {
		o.Open = func(ctx context.Context, _ string, d store.Dispatcher) (store.Store, error) {
			s, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "redrive.db"), sqldb.Options{App: "app-0", Dispatch: d})
			return openHistories{s, &now, &most}, err
		}
	}}), "default"}
	h := register(c, "w", "")
	run := h.start("order")
	value := strings.Repeat("x", 1<<20)
	for range 2 {
		h.want(202, "POST", "/api/workflows/order/signal/go", `{"input":["`+value+`"]}`)
	}
	h.decide(h.poll("workflow"), failRun)
	most.Store(0)
	var g sync.WaitGroup
	var created atomic.Int64
	for range 12 {
		g.Go(func() {
			if code, _ := c.keyed("", redrivePath("order", run), `{}`); code == 202 {
				created.Add(1)
			}
		})
	}
	g.Wait()
	if n := most.Load(); n > 2 || n < 1 || created.Load() != 1 {
		t.Errorf("%d histories at once, at most 2; %d runs created, want 1", n, created.Load())
	}
}
