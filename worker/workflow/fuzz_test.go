package workflow_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// FuzzMachineTakesAnyHistory replays invalid histories: the machine must return commands or an error, and stay usable.
func FuzzMachineTakesAnyHistory(f *testing.F) {
	raw, err := os.ReadFile("testdata/mixed.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, 3)
	f.Add([]byte(`[{"event_type":"WorkflowStarted"},{"event_type":"TimerFired","payload":{"sequence":1}}]`), 1)
	f.Add(
		[]byte(
			`[{"event_type":"WorkflowStarted","payload":{"carried_signals":2}},{"event_type":"SignalReceived","payload":{"signal_name":"signal0","value":"AAAA"}}]`,
		),
		2,
	)
	f.Add([]byte(`[{"event_type":"SignalReceived"},{"event_type":"WorkflowStarted"},{"event_type":"WorkflowStarted"}]`), 0)
	def := define(f, func(ctx workflow.Context) (string, error) {
		st := &state{}
		st.run(ctx, []stmt{
			{Op: "session", N: 1},
			{Op: "effect"},
			{Op: "join", N: 2},
			{Op: "sleep", N: 1},
			{Op: "go", Body: []stmt{{Op: "receive"}, {Op: "race"}}},
			{Op: "receive"},
			{Op: "version", N: 1},
			{Op: "either"},
			{Op: "activity", N: 1},
		})
		return st.trace[0], nil
	})
	replayAnything(f, def)
}

func FuzzTalk(f *testing.F) {
	raw, err := os.ReadFile("testdata/talk.json")
	if err != nil {
		f.Fatal(err)
	}
	for cut := range 32 {
		f.Add(raw, cut)
	}
	replayAnything(f, define(f, everyInteraction))
}

// replayAnything replays each fuzzed history in two parts and may query the run. The machine must not crash.
func replayAnything(f *testing.F, def *workflow.Definition) {
	f.Fuzz(func(t *testing.T, raw []byte, cut int) {
		var events []history.Event
		if json.Unmarshal(raw, &events) != nil {
			return
		}
		for i := range events {
			events[i].Seq = int64(i + 1)
		}
		m := replay.New(def, replay.Options{})
		defer m.Close()
		cut = min(max(cut, 0), len(events))
		for _, part := range [][]history.Event{events[:cut], events[cut:]} {
			commands, err := m.Apply(&protocol.WorkflowTask{RunID: "RUN"}, part)
			if err != nil && commands != nil {
				t.Fatalf("both %d commands and %v", len(commands), err)
			}
			if err != nil && replay.TaskFailure(err).Type == "WorkflowPanic" {
				t.Fatal(err)
			}
		}
		_, _ = m.Query("said", payload.Payload{}, nil)
	})
}
