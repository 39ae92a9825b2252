package apptest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	goclient "github.com/sojourn-run/sojourn/client"
)

// withStart returns the body of a start of type flow with a signal or an update and further members.
func withStart(message, name, more string) string {
	return `{"workflow_type":"flow","task_queue":"` + handQueue + `","input":[1],"` + message + `_name":"` + name +
		`","` + message + `_input":[2]` + more + `}`
}

// recorded returns the types of the events of a run, and the number of its runs.
func (c caller) recorded(id string) (events []string, runs int) {
	c.t.Helper()
	run := c.want(200, "GET", "/api/workflows/"+id, "").text("run_id")
	list, _ := c.want(200, "GET", "/api/workflows/"+id+"/runs/"+run+"/history?page_size=1000", "").body["events"].([]any)
	for _, e := range list {
		events = append(events, e.(map[string]any)["event_type"].(string))
	}
	all, _ := c.want(200, "GET", "/api/workflows/"+id+"/runs", "").body["runs"].([]any)
	return events, len(all)
}

// 100 callers at two apps send a signal or an update with a start at the same time, with a free ID and with the ID of a
// closed run. One run begins, and it has all signals and updates.
func TestConcurrentStartsWithASignalBeginOneRunWithAllSignals(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		for _, id := range []string{"free", "closed"} {
			if id == "closed" {
				h.start(id)
				h.want(200, "POST", "/api/workflows/"+id+"/terminate", `{}`)
			}
			var mu sync.Mutex
			runs, started := map[string]bool{}, 0
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					at, message := []caller{h.caller, other}[i%2], []string{"signal", "update"}[i/2%2]
					status, got := at.keyed(
						fmt.Sprint(id, i), "/api/sojourn/workflows/"+id+"/"+message+"-with-start",
						withStart(message, "go", `,"reuse_policy":"allow"`),
					)
					if status != 201 && status != 202 {
						t.Errorf("%s: %d %v", id, status, got)
					}
					mu.Lock()
					defer mu.Unlock()
					runs[fmt.Sprint(got["run_id"])] = true
					if got["start_outcome"] == "started_new" {
						started++
					}
				})
			}
			all.Wait()
			events, chains := h.recorded(id)
			count := map[string]int{}
			for _, e := range events {
				count[e]++
			}
			if len(runs) != 1 || started != 1 || count["WorkflowStarted"] != 1 || count["SignalReceived"] != 50 ||
				count["UpdateAccepted"] != 50 {
				t.Errorf("%s: %d runs in the responses, %d started; events %v", id, len(runs), started, count)
			}
			if want := map[string]int{"free": 1, "closed": 2}[id]; chains != want {
				t.Errorf("%s: %d runs, want %d", id, chains, want)
			}
		}
	})
}

// The signal or the update is recorded in the commit of the start, before the first workflow task. The policies decide
// whether an ID is used again; an open run receives the message, or is replaced by a run that receives it.
func TestASignalOrUpdateIsRecordedWithTheStart(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h, other := register(caller{t, a, "default"}, "w", ""), caller{t, b, "default"}
		for message, event := range map[string]string{"signal": "SignalReceived", "update": "UpdateAccepted"} {
			path := "/api/sojourn/workflows/" + message + "/" + message + "-with-start"
			began := map[string]int{"signal": 201, "update": 202}[message]
			first := h.want(began, "POST", path, withStart(message, "go", "")).text("run_id")
			task := h.poll("workflow")
			events, _ := task["history_events"].([]any)
			if task.text("run_id") != first || len(events) != 2 {
				t.Errorf("%s: the first workflow task is of run %s with %d events", message, task.text("run_id"), len(events))
			}
			h.decide(task, `{"type":"open_signal_wait","signal_name":"more"}`)
			again := other.want(202, "POST", path, withStart(message, "more", `,"reuse_policy":"allow"`))
			if again.text("run_id") != first || again.text("start_outcome") != "returned_existing_active" {
				t.Errorf("%s: an open run: %s", message, again.raw)
			}
			replaced := other.want(began, "POST", path, withStart(message, "go", `,"conflict_policy":"terminate-existing"`))
			if replaced.text("run_id") == first || replaced.text("start_outcome") != "started_new" {
				t.Errorf("%s: terminate-existing: %s", message, replaced.raw)
			}
			if events, runs := h.recorded(message); runs != 2 || !slices.Contains(events, event) {
				t.Errorf("%s: %d runs; the second has %v", message, runs, events)
			}
			h.want(200, "POST", "/api/workflows/"+message+"/terminate", `{}`)
			if got := other.want(409, "POST", path, withStart(message, "go", "")); !strings.Contains(got.raw, "reuse_policy") {
				t.Errorf("%s: a closed run: %s", message, got.raw)
			}
			for _, more := range []string{
				`,"conflict_policy":"fail"`, `,"duplicate_policy":"fail"`, `,"cron":"0 3 * * *"`, `,"wait_seconds":5`,
				`,"workflow_id":"another"`, `,"request_id":"r"`,
			} {
				other.want(422, "POST", path, withStart(message, "go", more))
			}
			other.want(422, "POST", path, withStart(message, "", ""))
		}
		h.want(201, "POST", "/api/sojourn/activities", `{"workflow_id":"act","activity_type":"none","task_queue":"unserved"}`)
		for _, message := range []string{"signal", "update"} {
			got := other.want(409, "POST", "/api/sojourn/workflows/act/"+message+"-with-start", withStart(message, "go", ""))
			if got.text("reason") != "activity_run" {
				t.Errorf("%s to an activity run: %s", message, got.raw)
			}
		}
	})
}

// A message that the workflow type does not declare is rejected, and no run begins, also at an app that does not know
// the worker.
func TestAStartWithAnUndeclaredMessageBeginsNoRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		h := register(caller{t, a, "default"}, "w",
			`,"workflow_command_contracts":{"flow":{"queries":[],"signals":["go"],"updates":["go"]}}`)
		for _, at := range []caller{{t, b, "default"}, h.caller} {
			for _, message := range []string{"signal", "update"} {
				got := at.ask("POST", "/api/sojourn/workflows/x/"+message+"-with-start", withStart(message, "other", ""))
				if got.status != 404 && got.status != 422 || !strings.Contains(got.text("reason"), "unknown") {
					t.Errorf("%s: %d %s", message, got.status, got.raw)
				}
			}
		}
		h.want(404, "GET", "/api/workflows/x", "")
	})
}

// An update with a validator is accepted after the start. If the validator rejects it, the run remains, and a repeated
// request validates the update for the same run.
func TestAStartWithARejectedUpdateLeavesTheRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		w, other := register(caller{t, a, ""}, "w", validators), caller{t, b, ""}
		const path = "/api/sojourn/workflows/judged/update-with-start"
		send := func() <-chan response {
			done := make(chan response, 1)
			go func() {
				c := other
				c.ns = "default"
				status, body := c.keyed("k", path, withStart("update", "set", `,"reuse_policy":"allow"`))
				done <- response{status: status, body: body}
			}()
			return done
		}
		validation := `{"worker_id":"w","task_queue":"` + handQueue + `","task_kinds":["update_validation"],"timeout_seconds":30}`
		asked := send()
		task := taskOf(t, w.want(200, "POST", "/api/worker/workflow-tasks/poll", validation))
		w.verdict(task, "reject", `,"failure":{"message":"too low","reason":"update_validator_rejected","type":"ValueError"}`)
		if s := <-asked; s.status != 422 || s.text("reason") != "update_validator_rejected" {
			t.Errorf("the rejected update: %d %v", s.status, s.body)
		}
		if events, runs := w.recorded("judged"); runs != 1 || slices.Contains(events, "UpdateAccepted") {
			t.Errorf("after the rejection: %d runs with %v", runs, events)
		}
		asked = send()
		task = taskOf(t, w.want(200, "POST", "/api/worker/workflow-tasks/poll", validation))
		w.verdict(task, "approve", "")
		if s := <-asked; s.status != 202 || s.text("start_outcome") != "started_new" {
			t.Errorf("the approved update: %d %v", s.status, s.body)
		}
		repeated := <-send()
		if events, runs := w.recorded("judged"); repeated.status != 202 || runs != 1 ||
			len(slices.DeleteFunc(events, func(e string) bool { return e != "UpdateAccepted" })) != 1 {
			t.Errorf("after the approval: %d, %d runs with %v", repeated.status, runs, events)
		}
	})
}

// A validator rejects the update of a start, the run closes, and another chain uses the workflow ID. A repetition of
// the request refers to the first run, so the update is rejected and does not reach the other chain.
func TestARepeatedUpdateWithStartReachesNoOtherChain(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		w, other := register(caller{t, a, "default"}, "w", validators), caller{t, b, "default"}
		send := func() <-chan response {
			done := make(chan response, 1)
			go func() {
				status, body := other.keyed(
					"k", "/api/sojourn/workflows/judged/update-with-start", withStart("update", "set", ""),
				)
				done <- response{status: status, body: body}
			}()
			return done
		}
		asked := send()
		task := taskOf(t, w.want(200, "POST", "/api/worker/workflow-tasks/poll",
			`{"worker_id":"w","task_queue":"`+handQueue+`","task_kinds":["update_validation"],"timeout_seconds":30}`))
		w.verdict(task, "reject", `,"failure":{"message":"too low","reason":"update_validator_rejected","type":"ValueError"}`)
		if s := <-asked; s.status != 422 {
			t.Errorf("the rejected update: %d %v", s.status, s.body)
		}
		first := w.want(200, "GET", "/api/workflows/judged", "").text("run_id")
		w.want(200, "POST", "/api/workflows/judged/terminate", `{}`)
		w.want(201, "POST", "/api/workflows", startOf("judged", `,"reuse_policy":"allow"`))
		if s := <-send(); s.status != 409 || s.text("reason") != "run_not_active" || s.body["run_id"] != first {
			t.Errorf("the repetition, first run %s: %d %v", first, s.status, s.body)
		}
		if events, runs := w.recorded("judged"); runs != 2 || slices.Contains(events, "UpdateAccepted") {
			t.Errorf("%d runs; the second has %v", runs, events)
		}
	})
}

// The response to a start with a signal or an update is lost, and the run closes before the client repeats the request.
// With reuse_policy allow, the repetition returns the first run: it starts no second run and sends nothing twice.
func TestARepeatedStartWithASignalBeginsNoSecondRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		h := register(caller{t, a, "default"}, "w", "")
		var requests atomic.Int64
		closed := make(chan struct{}, 1)
		closeRun := func() { // when the request has started it
			h.decide(h.poll("workflow"), `{"type":"fail_workflow","message":"no"}`)
			closed <- struct{}{}
		}
		proxy := losingProxy(t, a.URL(), func() bool {
			if requests.Add(1) > 1 {
				return false
			}
			<-closed
			return true
		})
		app, err := goclient.New(goclient.Options{URLs: []string{proxy, a.URL()}})
		if err != nil {
			t.Fatal(err)
		}
		o := goclient.StartOptions{Queue: handQueue, WorkflowID: "order", ReusePolicy: goclient.AllowReuse}
		go closeRun()
		run, err := app.SignalWithStart(context.Background(), "flow", nil, "go", goclient.Args{1}, o)
		if err != nil {
			t.Fatal(err)
		}
		events, runs := h.recorded("order")
		signals := slices.DeleteFunc(slices.Clone(events), func(e string) bool { return e != "SignalReceived" })
		if runs != 1 || len(signals) != 1 {
			t.Errorf("%d runs; the first has %v", runs, events)
		}
		requests.Store(0)
		o.WorkflowID = "updated"
		go closeRun() // an update whose run closes has failed, so the app responds
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = app.UpdateWithStart(ctx, "flow", nil, "go", nil, nil, o)
		events, runs = h.recorded("updated")
		if goclient.ReasonOf(err) != goclient.ReasonUpdateFailed || runs != 1 || !slices.Contains(events, "UpdateAccepted") {
			t.Errorf("the update: %v; %d runs with %v", err, runs, events)
		}
		status, got := h.keyed("k", "/api/sojourn/workflows/other/signal-with-start", withStart("signal", "go", ""))
		if status != 201 || run.RunID == "" {
			t.Errorf("%d %v", status, got)
		}
		for _, c := range []struct {
			body   string
			status int
		}{
			{withStart("signal", "go", `,"reuse_policy":"allow"`), 201},
			{withStart("signal", "other", ""), 409},
			{strings.Replace(withStart("signal", "go", ""), `"input":[1]`, `"input":[3]`, 1), 409},
		} {
			if status, got := h.keyed("k", "/api/sojourn/workflows/other/signal-with-start", c.body); status != c.status ||
				status == 409 && got["reason"] != "request_id_conflict" {
				t.Errorf("%s: %d %v", c.body, status, got)
			}
		}
	})
}
