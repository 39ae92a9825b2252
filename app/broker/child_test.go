package broker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func child(policy string) protocol.Command {
	return protocol.Command{Type: protocol.StartChildWorkflow, WorkflowType: "wf", ParentClosePolicy: policy}
}

// family starts a run with these children and returns the first task of each child, in order.
func (a *app) family(workflow string, children ...protocol.Command) []*protocol.Task {
	a.t.Helper()
	a.start(workflow)
	if c := a.decide(a.poll("w", protocol.KindWorkflow, 5), children...); c.Err != nil {
		a.t.Fatal(c.Err)
	}
	tasks := make([]*protocol.Task, len(children))
	for range children {
		t := a.poll("w", protocol.KindWorkflow, 5)
		run, seq, ok := engine.ParseStepID(t.Workflow.WorkflowID)
		if !ok || run == t.Workflow.RunID || seq > int64(len(children)) {
			a.t.Fatalf("workflow id of a child: %s of run %s", t.Workflow.WorkflowID, t.Workflow.RunID)
		}
		tasks[seq-1] = t
	}
	return tasks
}

func (a *app) view(t protocol.Target) protocol.RunView {
	a.t.Helper()
	return must[protocol.RunView](a.t)(a.Describe(a.t.Context(), t))
}

// eventTypes returns the types of a run's events, separated by spaces.
func (a *app) eventTypes(run string) string {
	a.t.Helper()
	h := must[protocol.HistoryPage](a.t)(a.History(
		a.t.Context(), protocol.HistoryQuery{Target: protocol.Target{RunID: run}},
	))
	var types []string
	for _, e := range h.Events {
		types = append(types, e.Type())
	}
	return strings.Join(types, " ")
}

func TestAChildReportsToItsParent(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		retried := child("")
		three := 3
		retried.RetryPolicy = &retry.Policy{MaxAttempts: &three}
		kids := a.family("one", child(""), retried)
		parent := a.view(protocol.Target{WorkflowID: "one"})
		if len(parent.Pending.Children) != 2 ||
			*a.view(protocol.Target{RunID: kids[0].Workflow.RunID}).ParentRunID != parent.RunID {
			t.Fatalf("parent: %+v", parent.Pending)
		}

		if c := a.decide(kids[0], done()); c.Err != nil {
			t.Fatal(c.Err)
		}
		task := a.poll("w", protocol.KindWorkflow, 20)
		if task == nil || task.Workflow.RunID != parent.RunID || task.Workflow.ChildCallID == nil ||
			*task.Workflow.ChildCallID != kids[0].Workflow.WorkflowID || *task.Workflow.ChildRunID != kids[0].Workflow.RunID {
			t.Fatalf("the parent's task: %+v", task)
		}
		if c := a.decide(task, protocol.Command{Type: protocol.OpenSignalWait, SignalName: "never"}); c.Err != nil {
			t.Fatal(c.Err)
		}

		// The second child fails, is retried, continues as new and completes: the parent gets one result.
		if c := a.decide(kids[1], protocol.Command{Type: protocol.FailWorkflow, Message: "broke"}); c.Err != nil {
			t.Fatal(c.Err)
		}
		second := a.poll("w", protocol.KindWorkflow, 20)
		if second.Workflow.WorkflowID != kids[1].Workflow.WorkflowID || second.Workflow.RunID == kids[1].Workflow.RunID ||
			second.Workflow.RunNumber != 2 {
			t.Fatalf("after the failure: %+v", second.Workflow)
		}
		if c := a.decide(second, protocol.Command{Type: protocol.ContinueAsNew}); c.Err != nil {
			t.Fatal(c.Err)
		}
		third := a.poll("w", protocol.KindWorkflow, 20)
		if c := a.decide(third, done()); c.Err != nil || third.Workflow.RunNumber != 3 {
			t.Fatal(third.Workflow, c.Err)
		}
		task = a.poll("w", protocol.KindWorkflow, 20)
		if task == nil || *task.Workflow.ChildRunID != third.Workflow.RunID {
			t.Fatalf("the parent's task: %+v", task)
		}
		const want = "WorkflowStarted ChildWorkflowScheduled ChildRunStarted ChildWorkflowScheduled ChildRunStarted ChildRunCompleted" +
			" SignalWaitOpened ChildRunStarted ChildRunStarted ChildRunCompleted"
		if got := a.eventTypes(parent.RunID); got != want {
			t.Fatalf("the parent's history\n%s\nwant\n%s", got, want)
		}
	})
}

func TestChildrenGoByTheirPolicyWhenTheParentCloses(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		kids := a.family(
			"one", child(engine.Abandon), child(engine.RequestCancel), child(engine.Terminate), child(engine.CancelByRequest),
		)
		if c := a.decide(kids[3], condition("never")); c.Err != nil {
			t.Fatal(c.Err)
		}
		parent := a.view(protocol.Target{WorkflowID: "one"}).RunID
		if _, err := a.Cancel(t.Context(), protocol.EndRequest{Target: protocol.Target{WorkflowID: "one"}}); err != nil {
			t.Fatal(err)
		}
		task := a.poll("w", protocol.KindWorkflow, 20) // the code of the fourth child is asked to cancel
		if task == nil || task.Workflow.RunID != kids[3].Workflow.RunID || *task.Workflow.SourceKind != "cancellation" {
			t.Fatalf("task of the child whose cancellation was requested: %+v", task)
		}
		for i, want := range []string{"running", "cancelled", "terminated", "running"} {
			if got := a.ended(kids[i].Workflow.RunID, want != "running").Status; got != want {
				t.Errorf("child %d is %s, want %s", i+1, got, want)
			}
		}
		if c := a.decide(kids[0], done()); c.Err != nil {
			t.Fatalf("an abandoned child goes on: %v", c.Err)
		}
		if got := a.eventTypes(parent); strings.Count(got, "ParentClosePolicyApplied") != 3 ||
			!strings.HasSuffix(got, "WorkflowCancelled") {
			t.Fatalf("the parent's history: %s", got)
		}
		if owed := a.run(parent).Undelivered.Len(); owed != 0 {
			t.Fatalf("the parent still owes %d messages", owed)
		}
	})
}

// ended returns the description of a run. With closes, it first waits until the run is closed.
func (a *app) ended(run string, closes bool) protocol.RunView {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*time.Minute)
	defer cancel()
	changed, stop := a.Dispatch().WatchRun(run)
	defer stop()
	for {
		v := a.view(protocol.Target{RunID: run})
		if v.Terminal || !closes {
			return v
		}
		select {
		case <-changed:
		case <-ctx.Done():
			a.t.Fatalf("run %s is still %s", run, v.Status)
		}
	}
}

func (a *app) run(id string) (run *engine.Run) {
	a.t.Helper()
	err := a.store.View(a.t.Context(), func(r store.Reader) (err error) {
		run, err = r.Run(a.t.Context(), id)
		return err
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return run
}

func TestCancelledChildReportsToItsParent(t *testing.T) {
	a := newApp(t)
	a.register("w")
	kids := a.family("one", child(""))
	if _, err := a.Terminate(t.Context(), protocol.EndRequest{
		Target: protocol.Target{WorkflowID: kids[0].Workflow.WorkflowID},
	}); err != nil {
		t.Fatal(err)
	}
	task := a.poll("w", protocol.KindWorkflow, 20)
	if task == nil || task.Workflow.ChildCallID == nil || *task.Workflow.EventType != "ChildRunTerminated" {
		t.Fatalf("the parent's task: %+v", task)
	}
	if c := a.decide(task, child(""), protocol.Command{Type: protocol.OpenSignalWait, SignalName: "stop"}); c.Err != nil {
		t.Fatal(c.Err)
	}
	second := a.poll("w", protocol.KindWorkflow, 20)
	if _, err := a.Signal(t.Context(), protocol.SignalRequest{
		Target: protocol.Target{WorkflowID: "one"}, SignalName: "stop",
	}); err != nil {
		t.Fatal(err)
	}
	task = a.poll("w", protocol.KindWorkflow, 20)
	if c := a.decide(task, protocol.Command{Type: protocol.CancelChildWorkflow, Target: 2}); c.Err != nil {
		t.Fatal(c.Err)
	}
	task = a.poll("w", protocol.KindWorkflow, 20)
	if task == nil || *task.Workflow.EventType != "ChildRunCancelled" ||
		*task.Workflow.ChildRunID != second.Workflow.RunID {
		t.Fatalf("the parent's task: %+v", task)
	}
	_, err := a.Start(t.Context(), protocol.StartRequest{WorkflowID: second.Workflow.WorkflowID, WorkflowType: "wf"})
	if protocol.ReasonOf(err) != protocol.ReasonValidation {
		t.Fatalf("a start under a child's id: %v", err)
	}
}
