package workflow_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// inheritingRun is the history of a run that inherited signals and whose code has scheduled an activity.
type inheritingRun struct {
	def             *workflow.Definition
	events          []history.Event
	first, second   int // number of events in the first task, and in both tasks together
	inheritedEvents int
}

func encoded(t testing.TB, args ...any) payload.Payload {
	t.Helper()
	p, err := payload.EncodeArgs(args...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newInheritingRun returns a run that inherits signals with these names and receives further signals with its second
// task.
func newInheritingRun(t testing.TB, fn any, inherited, later []string) *inheritingRun {
	t.Helper()
	r := &inheritingRun{def: define(t, fn), inheritedEvents: len(inherited)}
	add := func(d history.Data) {
		r.events = append(r.events, history.Event{Seq: int64(len(r.events) + 1), At: history.At(epoch), Data: d})
	}
	signal := func(name string) {
		add(&history.SignalReceived{
			SignalName: name, Value: encoded(t, fmt.Sprint(name, len(r.events)+1)).Blob, PayloadCodec: payload.Codec,
		})
	}
	add(&history.WorkflowStarted{
		WorkflowType: "flow", RunNumber: 2, TaskQueue: "default", CarriedSignals: len(inherited),
		Arguments: encoded(t).Blob, PayloadCodec: payload.Codec,
	})
	for _, name := range inherited {
		signal(name)
	}
	r.first = len(r.events)
	add(&history.ActivityScheduled{
		Sequence: 1, ActivityType: "a", Activity: &history.ActivitySnapshot{Queue: "default"},
		Arguments: encoded(t).Blob, PayloadCodec: payload.Codec,
	})
	for _, name := range later {
		signal(name)
	}
	add(&history.ActivityCompleted{Sequence: 1, ActivityType: "a"})
	r.second = len(r.events)
	return r
}

// apply applies both tasks to a new machine. If contained is not negative, the first task contains only that number of
// the inherited signals, and the machine fetches the others, at most most per fetch.
func (r *inheritingRun) apply(t testing.TB, contained, most int) (commands []protocol.Command, fetched int) {
	t.Helper()
	m := replay.New(r.def, replay.Options{})
	defer m.Close()
	task := &protocol.WorkflowTask{RunID: "RUN", WorkflowType: "flow"}
	events := r.events[:r.first]
	if contained >= 0 && contained < r.inheritedEvents {
		task.OmittedSignals = &protocol.EventRange{First: int64(contained) + 2, Last: int64(r.first)}
		events = events[:contained+1]
	}
	m.SetCallbacks(nil, func(after int64, n int) ([]history.Event, error) {
		list := r.events[after:min(after+int64(min(n, most)), int64(r.first))]
		fetched += len(list)
		return list, nil
	})
	if _, err := m.Apply(task, events); err != nil {
		t.Fatal(err)
	}
	if m.Seen() != int64(r.first) {
		t.Fatalf("the machine has seen %d events, want %d", m.Seen(), r.first)
	}
	commands, err := m.Apply(&protocol.WorkflowTask{RunID: "RUN", WorkflowType: "flow"}, r.events[r.first:r.second])
	if err != nil {
		t.Fatal(err)
	}
	return commands, fetched
}

// unreceivedEvents returns the numbers of the signal events that a continue-as-new command passes on.
func unreceivedEvents(c protocol.Command) (list []int64) {
	list = append(list, c.Unreceived...)
	if o := c.UnreceivedRange; o != nil {
		var rest []int64
		for e := o.First; e <= o.Last; e++ {
			rest = append(rest, e)
		}
		at := 0
		for at < len(list) && list[at] < o.First {
			at++
		}
		list = append(list[:at:at], append(rest, list[at:]...)...)
	}
	return list
}

// The code receives the same signals in the same order, and passes the same signals on, whether the task contained all
// inherited signals or the machine fetched them.
func TestFetchedSignalsAreReceivedLikeThoseOfTheTask(t *testing.T) {
	names := rapid.SampledFrom([]string{"x", "y", "z"})
	rapid.Check(t, func(rt *rapid.T) {
		inherited := rapid.SliceOfN(names, 1, 40).Draw(rt, "inherited")
		later := rapid.SliceOfN(names, 0, 5).Draw(rt, "later")
		kinds := rapid.SampledFrom([]string{"async", "receive", "select"})
		plan := rapid.SliceOfN(kinds, 0, 12).Draw(rt, "plan")
		wanted := rapid.SliceOfN(names, 12, 12).Draw(rt, "names")
		before := rapid.IntRange(1, 12).Draw(rt, "before")
		fn := func(ctx workflow.Context) (err error) {
			got := []string{fmt.Sprint(workflow.Info(ctx).HistoryLength)}
			f := workflow.ExecuteActivity(ctx, "a")
			steps := func(from, to int) {
				for i := from; i < min(to, len(plan)); i++ {
					s, text, ok := workflow.Signal(ctx, wanted[i]), "", false
					switch plan[i] {
					case "async":
						ok, err = s.ReceiveAsync(&text)
					case "receive": // the code never waits: the activity is the only command
						if ok, err = s.ReceiveAsync(&text); ok && err == nil {
							got = append(got, text)
							ok, err = s.ReceiveAsync(&text)
						}
					case "select": // the code waits only before the activity has ended
						if from > 0 {
							var at int
							at, err = workflow.Select(ctx, s, f)
							text = fmt.Sprint(at)
						}
					}
					got = append(got, fmt.Sprint(plan[i], wanted[i], ok, text))
				}
			}
			steps(0, before)
			if err := f.Get(ctx, nil); err != nil {
				return err
			}
			steps(before, len(plan))
			return errors.Join(err, workflow.ContinueAsNew(ctx, got))
		}
		r := newInheritingRun(t, fn, inherited, later)
		want, _ := r.apply(t, -1, 0)
		got, _ := r.apply(t, rapid.IntRange(0, len(inherited)).Draw(rt, "contained"), rapid.IntRange(1, 9).Draw(rt, "most"))
		if len(want) == 0 || len(got) != len(want) {
			rt.Fatalf("%d commands, want %d", len(got), len(want))
		}
		w, g := want[len(want)-1], got[len(got)-1]
		if w.Arguments != g.Arguments || !reflect.DeepEqual(w.Unreceived, unreceivedEvents(g)) {
			rt.Fatalf("got %s, passing on %v; want %s, passing on %v",
				g.Arguments.Blob, unreceivedEvents(g), w.Arguments.Blob, w.Unreceived)
		}
	})
}

// The number of fetched signals depends on what the code receives, not on how many signals wait.
func TestFetchedSignalsAreIndependentOfTheBacklog(t *testing.T) {
	receives := func(n int) any {
		return func(ctx workflow.Context) error {
			if err := workflow.ExecuteActivity(ctx, "a").Get(ctx, nil); err != nil {
				return err
			}
			for range n {
				if _, err := workflow.ReceiveSignal[string](ctx, "x"); err != nil {
					return err
				}
			}
			return workflow.ContinueAsNew(ctx)
		}
	}
	for n, want := range map[int]int{1: 0, 33: 64} {
		for _, backlog := range []int{200, 4000} {
			names := make([]string, backlog)
			for i := range names {
				names[i] = "x"
			}
			commands, fetched := newInheritingRun(t, receives(n), names, nil).apply(t, 32, 1000)
			c := commands[0]
			if listed := 32 + want - n; fetched != want || len(c.Unreceived) != listed || c.UnreceivedRange == nil ||
				len(unreceivedEvents(c)) != backlog-n {
				t.Errorf("receiving %d of %d: fetched %d, passes on %d and %+v", n, backlog, fetched, len(c.Unreceived),
					c.UnreceivedRange)
			}
		}
	}
}

// If the machine cannot fetch signals, the task fails in the same way as if it cannot load the history.
func TestAFailureToFetchSignalsFailsTheTask(t *testing.T) {
	r := newInheritingRun(t, func(ctx workflow.Context) error {
		_, err := workflow.ReceiveSignal[string](ctx, "y")
		return err
	}, []string{"x", "x", "y"}, nil)
	task := &protocol.WorkflowTask{
		RunID: "RUN", WorkflowType: "flow", OmittedSignals: &protocol.EventRange{First: 3, Last: 4},
	}
	broken := errors.New("connection lost")
	for name, c := range map[string]struct {
		fetch replay.FetchSignals
		want  error
	}{
		"an error":  {func(int64, int) ([]history.Event, error) { return nil, broken }, broken},
		"nothing":   {func(int64, int) ([]history.Event, error) { return nil, nil }, replay.ErrGap},
		"no signal": {func(int64, int) ([]history.Event, error) { return r.events[4:5], nil }, replay.ErrGap},
		"a gap":     {func(int64, int) ([]history.Event, error) { return r.events[3:4], nil }, replay.ErrGap},
	} {
		m := replay.New(r.def, replay.Options{})
		m.SetCallbacks(nil, c.fetch)
		if _, err := m.Apply(task, r.events[:2]); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		m.Close()
	}
	m := replay.New(r.def, replay.Options{}) // without SetCallbacks, as for an eager workflow task
	if commands, err := m.Apply(task, r.events[:2]); err != nil || len(commands) != 0 || !m.AtLocalStep() {
		t.Errorf("without a callback: %v, %v", commands, err)
	}
	m.Close()
}
