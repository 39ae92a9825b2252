package runner_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A step costs the same at the beginning and at the end of a run, however many workers share the run: each worker
// receives each event once.
func TestStepsOfALongRunCostTheSameWithThreeWorkers(t *testing.T) {
	const steps, size = 1000, 2000
	bubble(t, func(t *testing.T, a *control) {
		type mark struct{ bytes, read, heap int64 }
		marks := map[int]mark{}
		define := func(r *worker.Registry) {
			r.Workflow("steps", func(ctx workflow.Context) (int, error) {
				for i := range steps {
					if _, err := workflow.Await[string](ctx, workflow.ExecuteActivity(ctx, "step", i)); err != nil {
						return 0, err
					}
				}
				return steps, nil
			})
			r.Activity("step", func(_ context.Context, n int) (string, error) {
				if n%250 == 0 { // measure while only this run is active
					a.counts.off.Store(true)
					runtime.GC()
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					marks[n] = mark{a.counts.bytes.Load(), a.counts.read.Load(), int64(m.HeapAlloc)}
					a.counts.off.Store(false)
				}
				return strings.Repeat("x", size), nil
			})
		}
		for _, id := range []string{"a", "b", "c"} {
			a.worker(id, define, func(o *runner.Options) { o.PollIDs = true })
		}
		run := a.begin("steps")
		if got := result[int](t, a.last(run)); got != steps {
			t.Fatalf("got %d", got)
		}
		first, last := marks[250], marks[750]
		bytes, read, heap := last.bytes-first.bytes, last.read-first.read, last.heap-first.heap
		t.Logf("500 steps: %d bytes sent, %d events read, %d bytes of memory", bytes, read, heap)
		// A step has four events; its result is sent to the app once and to each worker at most once.
		if most := int64(500 * 3 * (size + 4*1500)); bytes > most {
			t.Errorf("500 steps sent %d bytes, want at most %d", bytes, most)
		}
		if most := int64(500 * 3 * 4); read > most {
			t.Errorf("500 steps read %d events, want at most %d", read, most)
		}
		if most := int64(24 << 20); heap > most {
			t.Errorf("memory grew by %d bytes, want at most %d", heap, most)
		}
		if n := a.called("HistoryPage"); n > 3*4*steps/1000 {
			t.Errorf("%d pages of history were fetched", n)
		}
	})
}
