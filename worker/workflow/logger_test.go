package workflow_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// The run is replayed for each task, and each line is written once, also if the code obtains its logger only once,
// during a replay, and derives other loggers from it.
func TestLoggerIsSilentInAReplay(t *testing.T) {
	for name, logger := range map[string]func(*bytes.Buffer) *slog.Logger{
		"zerolog": func(out *bytes.Buffer) *slog.Logger { return slogbridge.Slog(zerolog.New(out)) },
		"slog":    func(out *bytes.Buffer) *slog.Logger { return slog.New(slog.NewJSONHandler(out, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, func(ctx workflow.Context) error {
				log := workflow.Logger(ctx)
				group := log.With("step", 1).WithGroup("order")
				log.Info("one")
				for range 2 {
					if err := workflow.Sleep(ctx, time.Second); err != nil {
						return err
					}
				}
				log.Warn("two", "n", 2)
				group.Error("three", "id", "o-1")
				return nil
			})
			var out bytes.Buffer
			a.options.Logger = logger(&out)
			a.drain(nil)
			for _, seq := range []int64{1, 2} {
				a.fire(seq)
				a.drain(nil)
			}
			if err := replay.Events(a.def, a.options, a.events); err != nil {
				t.Error(err)
			}
			var got []string
			for line := range bytes.Lines(out.Bytes()) {
				var l struct {
					Level, Message, Msg string
					RunID               string `json:"run_id"`
					Type                string `json:"workflow_type"`
					Step                int
					ID                  string `json:"order.id"`
					Order               struct{ ID string }
				}
				if err := json.Unmarshal(line, &l); err != nil {
					t.Fatal(err)
				}
				if l.RunID != "RUN" || l.Type != "flow" {
					t.Errorf("a line without the run ID: %s", line)
				}
				got = append(got, fmt.Sprint(
					l.Message, l.Msg, " ", strings.ToLower(l.Level), " ", l.Step, " ", l.ID, l.Order.ID,
				))
			}
			want := []string{"one info 0 ", "two warn 0 ", "three error 1 o-1"}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s%s", d, &out)
			}
		})
	}
}

// A line that is not written allocates nothing: without a logger, and at a level that the logger disables.
func TestALineThatIsNotWrittenCostsNoAllocation(t *testing.T) {
	for name, logger := range map[string]*slog.Logger{
		"no logger": nil, "zerolog": slogbridge.Slog(zerolog.Nop()),
		"slog": slog.New(slog.NewTextHandler(&bytes.Buffer{}, &slog.HandlerOptions{Level: slog.LevelError})),
	} {
		var n float64
		a := start(t, func(ctx workflow.Context) error {
			n = testing.AllocsPerRun(10, func() { workflow.Logger(ctx).Info("dropped", "run_id", "r") })
			return nil
		})
		a.options.Logger = logger
		a.drain(nil)
		if n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}
