package broker_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func condition(key string) protocol.Command {
	return protocol.Command{Type: protocol.OpenConditionWait, ConditionKey: key}
}

func answer(id string, v any) protocol.Command {
	p, _ := payload.Encode(v)
	return protocol.Command{Type: protocol.CompleteUpdate, UpdateID: id, Result: p}
}

// parked starts a run that waits for a condition.
func (a *app) parked(workflow string) {
	a.t.Helper()
	a.start(workflow)
	if c := a.decide(a.poll("w", protocol.KindWorkflow, 5), condition("ready")); c.Err != nil {
		a.t.Fatal(c.Err)
	}
}

func (a *app) update(in protocol.UpdateRequest) protocol.UpdateResponse {
	a.t.Helper()
	return must[protocol.UpdateResponse](a.t)(a.Update(a.t.Context(), in))
}

// sent sends an update in the background and returns a channel with its response.
func (a *app) sent(in protocol.UpdateRequest) <-chan protocol.UpdateResponse {
	done := make(chan protocol.UpdateResponse, 1)
	go func() {
		got, err := a.Update(a.t.Context(), in)
		if err != nil {
			a.t.Error(err)
		}
		done <- got
	}()
	return done
}

func set(workflow, wait string) protocol.UpdateRequest {
	return protocol.UpdateRequest{
		Target: protocol.Target{WorkflowID: workflow}, UpdateName: "set", Input: []byte(`[1]`), WaitFor: wait,
		RequestID: "r1",
	}
}

func TestWorkflowContinuesAfterAnUpdate(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		a.parked("one")
		if v := a.view(protocol.Target{WorkflowID: "one"}); *v.WaitKind != "condition" ||
			!strings.Contains(*v.WaitReason, `condition "ready"`) {
			t.Fatalf("waits for %s: %s", *v.WaitKind, *v.WaitReason)
		}
		waiting := a.sent(set("one", "completed"))
		task := a.poll("w", protocol.KindWorkflow, 20)
		if task == nil || task.Workflow.UpdateID == nil || *task.Workflow.SourceKind != "workflow_update" ||
			*task.Workflow.WaitKind != "update" {
			t.Fatalf("task of the update: %+v", task)
		}
		id := *task.Workflow.UpdateID
		if c := a.decide(task, answer(id, 7)); c.Err != nil {
			t.Fatal(c.Err)
		}
		got := <-waiting
		if command := task.Workflow.CommandID; command == nil || *command != got.CommandID {
			t.Errorf("workflow_command_id of the task is %v, command_id of the response %s", command, got.CommandID)
		}
		if got.UpdateID != id || got.UpdateStatus != "completed" || got.Outcome != "update_completed" ||
			string(got.Result) != "7" || got.WaitTimedOut ||
			got.AcceptedAt.IsZero() || got.ClosedAt.Before(got.AcceptedAt.Time) || got.Sequence == nil || *got.Sequence != 2 {
			t.Fatalf("answer: %+v", got)
		}
		second := a.update(set("one", "accepted"))
		if second.UpdateID != id || !second.Retained || string(second.Result) != "7" {
			t.Fatalf("the repeated request: %+v", second)
		}
		other := set("one", "accepted")
		other.Input = []byte(`[2]`)
		if _, err := a.Update(t.Context(), other); protocol.ReasonOf(err) != protocol.ReasonRequestConflict {
			t.Fatalf("another request under the same id: %v", err)
		}
		next := a.poll("w", protocol.KindWorkflow, 20)
		if next == nil || next.Workflow.UpdateID != nil || next.Workflow.ConditionWaitID == nil ||
			*next.Workflow.ConditionKey != "ready" {
			t.Fatalf("task behind the update: %+v", next)
		}
		if c := a.decide(next, done()); c.Err != nil || c.RunStatus != "completed" {
			t.Fatalf("end: %+v", c)
		}
	})
}

func TestUpdateFailsWithItsRunOrContinuesInTheNext(t *testing.T) {
	a := newApp(t)
	a.register("w")
	a.parked("one")
	one := int64(1)
	in := set("one", "completed")
	in.WaitTimeout = &one
	if got := a.update(in); got.UpdateStatus != "accepted" || !got.WaitTimedOut || got.Outcome != "update_accepted" {
		t.Fatalf("without a worker: %+v", got)
	}
	done := a.sent(set("one", "completed"))
	if _, err := a.Cancel(t.Context(), protocol.EndRequest{
		Target: protocol.Target{WorkflowID: "one"}, Reason: "enough",
	}); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.UpdateStatus != "failed" || got.Failure == nil || got.Failure.Category != "run_closed" {
		t.Fatalf("the run was cancelled: %+v", got)
	}

	a.start("two")
	first := a.poll("w", protocol.KindWorkflow, 5)
	accepted := a.update(set("two", ""))
	done = a.sent(set("two", "completed"))
	if c := a.decide(first, protocol.Command{Type: protocol.ContinueAsNew}); c.Err != nil {
		t.Fatal(c.Err)
	}
	if c := a.decide(a.poll("w", protocol.KindWorkflow, 5), condition("ready")); c.Err != nil {
		t.Fatal(c.Err)
	}
	task := a.poll("w", protocol.KindWorkflow, 5)
	if c := a.decide(task, answer(accepted.UpdateID, "yes")); c.Err != nil {
		t.Fatal(c.Err)
	}
	if got = <-done; string(got.Result) != `"yes"` || got.RunID != task.Workflow.RunID || got.RunID == accepted.RunID {
		t.Fatalf("carried over: %+v", got)
	}
}

func TestUnknownUpdateIsRejected(t *testing.T) {
	a := newApp(t)
	must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
		WorkerID: "w", TaskQueue: "default", WorkflowTypes: []string{"wf"},
		Contracts: []byte(`{"wf":{"updates":["set"],"queries":[{"name":"state"}]}}`),
	}))
	a.start("one")
	in := set("one", "")
	in.UpdateName = "other"
	if _, err := a.Update(t.Context(), in); protocol.ReasonOf(err) != protocol.ReasonUnknownUpdate {
		t.Fatalf("an update the workflow does not have: %v", err)
	}
	a.update(set("one", ""))
}
