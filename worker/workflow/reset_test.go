package workflow_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// runID returns an ID of the form of run IDs.
func runID(n int) string { return fmt.Sprintf("01ARZ3NDEKTSV4RRFFQ69G5F%02d", n) }

// startWithID is like start, with an ID of the form of run IDs.
func startWithID(t testing.TB, fn any) *app {
	t.Helper()
	return startRun(t, define(t, fn), engine.Start{
		RunID: runID(0), Number: 1,
		Request: protocol.StartRequest{Namespace: "default", WorkflowID: "wf", WorkflowType: "flow", TaskQueue: "default"},
	})
}

// reset returns an app with the run that continues the run of a from an event.
func (a *app) reset(event int64, runID string) *app {
	a.t.Helper()
	plan, err := engine.PrepareReset(&a.run.Head, a.events, engine.ResetPoint{Event: event}, false, runID, "")
	if err != nil {
		a.t.Fatal(err)
	}
	env := engine.Environment{Session: func(id string) *engine.Session {
		if s, ok := a.sessions[id]; ok {
			return &s
		}
		return nil
	}}
	for _, s := range a.sessions {
		if s.WorkflowID == "wf" && !s.Terminal {
			env.Chain = append(env.Chain, &s)
		}
	}
	was, next, err := plan.Decide(a.run, env, "", a.now)
	if err != nil {
		a.t.Fatal(err)
	}
	a.applyDecision(was)
	n := &app{t: a.t, def: a.def, sessions: a.sessions, now: a.now}
	n.applyDecision(next)
	n.begins = len(n.events)
	return n
}

// resetPoints returns the last events of the workflow tasks that left the run open.
func (a *app) resetPoints() (points []int64) {
	for i, e := range a.events {
		last := i == len(a.events)-1
		if e.TaskID != "" && !last && a.events[i+1].TaskID != e.TaskID {
			points = append(points, e.Seq)
		} else if e.TaskID != "" && last && a.run.Status.Open() {
			points = append(points, e.Seq)
		}
	}
	return points
}

// The copied history contains an event that arrived while the last copied task ran. The code that it wakes has run in
// the old run, too; in the new run it is new code and gets other identifiers. Copied code gets the same identifiers.
func TestAResetRunGetsNewIdentifiersAfterThePoint(t *testing.T) {
	var first, second []string
	a := startWithID(t, func(ctx workflow.Context) error {
		one, two := workflow.ExecuteActivity(ctx, "one"), workflow.ExecuteActivity(ctx, "two")
		if err := one.Get(ctx, nil); err != nil {
			return err
		}
		first = append(first, workflow.NewID(ctx))
		if err := workflow.UpsertMemo(ctx, map[string]any{"n": 1}); err != nil {
			return err
		}
		if err := two.Get(ctx, nil); err != nil {
			return err
		}
		second = append(second, workflow.NewID(ctx))
		_, err := workflow.Execute[int](ctx, "three")
		return err
	})
	a.drain(nil)
	a.complete(1, 1)
	task, _ := a.lease()
	a.complete(2, 2) // arrives while the task runs
	m := replay.New(a.def, a.options)
	commands, err := m.Apply(task, a.events[:task.LastSequence])
	m.Close()
	if err != nil {
		t.Fatal(err)
	}
	a.answer(task.LastSequence, commands)
	point := int64(len(a.events))
	a.drain(nil)
	n := a.reset(point, runID(1))
	if _, open := n.run.Activities.Get(2); open {
		t.Error("the activity that completed before the point is open")
	}
	n.drain(nil)
	n.complete(4, 3)
	n.drain(nil)
	n.replays()
	if slices.Max(first) != slices.Min(first) {
		t.Errorf("copied code got the identifiers %v", first)
	}
	if second[0] == second[len(second)-1] {
		t.Errorf("code after the point got the identifiers %v", second)
	}
}

// An update arrives while the last copied task runs, and the old run answers it afterwards. The new run contains the
// same answer, and its code does not run the handler. It handles a new update.
func TestAnUpdateThatTheOldRunAnsweredIsNotHandledAgain(t *testing.T) {
	a := startWithID(t, func(ctx workflow.Context) (items []string, err error) {
		workflow.HandleUpdate(ctx, "add", func(_ workflow.Context, item string) (int, error) {
			items = append(items, item)
			return len(items), nil
		})
		for _, name := range []string{"one", "two"} {
			if _, err := workflow.Execute[int](ctx, name); err != nil {
				return nil, err
			}
		}
		return items, nil
	})
	a.drain(nil)
	a.complete(1, 1)
	task, _ := a.lease()
	id := a.update("add", "first")
	a.answer(task.LastSequence, a.commandsAt(int(task.LastSequence)))
	point := int64(len(a.events))
	a.drain(nil)
	n := a.reset(point, runID(1))
	want(t, "result in the new run", n.answered(id).Result, a.answered(id).Result)
	n.update("add", "second")
	n.drain(nil)
	n.complete(2, 2)
	n.drain(nil)
	want(t, "output", n.output(), any([]any{"second"}))
	n.replays()
}

// Random programs are reset at random points up to three times, while they run or after they have ended, and then
// complete. The copied histories fit the code, and the recorded results stay the same.
func TestRandomProgramsAreReset(t *testing.T) {
	resets := 0
	rapid.Check(t, func(rt *rapid.T) {
		program := programs(1).Draw(rt, "program")
		a := startWithID(t, func(ctx workflow.Context) (string, error) {
			st := &state{}
			workflow.HandleUpdate(ctx, "update", st.updated)
			st.run(ctx, program)
			n, err := workflow.Execute[int](ctx, "last")
			st.say(ctx, "last %d %v", n, err)
			return "", nil
		})
		cancelled := true
		for i := range rapid.IntRange(1, 3).Draw(rt, "resets") {
			runToEnd(rt, a, &cancelled)
			points := a.resetPoints()
			if len(points) == 0 {
				return
			}
			point := rapid.SampledFrom(points).Draw(rt, "point")
			if openChildAt(a, point) {
				return // the decision needs the runs of the children
			}
			before := a.events
			a = a.reset(point, runID(i+1))
			resets++
			for k := range point {
				was, is := before[k], a.events[k]
				if was.Type() != is.Type() || !was.At.Equal(is.At.Time) || was.TaskID != is.TaskID {
					rt.Fatalf("event %d is %s, a copy of %s", k+1, is.Type(), was.Type())
				}
			}
		}
		runToEnd(rt, a, &cancelled)
		regroup(rt, a)
	})
	if resets < 50 {
		t.Errorf("only %d resets", resets)
	}
}

// openChildAt reports whether a child was open when the closed run of a ended, but not before the event.
func openChildAt(a *app, event int64) bool {
	open := map[int64]bool{}
	for _, e := range a.events {
		switch d := e.Data.(type) {
		case *history.ChildWorkflowScheduled:
			if e.Seq <= event {
				open[d.Sequence] = true
			}
		case *history.ChildRunCompleted:
			delete(open, d.Sequence)
		case *history.ChildRunFailed:
			delete(open, d.Sequence)
		case *history.ChildRunCancelled:
			delete(open, d.Sequence)
		case *history.ChildRunTerminated:
			delete(open, d.Sequence)
		}
	}
	return len(open) > 0
}
