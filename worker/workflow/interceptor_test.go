package workflow_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// intercepted are names with interceptors. Functions are not registered.
type intercepted []workflow.Interceptor

func (intercepted) ActivityName(any) (string, error)       { return "", errors.New("none") }
func (intercepted) WorkflowName(any) (string, error)       { return "", errors.New("none") }
func (n intercepted) Interceptors() []workflow.Interceptor { return n }

// propagator passes the header "tenant" on to all commands.
type propagator struct{ workflow.InterceptorBase }

func (propagator) InterceptWorkflow(ctx workflow.Context, call *workflow.Call, next func(workflow.Context) error) {
	_ = next(workflow.WithHeaders(ctx, map[string]string{"tenant": call.Headers["tenant"]}))
}

// recorder records the calls that it sees.
type recorder struct {
	workflow.InterceptorBase
	name  string
	lines *[]string
}

func (r recorder) InterceptWorkflow(ctx workflow.Context, call *workflow.Call, next func(workflow.Context) error) {
	*r.lines = append(*r.lines, fmt.Sprintf("%s: %s %s of %s", r.name, call.Operation, call.Name, call.WorkflowID))
	err := next(ctx)
	*r.lines = append(*r.lines, fmt.Sprintf("%s: end of %s: %v", r.name, call.Name, err))
}

func (r recorder) InterceptCommand(_ workflow.Context, call *workflow.Call) {
	*r.lines = append(*r.lines, fmt.Sprintf("%s: %s %s%v", r.name, call.Operation, call.Name, call.Args))
	call.Headers["by"] += r.name
}

// observer does what interceptors may do.
type observer struct {
	workflow.InterceptorBase
	ids *[]string
}

func (o observer) InterceptWorkflow(ctx workflow.Context, call *workflow.Call, next func(workflow.Context) error) {
	workflow.Logger(ctx).Info("begin", "at", workflow.Now(ctx), "run", workflow.Info(ctx).RunID)
	if call.Operation != workflow.OpValidateUpdate && call.Operation != workflow.OpHandleQuery {
		*o.ids = append(*o.ids, workflow.NewID(ctx))
	}
	_ = next(workflow.WithValue(ctx, observer{}, call.Name))
}

func (o observer) InterceptCommand(ctx workflow.Context, call *workflow.Call) {
	*o.ids = append(*o.ids, workflow.NewID(ctx))
	call.Headers["id"] = workflow.NewID(ctx)
}

// everything is a workflow that issues all commands that interceptors see.
func everything(ctx workflow.Context) (string, error) {
	workflow.HandleUpdate(ctx, "u", func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(ctx, "in update").Get(ctx, nil)
	}, workflow.UpdateOptions{Validate: func(workflow.Context) error { return nil }})
	workflow.HandleQuery(ctx, "q", func(workflow.Context) (string, error) { return "answer", nil })
	if err := workflow.Signal(ctx, "go").Receive(ctx); err != nil {
		return "", err
	}
	if err := workflow.SignalWorkflow(ctx, "other", "paid", 1); err != nil {
		return "", err
	}
	workflow.StartChild(ctx, "ship", 2)
	if err := workflow.ExecuteActivity(ctx, "charge", workflow.NewID(ctx)).Get(ctx, nil); err != nil {
		return "", err
	}
	return workflow.NewID(ctx), workflow.ContinueAsNew(ctx)
}

// record runs everything with interceptors.
func record(t *testing.T, interceptors ...workflow.Interceptor) *app {
	t.Helper()
	a := startWithHeaders(t, everything, "acme")
	a.options.Names = intercepted(interceptors)
	a.drain(nil)
	a.decide(engine.AcceptUpdate{Name: "u", Headers: history.Headers{"tenant": "of the update"}})
	a.drain(nil)
	a.signal("go")
	a.drain(nil)
	for _, seq := range slices.Sorted(a.activities()) {
		a.complete(seq, "done")
		a.drain(nil)
	}
	if a.next == nil {
		t.Fatal("the run did not continue as new")
	}
	return a
}

// activities returns the numbers of the open activities.
func (a *app) activities() func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for seq := range a.run.Activities.All() {
			if !yield(seq) {
				return
			}
		}
	}
}

// Interceptors may be added, changed and removed while runs are open: histories of all of them replay with all of them,
// with the same arguments, which contain identifiers of the code.
func TestInterceptorsDoNotChangeTheCommands(t *testing.T) {
	var lines, ids []string
	sets := map[string][]workflow.Interceptor{
		"none": nil, "one": {propagator{}},
		"three": {recorder{name: "a", lines: &lines}, observer{ids: &ids}, propagator{}},
	}
	for recorded, with := range sets {
		a := record(t, with...)
		for replayed, set := range sets {
			err := replay.Events(a.def, replay.Options{Names: intercepted(set), CompareArguments: true}, a.events)
			if err != nil {
				t.Errorf("recorded with %s, replayed with %s: %v", recorded, replayed, err)
			}
		}
	}
}

// The first interceptor is the outermost. A replay calls the interceptors with the same identifiers again.
func TestInterceptorsSeeEveryCallInOrder(t *testing.T) {
	var lines, ids []string
	set := intercepted{recorder{name: "a", lines: &lines}, observer{ids: &ids}, recorder{name: "b", lines: &lines}}
	a := record(t, set...)
	headers := map[string]history.Headers{}
	for _, e := range a.events {
		switch d := e.Data.(type) {
		case *history.ActivityScheduled:
			headers[d.ActivityType] = d.Headers
		case *history.ChildWorkflowScheduled:
			headers["child"] = d.Headers
		}
	}
	headers["next run"] = a.next.Request.Headers
	for name, h := range headers {
		if h["by"] != "ab" || len(h["id"]) != 26 {
			t.Errorf("headers of %s: %v", name, h)
		}
	}
	if len(headers) != 4 {
		t.Errorf("commands with headers: %v", headers)
	}
	lines, ids = nil, nil
	o := replay.Options{Names: set}
	if err := replay.Events(a.def, o, a.events); err != nil {
		t.Fatal(err)
	}
	once := slices.Clone(ids)
	want(t, "calls", lines, []string{
		"a: execute_workflow flow of wf", "b: execute_workflow flow of wf",
		"a: handle_update u of wf", "b: handle_update u of wf",
		"a: schedule_activity in update[]", "b: schedule_activity in update[]",
		"a: receive_signal go of wf", "b: receive_signal go of wf", "b: end of go: <nil>", "a: end of go: <nil>",
		"a: signal_workflow paid[1]", "b: signal_workflow paid[1]",
		"a: start_child_workflow ship[2]", "b: start_child_workflow ship[2]",
		"a: schedule_activity charge" + chargeOf(t, a), "b: schedule_activity charge" + chargeOf(t, a),
		"b: end of u: <nil>", "a: end of u: <nil>",
		"a: continue_as_new flow[]", "b: continue_as_new flow[]",
		"b: end of flow: continue as new", "a: end of flow: continue as new",
	})
	ids = nil
	if err := replay.Events(a.def, o, a.events); err != nil {
		t.Fatal(err)
	}
	want(t, "identifiers", ids, once)
	if unique := slices.Compact(slices.Sorted(slices.Values(ids))); len(unique) != len(ids) {
		t.Errorf("identifiers are not unique: %q", ids)
	}

	lines = nil
	m := replay.New(a.def, replay.Options{Names: set, ForQueries: true})
	defer m.Close()
	if _, err := m.Apply(a.task(3), a.events[:3]); err != nil {
		t.Fatal(err)
	}
	lines = nil
	if _, err := m.Query("q", payload.Payload{}, nil); err != nil {
		t.Error(err)
	}
	if err := m.Validate("u", payload.Payload{}, nil); err != nil {
		t.Error(err)
	}
	want(t, "calls of questions", lines, []string{
		"a: handle_query q of wf", "b: handle_query q of wf", "b: end of q: <nil>", "a: end of q: <nil>",
		"a: validate_update u of wf", "b: validate_update u of wf", "b: end of u: <nil>", "a: end of u: <nil>",
	})
}

// chargeOf returns the arguments of the activity charge as a recorder prints them.
func chargeOf(t *testing.T, a *app) string {
	for _, e := range a.events {
		if d, ok := e.Data.(*history.ActivityScheduled); ok && d.ActivityType == "charge" {
			args, err := payload.Args(payload.Payload{Blob: d.Arguments})
			if err != nil {
				t.Fatal(err)
			}
			var id string
			if err := payload.Decode(args[0], &id); err != nil {
				t.Fatal(err)
			}
			return "[" + id + "]"
		}
	}
	t.Fatal("no activity charge")
	return ""
}

func TestThePropagatorPassesTheTenantOn(t *testing.T) {
	a := record(t, propagator{})
	got := map[string]string{"next run": a.next.Request.Headers["tenant"]}
	for _, e := range a.events {
		switch d := e.Data.(type) {
		case *history.ActivityScheduled:
			got[d.ActivityType] = d.Headers["tenant"]
		case *history.ChildWorkflowScheduled:
			got["child"] = d.Headers["tenant"]
		}
	}
	want(t, "tenants", got, map[string]string{
		"charge": "acme", "child": "acme", "next run": "acme", "in update": "of the update",
	})
}

// misuse calls a function where an interceptor must not.
type misuse struct {
	workflow.InterceptorBase
	around  func(ctx workflow.Context, next func(workflow.Context) error)
	command func(ctx workflow.Context, call *workflow.Call)
}

func (m misuse) InterceptWorkflow(ctx workflow.Context, _ *workflow.Call, next func(workflow.Context) error) {
	if m.around == nil {
		_ = next(ctx)
		return
	}
	m.around(ctx, next)
}

func (m misuse) InterceptCommand(ctx workflow.Context, call *workflow.Call) {
	if m.command != nil {
		m.command(ctx, call)
	}
}

// An interceptor that would change the commands of the workflow fails the task, which issues no command.
func TestAnInterceptorThatBreaksTheRulesFailsTheTask(t *testing.T) {
	for name, c := range map[string]struct {
		misuse
		want string
	}{
		"activity": {misuse{around: func(ctx workflow.Context, next func(workflow.Context) error) {
			workflow.ExecuteActivity(ctx, "audit")
			_ = next(ctx)
		}}, "read-only"},
		"sleep after the code": {misuse{around: func(ctx workflow.Context, next func(workflow.Context) error) {
			_ = next(ctx)
			_ = workflow.Sleep(ctx, time.Second)
		}}, "read-only"},
		"side effect in a command": {misuse{command: func(ctx workflow.Context, _ *workflow.Call) {
			_, _ = workflow.SideEffect(ctx, func() int { return 1 })
		}}, "read-only"},
		"next is not called": {misuse{around: func(workflow.Context, func(workflow.Context) error) {}}, "did not call next"},
		"next is called twice": {misuse{around: func(ctx workflow.Context, next func(workflow.Context) error) {
			_ = next(ctx)
			_ = next(ctx)
		}}, "called next twice"},
		"panic": {misuse{around: func(workflow.Context, func(workflow.Context) error) {
			panic("boom")
		}}, "boom"},
		"panic in a command": {misuse{command: func(workflow.Context, *workflow.Call) { panic("boom") }}, "boom"},
		"too many headers": {misuse{command: func(_ workflow.Context, call *workflow.Call) {
			call.Headers["big"] = strings.Repeat("v", 9000)
		}}, "interceptors set invalid headers"},
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, func(ctx workflow.Context) error {
				defer func() { _ = recover() }() // the code cannot hide what an interceptor did
				return workflow.ExecuteActivity(ctx, "charge").Get(ctx, nil)
			})
			task, _ := a.lease()
			m := replay.New(a.def, replay.Options{Names: intercepted{propagator{}, c.misuse}})
			defer m.Close()
			commands, err := m.Apply(task, task.Events)
			// the code waits first
			if err == nil && len(commands) == 1 && commands[0].Type == protocol.ScheduleActivity {
				a.answer(task.LastSequence, commands)
				a.complete(1, 1)
				task, _ = a.lease()
				commands, err = m.Apply(task, task.Events)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || len(commands) > 0 {
				t.Errorf("got %v, %v; want %q", commands, err, c.want)
			}
		})
	}
	t.Run("recovered panic", func(t *testing.T) {
		a := start(t, func(workflow.Context) error { panic("of the code") })
		task, _ := a.lease()
		m := replay.New(a.def, replay.Options{Names: intercepted{misuse{around: func(
			ctx workflow.Context, next func(workflow.Context) error,
		) {
			defer func() { _ = recover() }()
			_ = next(ctx)
		}}}})
		defer m.Close()
		if _, err := m.Apply(task, task.Events); err == nil || !strings.Contains(err.Error(), "recovered a panic") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("options of the context", func(t *testing.T) {
		a := start(t, func(ctx workflow.Context) error {
			return workflow.ExecuteActivity(ctx, "charge").Get(ctx, nil)
		})
		a.options.Names = intercepted{misuse{around: func(ctx workflow.Context, next func(workflow.Context) error) {
			_ = next(workflow.WithActivity(ctx, workflow.ActivityOptions{Queue: "elsewhere", Session: "s"}))
		}}}
		a.drain(nil)
		if c := a.batches[0].commands[0]; c.Queue != "" || c.SessionID != "" {
			t.Errorf("options of the interceptor reached the command: %+v", c)
		}
	})
}
