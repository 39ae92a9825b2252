package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// localSteps runs the local steps of the task that app leased last, and records them with the real engine.
type localSteps struct {
	*app
	ctx    context.Context
	began  int
	record func() error // called before a step is recorded; nil: no call
}

func (l *localSteps) Context() context.Context {
	if l.ctx != nil {
		return l.ctx
	}
	return l.t.Context()
}

func (l *localSteps) Begin(ctx context.Context) error {
	l.began++
	return context.Cause(ctx)
}

func (l *localSteps) Record(commands []protocol.Command, from int64) error {
	if l.record != nil {
		if err := l.record(); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(commands)
	if err != nil {
		return err
	}
	var wire []protocol.Command
	if err := json.Unmarshal(raw, &wire); err != nil {
		return err
	}
	l.decide(engine.CompleteTask{
		Number: l.run.Task.Number, Commands: wire, RecordFrom: from, Hash: string(raw),
		Holder: engine.Holder{Owner: "w", Incarnation: "i", Delivery: l.run.Task.Delivery},
	})
	return nil
}

// apply applies the leased task to a machine.
func (l *localSteps) apply(m replay.Machine) ([]protocol.Command, *protocol.WorkflowTask, error) {
	l.t.Helper()
	task, ok := l.lease()
	if !ok {
		l.t.Fatal("there is no workflow task")
	}
	m.SetCallbacks(l, nil)
	commands, err := m.Apply(task, task.Events)
	return commands, task, err
}

// turn applies a task to the machine and completes the task. If m is nil, it uses a new machine that replays the
// history.
func (l *localSteps) turn(m replay.Machine) {
	l.t.Helper()
	if m == nil {
		m = replay.New(l.def, l.options)
		defer m.Close()
	}
	commands, task, err := l.apply(m)
	if err != nil {
		l.t.Fatal(err)
	}
	l.answer(task.LastSequence, commands)
}

// lose makes the leased task ready again, as if its worker had died.
func (l *localSteps) lose() {
	l.t.Helper()
	l.decide(engine.ReleaseTask{Number: l.run.Task.Number, Delivery: l.run.Task.Delivery, Why: "test"})
}

func (l *localSteps) typesOfEvents() (all []string) {
	for _, e := range l.events {
		all = append(all, e.Type())
	}
	return all
}

// The workflow runs local steps, an activity and a timer, and receives a signal. Each step runs once, also if every
// task is replayed from the beginning, and the code receives the recorded outcome.
func TestALocalStepRunsOnceAndReplaysReturnItsOutcome(t *testing.T) {
	for _, durability := range []workflow.Durability{workflow.EachStep, workflow.WithTurn} {
		for _, cached := range []bool{false, true} {
			t.Run(fmt.Sprintf("durability %d, cached %v", durability, cached), func(t *testing.T) {
				ran := map[string]int{}
				step := func(ctx workflow.Context, name string, err error) (string, error) {
					return workflow.Do(ctx, name, func(context.Context) (string, error) {
						ran[name]++
						return name, err
					}, workflow.StepOptions{Durability: durability})
				}
				l := &localSteps{app: start(t, func(ctx workflow.Context) (string, error) {
					var all []string
					add := func(s string, err error) {
						if err != nil {
							s = err.Error()
						}
						all = append(all, s)
					}
					add(step(ctx, "one", nil))
					add(step(ctx, "fails", activity.NewError("Odd", "no luck", activity.NonRetryable)))
					add(workflow.Execute[string](ctx, "act"))
					add(step(ctx, "two", nil))
					if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
						return "", err
					}
					add(step(ctx, "three", nil))
					return strings.Join(all, ", "), nil
				})}
				var m replay.Machine
				if cached {
					m = replay.New(l.def, l.options)
					defer m.Close()
				}
				l.turn(m)
				l.complete(3, "done")
				l.turn(m)
				l.signal("go")
				l.turn(m)
				want(t, "the result", l.output().(string), `one, local step "fails": Odd: no luck, done, two, three`)
				want(t, "runs of each step", ran, map[string]int{"one": 1, "fails": 1, "two": 1, "three": 1})
				if err := replay.Events(l.def, l.options, l.events); err != nil {
					t.Error(err)
				}
				for _, e := range l.events {
					d, ok := e.Data.(*history.ActivityScheduled)
					if ok && (d.ExecutionMode == history.ModeLocal) == (d.ActivityType == "act") {
						t.Errorf("activity %s has the execution mode %q", d.ActivityType, d.ExecutionMode)
					}
				}
			})
		}
	}
}

// With EachStep, history contains the outcome of a step, and all commands before it, before the code continues, while
// the task stays leased. If the worker is then lost, only a step that was not recorded runs again. A signal that
// arrives meanwhile is part of the next task, and each replay receives it at the same place.
func TestAStepIsRecordedBeforeTheCodeContinues(t *testing.T) {
	var l *localSteps
	ran := map[string]int{}
	lost := errors.New("the worker has died")
	l = &localSteps{app: start(t, func(ctx workflow.Context) (string, error) {
		f := workflow.ExecuteActivity(ctx, "act")
		if v := workflow.Version(ctx, "change", workflow.DefaultVersion, 1); v != 1 {
			return "", fmt.Errorf("version %d", v)
		}
		if _, err := workflow.Do(ctx, "first", func(context.Context) (int, error) {
			ran["first"]++
			return 1, nil
		}); err != nil {
			return "", err
		}
		early, _ := workflow.Signal(ctx, "s").ReceiveAsync()
		if _, err := workflow.Do(ctx, "second", func(context.Context) (int, error) {
			ran["second"]++
			if ran["second"] == 1 {
				want(t, "events while the second step runs", l.typesOfEvents(), []string{
					"WorkflowStarted", "ActivityScheduled", "VersionMarkerRecorded", "ActivityScheduled", "ActivityCompleted",
				})
				l.signal("s", "x")
				l.record = func() error { return lost }
			}
			return 2, nil
		}); err != nil {
			return "", err
		}
		late, _ := workflow.Signal(ctx, "s").ReceiveAsync()
		var s string
		if err := f.Get(ctx, &s); err != nil {
			return "", err
		}
		var v string
		err := workflow.Signal(ctx, "s").Receive(ctx, &v)
		return fmt.Sprint(early, late, s, v), err
	})}
	m := replay.New(l.def, l.options)
	_, _, err := l.apply(m)
	m.Close()
	stopped, ok := errors.AsType[*workflow.StepAbandonedError](err)
	if !ok || !errors.Is(err, lost) || stopped.Step != "second" {
		t.Fatalf("the task ended with %v", err)
	}
	if l.run.Task.State != engine.LeasedState {
		t.Fatalf("the task is %s", l.run.Task.State)
	}
	if _, open := l.run.Activities.Get(1); !open || l.run.Activities.Len() != 1 {
		t.Errorf("%d activities are open, want only the activity that was scheduled before the step", l.run.Activities.Len())
	}
	l.lose()
	l.record = nil
	l.turn(nil)
	l.complete(1, "done")
	l.turn(nil)
	want(t, "runs of each step", ran, map[string]int{"first": 1, "second": 2})
	want(t, "the result", l.output().(string), "false falsedonex")
	if err := replay.Events(l.def, l.options, l.events); err != nil {
		t.Error(err)
	}
}

// With WithTurn, no step is recorded before the task is completed, and all steps run again if the task is lost.
func TestStepsWithTurnAreRecordedWithTheirTask(t *testing.T) {
	ran := 0
	l := &localSteps{app: start(t, func(ctx workflow.Context) (int, error) {
		for range 5 {
			if _, err := workflow.Do(ctx, "step", func(context.Context) (int, error) {
				ran++
				return ran, nil
			}, workflow.StepOptions{Durability: workflow.WithTurn}); err != nil {
				return 0, err
			}
		}
		return ran, nil
	})}
	l.record = func() error { return errors.New("the step was recorded separately") }
	m := replay.New(l.def, l.options)
	commands, _, err := l.apply(m)
	m.Close()
	if err != nil || len(commands) != 6 || len(l.events) != 1 {
		t.Fatalf("%d commands, %d events: %v", len(commands), len(l.events), err)
	}
	l.lose()
	l.turn(nil)
	want(t, "the result", l.output().(int64), int64(10))
	want(t, "events", len(l.events), 12)
}

// A local step is retried by its retry policy, with the policy's backoff. A panic, an error and a timeout are failures,
// as for an activity.
func TestALocalStepIsRetriedLikeAnActivity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		attempts := 0
		l := &localSteps{app: start(t, func(ctx workflow.Context) (string, error) {
			return workflow.Do(ctx, "flaky", func(ctx context.Context) (string, error) {
				attempts++
				switch attempts {
				case 1:
					return "", errors.New("refused")
				case 2:
					panic("boom")
				case 3:
					<-ctx.Done()
					return "", ctx.Err()
				}
				return "fine", nil
			}, workflow.StepOptions{
				StartToClose: 2 * time.Second,
				Retry:        &workflow.RetryPolicy{MaxAttempts: 5, Backoff: []time.Duration{time.Second, 3 * time.Second}},
			})
		})}
		l.turn(nil)
		want(t, "the result", l.output().(string), "fine")
		want(t, "attempts", []int{attempts, l.began}, []int{4, 4})
		want(t, "time", time.Since(began), (1+3+2+3)*time.Second)
		d := l.events[2].Data.(*history.ActivityCompleted)
		want(t, "the recorded number of attempts", d.Number, 4)
	})
}

// If the last attempt of a step fails, Do returns an *ActivityError, which is the same when the step runs and in each
// replay.
func TestAFailedLocalStepReturnsTheSameErrorInEachReplay(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for name, c := range map[string]struct {
		fn func(context.Context) (string, error)
		is func(*workflow.ActivityError) bool
	}{
		"error": {
			func(context.Context) (string, error) {
				return "", activity.NewError(
					"Declined", "no funds", activity.Details(map[string]any{"code": "7"}), activity.NonRetryable,
				)
			},
			func(e *workflow.ActivityError) bool {
				var details map[string]string
				return e.Type == "Declined" && e.Message == "no funds" && e.NonRetryable &&
					e.DecodeDetails(&details) == nil && details["code"] == "7"
			},
		},
		"panic": {
			func(context.Context) (string, error) { panic("boom") },
			func(e *workflow.ActivityError) bool { return e.Type == activity.TypePanic && e.Message == "boom" },
		},
		"time": {
			func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() },
			func(e *workflow.ActivityError) bool {
				return e.TimedOut && e.TimeoutKind == "start_to_close" && errors.Is(e, workflow.ErrTimedOut)
			},
		},
		"ignores its context": {
			func(context.Context) (string, error) { <-release; return "", nil },
			func(e *workflow.ActivityError) bool {
				return e.TimedOut && strings.Contains(e.Message, "did not return")
			},
		},
		"too large": {
			func(context.Context) (string, error) { return strings.Repeat("x", payload.MaxBytes), nil },
			func(e *workflow.ActivityError) bool { return e.Type == string(protocol.ReasonPayloadTooLarge) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []workflow.ActivityError
			l := &localSteps{app: start(t, func(ctx workflow.Context) (string, error) {
				_, err := workflow.Do(ctx, "step", c.fn, workflow.StepOptions{StartToClose: 50 * time.Millisecond})
				failed, ok := errors.AsType[*workflow.ActivityError](err)
				if !ok || failed.ActivityType != "step" || failed.Attempts != 1 || !c.is(failed) {
					t.Errorf("the step failed with %#v", err)
				} else {
					seen = append(seen, *failed)
				}
				return "", workflow.Signal(ctx, "go").Receive(ctx, nil)
			})}
			l.turn(nil)
			l.signal("go")
			l.turn(nil)
			if len(seen) != 2 || fmt.Sprintf("%+v", seen[0]) != fmt.Sprintf("%+v", seen[1]) {
				t.Errorf("the errors are %+v", seen)
			}
		})
	}
}

// Where a step must not run, the call fails before the step runs, or blocks: in a session, in a cancelled context, in
// the replay for a query, and while the result that it follows is not stored yet.
func TestALocalStepDoesNotRunWhereItMayNot(t *testing.T) {
	ran := 0
	step := func(ctx workflow.Context, o ...workflow.StepOptions) error {
		_, err := workflow.Do(ctx, "step", func(context.Context) (int, error) { ran++; return 0, nil }, o...)
		return err
	}
	l := &localSteps{app: start(t, func(ctx workflow.Context) error {
		cancelled, cancel := workflow.WithCancel(ctx)
		cancel()
		for i, err := range []error{
			step(workflow.InSession(ctx, "s")), step(ctx, workflow.StepOptions{StartToClose: 6 * time.Minute}),
			step(ctx, workflow.StepOptions{StartToClose: -1}), step(ctx, workflow.StepOptions{Durability: 7}),
			step(ctx, workflow.StepOptions{}, workflow.StepOptions{}),
			step(ctx, workflow.StepOptions{Retry: &workflow.RetryPolicy{MaxAttempts: -1}}),
		} {
			if !errors.Is(err, workflow.ErrInvalidOptions) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if err := step(cancelled); !errors.Is(err, workflow.ErrCancelled) {
			t.Errorf("cancelled: %v", err)
		}
		workflow.HandleQuery(ctx, "q", func(workflow.Context) (int, error) { return 1, nil })
		return step(ctx)
	})}
	if v, err := l.ask(1, "q"); err != nil || fmt.Sprint(v) != "1" || ran != 0 {
		t.Errorf("the query returned %v, %v; %d steps ran", v, err, ran)
	}
	m := replay.New(l.def, l.options) // without SetCallbacks, as for an eager workflow task
	task := l.task(1)
	if commands, err := m.Apply(task, task.Events); err != nil || len(commands) != 0 || !m.AtLocalStep() || ran != 0 {
		t.Errorf("%d commands, %d steps ran: %v", len(commands), ran, err)
	}
	m.Close()
	l.turn(nil)
	if last := l.events[len(l.events)-1].Type(); last != "WorkflowCompleted" || ran != 1 {
		t.Errorf("%s, %d steps ran", last, ran)
	}
}

// The time of a local step does not count for the deadlock detection. If the step's function calls this package, the
// task fails.
func TestAStepMayTakeLongerThanWorkflowCode(t *testing.T) {
	l := &localSteps{app: start(t, func(ctx workflow.Context) error {
		_, err := workflow.Do(ctx, "slow", func(context.Context) (int, error) {
			time.Sleep(300 * time.Millisecond)
			return 0, nil
		})
		return err
	})}
	l.options.Patience = 100 * time.Millisecond
	l.turn(nil)
	if last := l.events[len(l.events)-1].Type(); last != "WorkflowCompleted" {
		t.Error(last)
	}
	l = &localSteps{app: start(t, func(ctx workflow.Context) error {
		_, err := workflow.Do(ctx, "calls", func(context.Context) (int, error) {
			return 0, workflow.Sleep(ctx, time.Second)
		})
		return err
	})}
	m := replay.New(l.def, l.options)
	defer m.Close()
	if _, _, err := l.apply(m); err == nil || !m.CalledByForeignGoroutine() {
		t.Errorf("a call from the step's function ended with %v", err)
	}
}

// A replay compares the name and the position of each local step with the history.
func TestAReplayDetectsChangedLocalSteps(t *testing.T) {
	step := func(ctx workflow.Context, name string) error {
		_, err := workflow.Do(ctx, name, func(context.Context) (int, error) { return 0, nil })
		return err
	}
	l := &localSteps{app: start(t, func(ctx workflow.Context) error { return step(ctx, "one") })}
	l.turn(nil)
	for name, fn := range map[string]func(workflow.Context) error{
		"renamed":  func(ctx workflow.Context) error { return step(ctx, "two") },
		"activity": func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "one").Get(ctx, nil) },
		"removed":  func(workflow.Context) error { return nil },
	} {
		err := replay.Events(define(t, fn), replay.Options{}, l.events)
		if _, ok := errors.AsType[*workflow.NonDeterminismError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The handler of an update may run local steps; the start of the handler is recorded with the first step.
func TestAnUpdateHandlerRunsLocalSteps(t *testing.T) {
	ran := 0
	l := &localSteps{app: start(t, func(ctx workflow.Context) error {
		workflow.HandleUpdate(ctx, "u", func(ctx workflow.Context, n int) (int, error) {
			return workflow.Do(ctx, "step", func(context.Context) (int, error) { ran++; return n + 1, nil })
		})
		return workflow.Signal(ctx, "go").Receive(ctx, nil)
	})}
	l.turn(nil)
	id := l.update("u", 41)
	l.turn(nil)
	l.signal("go")
	l.turn(nil)
	var n int
	if err := payload.Decode(payload.Payload{Blob: l.answered(id).Result}, &n); err != nil || n != 42 || ran != 1 {
		t.Errorf("the update returned %d after %d steps: %v", n, ran, err)
	}
	if i := slices.Index(l.typesOfEvents(), "UpdateApplied"); i < 0 || l.events[i+1].Type() != "ActivityScheduled" {
		t.Errorf("the events are %s", l.typesOfEvents())
	}
}

// An event that arrived after the update is part of the update's task, and the code that it resumes runs a step as
// well. The task reports the start of the handler once, with the first step, and so does a redelivered task: its worker
// resumes that code before it reaches the recorded start of the handler, which follows the event in history.
func TestStepsOfTheWorkflowRunInTheTaskOfAnUpdate(t *testing.T) {
	for _, redelivered := range []bool{false, true} {
		ran := map[string]int{}
		step := func(ctx workflow.Context, name string) error {
			_, err := workflow.Do(ctx, name, func(context.Context) (int, error) { ran[name]++; return 0, nil })
			return err
		}
		l := &localSteps{app: start(t, func(ctx workflow.Context) error {
			workflow.HandleUpdate(ctx, "u", func(ctx workflow.Context) error { return step(ctx, "handler") })
			if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
				return err
			}
			if err := step(ctx, "workflow"); err != nil {
				return err
			}
			return workflow.Signal(ctx, "end").Receive(ctx, nil)
		})}
		l.turn(nil)
		id := l.update("u")
		l.signal("go")
		records := 0
		l.record = func() error {
			if records++; redelivered && records == 2 {
				return errors.New("the app is gone")
			}
			return nil
		}
		if redelivered {
			m := replay.New(l.def, l.options)
			if _, _, err := l.apply(m); err == nil {
				t.Fatal("a step that was not recorded did not end the task")
			}
			m.Close()
			l.lose()
		}
		l.turn(nil)
		l.signal("end")
		l.turn(nil)
		if a := l.answered(id); a.Failed || ran["handler"] != 1 {
			t.Errorf("redelivered %t: the update %+v, steps %v", redelivered, a, ran)
		}
		all := l.typesOfEvents()
		if n := len(slices.DeleteFunc(all, func(typ string) bool { return typ != "UpdateApplied" })); n != 1 {
			t.Errorf("redelivered %t: the start of the handler is recorded %d times", redelivered, n)
		}
		if l.run.Status != protocol.RunCompleted {
			t.Errorf("redelivered %t: the run is %s", redelivered, l.run.Status)
		}
	}
}

// For any name a call fails with ErrInvalidOptions or the app accepts its command.
func TestEveryTextOfALocalStepFailsTheCallOrIsTaken(t *testing.T) {
	for value, text := range texts {
		t.Run(value, func(t *testing.T) {
			var err error
			l := &localSteps{app: start(t, func(ctx workflow.Context) error {
				_, err = workflow.Do(ctx, text, func(context.Context) (string, error) { return "", errors.New(text) })
				return nil
			})}
			l.turn(nil)
			if _, failed := errors.AsType[*workflow.ActivityError](err); !failed && !errors.Is(err, workflow.ErrInvalidOptions) {
				t.Error(err)
			}
		})
	}
}
