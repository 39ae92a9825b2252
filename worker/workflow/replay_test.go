package workflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// mixed is a workflow with a session, a durable timer, a signal, a Join of n activities and a Select whose other item
// is cancelled.
func mixed(ctx workflow.Context, n int) (string, error) {
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{Requirements: []string{"gpu"}})
	if err != nil {
		return "", err
	}
	lot, err := workflow.SideEffect(ctx, func() int { return 4 })
	if err != nil {
		return "", err
	}
	var futures []workflow.Future
	for i := range n {
		futures = append(futures, s.Execute(ctx, "part", i))
	}
	if err := workflow.Join(ctx, futures...); err != nil {
		return "", err
	}
	sum := 0
	for _, f := range futures {
		v, err := workflow.Await[int](ctx, f)
		if err != nil {
			return "", err
		}
		sum += v
	}
	if err := workflow.Sleep(ctx, 1500*time.Millisecond); err != nil {
		return "", err
	}
	var name string
	if err := workflow.Signal(ctx, "approve").Receive(ctx, &name); err != nil {
		return "", err
	}
	race, cancel := workflow.WithCancel(ctx)
	slow, limit := s.Execute(race, "endless"), workflow.NewTimer(race, time.Minute)
	won, err := workflow.Select(ctx, slow, limit)
	if err != nil {
		return "", err
	}
	cancel()
	if err := slow.Get(ctx, nil); !errors.Is(err, workflow.ErrCancelled) {
		return "", fmt.Errorf("the cancelled item: %w", err)
	}
	if workflow.Version(ctx, "last words", workflow.DefaultVersion, 2) == 2 {
		if err := s.Execute(ctx, "farewell", name).Get(ctx, &name); err != nil {
			return "", err
		}
	}
	if err := s.End(ctx); err != nil {
		return "", err
	}
	took := workflow.Now(ctx).Sub(workflow.Info(ctx).StartedAt)
	return fmt.Sprintf("%d %d %s %d %s %s", sum, lot, name, won, workflow.NewID(ctx), took), nil
}

// playMixed runs mixed to its end; kept selects whether one machine applies all tasks or each task gets a new machine.
func playMixed(t *testing.T, n int, kept bool) *app {
	a := start(t, mixed, n)
	var m replay.Machine
	if kept {
		m = replay.New(a.def, a.options)
		defer m.Close()
	}
	want(t, "tasks at the start", a.drain(m), 1)
	for i := n - 1; i >= 0; i-- {
		a.complete(int64(3+i), i*i)
		wakes := 0
		if i == 0 {
			wakes = 1 // only the last member of the Join wakes the run
		}
		want(t, "tasks after a part", a.drain(m), wakes)
	}
	timer := int64(n + 3)
	a.fire(timer)
	a.drain(m)
	a.signal("approve", "ann")
	a.drain(m)
	a.signal("approve", "too late")
	a.drain(m)
	a.fire(timer + 3)
	a.drain(m)
	a.complete(timer+6, "bye")
	a.drain(m)
	return a
}

func TestEveryPrefixOfAHistoryLeadsToTheSameCommands(t *testing.T) { // OS-E7
	for n := 2; n <= 10; n++ {
		for _, kept := range []bool{false, true} {
			t.Run(fmt.Sprintf("join of %d, machine kept %v", n, kept), func(t *testing.T) {
				a := playMixed(t, n, kept)
				sum := 0
				for i := range n {
					sum += i * i
				}
				got := a.output().(string)
				if want := fmt.Sprintf("%d 4 bye 1 ", sum); len(got) < len(want) || got[:len(want)] != want {
					t.Errorf("got %q, want it to begin with %q", got, want)
				}
				a.replays()
			})
		}
	}
}

func TestKeptAndNewMachinesWriteTheSameHistory(t *testing.T) {
	want(t, "history", playMixed(t, 4, true).events, playMixed(t, 4, false).events)
}

func TestHistoryOfAnOlderBuildStillReplays(t *testing.T) {
	a := playMixed(t, 3, false)
	a.events = golden(t, "mixed.json", a.events)
	a.replays()
	if err := replay.Events(a.def, a.options, a.events); err != nil {
		t.Error(err)
	}
	other := define(t, func(ctx workflow.Context) error { return workflow.Sleep(ctx, time.Second) })
	if err := replay.Events(other, a.options, a.events); err == nil {
		t.Error("the history matches other code")
	}
	for _, events := range [][]history.Event{nil, a.events[1:]} {
		if err := replay.Events(a.def, a.options, events); err == nil {
			t.Errorf("a history of %d events without its beginning was replayed", len(events))
		}
	}
}

func TestReplayReadsExportsAndListsOfEvents(t *testing.T) {
	a := playMixed(t, 3, false)
	list, err := json.Marshal(a.events)
	if err != nil {
		t.Fatal(err)
	}
	other := define(t, func(ctx workflow.Context, _ int) error { return workflow.Sleep(ctx, time.Second) })
	export := `{"schema":"s","history_events":` + string(list) + `}`
	for name, text := range map[string]string{"list": " " + string(list), "export": export} {
		o := workflow.ReplayOptions{Names: a.options.Names}
		if err := workflow.Replay(a.def, o, []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var differs *workflow.NonDeterminismError
		if err := workflow.Replay(other, o, []byte(text)); !errors.As(err, &differs) {
			t.Errorf("%s with other code: got %v", name, err)
		}
	}
	for _, text := range []string{"", "{}", "[]", "7", export[:len(export)-2]} {
		if err := workflow.Replay(a.def, workflow.ReplayOptions{}, []byte(text)); err == nil {
			t.Errorf("%.20q was replayed", text)
		}
	}
}

func TestApplyAfterARejectedCompletionReturnsTheSameCommands(t *testing.T) {
	a := start(t, mixed, 2)
	m := replay.New(a.def, a.options)
	defer m.Close()
	first, err := m.Apply(a.task(1), a.events)
	if err != nil {
		t.Fatal(err)
	}
	a.signal("approve", "ann") // the lease expired, and a signal arrived meanwhile
	continueAsNew, err := m.Apply(a.task(2), a.events)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "commands", continueAsNew, first)
	want(t, "unconfirmed", m.Unconfirmed(), len(first))
	want(t, "seen", m.Seen(), int64(2))
}

func TestCachedMachineIsDroppedWhenAnotherWorkerRecordedOtherwise(t *testing.T) {
	lot := 0
	a := start(t, func(ctx workflow.Context) (int, error) {
		v, err := workflow.SideEffect(ctx, func() int { lot++; return lot })
		if err != nil {
			return 0, err
		}
		return v, workflow.Sleep(ctx, time.Second)
	})
	task, _ := a.lease()
	m := replay.New(a.def, a.options)
	defer m.Close()
	if _, err := m.Apply(task, task.Events); err != nil { // the task is never completed
		t.Fatal(err)
	}
	other := a.commandsAt(1)
	a.answer(1, other)
	a.fire(2)
	if _, err := m.Apply(a.task(len(a.events)), a.events); !errors.Is(err, replay.ErrStale) {
		t.Fatalf("got %v, want ErrStale", err)
	}
	a.drain(nil)
	want(t, "output", a.output(), any(int64(2)))
	want(t, "side effects run", lot, 2)
}

func TestMachineRejectsAGapAndContinuesWithoutIt(t *testing.T) {
	a := playMixed(t, 2, false)
	m := replay.New(a.def, a.options)
	defer m.Close()
	if _, err := m.Apply(a.task(3), a.events[:3]); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Apply(a.task(6), a.events[4:6]); !errors.Is(err, replay.ErrGap) {
		t.Fatalf("got %v, want ErrGap", err)
	}
	got, err := m.Apply(a.task(6), a.events[:6])
	if err != nil {
		t.Fatal(err)
	}
	want(t, "commands", got, a.commandsAt(6))
}

func TestTaskWithoutNewCommandsIsAnsweredAsWaiting(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		f := workflow.ExecuteActivity(ctx, "a")
		g := workflow.ExecuteActivity(ctx, "b")
		if err := f.Get(ctx, nil); err != nil {
			return err
		}
		return g.Get(ctx, nil)
	})
	a.drain(nil)
	a.complete(2, nil)
	a.drain(nil)
	last := a.batches[len(a.batches)-1]
	want(t, "commands", len(last.commands), 0)
	want(t, "failure type", replay.Waiting().Type, protocol.FailureWaiting)
	a.complete(1, nil)
	a.drain(nil)
	want(t, "output", a.output(), nil)
	a.replays()
}

func TestTimeAndIdentifiersAreThoseOfTheEvents(t *testing.T) {
	var nows []time.Time
	var ids []string
	var lengths []int64
	a := start(t, func(ctx workflow.Context) error {
		nows, ids, lengths = nil, nil, nil
		for range 3 {
			nows = append(nows, workflow.Now(ctx))
			ids = append(ids, workflow.NewID(ctx), workflow.NewID(ctx))
			lengths = append(lengths, workflow.Info(ctx).HistoryLength)
			if err := workflow.Sleep(ctx, time.Hour); err != nil {
				return err
			}
		}
		return nil
	})
	a.drain(nil)
	for seq := range int64(3) {
		a.fire(seq + 1)
		a.drain(nil)
	}
	a.output()
	times, firstIDs := nows, ids
	want(t, "history lengths", lengths, []int64{1, 3, 5})
	for i, at := range times {
		if want := a.events[lengths[i]-1].At.Time; !at.Equal(want) {
			t.Errorf("now %d: got %s, want %s", i, at, want)
		}
	}
	slices.Sort(firstIDs)
	want(t, "letters and digits of an id", len(firstIDs[0]), 26)
	want(t, "distinct ids", len(slices.Compact(slices.Clone(firstIDs))), 6)
	a.commandsAt(len(a.events))
	slices.Sort(ids)
	want(t, "ids of the replay", ids, firstIDs)
	want(t, "times of the replay", nows, times)
}
