package broker_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// app is a complete app for a test. Its methods fail the test if a request fails.
type app struct {
	*broker.Broker
	*view.View
	store store.Store
	t     testing.TB
}

func newApp(t testing.TB) *app { return on(t, "") }

func on(t testing.TB, database string) *app {
	a := apptest.Start(t, apptest.Options{Database: database})
	return &app{a.Broker(), a.View(), a.Store(), t}
}

// twoApps starts two apps on one database. On SQLite, which only one app can open, b is a.
func twoApps(t testing.TB, database string) (a, b *app) {
	a = on(t, database)
	if strings.HasPrefix(database, "sqlite:") {
		return a, a
	}
	return a, on(t, database)
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (a *app) register(id string, caps ...string) {
	a.t.Helper()
	caps = append(caps, broker.CapSessions)
	must[protocol.RegisterResponse](a.t)(a.Register(a.t.Context(), protocol.RegisterRequest{
		WorkerID: id, TaskQueue: "default", WorkflowTypes: []string{"wf"}, AnyActivity: true, Capabilities: caps,
	}))
}

func (a *app) start(id string) protocol.StartResponse {
	a.t.Helper()
	return must[protocol.StartResponse](a.t)(a.Start(a.t.Context(), protocol.StartRequest{
		WorkflowID: id, WorkflowType: "wf", Input: []byte(`["x"]`),
	}))
}

func (a *app) poll(worker string, kind protocol.TaskKind, wait int64) *protocol.Task {
	a.t.Helper()
	p := must[protocol.PollResponse](a.t)(a.Poll(
		a.t.Context(), protocol.PollRequest{WorkerID: worker, Kinds: []protocol.TaskKind{kind}, Timeout: &wait},
	))
	if len(p.Tasks) == 0 {
		return nil
	}
	return &p.Tasks[0]
}

func (a *app) pollBoth(worker string, kinds []protocol.TaskKind) []protocol.Task {
	a.t.Helper()
	none := int64(0)
	p := must[protocol.PollResponse](a.t)(a.Poll(
		a.t.Context(), protocol.PollRequest{WorkerID: worker, Kinds: kinds, Timeout: &none},
	))
	return p.Tasks
}

func (a *app) decide(t *protocol.Task, commands ...protocol.Command) protocol.CompleteResponse {
	a.t.Helper()
	return a.complete(protocol.CompleteItem{
		Kind: protocol.KindWorkflow, TaskID: t.Workflow.TaskID, Owner: t.Workflow.LeaseOwner, Attempt: t.Workflow.Attempt,
		Commands: commands,
	})
}

func (a *app) result(t *protocol.Task, v any) protocol.CompleteResponse {
	a.t.Helper()
	p, err := payload.Encode(v)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.complete(protocol.CompleteItem{
		Kind: protocol.KindActivity, TaskID: t.Activity.TaskID, Owner: t.Activity.LeaseOwner, AttemptID: t.Activity.AttemptID,
		Result: p,
	})
}

func (a *app) complete(item protocol.CompleteItem) protocol.CompleteResponse {
	a.t.Helper()
	out := must[protocol.CompleteBatchResponse](a.t)(a.Complete(
		a.t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{item}},
	))
	return out.Items[0]
}

func greet() protocol.Command {
	p, _ := payload.EncodeArgs("Ada")
	return protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "greet", Arguments: p}
}

func done() protocol.Command {
	p, _ := payload.Encode("done")
	return protocol.Command{Type: protocol.CompleteWorkflow, Result: p}
}

func TestARunFromStartToResult(t *testing.T) {
	a := newApp(t)
	a.register("w")
	run := a.start("one")
	wf := a.poll("w", protocol.KindWorkflow, 5)
	if wf == nil || wf.Workflow.RunID != run.RunID || len(wf.Workflow.Events) != 1 || wf.Workflow.Arguments.Blob == "" {
		t.Fatalf("first task: %+v", wf)
	}
	if c := a.decide(wf, greet()); c.Err != nil || !c.Recorded || c.RunStatus != "waiting" {
		t.Fatalf("decision: %+v", c)
	}
	act := a.poll("w", protocol.KindActivity, 5)
	var name string
	if act == nil || payload.DecodeArgs(act.Activity.Arguments, &name) != nil || name != "Ada" {
		t.Fatalf("activity: %+v", act)
	}
	if c := a.result(act, "hello Ada"); c.Err != nil || !c.Recorded {
		t.Fatalf("result: %+v", c)
	}
	if c := a.result(act, "hello Ada"); c.Recorded || c.Reason == nil || *c.Reason != "already_completed" {
		t.Fatalf("the repeated result: %+v", c)
	}
	if c := a.result(act, "other"); protocol.ReasonOf(c.Err) != protocol.ReasonStaleAttempt {
		t.Fatalf("another result: %+v", c)
	}
	wf = a.poll("w", protocol.KindWorkflow, 5)
	if n := len(wf.Workflow.Events); n != 3 {
		t.Fatalf("the second task has %d events", n)
	}
	if c := a.decide(wf, done()); c.Err != nil || c.RunStatus != "completed" {
		t.Fatalf("decision: %+v", c)
	}
	v := must[protocol.RunView](t)(a.Describe(t.Context(), protocol.Target{WorkflowID: "one"}))
	if v.Status != "completed" || string(v.Output) != `"done"` || string(v.Input) != `["x"]` {
		t.Fatalf("run: %+v", v)
	}
}

// While a worker polls, a workflow of sequential activities takes at most two commits per activity.
func TestAStepCostsTwoCommits(t *testing.T) {
	a := newApp(t)
	a.register("w")
	const steps = 20
	both := []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity}
	if got := a.pollBoth("w", both); len(got) > 0 { // from here on the app knows that no tasks wait
		t.Fatalf("before anything was started: %+v", got)
	}
	a.start("chain")
	wf := a.poll("w", protocol.KindWorkflow, 5)
	before := a.store.Stats()
	task := *wf
	for range steps {
		next := &protocol.PollRequest{WorkerID: "w", Kinds: both, Max: 1}
		out := must[protocol.CompleteBatchResponse](
			t,
		)(a.Complete(t.Context(), protocol.CompleteRequest{Next: next, Items: []protocol.CompleteItem{{
			Kind: protocol.KindWorkflow, TaskID: task.Workflow.TaskID, Owner: "w", Attempt: task.Workflow.Attempt,
			Commands: []protocol.Command{greet()},
		}}}))
		if out.Next == nil || len(out.Next.Tasks) != 1 || out.Next.Tasks[0].Activity == nil {
			t.Fatalf("after the decision: %+v %+v", out.Items, out.Next)
		}
		act := out.Next.Tasks[0].Activity
		out = must[protocol.CompleteBatchResponse](
			t,
		)(a.Complete(t.Context(), protocol.CompleteRequest{Next: next, Items: []protocol.CompleteItem{{
			Kind: protocol.KindActivity, TaskID: act.TaskID, Owner: "w", AttemptID: act.AttemptID,
		}}}))
		if out.Next == nil || len(out.Next.Tasks) != 1 || out.Next.Tasks[0].Workflow == nil {
			t.Fatalf("after the result: %+v %+v", out.Items, out.Next)
		}
		task = out.Next.Tasks[0]
	}
	after := a.store.Stats()
	if commits := after.Commits - before.Commits; commits > 2*steps {
		t.Errorf("%d activities took %d commits", steps, commits)
	}
	// The sweeper, which looks for rows that are due, reads a few times on a busy machine.
	if reads := after.Reads - before.Reads; reads > steps/4 {
		t.Errorf("%d activities took %d reads outside the batches", steps, reads)
	}
	t.Logf("dispatch: %+v", a.Dispatch().Counts())
	t.Logf(
		"per activity: %.1f statements, %.1f rows", float64(after.Statements-before.Statements)/steps,
		float64(after.Rows-before.Rows)/steps,
	)
}
