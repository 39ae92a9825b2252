package workflow_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// once applies the first workflow task of a new run and returns the commands or the error.
func once(t *testing.T, fn any, args ...any) ([]protocol.Command, error) {
	t.Helper()
	a := start(t, fn, args...)
	m := replay.New(a.def, a.options)
	defer m.Close()
	return m.Apply(a.task(1), a.events)
}

func TestPanicFailsTheTaskWithItsStack(t *testing.T) {
	for name, fn := range map[string]any{
		"in the workflow": func(workflow.Context) error { var m map[int]int; m[1] = 1; return nil },
		"in a branch": func(ctx workflow.Context) error {
			workflow.Go(ctx, func(workflow.Context) { var m map[int]int; m[1] = 1 })
			return workflow.Sleep(ctx, time.Hour)
		},
	} {
		commands, err := once(t, fn)
		panicked, ok := errors.AsType[*workflow.PanicError](err)
		if !ok || commands != nil {
			t.Fatalf("%s: got %v, %v", name, commands, err)
		}
		f := replay.TaskFailure(err)
		if f.Type != "WorkflowPanic" || !strings.Contains(f.StackTrace, "code_test.go") ||
			!strings.Contains(f.Message, "nil map") {
			t.Errorf("%s: got %+v", name, f)
		}
		if _, ok := panicked.Value.(runtime.Error); !ok {
			t.Errorf("%s: value %v", name, panicked.Value)
		}
	}
}

func TestSideEffectThatCallsTheWorkflowIsRefused(t *testing.T) {
	_, err := once(t, func(ctx workflow.Context) error {
		_, err := workflow.SideEffect(ctx, func() string { return workflow.NewID(ctx) })
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "side effect must not call") {
		t.Errorf("got %v", err)
	}
}

func TestGoexitInWorkflowCodeFailsTheTask(t *testing.T) {
	_, err := once(t, func(workflow.Context) error { runtime.Goexit(); return nil })
	if _, ok := errors.AsType[*workflow.PanicError](err); !ok {
		t.Errorf("got %v", err)
	}
}

func TestReturnedErrorFailsTheRunWithTypeMessageAndDetails(t *testing.T) {
	a := start(t, func(workflow.Context) error {
		return activity.NewError("no_budget", "spent", activity.NonRetryable, activity.Details([]int{1, 2}))
	})
	a.drain(nil)
	f := a.failure()
	want(t, "type", f.ExceptionType, "no_budget")
	want(t, "message", f.Message, "no_budget: spent")
	want(t, "non-retryable", f.NonRetryable, true)
	if !strings.Contains(string(f.Exception), `"details":{"codec":"avro"`) {
		t.Errorf("exception: got %s", f.Exception)
	}
	a = start(t, func(workflow.Context) error { return errors.New("plain") })
	a.drain(nil)
	want(t, "plain type", a.failure().ExceptionType, "Error")
}

// If the arguments of a new run do not match the workflow function, the run fails: no later version of the code would
// make them match. If the run has already progressed, other code started it, and the run waits for that code.
func TestArgumentsThatDoNotFitFailTheRun(t *testing.T) {
	a := start(t, func(workflow.Context, int) error { return nil }, "text")
	a.drain(nil)
	if f := a.failure(); f.ExceptionType != "WorkflowInput" || !f.NonRetryable ||
		!strings.Contains(f.Message, "cannot decode start input") {
		t.Errorf("got %+v", f)
	}

	a = start(t, func(ctx workflow.Context, _ string) error { return workflow.Sleep(ctx, time.Hour) }, "text")
	a.drain(nil)
	def, err := workflow.NewDefinition(a.def.Name, func(ctx workflow.Context, _ int) error {
		return workflow.Sleep(ctx, time.Hour)
	})
	if err != nil {
		t.Fatal(err)
	}
	m := replay.New(def, replay.Options{})
	defer m.Close()
	if _, err = m.Apply(a.task(1), a.events); replay.TaskFailure(err).Type != "WorkflowInput" {
		t.Errorf("with code that was changed: %v", err)
	}
}

// If a goroutine that workflow.Go did not start calls this package, the workflow task fails and the process survives,
// also while a branch runs. A panic in that goroutine could not be recovered.
func TestCallFromAForeignGoroutineFailsTheTask(t *testing.T) {
	for name, call := range map[string]func(ctx workflow.Context){
		"a command":     func(ctx workflow.Context) { _ = workflow.Sleep(ctx, time.Hour) },
		"a branch":      func(ctx workflow.Context) { workflow.Go(ctx, func(workflow.Context) {}) },
		"an identifier": func(ctx workflow.Context) { workflow.NewID(ctx) },
	} {
		_, err := once(t, func(ctx workflow.Context) error {
			done := make(chan struct{})
			go func() {
				defer close(done)
				call(ctx)
			}()
			<-done // the branch runs all the while
			return workflow.Sleep(ctx, time.Hour)
		})
		var panicked *workflow.PanicError
		if !errors.As(err, &panicked) || !strings.Contains(err.Error(), "workflow.Go") ||
			!strings.Contains(panicked.Stack, "code_test.go") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	var deep func(ctx workflow.Context, n int) string
	deep = func(ctx workflow.Context, n int) string {
		if n == 0 {
			return workflow.NewID(ctx)
		}
		return deep(ctx, n-1)
	}
	if _, err := once(t, func(ctx workflow.Context) error {
		if deep(ctx, 200) == "" || deep(ctx, 57) == "" {
			return errors.New("no id")
		}
		return nil
	}); err != nil {
		t.Errorf("a branch with a deep stack: %v", err)
	}
}

func TestCodeThatBlocksOutsideIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var after bool
		a := start(t, func(ctx workflow.Context) error {
			<-release
			after = true
			return workflow.Sleep(ctx, time.Hour) // the machine abandons the branch here
		})
		m := replay.New(a.def, replay.Options{Patience: 3 * time.Second})
		began := time.Now()
		_, err := m.Apply(a.task(1), a.events)
		stuck, ok := errors.AsType[*workflow.DeadlockError](err)
		if !ok || time.Since(began) != 3*time.Second {
			t.Fatalf("got %v after %s", err, time.Since(began))
		}
		if !strings.Contains(stuck.Stack, "code_test.go") {
			t.Errorf("stack: got %q", stuck.Stack)
		}
		want(t, "type", replay.TaskFailure(err).Type, "WorkflowDeadlock")
		m.Close()
		want(t, "it still runs", m.Deadlocked(), true)
		close(release)
		synctest.Wait()
		want(t, "it still runs after its next call", m.Deadlocked(), false)
		want(t, "the blocked code reached its next call", after, true)
	})
}

func TestCallsFromAForeignGoroutineAreRefused(t *testing.T) {
	_, err := once(t, func(ctx workflow.Context) error {
		workflow.Go(ctx, func(ctx workflow.Context) {}) // allowed: this call is on a branch
		return workflow.Sleep(ctx, time.Hour)
	})
	if err != nil {
		t.Fatal(err)
	}
	a := start(t, func(ctx workflow.Context) error {
		workflow.NewTimer(ctx, time.Hour)
		leaked = ctx
		return workflow.Sleep(ctx, time.Hour)
	})
	m := replay.New(a.def, a.options)
	defer m.Close()
	if _, err := m.Apply(a.task(1), a.events); err != nil {
		t.Fatal(err)
	}
	ended, went := make(chan struct{}), false
	go func() {
		defer close(ended)
		workflow.NewTimer(leaked, time.Second)
		went = true
	}()
	<-ended
	if _, err := m.Apply(a.task(1), nil); went || err == nil || !strings.Contains(err.Error(), "workflow.Go") {
		t.Errorf("the code continued: %v; the next task got %v", went, err)
	}
}

var leaked workflow.Context

func TestClosingAMachineRunsDeferredCallsAndEndsEveryBranch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bubble fails if a branch is still running at the end
		var ended []string
		a := start(t, func(ctx workflow.Context) error {
			defer func() { ended = append(ended, "main") }()
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return err
			}
			defer func() { ended = append(ended, "session ended"); _ = s.End(ctx); ended = append(ended, "not reached") }()
			for i := range 3 {
				workflow.Go(ctx, func(ctx workflow.Context) {
					defer func() { ended = append(ended, fmt.Sprint(i)); _ = recover() }()
					_ = workflow.Sleep(ctx, time.Hour)
				})
			}
			return workflow.Signal(ctx, "never").Receive(ctx)
		})
		m := replay.New(a.def, a.options)
		if _, err := m.Apply(a.task(1), a.events); err != nil {
			t.Fatal(err)
		}
		m.Close()
		m.Close()
		want(t, "ended", ended, []string{"session ended", "main", "0", "1", "2"})
		if _, err := m.Apply(a.task(1), a.events); err == nil {
			t.Error("a closed machine applied a task")
		}
	})
}

func TestBranchesTakeTurnsInOneOrder(t *testing.T) {
	var order []string
	a := start(t, func(ctx workflow.Context) error {
		order = nil
		f, set := workflow.NewFuture(ctx)
		for i := range 3 {
			workflow.Go(ctx, func(ctx workflow.Context) {
				order = append(order, fmt.Sprint("start ", i))
				v, err := workflow.Await[string](ctx, f)
				order = append(order, fmt.Sprint(v, " ", i, err))
			})
		}
		order = append(order, "main")
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return err
		}
		set("go", nil)
		set("again", nil)
		return workflow.Sleep(ctx, time.Second)
	})
	a.drain(nil)
	a.fire(1)
	a.drain(nil)
	want(t, "order", order, []string{"main", "start 0", "start 1", "start 2", "go 0 <nil>", "go 1 <nil>", "go 2 <nil>"})
}

func TestContextCarriesValuesAndOptions(t *testing.T) {
	type key struct{}
	commands, err := once(t, func(ctx workflow.Context) error {
		with := workflow.WithValue(workflow.WithValue(ctx, key{}, 1), "other", 2)
		if with.Value(key{}) != 1 || with.Value("other") != 2 || ctx.Value(key{}) != nil {
			t.Error("the context lost a value")
		}
		base := workflow.WithActivity(with, workflow.ActivityOptions{
			Queue: "gpu", StartToClose: 1500 * time.Millisecond, Session: "s", Requirements: []string{"a"}, Priority: 3,
			Retry: &workflow.RetryPolicy{
				Backoff: workflow.ExponentialBackoff(time.Second, 5*time.Second), NonRetryable: []string{"bad"},
			},
		})
		workflow.ExecuteActivity(workflow.WithActivity(base, workflow.ActivityOptions{Heartbeat: time.Minute}), "one")
		workflow.ExecuteActivity(workflow.InSession(base, ""), "two")
		workflow.ExecuteActivity(workflow.WithActivity(base, workflow.ActivityOptions{
			WorkerSession: &workflow.WorkerSession{ID: "w", Lease: time.Minute, MustExist: true},
		}), "three")
		for _, bad := range []workflow.ActivityOptions{
			{StartToClose: -1},
			{Priority: 10},
			{Retry: &workflow.RetryPolicy{MaxAttempts: -1}},
			{Retry: &workflow.RetryPolicy{Backoff: []time.Duration{-1}}},
			{WorkerSession: &workflow.WorkerSession{}},
			{StartToClose: time.Minute, ScheduleToClose: 59 * time.Second},
		} {
			f := workflow.ExecuteActivity(workflow.WithActivity(ctx, bad), "bad")
			if err := f.Get(ctx, nil); !f.Ready() || !errors.Is(err, workflow.ErrInvalidOptions) {
				t.Errorf("%+v: got %v", bad, err)
			}
		}
		for _, name := range []any{"", 7, nil} {
			if err := workflow.ExecuteActivity(ctx, name).Get(ctx, nil); !errors.Is(err, workflow.ErrInvalidOptions) {
				t.Errorf("activity %v: got %v", name, err)
			}
		}
		if err := workflow.ExecuteActivity(ctx, "bad", make(chan int)).Get(ctx, nil); err == nil {
			t.Error("an argument that cannot be encoded was accepted")
		}
		return workflow.Sleep(ctx, time.Hour)
	})
	if err != nil {
		t.Fatal(err)
	}
	want(
		t, "commands", types(commands),
		[]string{"schedule_activity", "schedule_activity", "schedule_activity", "start_timer"},
	)
	one, two, three := commands[0], commands[1], commands[2]
	want(t, "queue", one.Queue, "gpu")
	want(t, "start to close", one.StartToClose, protocol.Timeout(2))
	want(t, "heartbeat", one.Heartbeat, protocol.Timeout(60))
	want(t, "session", one.SessionID, "s")
	want(t, "back-off", one.RetryPolicy.BackoffSeconds, []int{1, 2, 4, 5})
	want(t, "attempts", *one.RetryPolicy.MaxAttempts, 1<<31-1)
	want(t, "priority", *one.Priority, 3)
	want(t, "left the session", two.SessionID, "")
	want(t, "no heartbeat", two.Heartbeat, protocol.Timeout(0))
	want(t, "by options", three.SessionID, "")
	want(t, "options", three.WorkerSession, &protocol.SessionOptions{
		SessionID: "w", Lease: 60, TTL: -1, Create: new(bool),
	})
}

func TestTimersKeepFractionsOfASecond(t *testing.T) {
	commands, err := once(t, func(ctx workflow.Context) error {
		for _, d := range []time.Duration{time.Second, 1500 * time.Millisecond, time.Nanosecond, 0, -time.Second} {
			workflow.NewTimer(ctx, d)
		}
		if err := workflow.Sleep(ctx, 0); err != nil {
			t.Error(err)
		}
		return workflow.Sleep(ctx, time.Hour)
	})
	if err != nil {
		t.Fatal(err)
	}
	var got [][2]int64
	for _, c := range commands {
		got = append(got, [2]int64{*c.Delay, c.DelayMicros})
	}
	want(t, "delays", got, [][2]int64{{1, 0}, {2, 1_500_000}, {1, 1}, {3600, 0}})
}
