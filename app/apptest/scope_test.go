package apptest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
)

// scopeHolder is an id nothing else is called.
const scopeHolder = "keeper-of-blue"

// scoped is a worker of queue blue and group one that has leased one task of every kind, with the tokens of a test.
type scoped struct {
	root, own, rotated client // rotated covers more than the token with which the worker registered
	red, other         client // tokens of another queue, and of the same queue and another group
	known              map[string]string
	asked              chan response
}

func newScoped(t *testing.T, a *apptest.App) *scoped {
	c := client{t: t, url: a.URL()}.as(admin)
	token := func(name, queues, group string) client {
		return c.as(c.want(
			201, "POST", "/tokens", fmt.Sprintf(`{"name":%q,"roles":["worker"],"queues":[%s],"group":%q}`, name, queues, group),
		).text("token"))
	}
	s := &scoped{
		root: c, own: token("own", `"blue"`, "one"), rotated: token("rotated", `"blue","green"`, "one"),
		red:   token("red", `"red"`, "one"),
		other: token("other", `"blue"`, "two"), known: map[string]string{},
	}
	register := func(c client, id, queue string) {
		c.want(201, "POST", "/api/worker/register", `{"worker_id":"`+id+`","task_queue":"`+queue+
			`","supported_workflow_types":["flow"],
			"supported_activity_types":["step"],"capabilities":["worker_sessions","query_tasks"]}`)
	}
	register(s.own, scopeHolder, "blue")
	register(s.red, "reds", "red")
	register(s.other, "others", "blue")
	poll := func(kind string) handTask {
		return taskOf(
			t,
			s.own.want(
				200, "POST", "/api/worker/"+kind+"-tasks/poll",
				`{"worker_id":"`+scopeHolder+`","task_queue":"blue","timeout_seconds":30}`,
			),
		)
	}
	start := func(id string) {
		c.want(201, "POST", "/workflows", `{"workflow_id":"`+id+`","workflow_type":"flow","task_queue":"blue"}`)
	}
	start("steps")
	flow := poll("workflow")
	blue := `{"type":"schedule_activity","activity_type":"step","queue":"blue"}`
	s.own.want(
		200, "POST", flowPath(flow, "complete"),
		`{"lease_owner":"`+scopeHolder+`","workflow_task_attempt":1,"commands":[`+blue+`,`+blue+`]}`,
	)
	over, act := poll("activity"), poll("activity")
	s.own.want(
		200, "POST", stepPath(over, "complete"),
		`{"lease_owner":"`+scopeHolder+`","activity_attempt_id":"`+over.text("activity_attempt_id")+`"}`,
	)
	poll("workflow") // for the same run; its queries are answered while the task is leased
	start("flow")
	leased := poll("workflow")
	s.own.want(201, "POST", "/api/worker/sessions", `{"worker_id":"`+scopeHolder+`","session_id":"s"}`)
	s.ask(t)
	for name, task := range map[string]handTask{"flow": leased, "step": act, "over": over} {
		s.known[name] = task.text("task_id")
		s.known[name+"_attempt"] = task.text("activity_attempt_id")
	}
	return s
}

// ask sends a query, which the owner then has leased.
func (s *scoped) ask(t *testing.T) {
	t.Helper()
	asked := make(chan response, 1)
	s.asked = asked
	c := s.root
	go func() { asked <- c.call("POST", "/workflows/steps/query/state", `{}`) }()
	query := taskOf(t, s.own.want(
		200, "POST", "/api/worker/query-tasks/poll",
		`{"worker_id":"`+scopeHolder+`","task_queue":"blue","timeout_seconds":30}`,
	))
	s.known["query"] = query.text("query_task_id")
}

// scopedCall is a request of a route with a worker's ID. It must be refused unless it has a response below.
type scopedCall struct {
	path, query, body string
	status            int    // for the covering token; 0: 200
	reason            string // for the other tokens; "": task_not_found, with 404
	item              string // in a batch: member of the response with the refusal in its only element
}

// calls returns the requests of every route, in an order in which each can succeed, with a worker's ID; TASK stands for
// an ID in known.
func (s *scoped) calls(worker, queue string) map[string][]scopedCall {
	step := func(task, more string) string {
		return fmt.Sprintf(`{"lease_owner":%q,"activity_attempt_id":%q%s}`, worker, s.known[task+"_attempt"], more)
	}
	flow := func(more string) string {
		return fmt.Sprintf(`{"lease_owner":%q,"workflow_task_attempt":1%s}`, worker, more)
	}
	name := fmt.Sprintf(`{"worker_id":%q}`, worker)
	poll := []scopedCall{
		{
			body: fmt.Sprintf(`{"worker_id":%q,"task_queue":%q,"timeout_seconds":0}`, worker, queue), reason: "worker_not_found",
		},
	}
	steps := func(more string) []scopedCall {
		return []scopedCall{
			{path: s.known["step"], body: step("step", more)}, {path: s.known["over"], body: step("over", more), status: -1},
		}
	}
	failure := `,"failure":{"message":"m"}`
	question := func(more string) []scopedCall {
		return []scopedCall{
			{
				path: s.known["query"], body: fmt.Sprintf(`{"lease_owner":%q,"query_task_attempt":1%s}`, worker, more),
				reason: "query_task_not_found",
			},
		}
	}
	verdict := []scopedCall{{
		path: "none", body: fmt.Sprintf(
			`{"lease_owner":%q,"update_validation_attempt":1%s}`, worker, failure,
		),
		reason: "update_validation_task_not_found", status: -1,
	}}
	logs := func(task string, want int) scopedCall {
		return scopedCall{body: fmt.Sprintf(
			`{"items":[{"task_id":%q,"lease_owner":%q,"activity_attempt_id":%q,"part":1,"lines":[{"text":"t"}]}]}`,
			s.known[task], worker, s.known[task+"_attempt"],
		), item: "items", status: want}
	}
	session := []scopedCall{{path: "s", body: name, reason: "session_not_found"}}
	in := "?worker_id=" + worker + "&lease_owner=" + worker
	return map[string][]scopedCall{
		"register": {{body: fmt.Sprintf(`{"worker_id":%q,"task_queue":%q,"supported_workflow_types":["flow"],"supported_activity_types":["step"],
			"capabilities":["worker_sessions","query_tasks"]}`, worker, queue), status: 201, reason: "worker_not_found"}},
		"deregister":                  {{path: worker, reason: "worker_not_found"}},
		"worker_heartbeat":            {{body: name, reason: "worker_not_found"}},
		"poll_workflow_task":          poll,
		"poll_activity_task":          poll,
		"poll_query_task":             poll,
		"poll_update_validation_task": poll,
		"poll_tasks": {
			{body: fmt.Sprintf(`{"worker_id":%q,"queues":[%q],"timeout_seconds":0}`, worker, queue), reason: "worker_not_found"},
		},
		"claim_workflow_task":        {{path: s.known["flow"], body: name, status: 200}},
		"claim_activity_task":        {{path: s.known["step"], body: name, status: 200}},
		"workflow_task_claim_status": {{path: s.known["flow"], query: in}},
		"activity_task_claim_status": {{path: s.known["step"], query: in}},
		"workflow_task_history":      {{path: s.known["flow"], body: flow("")}},
		"heartbeat_workflow_task":    {{path: s.known["flow"], body: flow("")}},
		"fail_workflow_task":         {{path: s.known["flow"], body: flow(failure), status: -1}},
		"complete_workflow_task": {
			{path: s.known["flow"], body: flow(`,"commands":[{"type":"complete_workflow"}]`), status: -1},
		},
		"activity_task_status": steps(""),
		"read_activity_task_status": {
			{path: s.known["step"], query: in + "&activity_attempt_id=" + s.known["step_attempt"]},
		},
		"heartbeat_activity_task":        steps(""),
		"complete_activity_task":         steps(`,"result":7`),
		"fail_activity_task":             steps(failure),
		"complete_query_task":            question(`,"result":1`),
		"fail_query_task":                question(failure),
		"approve_update_validation_task": verdict,
		"reject_update_validation_task":  verdict,
		"create_worker_session": {
			{body: fmt.Sprintf(`{"worker_id":%q,"session_id":"s"}`, worker), reason: "session_not_found"},
		},
		"heartbeat_worker_session": session,
		"release_worker_session":   session,
		"close_worker_session":     session,
		"complete_tasks": {{body: fmt.Sprintf(`{"items":[{"kind":"activity","task_id":%q,"lease_owner":%q,"activity_attempt_id":%q}]}`,
			s.known["step"], worker, s.known["step_attempt"]), item: "items"}},
		"record_logs": {logs("step", 0), logs("over", -1)},
	}
}

// scopedFree are the routes about nothing a token is bound to.
var scopedFree = map[string]bool{"worker_settings": true, "describe_protocol": true}

// A token for queues or a group is restricted on every route of the worker API. With the ID of another worker, also of
// one in its scope, a call changes nothing and returns nothing about tasks outside the scope. The caller and the owner
// of the task use different apps.
func TestATokenIsABoundaryOnEveryWorkerRoute(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, there := apptest.Two(t, apptest.Options{Database: database, Change: func(o *app.Options) {
			o.NoAuth, o.Token = false, admin
		}})
		s := newScoped(t, a)
		s.red.url, s.other.url, s.rotated.url = there.URL(), there.URL(), there.URL()
		for _, rt := range workerapi.Routes() {
			if scopedFree[rt.Operation] {
				continue
			}
			for _, foreign := range []struct {
				name, worker, queue string
				as                  client
			}{
				{"another queue's token in the holder's name", scopeHolder, "red", s.red},
				{"another queue's token in its own worker's name", "reds", "red", s.red},
				{"another group's token in the holder's name", scopeHolder, "blue", s.other},
				{"another group's token in its own worker's name", "others", "blue", s.other},
			} {
				calls := s.calls(foreign.worker, foreign.queue)[rt.Operation]
				if len(calls) == 0 {
					t.Fatalf("the test does not know the route %s", rt.Operation)
				}
				for _, c := range calls {
					if foreign.worker != scopeHolder &&
						ownAffair(rt.Operation, c, foreign.as.header["Authorization"] == s.other.header["Authorization"]) {
						continue
					}
					before := a.Dump()
					delete(before, "questions") // its caller disconnects when its timeout has passed
					got := foreign.as.call(
						rt.Method, strings.Replace(rt.Pattern, placeholder.FindString(rt.Pattern), c.path, 1)+c.query, c.body,
					)
					want := c.reason
					if want == "" {
						want = "task_not_found"
					}
					if strings.HasPrefix(rt.Operation, "claim") || strings.HasSuffix(rt.Operation, "claim_status") {
						if foreign.worker == scopeHolder {
							want = "worker_not_found"
						}
					}
					if rt.Operation == "create_worker_session" && foreign.worker == scopeHolder {
						want = "worker_not_found"
					}
					body, status := got.body, got.status
					if c.item != "" && status == 200 {
						list, _ := got.body[c.item].([]any)
						one, _ := list[0].(map[string]any)
						body, status = one, 404
					}
					if reason, _ := body["reason"].(string); status != 404 || reason != want {
						t.Errorf("%s, %s: got %d %.300s, want 404 %s", rt.Operation, foreign.name, got.status, got.raw, want)
					}
					if foreign.worker != scopeHolder && strings.Contains(got.raw, scopeHolder) {
						t.Errorf("%s, %s: the refusal names the holder: %.300s", rt.Operation, foreign.name, got.raw)
					}
					after := a.Dump()
					delete(after, "questions")
					sameRows(t, before, after)
				}
			}
		}
		// The query may have timed out: the test completes it if possible, and sends another one.
		old := s.calls(scopeHolder, "blue")["complete_query_task"][0]
		s.own.call("POST", "/api/worker/query-tasks/"+old.path+"/complete", old.body)
		<-s.asked
		s.ask(t)
		s.covering(t)
	})
}

// ownAffair reports whether a call with the ID of the caller's own worker is only about this worker, or about what its
// scope covers: the owner's queue, for a token of the same queue and another group.
func ownAffair(operation string, c scopedCall, sameQueue bool) bool {
	switch {
	case c.reason == "worker_not_found", strings.HasSuffix(operation, "validation_task"):
		return true
	case sameQueue && ((c.path != "" || c.item != "") && c.status == -1 || strings.Contains(operation, "claim_status")):
		return true // the token covers the queue, so it may know that a task has ended, and whether it waits
	}
	return false
}

// covering sends all requests with a token that covers the worker's scope and is not the one with which the worker
// registered, as after a rotation.
func (s *scoped) covering(t *testing.T) {
	table := s.calls(scopeHolder, "blue")
	routes := map[string]serve.Route{}
	for _, rt := range workerapi.Routes() {
		routes[rt.Operation] = rt
	}
	for _, operation := range []string{
		"worker_heartbeat", "workflow_task_history", "heartbeat_workflow_task", "claim_workflow_task", "claim_activity_task",
		"workflow_task_claim_status",
		"activity_task_claim_status", "activity_task_status", "read_activity_task_status", "heartbeat_activity_task",
		"create_worker_session",
		"heartbeat_worker_session", "release_worker_session", "record_logs", "complete_activity_task", "complete_query_task",
		"complete_workflow_task",
		"poll_activity_task", "poll_tasks", "register", "deregister",
	} {
		rt, c := routes[operation], table[operation][0]
		want := c.status
		if want <= 0 {
			want = 200
		}
		s.rotated.t = t
		got := s.rotated.call(
			rt.Method, strings.Replace(rt.Pattern, placeholder.FindString(rt.Pattern), c.path, 1)+c.query, c.body,
		)
		if got.status != want {
			t.Errorf("%s with a covering token: got %d %.300s, want %d", operation, got.status, got.raw, want)
		}
	}
	if got := <-s.asked; got.status != 200 {
		t.Errorf("the query: %d %.300s", got.status, got.raw)
	}
}

// A worker that moved to other queues may still hold a task of an old one. A token for the new queue may act for the
// worker, but not on that task.
func TestATokenReportsOnlyOnTasksOfItsQueues(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) {
			o.NoAuth, o.Token = false, admin
		}})
		c := client{t: t, url: a.URL()}.as(admin)
		green := c.as(c.want(201, "POST", "/tokens", `{"name":"green","roles":["worker"],"queues":["green"]}`).text("token"))
		register := func(queues string) {
			c.want(201, "POST", "/api/worker/register", `{"worker_id":"mover","incarnation":"one","task_queues":[`+queues+`],
				"supported_workflow_types":["flow"],"supported_activity_types":["step"]}`)
		}
		poll := func(kind string) handTask {
			return taskOf(
				t,
				c.want(
					200, "POST", "/api/worker/"+kind+"-tasks/poll", `{"worker_id":"mover","incarnation":"one","timeout_seconds":30}`,
				),
			)
		}
		register(`"blue","green"`)
		for _, id := range []string{"one", "two"} {
			c.want(201, "POST", "/workflows", `{"workflow_id":"`+id+`","workflow_type":"flow","task_queue":"blue"}`)
		}
		c.want(200, "POST", flowPath(poll("workflow"), "complete"),
			`{"lease_owner":"mover","workflow_task_attempt":1,"commands":[{"type":"schedule_activity","activity_type":"step","queue":"blue"}]}`)
		flow, act := poll("workflow"), poll("activity")
		register(`"green"`)
		ofStep := fmt.Sprintf(`{"lease_owner":"mover","activity_attempt_id":%q}`, act.text("activity_attempt_id"))
		ofFlow := `{"lease_owner":"mover","workflow_task_attempt":1,"commands":[{"type":"complete_workflow"}]}`
		green.want(200, "POST", "/api/worker/heartbeat", `{"worker_id":"mover","incarnation":"one"}`)
		before := a.Dump()
		for path, body := range map[string]string{
			stepPath(act, "heartbeat"): ofStep, stepPath(act, "status"): ofStep, stepPath(act, "complete"): ofStep,
			flowPath(flow, "history"):   ofFlow,
			flowPath(flow, "heartbeat"): ofFlow, flowPath(flow, "complete"): ofFlow,
		} {
			if got := green.want(404, "POST", path, body); got.text("reason") != "task_not_found" {
				t.Errorf("%s: %.300s", path, got.raw)
			}
		}
		lines := `{"items":[` + logItem(act, "mover", 1, "t") + `]}`
		if got := green.want(200, "POST", "/api/worker/tasks/logs", lines); !strings.Contains(got.raw, `"task_not_found"`) {
			t.Errorf("its lines: %.300s", got.raw)
		}
		sameRows(t, before, a.Dump())
		if got := c.want(200, "POST", "/api/worker/tasks/logs", lines); !strings.Contains(got.raw, `"recorded":true`) {
			t.Errorf("lines of a token that serves every queue: %.300s", got.raw)
		}
		c.want(200, "POST", stepPath(act, "complete"), ofStep)
		c.want(200, "POST", flowPath(flow, "complete"), ofFlow)
	})
}
