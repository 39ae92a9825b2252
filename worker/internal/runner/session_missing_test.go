package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// logged is a log writer whose lines a test can read.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// lines returns the log lines whose message has a prefix.
func (l *logged) lines(t *testing.T, begin string) (list []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if text, _ := m["message"].(string); strings.HasPrefix(text, begin) {
			list = append(list, m)
		}
	}
	return list
}

// steppingEnds registers a workflow of sequential activities. After each activity the workflow ends a session that was
// never started: this is the last command of its task, so no event confirms it until the next step is scheduled.
func steppingEnds(r *worker.Registry) {
	r.Workflow("ends", func(ctx workflow.Context, n int) (int, error) {
		for i := range n {
			f := workflow.ExecuteActivity(ctx, "step", i)
			if err := (&workflow.Session{ID: "never"}).End(ctx); err != nil {
				return 0, err
			}
			if err := f.Get(ctx, nil); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
	r.Activity("step", func(context.Context, int) error { time.Sleep(time.Second); return nil })
}

// Ending a session that was never started prevents neither eager workflow tasks nor sticky caching. A run with a
// separate workflow task for each step has the same history. The worker logs one line.
func TestRunContinuesEagerlyAfterAnEndWithoutAnEvent(t *testing.T) {
	const steps = 6
	histories := map[bool][]string{}
	for _, plain := range []bool{true, false} {
		bubble(t, func(t *testing.T, a *control) {
			var log logged
			a.plain.Store(plain)
			a.worker("w", steppingEnds, func(o *runner.Options) { o.Logger = slogbridge.Slog(zerolog.New(&log)) })
			run := a.begin("ends", steps)
			if got := result[int](t, a.end(run)); got != steps {
				t.Errorf("got %d", got)
			}
			events := a.events(run)
			histories[plain] = bare(t, run, events)
			want := steps
			if plain {
				want = 0
			}
			if n := fusedTurns(events); n != want {
				t.Errorf("plain %v: %d of %d eager tasks were sent with results", plain, n, steps)
			}
			if n := a.replayed.Load(); n != 0 {
				t.Errorf("plain %v: %d events were read again", plain, n)
			}
			if ends := all[*history.SessionEnded](events); len(ends) > 0 {
				t.Errorf("recorded ends: %+v", ends)
			}
			lines := log.lines(t, "workflow ended a session")
			if len(lines) != 1 || lines[0]["level"] != "warn" || lines[0]["run_id"] != run ||
				lines[0]["session_id"] != "never" || lines[0]["workflow_id"] == "" || lines[0]["workflow_id"] == nil {
				t.Errorf("plain %v: logged %v", plain, lines)
			}
			r := worker.NewRegistry()
			steppingEnds(r)
			def, _ := r.FindWorkflow("ends")
			if err := replay.Events(def, replay.Options{Names: r, CompareArguments: true}, events); err != nil {
				t.Error(err)
			}
		})
	}
	if !reflect.DeepEqual(histories[true], histories[false]) {
		t.Errorf("in separate tasks:\n%s\nwith results:\n%s",
			strings.Join(histories[true], "\n"), strings.Join(histories[false], "\n"))
	}
}

// Runs that share a sticky cache of size one, and runs of a worker that is killed, replay and continue.
func TestAnEndWithoutAnEventReplaysWithoutTheStickyCache(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		a.plain.Store(true)
		first := a.worker("w", steppingEnds, func(o *runner.Options) { o.Machines = 1 })
		var runs []string
		for range 4 {
			runs = append(runs, a.begin("ends", 5))
		}
		time.Sleep(2500 * time.Millisecond)
		first.kill()
		a.worker("next", steppingEnds, nil)
		for i, run := range runs {
			if got := result[int](t, a.end(run)); got != 5 {
				t.Errorf("run %d: got %d", i, got)
			}
			var numbers []int64
			for _, d := range all[*history.ActivityScheduled](a.events(run)) {
				numbers = append(numbers, d.Sequence)
			}
			if got := fmt.Sprint(numbers); got != "[1 3 5 7 9]" {
				t.Errorf("run %d: commands %s", i, got)
			}
		}
		if a.replayed.Load() == 0 {
			t.Error("nothing was replayed")
		}
	})
}
