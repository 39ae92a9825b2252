package apptest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// hand is a worker whose requests the test sends one by one.
type hand struct {
	caller
	id string
}

// handQueue is the queue of every worker that works by hand.
const handQueue = "by-hand"

// register registers the worker, with further members of the body after a comma.
func register(c caller, id, more string) hand {
	c.t.Helper()
	c.want(201, "POST", "/api/worker/register", `{"worker_id":"`+id+`","task_queue":"`+handQueue+`","runtime":"external",
		"supported_workflow_types":["flow"],"supported_activity_types":["step"],"capabilities":["worker_sessions","query_tasks"]`+more+`}`)
	return hand{c, id}
}

// start starts a run of type flow and returns its ID.
func (c caller) start(id string) string {
	c.t.Helper()
	return c.want(
		201, "POST", "/api/workflows",
		`{"workflow_id":"`+id+`","workflow_type":"flow","task_queue":"`+handQueue+`","input":[1]}`,
	).text("run_id")
}

// handTask is a task in the response to a poll.
type handTask map[string]any

func (t handTask) text(member string) string { v, _ := t[member].(string); return v }

func (t handTask) number(member string) int64 { v, _ := t[member].(float64); return int64(v) }

// poll waits for a task of a kind: workflow, activity or query.
func (h hand) poll(kind string) handTask {
	h.t.Helper()
	s := h.want(
		200, "POST", "/api/worker/"+kind+"-tasks/poll",
		`{"worker_id":"`+h.id+`","task_queue":"`+handQueue+`","timeout_seconds":30}`,
	)
	return taskOf(h.t, s)
}

func taskOf(t testing.TB, s response) handTask {
	t.Helper()
	task, ok := s.body["task"].(map[string]any)
	if !ok {
		t.Fatalf("no task: %s", s.raw)
	}
	return task
}

// empty polls without waiting and expects no task.
func (h hand) empty(kind string) {
	h.t.Helper()
	s := h.want(
		200, "POST", "/api/worker/"+kind+"-tasks/poll",
		`{"worker_id":"`+h.id+`","task_queue":"`+handQueue+`","timeout_seconds":0}`,
	)
	if s.body["task"] != nil {
		h.t.Fatalf("a %s task where none was to be: %s", kind, s.raw)
	}
}

// flowBody returns the body of a call about a workflow task.
func (h hand) flowBody(t handTask, more string) string {
	return fmt.Sprintf(`{"lease_owner":%q,"workflow_task_attempt":%d%s}`, h.id, t.number("workflow_task_attempt"), more)
}

func flowPath(t handTask, verb string) string {
	return "/api/worker/workflow-tasks/" + t.text("task_id") + "/" + verb
}

// decide completes a workflow task with commands.
func (h hand) decide(t handTask, commands ...string) response {
	h.t.Helper()
	return h.want(200, "POST", flowPath(t, "complete"), h.flowBody(t, `,"commands":[`+strings.Join(commands, ",")+`]`))
}

// stepBody returns the body of a call about an activity attempt.
func (h hand) stepBody(t handTask, more string) string {
	return fmt.Sprintf(`{"lease_owner":%q,"activity_attempt_id":%q%s}`, h.id, t.text("activity_attempt_id"), more)
}

func stepPath(t handTask, verb string) string {
	return "/api/worker/activity-tasks/" + t.text("task_id") + "/" + verb
}

// envelope returns a JSON value encoded as a payload of the wire format.
func envelope(t testing.TB, value string) string {
	t.Helper()
	p, err := payload.FromJSON([]byte(value))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

const (
	step   = `{"type":"schedule_activity","activity_type":"step","queue":"` + handQueue + `"}`
	finish = `{"type":"complete_workflow"}`
)

// inSession returns a step that runs in a session.
func inSession(id string) string {
	return `{"type":"schedule_activity","activity_type":"step","queue":"` + handQueue +
		`","worker_session":{"session_id":"` + id + `"}}`
}

// unchanged calls a function that must not change any row of the database.
func unchanged(t testing.TB, a *apptest.App, what string, call func()) {
	t.Helper()
	before := a.Dump()
	call()
	if diff := before.Diff(a.Dump()); diff != "" {
		t.Errorf("%s changed something:\n%s", what, diff)
	}
}
