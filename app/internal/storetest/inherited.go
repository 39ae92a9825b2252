package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// continueAsNew completes the open workflow task of a run with these commands and a continue-as-new command, and
// returns the next run.
func (w *Fixture) continueAsNew(run, workflow string, commands ...protocol.Command) string {
	w.T.Helper()
	return w.Commit(goingOn(run, workflow, commands...)).(string)
}

func goingOn(run, workflow string, commands ...protocol.Command) store.Transaction {
	key := engine.WorkflowKey{Namespace: Namespace, ID: workflow}
	return store.Transaction{
		Needs: store.Keys{Runs: []string{run}, Chain: true, AllTasks: true},
		Decide: func(r store.Rows, now time.Time) (store.Writes, error) {
			from := r.Run(run).Fork().Leased(engine.Lessee{Worker: NewWorker("starter")}, now)
			d, err := engine.DecideRun(from, environment(r, from), engine.CompleteTask{
				Number: from.Tasks, Holder: engine.Holder{Owner: "starter", Delivery: from.Task.Delivery}, Hash: "h",
				Commands: append(commands, protocol.Command{Type: protocol.ContinueAsNew}),
			}, now)
			if err != nil {
				return store.Writes{}, err
			}
			next := engine.DecideStart(*d.Continue, now)
			flow := *r.Workflow(key)
			flow.RunID, flow.Runs = next.Next.ID, flow.Runs+1
			return store.Writes{Runs: []engine.Decision{d, next}, Workflows: []engine.Workflow{flow}, Answer: next.Next.ID}, nil
		},
	}
}

func childCommand(id, policy string) protocol.Command {
	return protocol.Command{
		Type: protocol.StartChildWorkflow, WorkflowType: "child", WorkflowID: id, ParentClosePolicy: policy,
	}
}

// inheritedOf lists the open children that earlier runs of a workflow ID started: ID, run number.
func (w *Fixture) inheritedOf(workflow string) string {
	w.T.Helper()
	out := ""
	w.View(func(r store.Reader) error {
		list, err := r.InheritedChildren(w.T.Context(), engine.WorkflowKey{Namespace: Namespace, ID: workflow}, 100)
		for _, f := range list {
			out += fmt.Sprintf("%s %d;", f.Child.WorkflowID, f.Number)
		}
		return err
	})
	return out
}

// childEndReport returns the change that reports the end of a child to its chain. The run from started the child with
// its command seq.
func childEndReport(current, from string, seq int64, child string, m engine.Message) store.Transaction {
	m.Kind, m.ToRun, m.ToSeq = engine.ChildEnded, from, seq
	return Step(current, engine.InheritedReport{Message: m, Child: child}, store.Keys{Inherited: []string{child}})
}

// testInherited: the open children of a run that continues as new are rows of the chain. They do not move, survive a
// restart, and are deleted when they end or when the last run ends.
func testInherited(t *testing.T, s Suite) {
	w := s.New(t)
	first := w.Begun("parent", childCommand("early", engine.Terminate), Activity("x", ""))
	if n := w.Run(first).Children.Len(); n != 1 {
		t.Fatalf("%d children are open, want 1", n)
	}
	w.Finish(w.One(protocol.KindActivity, w.Worker("a")))
	second := w.continueAsNew(first, "parent", childCommand("bound", engine.RequestCancel), childCommand("loose", ""))
	if got, want := w.inheritedOf("parent"), "bound 1;early 1;loose 1;"; got != want {
		t.Fatalf("the chain has %q, want %q", got, want)
	}
	if n := w.Run(second).Inherited; n != (engine.InheritedCount{Open: 3, Bound: 2}) {
		t.Fatalf("the run counts %+v", n)
	}
	before := w.S.Stats().Rows
	third := w.continueAsNew(second, "parent")
	moved := w.S.Stats().Rows - before
	other := w.Start("lonely")
	before = w.S.Stats().Rows
	w.continueAsNew(other, "lonely")
	if alone := w.S.Stats().Rows - before; moved != alone {
		t.Errorf("going on with three children of earlier runs takes %d rows, with none %d", moved, alone)
	}

	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	w = s.Fixture(t, "a", Options{})
	if n := w.Run(third).Inherited.Open; n != 3 {
		t.Fatalf("after the restart the run counts %d", n)
	}
	w.Commit(childEndReport(third, first, 1, "early", engine.Message{Run: "R", Number: 2, Status: protocol.RunContinued}))
	if _, err := w.S.Commit(t.Context(), childEndReport(third, second, 9, "bound", engine.Message{
		Run: "R", Number: 9, Status: protocol.RunCompleted,
	})); err == nil {
		t.Fatal("the end of a child of another start was taken")
	}
	if got, want := w.inheritedOf("parent"), "bound 1;early 2;loose 1;"; got != want {
		t.Fatalf("the chain has %q, want %q", got, want)
	}
	w.Commit(childEndReport(third, first, 1, "early", engine.Message{Run: "R", Number: 2, Status: protocol.RunCompleted}))
	if got, want := w.inheritedOf("parent"), "bound 1;loose 1;"; got != want {
		t.Fatalf("the chain has %q, want %q", got, want)
	}
	w.Do(third, engine.EndRun{})
	if run := w.Run(third); run.Undelivered.Len() != 1 || run.Inherited != (engine.InheritedCount{}) {
		t.Fatalf("the last run owes %d messages and counts %+v", run.Undelivered.Len(), run.Inherited)
	}
	if got := w.inheritedOf("parent"); got != "" {
		t.Fatalf("after the end of the chain there are %q", got)
	}
}

// testInheritedDropped: with a workflow the rows of its chain are deleted, and no others.
func testInheritedDropped(t *testing.T, s Suite) {
	w := s.New(t)
	flows := map[string]string{}
	for _, id := range []string{"one", "two"} {
		first := w.Start(id)
		flows[id] = w.continueAsNew(first, id, childCommand("child-of-"+id, ""))
	}
	runs := []string{flows["one"]}
	w.Commit(store.Transaction{Needs: store.Keys{
		Runs: runs, Chain: true,
	}, Decide: func(store.Rows, time.Time) (store.Writes, error) {
		return store.Writes{DropRuns: runs}, nil
	}})
	if one, two := w.inheritedOf("one"), w.inheritedOf("two"); one != "" || two != "child-of-two 1;" {
		t.Fatalf("the removed workflow has %q, the other %q", one, two)
	}
}

// testInheritedOverlay: changes of one batch see the rows as earlier changes of the batch left them.
func testInheritedOverlay(t *testing.T, s Suite) {
	w := s.New(t)
	first := w.Start("parent")
	key := engine.WorkflowKey{Namespace: Namespace, ID: "parent"}
	onCurrent := func(in func(run *engine.Run) engine.Input) store.Transaction {
		return store.Transaction{
			Needs: store.Keys{
				Workflows: []engine.WorkflowKey{key}, Current: true, Bound: true, Inherited: []string{"a", "b", "c"},
			},
			Decide: func(r store.Rows, now time.Time) (store.Writes, error) {
				run := r.Run(r.Workflow(key).RunID)
				d, err := engine.DecideRun(run, environment(r, run), in(run), now)
				return store.Writes{Runs: []engine.Decision{d}}, err
			},
		}
	}
	report := func(child string, seq int64) store.Transaction {
		return onCurrent(func(*engine.Run) engine.Input {
			return engine.InheritedReport{Child: child, Message: engine.Message{
				Kind: engine.ChildEnded, ToRun: first, ToSeq: seq, Run: "R", Number: 1, Status: protocol.RunCompleted,
			}}
		})
	}
	errs := w.together(
		goingOn(
			first, "parent", childCommand("a", engine.Terminate), childCommand("b", engine.Terminate), childCommand("c", ""),
		),
		report("a", 1), report("a", 1), report("c", 3),
	)
	for i, err := range errs {
		if want := i == 2; (err != nil) != want {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	if got := w.inheritedOf("parent"); got != "b 1;" {
		t.Fatalf("the chain has %q", got)
	}
	for i, err := range w.together(
		report("b", 1), // the end of a child from another start
		onCurrent(func(*engine.Run) engine.Input { return engine.EndRun{} }),
		report("b", 2),
	) {
		if want := i != 1; (err != nil) != want || errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	if got := w.inheritedOf("parent"); got != "" {
		t.Fatalf("after the end there are %q", got)
	}
}
