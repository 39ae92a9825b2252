package broker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func named(id, policy string) protocol.Command {
	c := child(policy)
	c.WorkflowID = id
	return c
}

func attach(id string) protocol.Command {
	return protocol.Command{Type: protocol.AttachChildWorkflow, WorkflowID: id}
}

var (
	goOn = protocol.Command{Type: protocol.ContinueAsNew}
	stay = protocol.Command{Type: protocol.OpenSignalWait, SignalName: "next"}
)

// chain starts a workflow whose first run starts the given children and continues as new. It returns the second run,
// which waits for a signal, and the first tasks of the children by workflow ID.
func (a *app) chain(workflow string, children ...protocol.Command) (second string, tasks map[string]*protocol.Task) {
	a.t.Helper()
	a.start(workflow)
	a.ok(a.decide(a.task("w", protocol.KindWorkflow, workflow), append(children, goOn)...))
	tasks = a.tasks(len(children) + 1)
	a.ok(a.decide(tasks[workflow], stay))
	return tasks[workflow].Workflow.RunID, tasks
}

// tasks leases n workflow tasks and returns them by workflow ID.
func (a *app) tasks(n int) map[string]*protocol.Task {
	a.t.Helper()
	m := map[string]*protocol.Task{}
	for len(m) < n {
		t := a.poll("w", protocol.KindWorkflow, 30)
		if t == nil {
			a.t.Fatalf("%d of %d tasks were dispatched", len(m), n)
		}
		m[t.Workflow.WorkflowID] = t
	}
	return m
}

func (a *app) ok(c protocol.CompleteResponse) {
	a.t.Helper()
	if c.Err != nil {
		a.t.Fatal(c.Err)
	}
}

// until polls a run until a condition is true, and returns the run.
func (a *app) until(run, what string, is func(*engine.Run) bool) *engine.Run {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*time.Minute)
	defer cancel()
	for {
		changed, stop := a.Dispatch().WatchRun(run)
		r := a.run(run)
		if is(r) {
			stop()
			return r
		}
		select {
		case <-changed:
			stop()
		case <-ctx.Done():
			stop()
			a.t.Fatalf("run %s: %s does not happen", run, what)
		}
	}
}

func TestChildrenGoByTheirPolicyWhenTheLastRunOfTheChainEnds(t *testing.T) {
	fail := protocol.Command{Type: protocol.FailWorkflow, Message: "enough"}
	for name, end := range map[string]func(a *app, task *protocol.Task){
		"completed": func(a *app, task *protocol.Task) { a.ok(a.decide(task, done())) },
		"failed":    func(a *app, task *protocol.Task) { a.ok(a.decide(task, fail)) },
		"cancelled": func(a *app, task *protocol.Task) {
			must[protocol.CommandReceipt](a.t)(a.Cancel(
				a.t.Context(), protocol.EndRequest{Target: protocol.Target{WorkflowID: "one"}},
			))
		},
		"terminated": func(a *app, task *protocol.Task) {
			must[protocol.CommandReceipt](a.t)(a.Terminate(
				a.t.Context(), protocol.EndRequest{Target: protocol.Target{WorkflowID: "one"}},
			))
		},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Databases(t, func(t *testing.T, database string) {
				a := on(t, database)
				a.register("w")
				second, kids := a.chain(
					"one", named("t", engine.Terminate), named("c", engine.RequestCancel), named("a", engine.Abandon),
				)
				must[protocol.CommandReceipt](t)(a.Signal(
					t.Context(), protocol.SignalRequest{Target: protocol.Target{WorkflowID: "one"}, SignalName: "next"},
				))
				a.ok(a.decide(a.task("w", protocol.KindWorkflow, "one"), goOn)) // another run of the chain
				task := a.task("w", protocol.KindWorkflow, "one")
				third := task.Workflow.RunID
				if v := a.view(protocol.Target{WorkflowID: "one"}); len(v.Pending.Children) != 3 ||
					v.Pending.Children[0].FormerRun == "" {
					t.Fatalf("open children: %+v", v.Pending.Children)
				}
				end(a, task)
				for id, want := range map[string]string{"t": "terminated", "c": "cancelled", "a": "running"} {
					if got := a.ended(kids[id].Workflow.RunID, want != "running").Status; got != want {
						t.Errorf("child %s is %s, want %s", id, got, want)
					}
				}
				if got := a.eventTypes(third); strings.Count(got, "ParentClosePolicyApplied") != 2 ||
					strings.Contains(got, "Child") &&
						strings.Contains(strings.ReplaceAll(got, "ParentClosePolicyApplied", ""), "Child") {
					t.Errorf("the last run's history: %s", got)
				}
				if got := a.eventTypes(second); strings.Contains(got, "Child") || strings.Contains(got, "Parent") {
					t.Errorf("the second run's history: %s", got)
				}
				a.ok(a.decide(kids["a"], done()))
				a.until(kids["a"].Workflow.RunID, "the delivery of its end", func(r *engine.Run) bool {
					return r.Undelivered.Len() == 0
				})
			})
		})
	}
}

func TestTheTimeoutOfTheLastRunEndsTheChildrenOfTheFirst(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		must[protocol.StartResponse](t)(a.Start(
			t.Context(), protocol.StartRequest{WorkflowID: "one", WorkflowType: "wf", RunTimeout: 2},
		))
		a.ok(a.decide(a.task("w", protocol.KindWorkflow, "one"), named("kid", engine.Terminate), goOn))
		kid := a.tasks(2)["kid"]
		if got := a.ended(kid.Workflow.RunID, true).Status; got != "terminated" {
			t.Fatalf("the child is %s", got)
		}
		if v := a.view(protocol.Target{WorkflowID: "one"}); *v.ClosedReason != "timed_out" || v.RunNumber != 2 {
			t.Fatalf("the parent: %+v", v)
		}
	})
}

func TestTheEndOfAChildOfAnEarlierRunIsDropped(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		continueAsNew := named("again", engine.Terminate)
		three := 3
		continueAsNew.RetryPolicy = &retry.Policy{MaxAttempts: &three}
		second, kids := a.chain("one", named("done", engine.Terminate), continueAsNew)
		before := a.run(second)

		a.ok(a.decide(kids["done"], done()))
		after := a.until(second, "the end of a child", func(r *engine.Run) bool { return r.Inherited.Open == 1 })
		if after.LastSeq != before.LastSeq || after.Tasks != before.Tasks || after.Task != nil {
			t.Fatalf("the end of the child added events: last event %d and task %d, before %d and %d", after.LastSeq, after.Tasks, before.LastSeq, before.Tasks)
		}

		// Another child fails, is retried and continues as new: its row is updated, and at the end of the chain its
		// latest run closes.
		a.ok(a.decide(kids["again"], protocol.Command{Type: protocol.FailWorkflow, Message: "broke"}))
		retried := a.task("w", protocol.KindWorkflow, "again")
		if retried.Workflow.RunNumber != 2 {
			t.Fatalf("after the failure: %+v", retried.Workflow)
		}
		a.ok(a.decide(retried, goOn))
		third := a.task("w", protocol.KindWorkflow, "again")
		a.until(second, "the third run of the child", func(*engine.Run) bool {
			p := a.view(protocol.Target{WorkflowID: "one"}).Pending.Children
			return len(p) == 1 && p[0].RunID == third.Workflow.RunID && p[0].Attempt == 2
		})
		must[protocol.CommandReceipt](t)(a.Cancel(
			t.Context(), protocol.EndRequest{Target: protocol.Target{WorkflowID: "one"}},
		))
		if got := a.ended(third.Workflow.RunID, true).Status; got != "terminated" {
			t.Fatalf("the child's latest run is %s", got)
		}
		if got := a.eventTypes(
			second,
		); got != "WorkflowStarted SignalWaitOpened CancelRequested ParentClosePolicyApplied WorkflowCancelled" {
			t.Fatalf("the parent's history: %s", got)
		}
	})
}

// ends returns how the attachments of a run ended, by workflow ID.
func (a *app) ends(run string) map[string]*history.AttachedChildEnded {
	a.t.Helper()
	h := must[protocol.HistoryPage](a.t)(a.History(
		a.t.Context(), protocol.HistoryQuery{Target: protocol.Target{RunID: run}},
	))
	m := map[string]*history.AttachedChildEnded{}
	for _, e := range h.Events {
		if d, ok := e.Data.(*history.AttachedChildEnded); ok {
			m[d.WorkflowID] = d
		}
	}
	return m
}

func TestARunAttachesToTheChildrenOfItsChain(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		run, kids := a.chain("one", named("open", engine.Terminate), named("ended", ""), named("broken", ""))
		a.ok(a.decide(kids["ended"], done()))
		a.ok(a.decide(kids["broken"], protocol.Command{Type: protocol.FailWorkflow, Message: "broke", ExceptionType: "Oops"}))
		a.until(run, "the ends of two children", func(r *engine.Run) bool { return r.Inherited.Open == 1 })
		a.start("stranger")
		a.ok(a.decide(a.task("w", protocol.KindWorkflow, "stranger"), stay))
		must[protocol.CommandReceipt](t)(a.Signal(
			t.Context(), protocol.SignalRequest{Target: protocol.Target{WorkflowID: "one"}, SignalName: "next"},
		))
		task := a.task("w", protocol.KindWorkflow, "one")
		a.ok(a.decide(task, attach("open"), attach("ended"), attach("broken"), attach("stranger"), attach("nobody")))

		task = a.task("w", protocol.KindWorkflow, "one")
		ends := a.ends(run)
		var value string
		if e := ends["ended"]; e == nil || e.ClosedReason != "completed" ||
			payload.Decode(payload.Payload{Blob: e.Result}, &value) != nil || value != "done" {
			t.Errorf("the child that had completed: %+v", e)
		}
		if e := ends["broken"]; e == nil || e.ClosedReason != "failed" || e.ExceptionType != "Oops" || e.Message != "broke" {
			t.Errorf("the child that had failed: %+v", e)
		}
		for _, id := range []string{"stranger", "nobody"} {
			if e := ends[id]; e == nil || e.ExceptionType != history.TypeChildNotFound {
				t.Errorf("%s: %+v", id, e)
			}
		}
		if ends["open"] != nil {
			t.Error("the open child has ended")
		}
		a.ok(a.decide(task, stay))
		if v := a.view(protocol.Target{WorkflowID: "one"}); len(v.Pending.Children) != 1 ||
			len(v.Pending.Children[0].Attached) != 1 || *v.WaitKind != "child" {
			t.Errorf("what is open: %+v, waits for %v", v.Pending.Children, v.WaitKind)
		}

		a.ok(a.decide(kids["open"], done()))
		task = a.task("w", protocol.KindWorkflow, "one")
		if e := a.ends(run)["open"]; e == nil || e.ClosedReason != "completed" ||
			*task.Workflow.EventType != "AttachedChildEnded" {
			t.Fatalf("the child that was open: %+v, task %+v", e, task.Workflow.Resume)
		}
	})
}

func TestAnIDThatIsTakenFailsTheChildAndNothingElse(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		taken := a.start("taken").RunID
		a.ok(a.decide(a.task("w", protocol.KindWorkflow, "taken"), stay))
		a.start("one")
		a.ok(a.decide(
			a.task("w", protocol.KindWorkflow, "one"), named("taken", engine.Terminate), named("free", ""), named("free", ""),
		))
		tasks := a.tasks(2)
		task := tasks["one"]
		h := must[protocol.HistoryPage](t)(a.History(
			t.Context(), protocol.HistoryQuery{Target: protocol.Target{RunID: task.Workflow.RunID}},
		))
		var failed []int64
		for _, e := range h.Events {
			if d, ok := e.Data.(*history.ChildRunFailed); ok && d.ExceptionType == history.TypeWorkflowIDTaken &&
				d.NonRetryable {
				failed = append(failed, d.Sequence)
			}
		}
		if len(failed) != 2 || failed[0] != 1 || failed[1] != 3 {
			t.Fatalf("children %v failed, want the first and the third", failed)
		}
		a.ok(a.decide(task, done()))
		if v := a.view(protocol.Target{RunID: taken}); v.Terminal || v.ParentRunID != nil {
			t.Fatalf("the run whose ID is in use: %+v", v)
		}
		if kid := tasks["free"]; kid == nil || kid.Workflow.RunNumber != 1 {
			t.Fatalf("the child's task: %+v", kid)
		}
		_, err := a.Start(t.Context(), protocol.StartRequest{WorkflowID: "free", WorkflowType: "wf"})
		if protocol.ReasonOf(err) != protocol.ReasonDuplicateStart {
			t.Fatalf("a start under the child's id: %v", err)
		}
	})
}

// With two apps, the parent continues as new at one app and closes at the other, and children start and close at both.
func TestAChainOfTwoAppsKeepsItsChildren(t *testing.T) {
	database := apptest.Postgres(t)
	a, b := on(t, database), on(t, database)
	a.register("w")
	b.register("v")
	second, kids := a.chain("one", named("t", engine.Terminate), named("x", engine.Terminate))
	x := kids["x"]
	b.ok(b.complete(protocol.CompleteItem{
		Kind: protocol.KindWorkflow, TaskID: x.Workflow.TaskID, Owner: x.Workflow.LeaseOwner, Attempt: x.Workflow.Attempt,
		Commands: []protocol.Command{done()},
	}))
	a.until(second, "the end of a child that ended at the other app", func(r *engine.Run) bool {
		return r.Inherited.Open == 1
	})
	must[protocol.CommandReceipt](t)(b.Signal(
		t.Context(), protocol.SignalRequest{Target: protocol.Target{WorkflowID: "one"}, SignalName: "next"},
	))
	task := b.task("v", protocol.KindWorkflow, "one")
	b.ok(b.decide(task, attach("t"), attach("x"), stay))
	if e := a.ends(second)["x"]; e == nil || e.ClosedReason != "completed" {
		t.Fatalf("the child that had ended: %+v", e)
	}
	must[protocol.CommandReceipt](t)(b.Terminate(
		t.Context(), protocol.EndRequest{Target: protocol.Target{WorkflowID: "one"}},
	))
	if got := a.ended(kids["t"].Workflow.RunID, true).Status; got != "terminated" {
		t.Fatalf("the child is %s", got)
	}
}

// A run of a chain requests the cancellation of a child that an earlier run started. The child then fails, and is not
// retried despite its policy.
func TestCancelRequestedChildOfTheChainIsNotRetried(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		kid := named("kid", engine.CancelByRequest)
		kid.RetryPolicy = &retry.Policy{MaxAttempts: new(3), BackoffSeconds: []int{0}}
		second, tasks := a.chain("parent", kid)
		signal := func() {
			t.Helper()
			must[protocol.CommandReceipt](t)(a.Signal(
				t.Context(), protocol.SignalRequest{Target: protocol.Target{WorkflowID: "parent"}, SignalName: "next"},
			))
		}
		signal()
		a.ok(a.decide(a.task("w", protocol.KindWorkflow, "parent"), attach("kid"), stay))
		signal()
		// Cancel in a separate workflow task, because the task that attached to the child had already loaded its row.
		a.ok(a.decide(
			a.task("w", protocol.KindWorkflow, "parent"), protocol.Command{Type: protocol.CancelChildWorkflow, Target: 2}, stay,
		))
		child := protocol.Target{RunID: tasks["kid"].Workflow.RunID}
		comes(t, "that it is asked", func() bool {
			return strings.Contains(a.eventTypes(child.RunID), "WorkflowCancellationRequested")
		})
		a.ok(a.decide(tasks["kid"], protocol.Command{Type: protocol.FailWorkflow, Message: "gave up"}))
		comes(t, "that its news arrived", func() bool { return a.run(child.RunID).Undelivered.Len() == 0 })
		if got := a.ends(second)["kid"]; got == nil || got.ClosedReason != "failed" || got.RunID != child.RunID {
			t.Errorf("the chain received %+v", got)
		}
	})
}
