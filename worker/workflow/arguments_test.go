package workflow_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// registered is a registry: it maps the names of activities to the number of arguments that they take.
type registered map[string]int

func (r registered) ActivityName(any) (string, error) {
	return "", errors.New("charge is not registered as an activity")
}

func (r registered) WorkflowName(any) (string, error) {
	return "", errors.New("ship is not registered as a workflow")
}

func (r registered) ActivityArguments(name string) (int, bool) {
	n, ok := r[name]
	return n, ok
}

func TestAnUnregisteredFunctionFailsTheTaskAndNotTheRun(t *testing.T) {
	for name, call := range map[string]func(workflow.Context) error{
		"charge": func(ctx workflow.Context) error {
			return workflow.ExecuteActivity(ctx, func(context.Context) error { return nil }).Get(ctx, nil)
		},
		"ship": func(ctx workflow.Context) error {
			return workflow.StartChild(ctx, func(workflow.Context) error { return nil }).Get(ctx, nil)
		},
	} {
		a := start(t, func(ctx workflow.Context) error { return call(ctx) })
		a.options.Names = registered{}
		m := replay.New(a.def, a.options)
		commands, err := m.Apply(a.task(1), a.events)
		m.Close()
		if _, ok := errors.AsType[*workflow.UnregisteredError](err); !ok || commands != nil {
			t.Fatalf("%s: got %v, %v", name, commands, err)
		}
		if f := replay.TaskFailure(err); f.Type != "FunctionNotRegistered" || !strings.Contains(f.Message, name+" is not") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestACallWithTheWrongNumberOfArgumentsIsRefusedWhereTheActivityIsRegistered(t *testing.T) {
	var failed []error
	code := func(ctx workflow.Context) error {
		failed = nil
		for _, args := range [][]any{{1}, {1, 2, 3}} {
			failed = append(failed, workflow.ExecuteActivity(ctx, "two", args...).Get(ctx, nil))
		}
		workflow.ExecuteActivity(ctx, "elsewhere", 1, 2, 3)
		return workflow.ExecuteActivity(ctx, "two", 1, 2).Get(ctx, nil)
	}
	a := start(t, code)
	a.options.Names = registered{"two": 2}
	a.drain(nil)
	for _, err := range failed {
		if !errors.Is(err, workflow.ErrInvalidOptions) || !strings.Contains(err.Error(), "takes 2 arguments but was called with") {
			t.Errorf("got %v", err)
		}
	}
	want(t, "commands", types(a.batches[0].commands), []string{"schedule_activity", "schedule_activity"})
	a.replays()

	// Earlier builds scheduled calls with too few arguments: the recorded call stays valid, and a new call is refused.
	old := start(t, func(ctx workflow.Context) error {
		if err := workflow.ExecuteActivity(ctx, "two", 1).Get(ctx, nil); err != nil {
			return err
		}
		return workflow.ExecuteActivity(ctx, "two", 1).Get(ctx, nil)
	})
	old.drain(nil)
	m := replay.New(old.def, replay.Options{Names: registered{"two": 2}})
	defer m.Close()
	if _, err := m.Apply(old.task(2), old.events[:2]); err != nil {
		t.Errorf("the recorded call: %v", err)
	}
}

func TestAnActivityThatReceivesTooFewArgumentsRunsWithZeroValues(t *testing.T) {
	got := ""
	d, err := activity.NewDefinition("two", func(_ context.Context, a, b string) error {
		got = a + "|" + b
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := activitywire.Invoke(t.Context(), d, arguments(t, "x"), nil); err != nil || got != "x|" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err = activitywire.Invoke(t.Context(), d, arguments(t, "x", "y", "z"), nil)
	if f := activitywire.FailureOf(err); f == nil || f.Type != activity.TypeArguments {
		t.Errorf("too many arguments: %v", err)
	}
}

func TestAWorkflowThatReturnsWithOpenActivitiesIsLoggedOnce(t *testing.T) {
	var out strings.Builder
	a := start(t, func(ctx workflow.Context) error {
		workflow.ExecuteActivity(ctx, "left")
		return nil
	})
	a.options.Logger = slogbridge.Slog(zerolog.New(&out))
	a.drain(nil)
	if err := replay.Events(a.def, a.options, a.events); err != nil {
		t.Error(err)
	}
	if n := strings.Count(out.String(), "returned with open activities"); n != 1 || !strings.Contains(out.String(), `"left"`) {
		t.Errorf("%d lines: %s", n, out.String())
	}
	out.Reset()
	b := start(t, func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "done").Get(ctx, nil) })
	b.options.Logger = slogbridge.Slog(zerolog.New(&out))
	b.drain(nil)
	if strings.Contains(out.String(), "open activities") {
		t.Errorf("a run that waited for its activity logged a warning: %s", out.String())
	}
}

func TestAReplayWithOtherArgumentsIsAWarning(t *testing.T) {
	code := func(v int) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			workflow.ExecuteActivity(ctx, "first", v)
			return workflow.ExecuteActivity(ctx, "second", v).Get(ctx, nil)
		}
	}
	a := start(t, code(1))
	a.drain(nil)
	for v, lines := range map[int]int{1: 0, 2: 1} {
		var out strings.Builder
		m := replay.New(define(t, code(v)), replay.Options{Logger: slogbridge.Slog(zerolog.New(&out))})
		if _, err := m.Apply(a.task(len(a.events)), a.events); err != nil {
			t.Errorf("%d: %v", v, err)
		}
		m.Close()
		if n := strings.Count(out.String(), "passes other arguments than recorded"); n != lines {
			t.Errorf("%d: %d lines, want %d: %s", v, n, lines, out.String())
		}
	}
}

func arguments(t *testing.T, args ...any) payload.Payload {
	t.Helper()
	p, err := payload.EncodeArgs(args...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
