package workflow_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// stmt is one statement of a generated workflow.
type stmt struct {
	Op   string
	N    int
	Body []stmt
}

var ops = []string{
	"activity", "activity", "sleep", "receive", "join", "race", "go", "effect", "version", "session", "begin", "await",
	"either", "scope", "id",
	"child", "until", "ready", "memo", "end",
}

func programs(depth int) *rapid.Generator[[]stmt] {
	return rapid.Custom(func(t *rapid.T) []stmt {
		var all []stmt
		for range rapid.IntRange(1, 5).Draw(t, "length") {
			s := stmt{Op: rapid.SampledFrom(ops).Draw(t, "op"), N: rapid.IntRange(0, 3).Draw(t, "n")}
			if s.Op == "go" || s.Op == "scope" {
				if depth == 0 {
					continue
				}
				s.Body = programs(depth-1).Draw(t, "body")
			}
			all = append(all, s)
		}
		return all
	})
}

// state is the state of a running program, shared by all its branches.
type state struct {
	trace   []string
	futures []workflow.Future
	updates int
}

// updated handles an update. It may fail, and it may start steps.
func (st *state) updated(ctx workflow.Context, n int) (int, error) {
	st.updates++
	st.say(ctx, "update %d", n)
	switch n % 10 {
	case 1:
		return 0, errors.New("no")
	case 2:
		st.futures = append(st.futures, st.begin(ctx, n%3))
	case 3:
		workflow.Go(ctx, func(ctx workflow.Context) { st.say(ctx, "after update %v", workflow.Sleep(ctx, time.Second)) })
	case 4:
		st.say(ctx, "update slept %v", workflow.Sleep(ctx, time.Second))
	case 5:
		st.say(ctx, "update joined %v", workflow.Join(ctx, st.begin(ctx, 0), st.begin(ctx, 1), st.begin(ctx, 2)))
	case 6:
		v, err := workflow.Execute[int](ctx, "work", n)
		if err == nil {
			v, err = workflow.SideEffect(ctx, func() int { return v + 1 })
		}
		st.say(ctx, "update worked %d %v", v, err)
		return v, err
	case 7:
		met, err := workflow.UntilTimeout(ctx, time.Minute, func() bool { return st.updates > n%4 })
		st.say(ctx, "update waited %v %v", met, err)
	case 8:
		panic("a bug")
	}
	return st.updates, nil
}

func (st *state) say(ctx workflow.Context, format string, args ...any) {
	st.trace = append(
		st.trace, fmt.Sprintf("%d ", workflow.Now(ctx).Sub(epoch).Milliseconds())+fmt.Sprintf(format, args...),
	)
}

func (st *state) begin(ctx workflow.Context, n int) workflow.Future {
	if n == 2 {
		return workflow.StartChild(ctx, "sub", n)
	}
	if n%2 == 1 {
		return workflow.NewTimer(ctx, time.Duration(n)*1500*time.Millisecond)
	}
	return workflow.ExecuteActivity(ctx, "work", n)
}

func (st *state) run(ctx workflow.Context, program []stmt) {
	for _, s := range program {
		switch s.Op {
		case "activity":
			v, err := workflow.Execute[int](workflow.InSession(ctx, []string{"", "s"}[s.N%2]), "work", s.N)
			st.say(ctx, "activity %d %v", v, err)
		case "sleep":
			st.say(ctx, "sleep %v", workflow.Sleep(ctx, time.Duration(s.N)*time.Second))
		case "receive":
			v, err := workflow.ReceiveSignal[int](ctx, fmt.Sprint("signal", s.N%2))
			st.say(ctx, "received %d %v", v, err)
		case "join":
			var all []workflow.Future
			for i := range s.N + 1 {
				all = append(all, st.begin(ctx, i*2+s.N%2))
			}
			st.say(ctx, "join %v", workflow.Join(ctx, all...))
		case "race":
			under, cancel := workflow.WithCancel(ctx)
			f, g := st.begin(under, 0), st.begin(under, 1)
			i, err := workflow.Select(ctx, f, g)
			cancel()
			st.say(ctx, "race %d %v %v", i, err, f.Get(ctx, nil))
		case "go":
			workflow.Go(ctx, func(ctx workflow.Context) { st.run(ctx, s.Body) })
		case "effect":
			v, err := workflow.SideEffect(ctx, func() int { return 100 + len(st.trace) })
			st.say(ctx, "effect %d %v", v, err)
		case "version":
			st.say(ctx, "version %d", workflow.Version(ctx, fmt.Sprint("change", s.N), workflow.DefaultVersion, s.N))
		case "session":
			session, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				st.say(ctx, "session %v", err)
				continue
			}
			f := session.Execute(ctx, "work", s.N)
			if s.N == 0 {
				_ = session.End(ctx)
			}
			st.say(ctx, "in session %v", f.Get(ctx, nil))
			_ = session.End(ctx)
		case "begin":
			st.futures = append(st.futures, st.begin(ctx, s.N))
		case "await":
			if len(st.futures) > 0 {
				st.say(ctx, "awaited %v", st.futures[s.N%len(st.futures)].Get(ctx, nil))
			}
		case "either":
			ch := workflow.Signal(ctx, fmt.Sprint("signal", s.N%2))
			i, err := workflow.Select(ctx, ch, workflow.NewTimer(ctx, time.Hour))
			ok, _ := ch.ReceiveAsync(nil)
			st.say(ctx, "either %d %v %v", i, ok, err)
		case "scope":
			under, cancel := workflow.WithCancel(ctx)
			workflow.Go(under, func(ctx workflow.Context) { st.run(ctx, s.Body) })
			st.say(ctx, "scope %v", workflow.Sleep(ctx, time.Duration(s.N)*time.Second))
			cancel()
		case "child":
			v, err := workflow.ExecuteChild[int](ctx, "sub", s.N)
			st.say(ctx, "child %d %v", v, err)
		case "until":
			want := st.updates + s.N
			met, err := workflow.UntilTimeout(ctx, time.Minute, func() bool { return st.updates >= want })
			st.say(ctx, "until %v %v", met, err)
		case "ready":
			f := st.begin(ctx, s.N)
			st.say(ctx, "ready %v %v", workflow.Until(ctx, f.Ready), f.Ready())
		case "memo":
			st.say(ctx, "memo %v", workflow.UpsertMemo(ctx, map[string]any{"n": s.N}))
		case "end": // the session was never started, starts later, or has started
			id := []string{"none", "s", "RUN-2", "RUN-6"}[s.N]
			st.say(ctx, "end %v", (&workflow.Session{ID: id}).End(ctx))
		case "id":
			st.say(ctx, "id %s", workflow.NewID(ctx))
		}
	}
}

func TestRandomProgramsReplayHoweverTheirEventsWereGrouped(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		program := programs(2).Draw(rt, "program")
		a := start(t, func(ctx workflow.Context) (string, error) {
			st := &state{}
			workflow.HandleUpdate(ctx, "update", st.updated, workflow.UpdateOptions{Validate: func(
				_ workflow.Context, n int,
			) error {
				if n%11 == 4 {
					return errors.New("rejected")
				}
				return nil
			}})
			workflow.HandleQuery(ctx, "trace", func(workflow.Context) (int, error) { return len(st.trace), nil })
			st.run(ctx, program)
			if len(program)%2 == 0 {
				st.say(ctx, "handled %v", workflow.Until(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }))
			}
			st.say(ctx, "end %v", ctx.Err())
			return strings.Join(st.trace, "\n"), nil
		})
		cancelled := rapid.IntRange(0, 3).Draw(rt, "never cancelled") > 0
		runToEnd(rt, a, &cancelled)
		regroup(rt, a)
		if n := rapid.IntRange(1, len(a.events)).Draw(rt, "asked at"); true {
			if _, err := a.ask(n, "trace"); err != nil {
				rt.Fatalf("query after event %d: %v", n, err)
			}
		}
		a.replays()
	})
}

// Random programs fail, are redriven up to three times, and then complete. Their copied histories fit their code, and
// no recorded result changes.
func TestRandomProgramsAreRedriven(t *testing.T) {
	redriven := 0
	rapid.Check(t, func(rt *rapid.T) {
		program := programs(1).Draw(rt, "program")
		broken := true
		var recorded, trace []string
		a := start(t, func(ctx workflow.Context) (string, error) {
			st := &state{}
			workflow.HandleUpdate(ctx, "update", st.updated)
			st.run(ctx, program)
			recorded = st.trace
			n, err := workflow.Execute[int](ctx, "last")
			st.say(ctx, "last %d", n)
			trace = st.trace
			if broken {
				return "", cmp.Or(err, errors.New("a defect"))
			}
			return "", nil
		})
		cancelled := true // a cancelled run does not fail
		runToEnd(rt, a, &cancelled)
		before := slices.Clone(recorded)
		for i := range rapid.IntRange(1, 3).Draw(rt, "redrives") {
			if _, err := engine.PrepareRedrive(&a.run.Head, a.events, "NEXT"); err != nil {
				if protocol.ReasonOf(err) != protocol.ReasonUnsupportedHistory { // an open child
					rt.Fatalf("redrive %d: %v", i, err)
				}
				return
			}
			a, _ = a.redriven(fmt.Sprintf("REDRIVEN%d", i))
			redriven++
			broken = rapid.Bool().Draw(rt, "broken")
			runToEnd(rt, a, &cancelled)
			if !slices.Equal(recorded, before) {
				rt.Fatalf("redrive %d: the recorded code did %q, before %q", i, recorded, before)
			}
			if len(trace) <= len(before) {
				rt.Fatalf("redrive %d: the code ended with %q", i, trace)
			}
			if !broken {
				regroup(rt, a)
				return
			}
		}
	})
	if redriven < 50 {
		t.Errorf("only %d redrives", redriven)
	}
}

// runToEnd completes tasks, and applies random external events, until the run closes.
func runToEnd(rt *rapid.T, a *app, cancelled *bool) {
	kept := replay.New(a.def, a.options)
	defer func() { kept.Close() }()
	var task *protocol.WorkflowTask
	for steps := 0; a.run.Status == protocol.RunRunning; steps++ {
		if steps > 2000 {
			rt.Fatalf("the run did not close after %d events", len(a.events))
		}
		// External events may occur while a task is leased; the task is completed later.
		if task == nil {
			task, _ = a.lease()
		} else if rapid.IntRange(0, 2).Draw(rt, "answer") > 0 {
			if rapid.IntRange(0, 4).Draw(rt, "machine") == 0 {
				kept.Close()
				kept = replay.New(a.def, a.options)
			}
			commands, err := kept.Apply(task, a.events[:task.LastSequence])
			if err != nil {
				rt.Fatalf("task at event %d: %v", task.LastSequence, err)
			}
			a.answer(task.LastSequence, commands)
			task = nil
			continue
		}
		if !happen(rt, a, cancelled) && task == nil && (a.run.Task == nil || a.run.Task.State != engine.Ready) {
			rt.Fatalf("the run hangs after %d events: nothing is open", len(a.events))
		}
	}
}

// happen applies a randomly chosen external event and reports whether one was possible.
func happen(rt *rapid.T, a *app, cancelled *bool) bool {
	var can []func()
	for seq := range a.run.Activities.All() {
		can = append(can, func() { a.complete(seq, int(seq)) }, func() {
			a.failActivity(seq, activitywire.FailureOf(errors.New("no luck")))
		})
	}
	for seq := range a.run.Timers.All() {
		can = append(can, func() { a.fire(seq) })
	}
	for seq := range a.run.Children.All() {
		can = append(can, func() { a.child(seq, protocol.RunCompleted, int(seq), nil) },
			func() { a.child(seq, protocol.RunFailed, nil, &history.Failure{Message: "no luck"}) })
	}
	for _, w := range a.run.Waits.All() {
		can = append(can, func() { a.signal(w.Name, len(a.events)) })
	}
	open := len(can) > 0
	switch n := rapid.IntRange(0, 99).Draw(rt, "what"); {
	case n == 99 && !*cancelled:
		*cancelled = true
		a.decide(engine.RequestCancellation{})
	case n > 92:
		a.update([]string{"update", "update", "unknown"}[n%3], len(a.events))
	case n > 87:
		a.signal(fmt.Sprint("signal", n%2), len(a.events))
	case n > 10 && open:
		can[n%len(can)]()
	}
	return open
}

// regroup replays the whole history in chunks of random length. The first chunk contains all events with which a reset
// began the run. The resulting commands must equal those in the history.
func regroup(rt *rapid.T, a *app) {
	m := replay.New(a.def, a.options)
	defer m.Close()
	for from := 0; from < len(a.events); {
		to := min(len(a.events), max(a.begins, from+rapid.IntRange(1, 7).Draw(rt, "chunk")))
		for to < len(a.events) && a.events[to].TaskID != "" { // the events of one completion must be in the same chunk
			to++
		}
		if _, err := m.Apply(a.task(to), a.events[from:to]); err != nil {
			rt.Fatalf("events %d to %d: %v", from+1, to, err)
		}
		from = to
	}
	if !m.Finished() || m.Unconfirmed() != 0 {
		rt.Fatalf("replayed to the end: finished %v, %d commands unconfirmed", m.Finished(), m.Unconfirmed())
	}
	if _, ok := a.events[len(a.events)-1].Data.(*history.WorkflowCompleted); !ok {
		rt.Fatalf("the run ended with %s", a.events[len(a.events)-1].Type())
	}
}
