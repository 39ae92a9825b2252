package apptest_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// refusal is a call that is to be refused and to change nothing.
type refusal struct {
	what, method, path, body string
	status                   int
	reason                   string
}

// refuse sends the requests one by one and compares the whole database before and after each.
func (c caller) refuse(list []refusal) {
	c.t.Helper()
	before := c.stands()
	for _, r := range list {
		s := c.ask(r.method, r.path, r.body)
		if s.status != r.status || s.text("reason") != r.reason {
			c.t.Errorf("%s: got %d %q, want %d %q: %s", r.what, s.status, s.text("reason"), r.status, r.reason, s.brief())
		}
		if s.text("protocol_version") == "" || s.body["server_capabilities"] == nil {
			c.t.Errorf("%s: the refusal is not in its envelope: %s", r.what, s.brief())
		}
		after := c.stands()
		if diff := before.Diff(after); diff != "" {
			c.t.Errorf("%s changed something:\n%s", r.what, diff)
		}
		before = after
	}
}

var signs = regexp.MustCompile(`^(\[\S+ \S+ \S+ \S+) \d+|"(?:heartbeat_at|heard_by)":"[^"]*"|,"heard_until":{[^}]*}`)

// stands dumps the database. With a shared database it omits what changes with time alone: stored heartbeats and the
// queries that an app stores again for other apps.
func (c caller) stands() apptest.Dump {
	c.t.Helper()
	d := c.app.Dump()
	if strings.HasPrefix(c.app.Database, "sqlite:") {
		return d
	}
	delete(d, "questions")
	for i, row := range d["workers"] {
		d["workers"][i] = signs.ReplaceAllString(row, "$1")
	}
	return d
}

// brief returns a response without the members that every response has.
func (s response) brief() string {
	text, _, _ := strings.Cut(s.raw, `,"protocol_version":`)
	return text[:min(len(text), 600)]
}

// refusalCase is one of everything that a worker can be wrong about.
type refusalCase struct {
	c                caller
	w                hand
	flow, step, tied handTask // leased to w
	ready            string   // ID of a ready workflow task
	cancelled        [2]handTask
	done             handTask
	query            handTask
	asked            <-chan response
}

func newRefusalCase(t *testing.T, a *apptest.App) *refusalCase {
	c := caller{t, a, ""}
	s := &refusalCase{c: c, w: register(c, "w", `,"max_concurrent_worker_sessions":2`)}
	register(c, "other", `,"max_concurrent_worker_sessions":1`)
	c.want(
		201, "POST", "/api/worker/register",
		`{"worker_id":"plain","task_queue":"`+handQueue+`","supported_activity_types":["step"]}`,
	)
	c.want(
		201, "POST", "/api/worker/register",
		`{"worker_id":"resting","task_queue":"`+handQueue+`","supported_activity_types":["step"]}`,
	)
	c.want(200, "POST", "/api/worker/heartbeat", `{"worker_id":"resting","draining":true}`)
	lease := func(workflow string, kind string) handTask {
		task := s.w.poll(kind)
		if task.text("workflow_id") != workflow {
			t.Fatalf("a %s task of %s, want %s", kind, task.text("workflow_id"), workflow)
		}
		return task
	}
	c.start("steps")
	s.w.decide(lease("steps", "workflow"), step, inSession("held"))
	s.step, s.tied = lease("steps", "activity"), lease("steps", "activity")
	c.start("cancelled")
	s.w.decide(lease("cancelled", "workflow"), step)
	s.cancelled[1] = lease("cancelled", "activity")
	c.want(202, "POST", "/api/workflows/cancelled/signal/x", `{}`)
	c.start("cancelled-2")
	s.cancelled[0] = lease("cancelled-2", "workflow")
	c.want(200, "POST", "/api/workflows/cancelled/cancel", `{}`)
	c.want(200, "POST", "/api/workflows/cancelled-2/terminate", `{}`)
	c.start("done")
	s.done = lease("done", "workflow")
	s.w.decide(s.done, `{"type":"open_condition_wait","condition_key":"k"}`)
	c.start("flow")
	s.flow = lease("flow", "workflow")
	s.ready = c.start("ready") + "-1-workflow"
	c.want(201, "POST", "/api/worker/sessions", `{"worker_id":"other","session_id":"others"}`)
	c.want(201, "POST", "/api/worker/sessions", `{"worker_id":"w","session_id":"closed"}`)
	c.want(200, "DELETE", "/api/worker/sessions/closed", `{"worker_id":"w"}`)
	s.asked = c.later("POST", "/api/workflows/done/query/state", `{}`)
	s.query = s.w.poll("query")
	return s
}

// W5: every refusal of the worker API, none of which changes a row of any table. On PostgreSQL the refusing app did not
// lease the reported tasks.
func TestRefusedWorkerCallsChangeNothing(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		s := newRefusalCase(t, a)
		other := s.c
		if !strings.HasPrefix(database, "sqlite:") {
			other.app = apptest.Start(t, apptest.Options{Database: database})
			other.want(200, "POST", "/api/worker/heartbeat", `{"worker_id":"w"}`)
		}
		// After the refused calls, all leases must still be valid. Check the query first, because its caller has a
		// timeout.
		other.refuse(s.questions())
		s.w.answer(s.query, "1")
		if got := <-s.asked; got.status != 200 {
			t.Errorf("the query: %s", got.brief())
		}
		other.refuse(s.workflowTasks())
		other.refuse(s.commands())
		other.refuse(s.activityTasks())
		other.refuse(s.workers())
		other.refuse(s.sessions())
		other.refuse(s.requests())
		for _, task := range []handTask{s.step, s.tied} {
			s.c.want(200, "POST", stepPath(task, "complete"), s.w.stepBody(task, ""))
		}
		s.w.decide(s.flow, finish)
	})
}

func (s *refusalCase) workflowTasks() (list []refusal) {
	run := s.flow.text("run_id")
	for _, verb := range []string{"history", "heartbeat", "complete", "fail"} {
		more := map[string]string{"complete": `,"commands":[` + finish + `]`, "fail": `,"failure":{"message":"m"}`}[verb]
		add := func(what, task, owner string, attempt int64, status int, reason string) {
			list = append(list, refusal{
				"workflow task " + verb + ": " +
					what, "POST", "/api/worker/workflow-tasks/" + task + "/" + verb,
				fmt.Sprintf(`{"lease_owner":%q,"workflow_task_attempt":%d%s}`, owner, attempt, more), status, reason,
			})
		}
		id := s.flow.text("task_id")
		add("an id of another form", "nonsense", "w", 1, 404, "task_not_found")
		add("a run that never was", strings.Repeat("0", 26)+"-1-workflow", "w", 1, 404, "task_not_found")
		add("a task that never was", run+"-9-workflow", "w", 1, 404, "task_not_found")
		add("nobody's task", s.ready, "w", 1, 409, "task_not_leased")
		add("another's task", id, "other", 1, 409, "lease_owner_mismatch")
		add("no owner", id, "", 1, 422, "validation_failed")
		add("another attempt", id, "w", 2, 409, "workflow_task_attempt_mismatch")
		add("no attempt", id, "w", 0, 422, "validation_failed")
		add("no attempt of a task that never was", run+"-9-workflow", "w", 0, 422, "validation_failed")
		add("a run that was terminated", s.cancelled[0].text("task_id"), "w", 1, 409, "run_closed")
		if verb == "complete" || verb == "fail" {
			add("other outcome than before", s.done.text("task_id"), "w", 1, 409, "conflicting_completion")
		} else {
			add("a task that is done", s.done.text("task_id"), "w", 1, 409, "task_not_leased")
		}
	}
	path := flowPath(s.flow, "history")
	return append(list,
		refusal{
			"a page token that is none", "POST", path, s.w.flowBody(s.flow, `,"next_history_page_token":"!"`), 400,
			"invalid_page_token",
		},
		refusal{
			"a page token of another kind", "POST", path, s.w.flowBody(s.flow, `,"next_history_page_token":"YWJj"`), 400,
			"invalid_page_token",
		},
		refusal{
			"a page of more than the most", "POST", path, s.w.flowBody(s.flow, `,"page_size":1001`), 422, "validation_failed",
		},
		refusal{"a page of less than none", "POST", path, s.w.flowBody(s.flow, `,"page_size":-1`), 422, "validation_failed"},
		refusal{
			"a failure without a message", "POST", flowPath(s.flow, "fail"), s.w.flowBody(s.flow, ""), 422, "validation_failed",
		},
		refusal{
			"a failure of a long type", "POST", flowPath(s.flow, "fail"),
			s.w.flowBody(s.flow, `,"failure":{"message":"m","type":"`+strings.Repeat("x", 513)+`"}`), 422, "validation_failed",
		},
		refusal{
			"a failure of a long reason", "POST", flowPath(s.flow, "fail"),
			s.w.flowBody(s.flow, `,"failure":{"message":"m","reason":"`+strings.Repeat("x", 192)+`"}`), 422,
			"validation_failed",
		},
	)
}

func (s *refusalCase) commands() (list []refusal) {
	for _, c := range []struct {
		what, commands string
		status         int
		reason         string
	}{
		{"none", ``, 422, "validation_failed"},
		{"two that end the run", finish + `,` + finish, 422, "validation_failed"},
		{"one after the end", finish + `,` + step, 422, "validation_failed"},
		{"a missing activity type", `{"type":"schedule_activity"}`, 422, "validation_failed"},
		{"an attempt that may take no time", step[:len(step)-1] + `,"start_to_close_timeout":0}`, 422, "validation_failed"},
		{"a wait for a worker of no time", step[:len(step)-1] + `,"schedule_to_start_timeout":0}`, 422, "validation_failed"},
		{
			"an activity that may take no time", step[:len(step)-1] + `,"schedule_to_close_timeout":0}`, 422,
			"validation_failed",
		},
		{"heartbeats without a pause", step[:len(step)-1] + `,"heartbeat_timeout":0}`, 422, "validation_failed"},
		{"half a second", step[:len(step)-1] + `,"start_to_close_timeout":0.5}`, 422, "validation_failed"},
		{
			"a child that may take no time", `{"type":"start_child_workflow","workflow_type":"part","run_timeout_seconds":0}`,
			422, "validation_failed",
		},
		{
			"children that may take no time",
			`{"type":"start_child_workflow","workflow_type":"part","execution_timeout_seconds":0}`, 422, "validation_failed",
		},
		{"a missing delay", `{"type":"start_timer","delay_seconds":-1}`, 422, "validation_failed"},
		{"a missing workflow type", `{"type":"start_child_workflow"}`, 422, "validation_failed"},
		{"a missing message", `{"type":"fail_workflow"}`, 422, "validation_failed"},
		{"a good one before a bad one", step + `,{"type":"schedule_activity"}`, 422, "validation_failed"},
		{
			"another codec", `{"type":"complete_workflow","result":{"codec":"json","blob":"e30="}}`, 422,
			"unsupported_payload_codec",
		},
		{
			"a blob that is none", `{"type":"complete_workflow","result":{"codec":"avro","blob":"%%"}}`, 422,
			"validation_failed",
		},
		{"an update nobody sent", `{"type":"complete_update","update_id":"u"}`, 409, "invalid_commands"},
		{"a part of a parallel group", step[:len(step)-1] +
			`,"parallel_group_id":"parallel-activities:1:2","parallel_group_kind":"activity",` +
			`"parallel_group_base_sequence":1,"parallel_group_size":2,"parallel_group_index":0}`, 422, "validation_failed"},
		{"more than a thousand", strings.TrimSuffix(strings.Repeat(step+",", 1001), ","), 422, "structural_limit_exceeded"},
	} {
		list = append(
			list,
			refusal{
				"commands: " + c.what, "POST", flowPath(s.flow, "complete"), s.w.flowBody(s.flow, `,"commands":[`+c.commands+`]`),
				c.status, c.reason,
			},
		)
	}
	return list
}

func (s *refusalCase) activityTasks() (list []refusal) {
	run := s.step.text("run_id")
	for _, verb := range []string{"complete", "fail", "heartbeat", "status"} {
		more := map[string]string{"fail": `,"failure":{"message":"m"}`}[verb]
		beats := verb == "heartbeat" || verb == "status" // these routes respond 200 for an ended task
		add := func(what, task, owner, attempt, extra string, status int, reason string) {
			if beats && status == 409 && reason != "lease_owner_mismatch" {
				status = 200
			}
			list = append(list, refusal{
				"activity " + verb + ": " + what, "POST", "/api/worker/activity-tasks/" + task + "/" +
					verb,
				fmt.Sprintf(`{"lease_owner":%q,"activity_attempt_id":%q%s%s}`, owner, attempt, more, extra), status, reason,
			})
		}
		id, attempt := s.step.text("task_id"), s.step.text("activity_attempt_id")
		add("an id of another form", "nonsense", "w", attempt, "", 404, "task_not_found")
		add("a task that never was", run+"-9", "w", run+"-9-1", "", 404, "task_not_found")
		add("another's attempt", id, "other", attempt, "", 409, "lease_owner_mismatch")
		add("an attempt that never was", id, "w", id+"-7", "", 409, "stale_attempt")
		add("another task's attempt", id, "w", s.tied.text("activity_attempt_id"), "", 409, "stale_attempt")
		add("no attempt", id, "w", "", "", 422, "validation_failed")
		add("no owner", id, "", attempt, "", 422, "validation_failed")
		add(
			"another epoch", s.tied.text("task_id"), "w", s.tied.text("activity_attempt_id"), `,"session_epoch":1`, 409,
			"stale_session_epoch",
		)
		cancelled := s.cancelled[1]
		add(
			"a run that was cancelled", cancelled.text("task_id"), "w", cancelled.text("activity_attempt_id"), "", 409,
			"run_cancelled",
		)
	}
	path := stepPath(s.step, "complete")
	return append(list,
		refusal{
			"a result of another codec", "POST", path, s.w.stepBody(s.step, `,"result":{"codec":"json","blob":"e30="}`), 422,
			"unsupported_payload_codec",
		},
		refusal{
			"a result that is no payload", "POST", path, s.w.stepBody(s.step, `,"result":{"codec":"avro","blob":"x"}`), 422,
			"validation_failed",
		},
		refusal{
			"a failure without a message", "POST", stepPath(s.step, "fail"), s.w.stepBody(s.step, ""), 422, "validation_failed",
		},
	)
}

func (s *refusalCase) questions() (list []refusal) {
	for _, k := range []struct{ kind, verb, prefix string }{
		{"query", "complete", "query_task"},
		{"query", "fail", "query_task"},
		{"update-validation", "approve", "update_validation"},
		{"update-validation", "reject", "update_validation"},
	} {
		path := "/api/worker/" + k.kind + "-tasks/nothing/" + k.verb
		missing := map[string]string{
			"query": "query_task_not_found", "update-validation": "update_validation_task_not_found",
		}[k.kind]
		list = append(list, refusal{
			k.kind + " " + k.verb + ": one that never was", "POST", path,
			`{"lease_owner":"w","` + k.prefix + `_attempt":1,"failure":{"message":"m"}}`, 404, missing,
		})
		if k.kind == "query" {
			path = questionPath("query_task", s.query.text("query_task_id"), k.verb)
			list = append(list,
				refusal{
					"query " + k.verb + ": another's", "POST", path,
					`{"lease_owner":"x","query_task_attempt":1,"failure":{"message":"m"}}`, 409, "lease_owner_mismatch",
				},
				refusal{
					"query " + k.verb +
						": another attempt", "POST", path, `{"lease_owner":"w","query_task_attempt":2,"failure":{"message":"m"}}`, 409,
					"query_task_attempt_mismatch",
				})
		}
	}
	return append(list, refusal{
		"a query's result of another codec", "POST", questionPath(
			"query_task", s.query.text("query_task_id"), "complete",
		),
		`{"lease_owner":"w","query_task_attempt":1,"result_envelope":{"codec":"json","blob":"e30="}}`, 422,
		"unsupported_payload_codec",
	})
}

func (s *refusalCase) workers() (list []refusal) {
	for _, kind := range []string{"workflow", "activity", "query", "update-validation"} {
		path := "/api/worker/" + kind + "-tasks/poll"
		body := func(worker, more string) string {
			return `{"worker_id":"` + worker + `","task_queue":"` + handQueue + `","timeout_seconds":0` + more + `}`
		}
		list = append(list,
			refusal{"poll " + kind + ": a worker nobody knows", "POST", path, body("nobody", ""), 412, "worker_not_registered"},
			refusal{
				"poll " + kind + ": another queue", "POST", path, `{"worker_id":"w","task_queue":"elsewhere"}`, 409,
				"task_queue_mismatch",
			},
			refusal{"poll " + kind + ": another build", "POST", path, body("w", `,"build_id":"b-2"`), 409, "build_id_mismatch"},
			refusal{
				"poll " + kind + ": an older process", "POST", path, body("w", `,"incarnation":"before"`), 409,
				"stale_worker_registration",
			},
			refusal{"poll " + kind + ": one that drains", "POST", path, body("resting", ""), 409, "worker_draining"},
			refusal{
				"poll " + kind + ": less than no wait", "POST", path, `{"worker_id":"w","timeout_seconds":-1}`, 422,
				"validation_failed",
			},
			refusal{
				"poll " + kind + ": too long a page", "POST", path, `{"worker_id":"w","history_page_size":1001}`, 422,
				"validation_failed",
			},
			refusal{
				"poll " + kind + ": too long an id", "POST", path, body("w", `,"poll_request_id":"`+strings.Repeat("x", 256)+`"`),
				422, "validation_failed",
			},
		)
	}
	return append(list,
		refusal{
			"poll: a kind that is none", "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_kinds":["dance"]}`,
			422, "validation_failed",
		},
		refusal{
			"poll: no kind", "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_kinds":[]}`, 422,
			"validation_failed",
		},
		refusal{"poll: no worker", "POST", "/api/worker/workflow-tasks/poll", `{"task_queue":"q"}`, 422, "validation_failed"},
		refusal{"heartbeat: no worker", "POST", "/api/worker/heartbeat", `{}`, 422, "validation_failed"},
		refusal{
			"register: a long build id", "POST", "/api/worker/register",
			`{"task_queue":"q","build_id":"` + strings.Repeat("x", 256) + `"}`, 422, "validation_failed",
		},
		refusal{
			"register: a long version", "POST", "/api/worker/register",
			`{"task_queue":"q","sdk_version":"` + strings.Repeat("x", 65) + `"}`, 422, "validation_failed",
		},
		refusal{"register: no queue", "POST", "/api/worker/register", `{"worker_id":"new"}`, 422, "validation_failed"},
		refusal{
			"register: no slots", "POST", "/api/worker/register",
			`{"worker_id":"new","task_queue":"q","max_concurrent_workflow_tasks":0,"max_concurrent_activity_tasks":0}`, 422,
			"validation_failed",
		},
		refusal{
			"register: a long id", "POST", "/api/worker/register",
			`{"worker_id":"` + strings.Repeat("x", 256) + `","task_queue":"q"}`, 422, "validation_failed",
		},
		refusal{
			"heartbeat: a worker nobody knows", "POST", "/api/worker/heartbeat", `{"worker_id":"nobody"}`, 404,
			"worker_not_registered",
		},
		refusal{
			"heartbeat: an older process", "POST", "/api/worker/heartbeat", `{"worker_id":"w","incarnation":"before"}`, 409,
			"stale_worker_registration",
		},
		refusal{
			"deregister: a worker nobody knows", "DELETE", "/api/worker/registrations/nobody", ``, 404, "worker_not_found",
		},
		refusal{
			"deregister: an older process", "DELETE", "/api/worker/registrations/w?incarnation=before", ``, 409,
			"stale_worker_registration",
		},
		refusal{"batch: no outcome", "POST", "/api/worker/tasks/complete", `{"items":[]}`, 422, "validation_failed"},
		refusal{
			"batch: a kind that is none", "POST", "/api/worker/tasks/poll", `{"worker_id":"w","kinds":["dance"]}`, 422,
			"validation_failed",
		},
		refusal{
			"batch: too many", "POST", "/api/worker/tasks/poll", `{"worker_id":"w","max":1001}`, 422, "validation_failed",
		},
	)
}

func (s *refusalCase) sessions() (list []refusal) {
	create := func(what, body string, status int, reason string) {
		list = append(list, refusal{"session create: " + what, "POST", "/api/worker/sessions", body, status, reason})
	}
	create("a worker nobody knows", `{"worker_id":"nobody","session_id":"s"}`, 412, "worker_not_registered")
	create("no id", `{"worker_id":"w"}`, 422, "invalid_worker_session")
	create("a long id", `{"worker_id":"w","session_id":"`+strings.Repeat("x", 256)+`"}`, 422, "invalid_worker_session")
	create("another queue", `{"worker_id":"w","session_id":"s","queue":"elsewhere"}`, 409, "session_queue_mismatch")
	create(
		"what the worker lacks", `{"worker_id":"w","session_id":"s","requirements":["gpu"]}`, 409,
		"session_requirements_not_met",
	)
	create("none there", `{"worker_id":"w","session_id":"s","create_if_missing":false}`, 409, "session_missing")
	create("another's", `{"worker_id":"w","session_id":"others"}`, 409, "session_owned_by_another_worker")
	create("one too many", `{"worker_id":"other","session_id":"s"}`, 409, "worker_session_limit_exceeded")
	create("a worker that holds none", `{"worker_id":"plain","session_id":"s"}`, 409, "worker_session_limit_exceeded")
	create("a closed one", `{"worker_id":"w","session_id":"closed"}`, 409, "session_closed")
	for _, member := range []string{"lease_seconds", "ttl_seconds", "max_concurrent_activities"} {
		create("no "+member, `{"worker_id":"w","session_id":"s","`+member+`":0}`, 422, "validation_failed")
	}
	create("no worker", `{"session_id":"s"}`, 422, "validation_failed")
	create("less than no lease", `{"worker_id":"w","session_id":"s","lease_seconds":-1}`, 422, "validation_failed")
	for _, v := range []struct{ method, verb string }{{"POST", "/heartbeat"}, {"POST", "/release"}, {"DELETE", ""}} {
		add := func(what, session, worker string, status int, reason string) {
			list = append(list, refusal{
				"session " + v.method + v.verb + ": " +
					what, v.method, "/api/worker/sessions/" + session + v.verb,
				`{"worker_id":"` + worker + `"}`, status, reason,
			})
		}
		add("none there", "nothing", "w", 404, "session_not_found")
		add("another's", "others", "w", 409, "session_owner_mismatch")
		add("no worker", "others", "", 422, "validation_failed")
		if v.verb != "" {
			add("a closed one", "closed", "w", 409, "session_not_active")
		}
	}
	return list
}

func (s *refusalCase) requests() []refusal {
	large := `{"worker_id":"` + strings.Repeat("x", 3<<20) + `"}`
	return []refusal{
		{"a route that is not there", "POST", "/api/worker/nothing", `{}`, 404, "not_found"},
		{"another method", "PUT", "/api/worker/register", `{}`, 405, "method_not_allowed"},
		{"no JSON", "POST", "/api/worker/register", `{`, 400, "malformed_json"},
		{"two values", "POST", "/api/worker/register", `{} {}`, 400, "malformed_json"},
		{"a list", "POST", "/api/worker/register", `[]`, 422, "validation_failed"},
		{
			"a member of another type", "POST", "/api/worker/register", `{"worker_id":7,"task_queue":"q"}`, 422,
			"validation_failed",
		},
		{"more than is taken", "POST", "/api/worker/register", large, 413, "payload_too_large"},
		{
			"another namespace than the request's", "POST", "/api/worker/register",
			`{"worker_id":"new","task_queue":"q","namespace":"elsewhere"}`, 422, "validation_failed",
		},
		{"an id that is no text", "POST", "/api/worker/activity-tasks/a%00b/complete", `{}`, 422, "validation_failed"},
	}
}

// An error for a closed run has the data that a worker needs to log why its task ended.
func TestRefusalForAClosedRunContainsItsDetails(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s := newRefusalCase(t, a)
	for _, verb := range []string{"history", "heartbeat", "complete", "fail"} {
		got := s.c.want(
			409, "POST", flowPath(s.cancelled[0], verb),
			s.w.flowBody(s.cancelled[0], `,"commands":[`+finish+`],"failure":{"message":"m"}`),
		)
		if got.text("reason") != "run_closed" || got.body["can_continue"] != false || got.body["cancel_requested"] != true ||
			got.text("stop_reason") != "run_terminated" || got.text("run_closed_reason") != "terminated" ||
			got.text("run_closed_at") == "" {
			t.Errorf("%s: %s", verb, got.brief())
		}
	}
	s.w.answer(s.query, "1")
	<-s.asked
	got := s.c.want(409, "POST", stepPath(s.cancelled[1], "complete"), s.w.stepBody(s.cancelled[1], ""))
	if got.body["recorded"] != false || got.body["can_continue"] != false ||
		got.text("run_closed_reason") != "cancelled" || got.text("run_closed_at") == "" {
		t.Errorf("the activity: %s", got.brief())
	}
}

// A lease that ran out is no lease, also before anybody noticed.
func TestAnExpiredLeaseRefusesItsHolder(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		var shift atomic.Int64
		a := shifted(t, database, &shift)
		c := caller{t, a, ""}
		w := register(c, "w", "")
		c.start("steps")
		w.decide(w.poll("workflow"), step)
		act := w.poll("activity")
		c.start("flow")
		flow := w.poll("workflow")
		shift.Store(int64(6 * time.Minute))
		list := []refusal{
			{"complete", "POST", flowPath(flow, "complete"), w.flowBody(flow, `,"commands":[`+finish+`]`), 409, "lease_expired"},
			{"fail", "POST", flowPath(flow, "fail"), w.flowBody(flow, `,"failure":{"message":"m"}`), 409, "lease_expired"},
			{"heartbeat", "POST", flowPath(flow, "heartbeat"), w.flowBody(flow, ""), 409, "lease_expired"},
			{"history", "POST", flowPath(flow, "history"), w.flowBody(flow, ""), 409, "lease_expired"},
			{"complete an activity", "POST", stepPath(act, "complete"), w.stepBody(act, ""), 409, "stale_attempt"},
			{
				"fail an activity", "POST", stepPath(act, "fail"), w.stepBody(act, `,"failure":{"message":"m"}`), 409,
				"stale_attempt",
			},
			{"heartbeat of an activity", "POST", stepPath(act, "heartbeat"), w.stepBody(act, ""), 200, "stale_attempt"},
		}
		c.refuse(slices.Clip(list))
	})
}
