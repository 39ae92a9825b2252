package workflow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// chain returns the history of a long run that executed n activities, one after another.
func chain(n int) []history.Event {
	at := func(i int) history.Time { return history.At(epoch.Add(time.Duration(i) * time.Millisecond)) }
	events := make([]history.Event, 0, 2*n+1)
	events = append(
		events,
		history.Event{
			Seq: 1, At: at(0), Data: &history.WorkflowStarted{WorkflowType: "flow", RunID: "RUN", TaskQueue: "default"},
		},
	)
	one, err := payload.Encode(1)
	if err != nil {
		panic(err)
	}
	for i := range n {
		seq := int64(i + 1)
		events = append(events,
			history.Event{
				Seq: 2 * seq, At: at(i), SeenThrough: 2*seq - 1,
				Data: &history.ActivityScheduled{Sequence: seq, ActivityType: "work"},
			},
			history.Event{Seq: 2*seq + 1, At: at(i), Data: &history.ActivityCompleted{Sequence: seq, Result: one.Blob}})
	}
	return events
}

func counting(ctx workflow.Context, n int) (int, error) {
	sum := 0
	for i := range n {
		v, err := workflow.Execute[int](ctx, "work", i)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

func BenchmarkReplay50kEvents(b *testing.B) {
	const n = 25_000
	events, def := chain(n), define(b, counting)
	args, err := payload.EncodeArgs(n)
	if err != nil {
		b.Fatal(err)
	}
	task := &protocol.WorkflowTask{RunID: "RUN", Arguments: args}
	b.ReportAllocs()
	for b.Loop() {
		m := replay.New(def, replay.Options{})
		commands, err := m.Apply(task, events)
		m.Close()
		if err != nil || len(commands) != 1 || commands[0].Type != protocol.CompleteWorkflow {
			b.Fatal(commands, err)
		}
	}
	b.ReportMetric(float64(len(events))*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkJoinOf1000(b *testing.B) {
	def := define(b, func(ctx workflow.Context) error {
		var all []workflow.Future
		for range 1000 {
			all = append(all, workflow.ExecuteActivity(ctx, "work"))
		}
		return workflow.Join(ctx, all...)
	})
	events := []history.Event{{Seq: 1, At: history.At(epoch), Data: &history.WorkflowStarted{RunID: "RUN"}}}
	for i := range int64(1000) {
		events = append(
			events, history.Event{Seq: i + 2, Data: &history.ActivityScheduled{Sequence: i + 1, ActivityType: "work"}},
		)
	}
	for i := range int64(1000) {
		events = append(events, history.Event{Seq: i + 1002, Data: &history.ActivityCompleted{Sequence: 1000 - i}})
	}
	for b.Loop() {
		m := replay.New(def, replay.Options{})
		first, err := m.Apply(&protocol.WorkflowTask{RunID: "RUN"}, events[:1])
		if err != nil || first[999].GroupSize != 1000 {
			b.Fatal(err)
		}
		if last, err := m.Apply(&protocol.WorkflowTask{RunID: "RUN"}, events); err != nil || len(last) != 1 {
			b.Fatal(last, err)
		}
		m.Close()
	}
}

func TestLongHistoriesReplayInTime(t *testing.T) {
	const n = 25_000
	args, err := payload.EncodeArgs(n)
	if err != nil {
		t.Fatal(err)
	}
	events := chain(n)
	m := replay.New(define(t, counting), replay.Options{})
	defer m.Close()
	commands, err := m.Apply(&protocol.WorkflowTask{RunID: "RUN", Arguments: args}, events)
	if err != nil {
		t.Fatal(err)
	}
	var sum int
	if err := payload.Decode(commands[0].Result, &sum); err != nil || sum != n {
		t.Errorf("got %d, %v, want %d", sum, err, n)
	}
	want(t, "commands", fmt.Sprint(types(commands)), "[complete_workflow]")
}
