package apptest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	goclient "github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/worker/activity"
)

const openAwakeable = `{"type":"open_awakeable"}`

// withAwakeables registers a worker that replays awakeables.
func withAwakeables(c caller) hand {
	c.t.Helper()
	c.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"`+handQueue+`","runtime":"external",
		"supported_workflow_types":["flow"],"capabilities":["awakeables"]}`)
	return hand{c, "w"}
}

// An awakeable is resolved once, at any app and after any number of lost responses; every other outcome is refused.
func TestAnAwakeableIsResolvedOnceAtAnyApp(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		here, there := caller{t, a, "default"}, caller{t, b, "default"}
		w := withAwakeables(there)
		run := here.start("flow")
		w.decide(w.poll("workflow"), openAwakeable, openAwakeable, `{"type":"open_awakeable","timeout_seconds":3600}`, openAwakeable)
		path := func(seq int, verb string) string {
			return fmt.Sprintf("/api/sojourn/awakeables/%s-%d/%s", run, seq, verb)
		}
		why := here.want(200, "GET", "/api/workflows/flow", "")
		if !strings.Contains(why.raw, "waiting for awakeable "+run+"-1") {
			t.Errorf("the run waits for %v", why.body["wait_reason"])
		}

		// 20 callers at two apps deliver the same result
		receipts := make([]string, 20)
		var all sync.WaitGroup
		for i := range receipts {
			all.Go(func() {
				receipts[i] = []caller{here, there}[i%2].want(200, "POST", path(1, "complete"), `{"result":{"by":"Ada"}}`).raw
			})
		}
		all.Wait()
		for _, r := range receipts {
			if r != receipts[0] || !strings.Contains(r, `"outcome":"completed"`) {
				t.Errorf("receipts %s and %s", receipts[0], r)
			}
		}
		conflict := there.want(409, "POST", path(1, "complete"), `{"result":{"by":"Bob"}}`)
		if conflict.text("reason") != "conflicting_completion" {
			t.Errorf("another result: %s", conflict.raw)
		}
		here.want(409, "POST", path(1, "fail"), `{"failure":{"message":"no"}}`)

		failure := `{"failure":{"type":"Rejected","message":"no","details":{"limit":7}}}`
		first := here.want(200, "POST", path(2, "fail"), failure)
		if again := there.want(200, "POST", path(2, "fail"), failure); again.raw != first.raw {
			t.Errorf("a repeated failure: %s, then %s", first.raw, again.raw)
		}
		here.want(409, "POST", path(2, "complete"), `{}`)
		here.want(422, "POST", path(4, "fail"), `{"failure":{"type":"Rejected"}}`)
		here.want(422, "POST", path(4, "fail"), `{}`)
		for _, details := range []string{`{"codec":"none","blob":"AAAA"}`, `{"codec":"avro","blob":7}`, `{"codec":"avro","blob":"?"}`} {
			here.want(422, "POST", path(4, "fail"), `{"failure":{"message":"no","details":`+details+`}}`)
		}

		task := w.poll("workflow")
		for _, at := range []string{path(9, "complete"), path(0, "complete"), "/api/sojourn/awakeables/none/complete"} {
			if r := here.want(404, "POST", at, `{}`); r.text("reason") != "awakeable_not_found" {
				t.Errorf("%s: %s", at, r.raw)
			}
		}
		elsewhere := caller{t, a, "other"}
		here.want(201, "POST", "/api/namespaces", `{"name":"other"}`)
		if r := elsewhere.want(404, "POST", path(4, "complete"), `{}`); r.text("reason") != "awakeable_not_found" {
			t.Errorf("another namespace: %s", r.raw)
		}
		if completed := here.eventsOf("flow", run, "AwakeableCompleted"); len(completed) != 1 {
			t.Errorf("%d completions are recorded", len(completed))
		}

		// continue-as-new ends the open awakeable; repetitions for the closed run get their first response
		w.decide(task, `{"type":"continue_as_new"}`)
		for _, c := range []caller{here, there} {
			if r := c.want(409, "POST", path(4, "complete"), `{}`); r.text("reason") != "awakeable_closed" {
				t.Errorf("after continue-as-new: %s", r.raw)
			}
			if r := c.want(200, "POST", path(1, "complete"), `{"result":{"by":"Ada"}}`); r.raw != receipts[0] {
				t.Errorf("a repetition after the run has closed: %s", r.raw)
			}
		}
	})
}

// The connection of a caller breaks after the app has resolved an awakeable. The caller repeats the request until it
// receives the response, and history has one event.
func TestAnAwakeableIsResolvedOnceIfItsResponseIsLost(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		here := caller{t, a, "default"}
		w := withAwakeables(here)
		run := here.start("flow")
		w.decide(w.poll("workflow"), openAwakeable, openAwakeable)
		var way lossy
		c, err := goclient.New(goclient.Options{URLs: []string{way.serve(t, a)}})
		if err != nil {
			t.Fatal(err)
		}
		for verb, resolve := range map[string]func() error{
			"complete": func() error { return c.CompleteAwakeable(t.Context(), run+"-1", "yes") },
			"fail": func() error {
				return c.FailAwakeable(t.Context(), run+"-2", activity.NewError("Rejected", "no", activity.Details(7)))
			},
		} {
			for range 3 { // the client itself may repeat the first request
				if err = resolve(); err == nil {
					break
				}
			}
			if err != nil || way.lost[verb] != 1 {
				t.Errorf("%s: %v after %d lost responses", verb, err, way.lost[verb])
			}
		}
		for _, eventType := range []string{"AwakeableCompleted", "AwakeableFailed"} {
			if n := len(here.eventsOf("flow", run, eventType)); n != 1 {
				t.Errorf("%d events %s", n, eventType)
			}
		}
	})
}

// A worker that does not declare awakeables never receives the tasks of a run that has one.
func TestOnlyWorkersThatReplayAwakeablesReceiveTheirRuns(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	h := caller{t, a, "default"}
	w := withAwakeables(h)
	run := h.start("flow")
	w.decide(w.poll("workflow"), openAwakeable)
	h.want(200, "DELETE", "/api/workers/w", "")
	old := register(h, "old", "")
	for _, body := range []string{`{}`, `{"result":null}`} { // the same result
		h.want(200, "POST", "/api/sojourn/awakeables/"+run+"-1/complete", body)
	}
	if v := h.want(200, "GET", "/api/workflows/flow", ""); !strings.Contains(v.raw, `"reason":"capability_missing"`) ||
		!strings.Contains(v.raw, `"missing":["awakeables"]`) {
		t.Errorf("the run waits for %s", v.raw)
	}
	h.start("plain")
	if task := old.poll("workflow"); task.text("workflow_id") != "plain" {
		t.Errorf("the old worker received %v", task)
	}
	if task := withAwakeables(h).poll("workflow"); task.text("workflow_id") != "flow" {
		t.Errorf("the new worker received %v", task)
	}
}

// A run with a thousand open awakeables costs the polls and tasks of other runs no statement, and a refused outcome
// costs its run no event.
func TestOpenAwakeablesCostOtherRunsNothing(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, "default"}
		w := withAwakeables(c)
		served := func(id string) int64 {
			before := a.Broker().Store().Stats()
			for i := range 20 {
				c.start(fmt.Sprint(id, i))
				w.decide(w.poll("workflow"), finish)
			}
			w.empty("workflow")
			after := a.Broker().Store().Stats()
			return after.Statements - before.Statements + after.Reads - before.Reads
		}
		served("warm")
		alone := served("alone")
		run := c.start("flow")
		w.decide(w.poll("workflow"), strings.Repeat(openAwakeable+",", 999)+openAwakeable)
		if n := strings.Count(c.want(200, "GET", "/api/workflows/flow", "").raw, `"kind":"awakeable"`); n < 1000 {
			t.Fatalf("%d awakeables are open", n)
		}
		if next := served("next"); next > alone+20 {
			t.Errorf("20 runs cost %d statements and reads, and %d next to 1000 open awakeables", alone, next)
		}
		for range 50 {
			c.want(404, "POST", "/api/sojourn/awakeables/"+run+"-2000/complete", `{}`)
			c.want(422, "POST", "/api/sojourn/awakeables/"+run+"-1/fail", `{"failure":{}}`)
		}
		if v := c.want(200, "GET", "/api/workflows/flow", ""); fmt.Sprint(v.body["history_length"]) != "1001" {
			t.Errorf("the run has %v events", v.body["history_length"])
		}
	})
}

// A token with the role completer resolves awakeables of its namespaces. Every other route refuses it.
func TestACompleterOnlyResolvesAwakeablesOfItsNamespaces(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.NoAuth, o.Token = false, admin }})
	root := client{t: t, url: a.URL()}.as(admin)
	root.want(422, "POST", "/tokens", `{"name":"bank","roles":["completer"]}`)
	bank := root.as(root.want(
		201, "POST", "/tokens", `{"name":"bank","roles":["completer"],"namespaces":["default"]}`,
	).text("token"))
	viewer := root.want(201, "POST", "/tokens", `{"name":"all","roles":["viewer"]}`)
	root.want(422, "PUT", "/tokens/"+viewer.text("id")+"/roles", `{"roles":["completer"]}`)
	root.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"q","supported_workflow_types":["flow"],
		"capabilities":["awakeables"]}`)
	run := root.want(201, "POST", "/workflows", `{"workflow_id":"f","workflow_type":"flow","task_queue":"q"}`).text("run_id")
	task := taskOf(t, root.want(200, "POST", "/api/worker/workflow-tasks/poll",
		`{"worker_id":"w","task_queue":"q","timeout_seconds":30}`))
	root.want(200, "POST", flowPath(task, "complete"), fmt.Sprintf(
		`{"lease_owner":"w","workflow_task_attempt":%d,"commands":[%s,%s]}`, task.number("workflow_task_attempt"),
		openAwakeable, openAwakeable,
	))
	at := "/api/sojourn/awakeables/" + run
	bank.want(200, "POST", at+"-1/complete", `{"result":1}`)
	bank.want(200, "POST", at+"-2/fail", `{"failure":{"message":"no"}}`)
	bank.want(409, "POST", at+"-2/complete", `{}`)
	root.as(viewer.text("token")).want(403, "POST", at+"-1/complete", `{"result":1}`)
	for _, refused := range [][3]string{
		{"GET", "/workflows/f", ""},
		{"GET", "/workflows", ""},
		{"POST", "/workflows/f/signal/s", `{}`},
		{"POST", "/workflows", `{"workflow_type":"flow"}`},
		{"GET", "/tokens", ""},
		{"GET", "/api/sojourn/overview", ""},
		{"POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q"}`},
	} {
		bank.want(403, refused[0], refused[1], refused[2])
	}
	bank.want(403, "POST", at+"-1/complete?namespace=other", `{}`)
}
