package workflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func TestCancellingAContextCancelsItsSteps(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		outer, cancel := workflow.WithCancel(ctx)
		inner, _ := workflow.WithCancel(outer)
		f := workflow.ExecuteActivity(inner, "inner")
		g := workflow.ExecuteActivity(outer, "outer")
		timer := workflow.NewTimer(inner, time.Hour)
		apart := workflow.ExecuteActivity(workflow.WithoutCancel(inner), "apart")
		own := workflow.ExecuteActivity(ctx, "own")
		result := ""
		workflow.Go(ctx, func(workflow.Context) {
			result = fmt.Sprint(workflow.Signal(inner, "never").Receive(inner))
		})
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
		cancel()
		cancel()
		for _, f := range []workflow.Future{
			f, g, timer, workflow.ExecuteActivity(inner, "late"), workflow.NewTimer(outer, time.Hour),
		} {
			if err := f.Get(ctx, nil); !errors.Is(err, workflow.ErrCancelled) {
				return "", fmt.Errorf("want cancelled, got %w", err)
			}
		}
		if outer.Err() != workflow.ErrCancelled || inner.Err() != workflow.ErrCancelled || ctx.Err() != nil {
			return "", errors.New("wrong contexts are cancelled")
		}
		if failed, ok := errors.AsType[*workflow.ActivityError](f.Get(ctx, nil)); !ok || failed.ActivityType != "inner" ||
			!failed.Cancelled {
			return "", errors.New("no typed error")
		}
		if err := workflow.Join(ctx, apart, own); err != nil {
			return "", err
		}
		return result, nil
	})
	a.drain(nil)
	a.fire(6)
	a.drain(nil)
	last := slices.IndexFunc(a.batches, func(b batch) bool {
		return len(b.commands) > 0 && b.commands[0].Type == protocol.CancelActivity
	})
	var got []string
	for _, c := range a.batches[last].commands {
		got = append(got, fmt.Sprint(c.Type, c.Target))
	}
	want(t, "commands", got, []string{"cancel_activity2", "cancel_activity1", "cancel_timer3"})
	a.complete(4, nil)
	a.complete(5, nil)
	a.drain(nil)
	want(t, "output", a.output(), any("cancelled"))
	a.replays()
}

func TestCodeCanCleanUpAfterCancellation(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		if err := workflow.ExecuteActivity(ctx, "work").Get(ctx, nil); !errors.Is(err, workflow.ErrCancelled) {
			return fmt.Errorf("want cancelled, got %w", err)
		}
		if err := workflow.ExecuteActivity(workflow.WithoutCancel(ctx), "tidy").
			Get(workflow.WithoutCancel(ctx), nil); err != nil {
			return err
		}
		return ctx.Err()
	})
	a.drain(nil)
	a.decide(engine.RequestCancellation{Reason: "enough"})
	a.drain(nil)
	a.complete(3, nil)
	a.drain(nil)
	a.cancelled()
	a.replays()
}

func TestLateResultOfACancelledActivityCountsForNothing(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		under, cancel := workflow.WithCancel(ctx)
		f := workflow.ExecuteActivity(under, "slow")
		if err := workflow.Signal(ctx, "stop").Receive(ctx); err != nil {
			return "", err
		}
		cancel()
		err := f.Get(ctx, nil)
		return fmt.Sprint(errors.Is(err, workflow.ErrCancelled)), workflow.Sleep(ctx, time.Second)
	})
	a.drain(nil)
	a.signal("stop")
	task, _ := a.lease()
	a.complete(1, "made it") // after the app delivered a task with the signal
	a.answer(task.LastSequence, a.commandsAt(int(task.LastSequence)))
	a.drain(nil)
	a.fire(4)
	a.drain(nil)
	want(t, "output", a.output(), any("true"))
	a.replays()
}

func TestSignalsGoToTheirReceiversInOrder(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		var got []string
		for i := range 2 {
			workflow.Go(ctx, func(ctx workflow.Context) {
				for range 2 {
					v, err := workflow.ReceiveSignal[string](ctx, "s")
					got = append(got, fmt.Sprintf("%d %s %v", i, v, err))
				}
			})
		}
		for len(got) < 4 {
			if err := workflow.Sleep(ctx, time.Second); err != nil {
				return "", err
			}
		}
		if ok, err := workflow.Signal(ctx, "s").ReceiveAsync(); ok || err != nil {
			return "", fmt.Errorf("got another signal: %v, %w", ok, err)
		}
		return fmt.Sprint(got), nil
	})
	a.drain(nil)
	waits := 0
	for _, b := range a.batches {
		for _, c := range b.commands {
			if c.Type == protocol.OpenSignalWait {
				waits++
			}
		}
	}
	want(t, "waits opened for two receivers of one name", waits, 1)
	for _, v := range []string{"a", "b", "c", "d"} {
		a.signal("s", v)
		if n := a.drain(nil); n == 0 {
			t.Errorf("signal %s woke no waiter though one waits", v)
		}
	}
	for seq := range a.run.Timers.All() {
		a.fire(seq)
		break
	}
	a.drain(nil)
	want(t, "output", a.output(), any("[0 a <nil> 1 b <nil> 0 c <nil> 1 d <nil>]"))
	a.replays()
}

func TestEarlySignalsAreBuffered(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
		var got []string
		for range 2 {
			var name string
			var n int
			if err := workflow.Signal(ctx, "s").Receive(ctx, &name, &n); err != nil {
				got = append(got, "bad")
				continue
			}
			got = append(got, fmt.Sprint(name, n))
		}
		ok, err := workflow.Signal(ctx, "s").ReceiveAsync(nil)
		return fmt.Sprint(got, ok, err), nil
	})
	a.drain(nil)
	a.signal("s", "x", 1)
	a.signal("s", 5, "does not fit")
	a.signal("s", "dropped")
	want(t, "tasks for signals without a waiter", a.drain(nil), 0)
	a.fire(1)
	a.drain(nil)
	want(t, "output", a.output(), any("[x1 bad] true <nil>"))
	a.replays()
}

func TestSelectTakesSignalsAndTimersAlike(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		s := workflow.Signal(ctx, "s")
		got := ""
		for range 2 {
			race, cancel := workflow.WithCancel(ctx)
			i, err := workflow.Select(ctx, s, workflow.NewTimer(race, time.Minute))
			cancel()
			if err != nil {
				return "", err
			}
			var v string
			if i == 0 {
				if _, err := s.ReceiveAsync(&v); err != nil {
					return "", err
				}
			}
			got += fmt.Sprint(i, v, " ")
		}
		if _, err := workflow.Select(ctx); err == nil {
			return "", errors.New("Select without items returned")
		}
		return got, nil
	})
	a.drain(nil)
	a.signal("s", "hi")
	a.drain(nil)
	for seq := range a.run.Timers.All() {
		a.fire(seq)
		break
	}
	a.drain(nil)
	want(t, "output", a.output(), any("0hi 1 "))
	a.replays()
}

func TestOnlyStepsOfOneJoinAreGrouped(t *testing.T) {
	act := func(ctx workflow.Context) workflow.Future { return workflow.ExecuteActivity(ctx, "a") }
	timer := func(ctx workflow.Context) workflow.Future { return workflow.NewTimer(ctx, time.Second) }
	watch := func(ctx workflow.Context, f workflow.Future) {
		workflow.Go(ctx, func(ctx workflow.Context) { _ = f.Get(ctx, nil) })
	}
	for name, c := range map[string]struct {
		code func(workflow.Context) error
		want []string
	}{
		"activities": {
			func(ctx workflow.Context) error { return workflow.Join(ctx, act(ctx), act(ctx), act(ctx)) },
			[]string{
				"parallel-activities:1:3 activity 0", "parallel-activities:1:3 activity 1", "parallel-activities:1:3 activity 2",
			},
		},
		"timers": {
			func(ctx workflow.Context) error { return workflow.Join(ctx, timer(ctx), timer(ctx)) },
			[]string{"parallel-timers:1:2 timer 0", "parallel-timers:1:2 timer 1"},
		},
		"mixed": {
			func(ctx workflow.Context) error { return workflow.Join(ctx, act(ctx), timer(ctx)) },
			[]string{"parallel-calls:1:2 mixed 0", "parallel-calls:1:2 mixed 1"},
		},
		"the same twice": {func(ctx workflow.Context) error {
			f := act(ctx)
			return workflow.Join(ctx, f, f, act(ctx))
		}, []string{"parallel-activities:1:2 activity 0", "parallel-activities:1:2 activity 1"}},
		"one alone": {func(ctx workflow.Context) error { return workflow.Join(ctx, act(ctx)) }, []string{""}},
		"get":       {func(ctx workflow.Context) error { return act(ctx).Get(ctx, nil) }, []string{""}},
		"select": {
			func(ctx workflow.Context) error { _, err := workflow.Select(ctx, act(ctx), act(ctx)); return err },
			[]string{"", ""},
		},
		"watched by another": {func(ctx workflow.Context) error {
			f := act(ctx)
			watch(ctx, f)
			return workflow.Join(ctx, f, act(ctx))
		}, []string{"", ""}},
		"with a gap": {func(ctx workflow.Context) error {
			f := act(ctx)
			workflow.Go(ctx, func(ctx workflow.Context) { _ = workflow.Sleep(ctx, time.Second) })
			_, _ = workflow.SideEffect(ctx, func() int { return 1 })
			return workflow.Join(ctx, f, act(ctx))
		}, []string{"", "", "", ""}},
		"two joins": {func(ctx workflow.Context) error {
			workflow.Go(ctx, func(ctx workflow.Context) { _ = workflow.Join(ctx, timer(ctx), timer(ctx)) })
			return workflow.Join(ctx, act(ctx), act(ctx))
		}, []string{
			"parallel-activities:1:2 activity 0", "parallel-activities:1:2 activity 1", "parallel-timers:3:2 timer 0",
			"parallel-timers:3:2 timer 1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, c.code)
			a.drain(nil) // the engine accepts the commands
			var got []string
			for _, cmd := range a.batches[0].commands {
				text := ""
				if cmd.GroupID != "" {
					text = fmt.Sprintf("%s %s %d", cmd.GroupID, cmd.GroupKind, *cmd.GroupIndex)
					member := cmd.Parallel
					member.GroupPath = nil
					if path, err := json.Marshal([]history.Parallel{member}); err != nil || string(path) != string(cmd.GroupPath) {
						t.Errorf("path: got %s, want %s, %v", cmd.GroupPath, path, err)
					}
				}
				got = append(got, text)
			}
			want(t, "groups", got, c.want)
		})
	}
}

func TestMoreActivitiesThanARunMayHaveOpenLeaveAsOthersEnd(t *testing.T) {
	const n = protocol.MaxPending + 50
	a := start(t, func(ctx workflow.Context) error {
		left := n
		for range n {
			f := workflow.ExecuteActivity(ctx, "work")
			workflow.Go(ctx, func(ctx workflow.Context) {
				if f.Get(ctx, nil) == nil {
					left--
				}
			})
		}
		return workflow.Until(ctx, func() bool { return left == 0 })
	})
	kept := replay.New(a.def, a.options)
	defer kept.Close()
	a.drain(kept)
	most, done := 0, 0
	for a.run.Activities.Len() > 0 {
		most = max(most, a.run.Activities.Len())
		for seq := range a.run.Activities.All() { // the first Join alone: each of its activities wakes the run
			a.complete(seq, nil)
			done++
			break
		}
		a.drain(kept)
	}
	want(t, "output", a.output(), nil)
	want(t, "completed", done, n)
	want(t, "most open at once", most, protocol.MaxPending)
	next := int64(1)
	for _, b := range a.batches {
		for _, c := range b.commands {
			if c.Type == protocol.ScheduleActivity {
				next++
			}
		}
	}
	want(t, "activities sent, each once", next-1, int64(n))
	for _, i := range []int{0, 1, 2, 3, len(a.batches) / 2} { // a new machine delays the same commands
		b := a.batches[i]
		want(t, "commands again", len(a.commandsAt(int(b.shown))), len(b.commands))
	}
}

func TestCommandsAboveTheLimitAreSentInSeveralCompletions(t *testing.T) {
	const n = protocol.MaxCommands + 200
	a := start(t, func(ctx workflow.Context) error {
		var all []workflow.Future
		for range n {
			all = append(all, workflow.ExecuteActivity(ctx, "work"))
		}
		return workflow.Join(ctx, all...)
	})
	a.drain(nil)
	for range 2 {
		for seq := range a.run.Activities.All() {
			a.complete(seq, nil)
		}
		a.drain(nil)
	}
	want(t, "output", a.output(), nil)
	want(t, "tasks", len(a.batches), 3)
	want(t, "first batch", a.batches[0].commands[0].GroupSize, protocol.MaxCommands)
	want(t, "second batch", a.batches[1].commands[0].GroupSize, 200)
	for _, b := range a.batches {
		want(t, "commands again", len(a.commandsAt(int(b.shown))), len(b.commands))
	}
	if _, err := once(t, func(ctx workflow.Context) error {
		for range n {
			if _, err := workflow.SideEffect(ctx, func() int { return 1 }); err != nil {
				return err
			}
		}
		return nil
	}); err == nil {
		t.Error("a batch of commands that nothing can follow was accepted")
	}
}

func TestJoinReturnsTheFirstErrorInOrder(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		return workflow.Join(
			ctx, workflow.ExecuteActivity(ctx, "a"), workflow.ExecuteActivity(ctx, "b"), workflow.ExecuteActivity(ctx, "c"),
		)
	})
	a.drain(nil)
	a.failActivity(3, activitywire.FailureOf(activity.NewError("third", "c")))
	a.failActivity(2, activitywire.FailureOf(activity.NewError("second", "b")))
	a.complete(1, nil)
	want(t, "tasks", a.drain(nil), 1)
	f := a.failure()
	want(t, "type", f.ExceptionType, "second")
	want(t, "source", f.SourceID, "RUN-2")
}

func TestFailuresOfActivitiesAreTyped(t *testing.T) {
	var got error
	catch := func(o workflow.ActivityOptions) *app {
		a := start(t, func(ctx workflow.Context) error {
			got = workflow.ExecuteActivity(workflow.WithActivity(ctx, o), "work").Get(ctx, nil)
			return nil
		})
		a.drain(nil)
		return a
	}
	failed := func() *workflow.ActivityError {
		t.Helper()
		e, ok := errors.AsType[*workflow.ActivityError](got)
		if !ok {
			t.Fatalf("got %v", got)
		}
		return e
	}
	a := catch(workflow.ActivityOptions{})
	a.failActivity(
		1, activitywire.FailureOf(activity.NewError("declined", "no credit", activity.NonRetryable, activity.Details(51))),
	)
	a.drain(nil)
	e := failed()
	var code int
	if err := e.DecodeDetails(&code); err != nil || code != 51 {
		t.Errorf("details: got %d, %v", code, err)
	}
	want(
		t, "error", fmt.Sprintf("%v %v %d %s", e, e.NonRetryable, e.Attempts, e.ExecutionID),
		`activity "work": declined: no credit true 1 RUN-1`,
	)

	a = catch(workflow.ActivityOptions{})
	a.failActivity(1, activitywire.FailureOf(activity.SessionLost("no model")))
	a.drain(nil)
	if e := failed(); !errors.Is(got, workflow.ErrSessionLost) || !e.SessionLost || e.Poison ||
		errors.Is(got, workflow.ErrTimedOut) {
		t.Errorf("session lost: got %+v", e)
	}

	a = catch(workflow.ActivityOptions{StartToClose: time.Minute})
	a.leaseActivity(1)
	a.now = a.now.Add(time.Minute)
	a.decide(engine.DueActivity{Seq: 1})
	a.drain(nil)
	if e := failed(); !errors.Is(got, workflow.ErrTimedOut) || !e.TimedOut || e.TimeoutKind != "start_to_close" {
		t.Errorf("timed out: got %+v", e)
	}

	a = catch(workflow.ActivityOptions{}) // IS-S6
	for i := range engine.DefaultBlamedLosses {
		if i > 0 { // let the retry backoff pass
			a.now = a.now.Add(time.Minute)
			a.decide(engine.DueActivity{Seq: 1})
		}
		a.decide(engine.Lose{
			Tasks:   []engine.LostTask{{Seq: 1, Delivery: a.leaseActivity(1).Delivery, Part: engine.LossBlamed}},
			Process: "w/1", Leased: 1, Why: "worker died",
		})
	}
	a.drain(nil)
	if e := failed(); !errors.Is(got, workflow.ErrPoison) || !e.Poison {
		t.Errorf("poison: got %+v", e)
	}

	a = catch(workflow.ActivityOptions{Retry: &workflow.RetryPolicy{MaxAttempts: 2}})
	a.failActivity(1, activitywire.FailureOf(errors.New("first")))
	want(t, "tasks while another attempt follows", a.drain(nil), 0)
	a.complete(1, nil)
	a.drain(nil)
	want(t, "after a retry", got, nil)
	a.replays()

	a = catch(workflow.ActivityOptions{Session: "01ARZ3NDEKTSV4RRFFQ69G5FAV-77"})
	a.drain(nil)
	if !errors.Is(got, workflow.ErrSessionMissing) {
		t.Errorf("never started: got %v", got)
	}
}

func TestSignalsAreCarriedOverAndComeFirst(t *testing.T) {
	a := start(t, func(ctx workflow.Context, round int) (string, error) {
		if round == 1 {
			var v string
			ok, err := workflow.Signal(ctx, "s").ReceiveAsync(&v)
			return fmt.Sprintf("%v %s %v", ok, v, err), nil
		}
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
		return "", workflow.ContinueAsNew(ctx, round+1)
	}, 0)
	a.drain(nil)
	a.fire(1)
	task, _ := a.lease()
	a.signal("s", "unseen")
	a.answer(task.LastSequence, a.commandsAt(int(task.LastSequence)))
	b := startRun(t, a.def, *a.next)
	b.drain(nil)
	want(t, "output", b.output(), any("true unseen <nil>"))
	b.replays()
}

func TestActivitiesMayBeNamedByTheirFunction(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (int, error) { return workflow.Execute[int](ctx, work, 3) })
	a.options.Names = names{}
	a.drain(nil)
	want(t, "name", a.batches[0].commands[0].ActivityType, "registered")
	a.complete(1, 42)
	a.drain(nil)
	want(t, "output", a.output(), any(int64(42))) // IS-S10
}

func work() {}

type names struct{}

func (names) ActivityName(any) (string, error) { return "registered", nil }
func (names) WorkflowName(any) (string, error) { return "registered", nil }

func TestSignalToAnotherWorkflowIsSentOnce(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		if err := workflow.SignalWorkflow(ctx, "", "x"); !errors.Is(err, workflow.ErrInvalidOptions) {
			return "", fmt.Errorf("to a missing workflow: %w", err)
		}
		if err := workflow.SignalWorkflow(ctx, "wf", "self", 7); err != nil {
			return "", err
		}
		f := workflow.NewTimer(ctx, time.Hour)
		v, err := workflow.ReceiveSignal[int](ctx, "self")
		return fmt.Sprint(v, f.Ready()), err
	})
	a.drain(nil)
	want(t, "output", a.output(), any("7 false"))
	a.replays()
}

// If a run is cancelled while it waits for a signal with a timeout, Select returns the cancellation and not the timer.
func TestSelectIsCancelledWithTheContextOfItsItems(t *testing.T) {
	code := func(ctx workflow.Context) (string, error) {
		signal, timer := workflow.Signal(ctx, "s"), workflow.NewTimer(ctx, time.Hour)
		result := ""
		for range 2 { // the context stays cancelled
			i, err := workflow.Select(ctx, timer, signal)
			result += fmt.Sprintln(i, err)
		}
		return result, nil
	}
	a := start(t, code)
	a.drain(nil)
	a.decide(engine.RequestCancellation{})
	a.drain(nil)
	want(t, "output", a.output(), any("-1 cancelled\n-1 cancelled\n"))
	a.replays()

	a = start(t, code)
	a.drain(nil)
	a.decide(engine.RequestCancellation{})
	a.signal("s") // both are in the same task
	a.drain(nil)
	want(t, "output", a.output(), any("-1 cancelled\n-1 cancelled\n"))
	a.replays()

	a = start(t, func(ctx workflow.Context) (string, error) {
		under, cancel := workflow.WithCancel(ctx)
		timer := workflow.NewTimer(under, time.Hour)
		cancel()
		// the timer was cancelled by its own context, so it is ready like any other future
		i, err := workflow.Select(ctx, timer, workflow.Signal(ctx, "s"))
		return fmt.Sprint(i, err), nil
	})
	a.drain(nil)
	want(t, "output", a.output(), any("0 <nil>"))
}
