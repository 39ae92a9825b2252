package workflow_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// endsMissing is a workflow that ends sessions that were never started, between and after commands that are recorded,
// and finally a session that was started. The numbers are those of the commands.
func endsMissing(ctx workflow.Context) (string, error) {
	never := &workflow.Session{ID: "never"}
	if err := never.End(ctx); err != nil { // 1
		return "", err
	}
	var first string
	one := workflow.ExecuteActivity(ctx, "one")                         // 2
	if err := errors.Join(never.End(ctx), never.End(ctx)); err != nil { // 3 and 4: the last commands of their task
		return "", err
	}
	if err := one.Get(ctx, &first); err != nil {
		return "", err
	}
	a, b := workflow.ExecuteActivity(ctx, "a"), workflow.ExecuteActivity(ctx, "b") // 5 and 6
	if err := workflow.Join(ctx, a, b); err != nil {
		return "", err
	}
	later := &workflow.Session{ID: "RUN-8"}
	if err := later.End(ctx); err != nil { // 7: RUN-8 starts with the next command
		return "", err
	}
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{}) // 8
	if err != nil {
		return "", err
	}
	if err := s.Execute(ctx, "inside").Get(ctx, nil); err != nil { // 9
		return "", err
	}
	nap := workflow.NewTimer(ctx, time.Second)                         // 10
	if err := (&workflow.Session{ID: "RUN-12"}).End(ctx); err != nil { // 11: RUN-12 starts in a later task
		return "", err
	}
	if err := nap.Get(ctx, nil); err != nil {
		return "", err
	}
	s2, err := workflow.StartSession(ctx, workflow.SessionOptions{}) // 12
	if err != nil {
		return "", err
	}
	if err := s2.Execute(ctx, "inside").Get(ctx, nil); err != nil { // 13
		return "", err
	}
	err = errors.Join(s.End(ctx), never.End(ctx), s2.End(ctx), s2.End(ctx), never.End(ctx)) // 14 to 18
	return first + " " + s.ID + " " + s2.ID, err
}

func playEndsMissing(t *testing.T, kept bool) *app {
	a := start(t, endsMissing)
	var m replay.Machine
	if kept {
		m = replay.New(a.def, a.options)
		defer m.Close()
	}
	a.drain(m)
	a.complete(2, "done")
	want(t, "tasks after an activity behind which two ends are pending", a.drain(m), 1)
	a.complete(6, nil)
	want(t, "tasks after a member of the join", a.drain(m), 0)
	a.complete(5, nil)
	want(t, "tasks after the join", a.drain(m), 1)
	a.complete(9, nil)
	a.drain(m)
	a.signal("unawaited", 1)
	a.fire(10)
	a.drain(m)
	a.complete(13, nil)
	a.drain(m)
	want(t, "output", a.output(), any("done RUN-8 RUN-12"))
	return a
}

func TestTheEndOfASessionThatWasNeverStartedLeavesNoEvent(t *testing.T) {
	a, b := playEndsMissing(t, true), playEndsMissing(t, false)
	want(t, "history", a.events, b.events)
	var ends []string
	for _, e := range a.events {
		if d, ok := e.Data.(*history.SessionEnded); ok {
			ends = append(ends, fmt.Sprintf("%d %s %s", d.CommandSequence, d.SessionID, d.Effect))
		}
	}
	want(t, "ends", ends, []string{"14 RUN-8 ended", "16 RUN-12 ended", "17 RUN-12 already_ended"})
	a.replays()
	b.replays()
	for _, o := range []replay.Options{{}, {CompareArguments: true}} {
		if err := replay.Events(a.def, o, a.events); err != nil {
			t.Error(err)
		}
	}
	// The result does not depend on where the history is split into pages.
	for i := range a.events {
		for j := i; j < len(a.events); j++ {
			m := replay.New(a.def, a.options)
			for _, to := range []int{i, j, len(a.events)} {
				if _, err := m.Apply(a.task(to), a.events[:to]); to > 0 && err != nil {
					t.Fatalf("pages end at %d and %d: %v", i, j, err)
				}
			}
			if !m.Finished() || m.Unconfirmed() != 0 {
				t.Fatalf("pages end at %d and %d: %d commands are unconfirmed", i, j, m.Unconfirmed())
			}
			m.Close()
		}
	}
}

// The build that wrote this history recorded the ends of sessions that were never started. The history still replays.
func TestARecordedEndOfASessionThatWasNeverStartedReplays(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		if err := (&workflow.Session{ID: "never"}).End(ctx); err != nil {
			return err
		}
		f := workflow.ExecuteActivity(ctx, "one")
		if err := (&workflow.Session{ID: "never"}).End(ctx); err != nil {
			return err
		}
		if err := f.Get(ctx, nil); err != nil {
			return err
		}
		return workflow.ExecuteActivity(ctx, "two").Get(ctx, nil)
	})
	ended := func(seq int64) history.Data {
		return &history.SessionEnded{CommandSequence: seq, SessionID: "never", Effect: "already_ended"}
	}
	for _, d := range []history.Data{
		ended(1), &history.ActivityScheduled{Sequence: 2, ActivityType: "one"}, ended(3),
		&history.ActivityCompleted{Sequence: 2}, &history.ActivityScheduled{Sequence: 4, ActivityType: "two"},
		&history.ActivityCompleted{Sequence: 4}, &history.WorkflowCompleted{},
	} {
		a.events = append(a.events, history.Event{Seq: int64(len(a.events) + 1), At: a.events[0].At, Data: d})
	}
	if err := replay.Events(a.def, a.options, a.events); err != nil {
		t.Error(err)
	}
	a.replays()
	for i := range a.events {
		m := replay.New(a.def, a.options)
		for _, to := range []int{i, len(a.events)} {
			if _, err := m.Apply(a.task(to), a.events[:to]); to > 0 && err != nil {
				t.Errorf("a page ends at %d: %v", i, err)
			}
		}
		m.Close()
	}
}

// If code was changed before or after the end of a session that was never started, the replay reports it as for any
// other command.
func TestAChangeNextToAnEndWithoutAnEventIsReported(t *testing.T) {
	code := func(before, after int, name string) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			for range before {
				if err := (&workflow.Session{ID: "never"}).End(ctx); err != nil {
					return err
				}
			}
			workflow.ExecuteActivity(ctx, name)
			for range after {
				if err := (&workflow.Session{ID: "never"}).End(ctx); err != nil {
					return err
				}
			}
			return workflow.ExecuteActivity(ctx, "last").Get(ctx, nil)
		}
	}
	for name, c := range map[string]struct {
		before, after int
		name          string
	}{
		"one less in front": {0, 1, "a"}, "one more in front": {2, 1, "a"}, "one less behind": {1, 0, "a"},
		"one more behind": {1, 2, "a"}, "another activity": {1, 1, "b"},
	} {
		if _, ok := errors.AsType[*workflow.NonDeterminismError](
			replayedBy(t, code(1, 1, "a"), code(c.before, c.after, c.name)),
		); !ok {
			t.Errorf("%s is not reported", name)
		}
	}
	if err := replayedBy(t, code(1, 1, "a"), code(1, 1, "a")); err != nil {
		t.Error(err)
	}
}

// The unrecorded end of a session does not prevent eager workflow tasks once history contains later events. Apply
// returns the command again, because the app may have refused its completion.
func TestAnEndWithoutAnEventLeavesTheMachineAhead(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		f := workflow.ExecuteActivity(ctx, "one")
		if err := (&workflow.Session{ID: "never"}).End(ctx); err != nil {
			return err
		}
		if err := f.Get(ctx, nil); err != nil {
			return err
		}
		return workflow.Sleep(ctx, time.Second)
	})
	m := replay.New(a.def, a.options)
	defer m.Close()
	task, _ := a.lease()
	first, err := m.Apply(task, task.Events)
	want(t, "commands", types(first), []string{"schedule_activity", "end_session"})
	want(t, "unconfirmed before the app has answered", m.Unconfirmed(), 2)
	a.answer(task.LastSequence, first)
	continueAsNew, err2 := m.Apply(a.task(2), a.events)
	want(t, "commands after the answer", types(continueAsNew), []string{"end_session"})
	want(t, "unconfirmed after the answer", m.Unconfirmed(), 0)
	want(t, "the activity is alone", m.Lone(1), true)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	a.complete(1, nil)
	want(t, "tasks", a.drain(m), 1)
	want(t, "the timer's number", a.events[len(a.events)-1].Data.(*history.TimerScheduled).Sequence, int64(3))
}

// If the code ends sessions without other commands in between, one end in a hundred is recorded, so that such a run
// does not exceed the maximum number of commands.
func TestEndsInARowAreRecordedNowAndThen(t *testing.T) {
	const updates = 1200
	a := start(t, func(ctx workflow.Context) error {
		n := 0
		workflow.HandleUpdate(ctx, "end", func(ctx workflow.Context) error {
			n++
			return (&workflow.Session{ID: "never"}).End(ctx)
		})
		return workflow.Until(ctx, func() bool { return n == updates })
	})
	m := replay.New(a.def, a.options)
	defer m.Close()
	a.drain(m)
	for range updates {
		a.update("end")
		a.drain(m)
		if n := m.Unconfirmed(); n > 101 {
			t.Fatalf("%d commands are unconfirmed", n)
		}
	}
	a.output()
	ends := 0
	for _, e := range a.events {
		if _, ok := e.Data.(*history.SessionEnded); ok {
			ends++
		}
	}
	want(t, "recorded ends", ends, updates/101)
	for _, b := range a.batches {
		if len(b.commands) > 103 {
			t.Fatalf("a completion has %d commands", len(b.commands))
		}
	}
	if err := replay.Events(a.def, a.options, a.events); err != nil {
		t.Error(err)
	}
}
