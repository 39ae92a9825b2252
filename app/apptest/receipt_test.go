package apptest_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// A repeated poll_request_id returns the task that its poll leased, while the lease is valid, and afterwards nothing.
func TestRepeatedPollOfAnEndedTaskIsRejected(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		w := register(caller{t, a, ""}, "w", "")
		expired := func(kind, id string) {
			t.Helper()
			unchanged(t, a, "a "+kind+" poll again", func() {
				s := w.pollWith(kind, `,"poll_request_id":"`+id+`","timeout_seconds":0`)
				if s.status != 409 || s.text("reason") != "poll_cached_task_expired" || s.text("poll_status") != "conflict" ||
					s.body["task"] != nil {
					t.Errorf("a %s poll whose task is over: %d %s", kind, s.status, s.brief())
				}
			})
		}
		w.start("over")
		flow := taskOf(t, w.pollWith("workflow", `,"poll_request_id":"f"`))
		w.start("more") // tasks that the repeated poll must not receive instead
		w.decide(flow, step)
		expired("workflow", "f")
		act := taskOf(t, w.pollWith("activity", `,"poll_request_id":"a"`))
		w.want(200, "POST", stepPath(act, "complete"), w.stepBody(act, ""))
		expired("activity", "a")
		asked := w.later("POST", "/api/workflows/over/query/state", `{}`)
		query := taskOf(t, w.pollWith("query", `,"poll_request_id":"q"`))
		w.answer(query, "1")
		<-asked
		expired("query", "q")
		expired("workflow", "f") // a second time
		// The same task after a requeue has another lease, under the ID of another poll.
		second := taskOf(t, w.pollWith("workflow", `,"poll_request_id":"g"`))
		w.want(200, "POST", flowPath(second, "fail"), w.flowBody(second, `,"failure":{"message":"out of memory"}`))
		if third := w.poll("workflow"); third.text("task_id") == second.text("task_id") &&
			third.number("workflow_task_attempt") != 2 {
			t.Errorf("the task was not tried again: %v", third)
		}
		expired("workflow", "g")
	})
}

// A repetition of a held poll joins it: both responses have the same lease.
func TestAPollThatIsOpenIsJoined(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	w := register(caller{t, a, ""}, "w", "")
	var answers []<-chan response
	for range 2 {
		answers = append(answers, w.later("POST", "/api/worker/workflow-tasks/poll",
			`{"worker_id":"w","task_queue":"`+handQueue+`","timeout_seconds":60,"poll_request_id":"p"}`))
		waiting(t, a, 1) // the second one adds no held poll
	}
	w.start("joined")
	w.start("for-nobody-yet")
	one, two := taskOf(t, <-answers[0]), taskOf(t, <-answers[1])
	if one.text("workflow_id") != "joined" || !reflect.DeepEqual(one, two) {
		t.Errorf("one poll %v, the other %v", one, two)
	}
	w.decide(one, finish)
}

// The ID of a poll applies to the kinds of tasks that it was sent for; polls over other routes may have the same ID.
func TestAPollIDIsBoundToItsKinds(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	w := register(caller{t, a, ""}, "w", `,"sdk_version":"1"`)
	w.start("bound")
	flow := taskOf(t, w.pollWith("workflow", `,"poll_request_id":"p","task_kinds":["workflow","update_validation"]`))
	redelivered := taskOf(t, w.pollWith("workflow", `,"poll_request_id":"p","task_kinds":["update_validation","workflow"]`))
	if redelivered.text("task_id") != flow.text("task_id") {
		t.Errorf("the kinds in another order: %v", redelivered)
	}
	unchanged(t, a, "other kinds", func() {
		for _, kinds := range []string{`,"task_kinds":["workflow"]`, `,"task_kinds":["update_validation"]`, ``} {
			s := w.pollWith("workflow", `,"poll_request_id":"p"`+kinds)
			bound, _ := s.body["bound_task_kinds"].([]any)
			if s.status != 409 || s.text("reason") != "poll_request_task_kinds_conflict" ||
				s.text("poll_status") != "conflict" || len(bound) != 2 ||
				s.text("poll_request_id") != "p" || s.body["requested_task_kinds"] == nil || s.body["task"] != nil {
				t.Errorf("%s: %d %s", kinds, s.status, s.brief())
			}
		}
	})
	for _, kind := range []string{"activity", "query"} {
		if s := w.pollWith(kind, `,"poll_request_id":"p","timeout_seconds":0`); s.status != 200 ||
			s.text("poll_status") != "empty" {
			t.Errorf("a %s poll: %d %s", kind, s.status, s.brief())
		}
	}
	w.decide(flow, finish)
}

// The published Rust SDK ends its worker at any refusal of a poll that it does not know. A repeated poll whose task has
// ended is therefore a new poll.
func TestARustWorkerIsNotEndedByAnOldPoll(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	w := register(caller{t, a, ""}, "w", `,"sdk_version":"durable-workflow-rust/4.10.2"`)
	w.start("one")
	w.decide(taskOf(t, w.pollWith("workflow", `,"poll_request_id":"p"`)), finish)
	w.start("two")
	if task := taskOf(t, w.pollWith("workflow", `,"poll_request_id":"p"`)); task.text("workflow_id") != "two" {
		t.Errorf("the poll was given a task of %s", task.text("workflow_id"))
	}
}

// A poll for a kind of task that the worker cannot run returns at once and is not held.
func TestPollForAnUnregisteredTypeIsRejectedWithAReason(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, ""}
	c.want(201, "POST", "/api/worker/register", `{"worker_id":"none","task_queue":"`+handQueue+`"}`)
	w := register(c, "w", `,"max_concurrent_workflow_tasks":0`)
	none := hand{c, "none"}
	for _, p := range []struct {
		by           hand
		kind, status string
	}{
		{none, "workflow", "no_workflow_capability"},
		{none, "activity", "no_activity_capability"},
		{w, "workflow", "no_workflow_capability"},
	} {
		s := p.by.pollWith(p.kind, `,"timeout_seconds":60`)
		if s.status != 200 || s.text("poll_status") != p.status || s.body["task"] != nil {
			t.Errorf("%s of %s: %d %s", p.kind, p.by.id, s.status, s.brief())
		}
	}
	if s := w.pollWith("activity", `,"timeout_seconds":0`); s.text("poll_status") != "empty" {
		t.Errorf("the kind it has: %s", s.brief())
	}
}

// The response to a completion lists the created tasks in the order of its commands, and the workflow task that follows
// at once; a repeated completion gets the same list.
func TestACompletionListsTheTasksItMade(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		w := register(caller{t, a, ""}, "w", "")
		run := w.start("lists")
		flow := w.poll("workflow")
		w.want(202, "POST", "/api/workflows/lists/signal/go", `{}`)
		commands := []string{
			step, step, `{"type":"start_timer","delay_seconds":900}`, step, `{"type":"open_signal_wait","signal_name":"go"}`,
		}
		want := []any{run + "-1", run + "-2", run + "-4", run + "-2-workflow"}
		for range 2 {
			if got := w.decide(flow, commands...).body["created_task_ids"]; !reflect.DeepEqual(got, want) {
				t.Errorf("it lists %v, want %v", got, want)
			}
		}
		for range 3 {
			task := w.poll("activity")
			if !slices.Contains(want, any(task.text("task_id"))) {
				t.Errorf("the activity task %s is not among those listed", task.text("task_id"))
			}
		}
		next := w.poll("workflow")
		if next.text("task_id") != want[3] {
			t.Errorf("the next workflow task is %s", next.text("task_id"))
		}
		if got := w.decide(next, finish).body["created_task_ids"]; !reflect.DeepEqual(got, []any{}) {
			t.Errorf("the last completion lists %v", got)
		}
	})
}
