package workflow_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// onSession returns a workflow that schedules one activity, in a session unless session is "".
func onSession(name, session string) func(workflow.Context) error {
	return func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(workflow.InSession(ctx, session), name, 1).Get(ctx, nil)
	}
}

// replayedBy runs one workflow until it waits, replays the history with another workflow, and returns the error.
func replayedBy(t *testing.T, ran, replayed any) error {
	t.Helper()
	a := start(t, ran)
	a.drain(nil)
	m := replay.New(define(t, replayed), replay.Options{})
	defer m.Close()
	commands, err := m.Apply(a.task(len(a.events)), a.events)
	if err != nil && len(commands) > 0 {
		t.Errorf("a failed task returned commands: %v", types(commands))
	}
	if second, err2 := m.Apply(a.task(len(a.events)), a.events); err != nil && (err2 != err || second != nil) {
		t.Errorf("a replay machine returned commands after an error: %v, %v", second, err2)
	}
	return err
}

func TestScheduleOnASessionCarriesItsID(t *testing.T) { // IS-R1, IS-S8
	a := start(t, onSession("index", "sess-1"))
	a.drain(nil)
	d := a.events[1].Data.(*history.ActivityScheduled)
	want(t, "activity", d.ActivityType, "index")
	want(t, "session", d.SessionID, "sess-1")
	want(t, "input", d.Arguments, a.batches[0].commands[0].Arguments.Blob)
}

func TestPlainScheduleCarriesNoSession(t *testing.T) { // IS-R2
	a := start(t, onSession("index", ""))
	a.drain(nil)
	raw, err := history.EncodeData(a.events[1].Data)
	if err != nil || strings.Contains(string(raw), "session") {
		t.Errorf("got %s, %v", raw, err)
	}
}

func TestSameSessionMatches(t *testing.T) { // IS-R3
	for _, session := range []string{"", "s"} {
		if err := replayedBy(t, onSession("index", session), onSession("index", session)); err != nil {
			t.Errorf("session %q: %v", session, err)
		}
	}
}

func TestAnotherSessionIsReportedWithBothIDs(t *testing.T) { // IS-R4
	for _, c := range []struct{ ran, replayed, recorded, issued string }{
		{"s", "t", `in session "s"`, `in session "t"`},
		{"s", "", `in session "s"`, "without a session"},
		{"", "t", "without a session", `in session "t"`},
	} {
		err := replayedBy(t, onSession("index", c.ran), onSession("index", c.replayed))
		mismatch, ok := errors.AsType[*workflow.NonDeterminismError](err)
		if !ok {
			t.Fatalf("%q replayed as %q: got %v", c.ran, c.replayed, err)
		}
		want(t, "recorded", mismatch.Recorded, `activity "index" `+c.recorded)
		want(t, "issued", mismatch.Issued, `activity "index" `+c.issued)
		want(t, "event", mismatch.EventSeq, int64(2))
		f := replay.TaskFailure(err)
		if f.Type != "NonDeterminism" || !strings.Contains(f.Message, c.recorded) || !strings.Contains(f.Message, c.issued) ||
			!strings.Contains(f.Message, "event 2 (ActivityScheduled, command 1) is activity") {
			t.Errorf("task failure: %+v", f)
		}
	}
}

func TestWorkerSessionOptionsMatchByTheirID(t *testing.T) {
	with := func(id string) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			ctx = workflow.WithActivity(
				ctx, workflow.ActivityOptions{WorkerSession: &workflow.WorkerSession{ID: id, MaxActivities: 3}},
			)
			return workflow.ExecuteActivity(ctx, "index").Get(ctx, nil)
		}
	}
	if err := replayedBy(t, with("s"), with("s")); err != nil {
		t.Error(err)
	}
	if err := replayedBy(t, with("s"), with("t")); err == nil || !strings.Contains(err.Error(), `"s"`) ||
		!strings.Contains(err.Error(), `"t"`) {
		t.Errorf("got %v", err)
	}
}

func TestEveryKindOfDifferenceIsReported(t *testing.T) {
	type code = func(workflow.Context) error
	act := func(name string) code {
		return func(ctx workflow.Context) error { workflow.ExecuteActivity(ctx, name); return nil }
	}
	timer := func(ctx workflow.Context) error { workflow.NewTimer(ctx, time.Second); return nil }
	effect := func(ctx workflow.Context) error {
		_, err := workflow.SideEffect(ctx, func() int { return 1 })
		return err
	}
	version := func(id string) code {
		return func(ctx workflow.Context) error { workflow.Version(ctx, id, -1, 1); return nil }
	}
	wait := func(name string) code {
		return func(ctx workflow.Context) error {
			workflow.Go(ctx, func(ctx workflow.Context) { _ = workflow.Signal(ctx, name).Receive(ctx) })
			return workflow.Sleep(ctx, time.Hour)
		}
	}
	session := func(ctx workflow.Context) error {
		_, err := workflow.StartSession(ctx, workflow.SessionOptions{})
		return err
	}
	end := func(id string) code {
		return func(ctx workflow.Context) error { return (&workflow.Session{ID: id}).End(ctx) }
	}
	send := func(to string) code {
		return func(ctx workflow.Context) error { return workflow.SignalWorkflow(ctx, to, "go") }
	}
	seq := func(codes ...code) code {
		return func(ctx workflow.Context) error {
			for _, c := range codes {
				if err := c(ctx); err != nil {
					return err
				}
			}
			return workflow.Signal(ctx, "end").Receive(ctx)
		}
	}
	cancelled := func(ctx workflow.Context) error {
		ctx, cancel := workflow.WithCancel(ctx)
		workflow.NewTimer(ctx, time.Hour)
		cancel()
		return nil
	}
	for name, c := range map[string]struct {
		ran, replayed any
		words         []string
	}{
		"another activity": {seq(act("a")), seq(act("b")), []string{`activity "a"`, `activity "b"`, "event 2"}},
		"another kind":     {seq(timer), seq(act("b")), []string{"a timer", `activity "b"`}},
		"another order":    {seq(act("a"), timer), seq(timer, act("a")), []string{`activity "a"`, "a timer", "event 2"}},
		"one less": {
			seq(act("a"), act("b")), seq(act("a")), []string{`activity "b"`, `wait for signal "end"`, "event 3"},
		},
		"one more": {
			seq(act("a")), seq(act("a"), act("b")), []string{`wait for signal "end"`, `activity "b"`, "event 3"},
		},
		"nothing left": {seq(act("a")), func(ctx workflow.Context) error {
			return act("a")(ctx)
		}, []string{"no further command", "event 3"}},
		"side effect":    {seq(timer), seq(effect), []string{"a timer", "a side effect"}},
		"no side effect": {seq(effect), seq(timer), []string{"a timer", "a side effect"}},
		"another change": {seq(version("x")), seq(version("y")), []string{`change "x"`, `wait for signal "end"`}},
		"another signal": {wait("x"), wait("y"), []string{`signal "x"`, `signal "y"`}},
		"session start":  {seq(session), seq(timer), []string{`start of session "RUN-1"`, "a timer"}},
		"session end": {
			seq(session, end("RUN-1")), seq(session, end("y")), []string{`end of session "RUN-1"`, `end of session "y"`},
		},
		"signalled":     {seq(send("x")), seq(send("y")), []string{`workflow "x"`, `workflow "y"`}},
		"not cancelled": {seq(cancelled), seq(timer), []string{"cancellation of timer 1", `wait for signal "end"`}},
	} {
		t.Run(name, func(t *testing.T) {
			err := replayedBy(t, c.ran, c.replayed)
			if _, ok := errors.AsType[*workflow.NonDeterminismError](err); !ok {
				t.Fatalf("got %v", err)
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("got %q, want it to contain %q", err, w)
				}
			}
		})
	}
}

func TestResultWithoutACommandIsNondeterminism(t *testing.T) {
	a := start(t, onSession("index", ""))
	a.drain(nil)
	events := append(a.events, history.Event{Seq: 3, At: a.events[0].At, Data: &history.ActivityCompleted{Sequence: 9}})
	for _, data := range []history.Data{&history.ActivityCompleted{Sequence: 9}, &history.TimerFired{Sequence: 1}} {
		events[2].Data = data
		m := replay.New(a.def, replay.Options{})
		_, err := m.Apply(a.task(2), events)
		m.Close()
		if _, ok := errors.AsType[*workflow.NonDeterminismError](err); !ok {
			t.Errorf("%s: got %v", data.Type(), err)
		}
	}
}

func TestClosedRunReplaysAndItsEndMustMatch(t *testing.T) {
	done := func(workflow.Context) error { return nil }
	if err := replayedBy(t, done, done); err != nil {
		t.Error(err)
	}
	continueAsNew := func(ctx workflow.Context) error { return workflow.ContinueAsNew(ctx) }
	err := replayedBy(t, done, continueAsNew)
	if err == nil || !strings.Contains(err.Error(), "completion of the workflow") ||
		!strings.Contains(err.Error(), "continuation as a new run") {
		t.Errorf("got %v", err)
	}
	if err := replayedBy(t, continueAsNew, continueAsNew); err != nil {
		t.Error(err)
	}
}

func TestUnknownEventsAreSkipped(t *testing.T) {
	a := start(t, onSession("index", ""))
	a.drain(nil)
	events := append(a.events[:2:2], history.Event{Seq: 3, At: a.events[0].At, Data: &history.Unknown{Name: "Novelty"}})
	m := replay.New(a.def, replay.Options{})
	defer m.Close()
	if commands, err := m.Apply(a.task(2), events); err != nil || len(commands) > 0 {
		t.Errorf("got %v, %v", commands, err)
	}
}

func TestAMismatchNamesArgumentsPlaceAndNeighbours(t *testing.T) {
	steps := func(second string, arg int) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			a, b, c := workflow.ExecuteActivity(ctx, "first", 1), workflow.ExecuteActivity(ctx, second, arg),
				workflow.NewTimer(ctx, time.Second)
			return errors.Join(a.Get(ctx, nil), b.Get(ctx, nil), c.Get(ctx, nil))
		}
	}
	err := replayedBy(t, steps("second", 22), steps("other", 33))
	mismatch, ok := errors.AsType[*workflow.NonDeterminismError](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{
		`event 3 (ActivityScheduled, command 2) is activity "second", but the code (nondeterminism_test.go:`,
		"arguments recorded: [22]",
		`now has activity "other"; before it`, "arguments of the code: [33]",
		`before it event 2 is activity "first"`, "after it event 4 is a timer",
	} {
		if !strings.Contains(replay.TaskFailure(err).Message, part) {
			t.Errorf("%q is missing in %s", part, mismatch.Explain())
		}
	}
}

// namesBoth reports whether an error contains both parts of "recorded, the code has issued".
func namesBoth(err error, parts string) bool {
	recorded, issued, _ := strings.Cut(parts, ", the code has ")
	return strings.Contains(err.Error(), " is "+recorded) && strings.Contains(err.Error(), " now has "+issued)
}
