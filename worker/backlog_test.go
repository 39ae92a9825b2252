package worker_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// allSizes names the environment variable that makes backlog tests use their full sizes.
const allSizes = "SOJOURN_TEST_BACKLOG"

// ways are the carriers by which a worker connects to an app.
var ways = map[string]func(*apptest.App) link.Carrier{
	"socket": func(a *apptest.App) link.Carrier { return &link.Socket{URLs: []string{a.URL()}} },
	"http":   func(a *apptest.App) link.Carrier { return &link.HTTP{URLs: []string{a.URL()}} },
	"local":  func(a *apptest.App) link.Carrier { return link.Local{Join: a.Connections().Join} },
}

// bulk defines a workflow that passes a large argument on to an activity and returns its length, and counts how often
// each activity ran.
func bulk(id string, runs *sync.Map) func(*worker.Options) {
	return func(o *worker.Options) {
		o.WorkerID = id
		o.Registry.Workflow("bulk", func(ctx workflow.Context, id, text string) (int, error) {
			return workflow.Await[int](ctx, workflow.ExecuteActivity(ctx, "measure", id, text))
		})
		o.Registry.Activity("measure", func(_ context.Context, id, text string) (int, error) {
			n, _ := runs.LoadOrStore(id, &atomic.Int32{})
			n.(*atomic.Int32).Add(1)
			return len(text), nil
		})
	}
}

// backlog starts n runs of a workflow with an argument of the given size. No worker polls their queue yet.
func backlog(t *testing.T, a *apptest.App, name string, n, bytes int) (ids []string) {
	t.Helper()
	text := strings.Repeat("x", bytes)
	for i := range n {
		in := fmt.Appendf(nil, "[%q, %q]", fmt.Sprint(name, i), text)
		started, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "bulk", Input: in})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, started.RunID)
	}
	return ids
}

// Workers process a backlog that is larger than one response: each response contains as many tasks as fit, and the
// other tasks stay ready for the next poll. No task is delivered twice, and small runs in the same queue complete, too.
func TestABacklogOfLargePayloadsIsWorkedOff(t *testing.T) {
	// The first size needs several responses of 4 MiB, the second more than one frame of 8 MiB.
	sizes := []struct{ runs, bytes int }{{100, 90_000}, {6, 1_550_000}}
	if os.Getenv(allSizes) != "" {
		sizes = []struct{ runs, bytes int }{{200, 90_000}, {60, 1_550_000}}
	}
	for _, size := range sizes {
		for way, carrier := range ways {
			t.Run(fmt.Sprintf("%d runs of %d bytes, %s", size.runs, size.bytes, way), func(t *testing.T) {
				apptest.Databases(t, func(t *testing.T, database string) {
					a, b := apptest.Two(t, apptest.Options{Database: database})
					large := backlog(t, a, "large", size.runs, size.bytes)
					small := backlog(t, a, "small", 20, 10)
					var runs sync.Map
					start(t, a, carrier(a), bulk("first", &runs))
					start(t, b, carrier(b), bulk("second", &runs))
					eventually(t, "every activity ran", func() bool { // read the large histories only once
						n := 0
						runs.Range(func(any, any) bool { n++; return true })
						return n == size.runs+20
					})
					for i, id := range append(large, small...) {
						want := size.bytes
						if i >= len(large) {
							want = 10
						}
						if got := result[int](t, end(t, a, id)); got != want {
							t.Fatalf("run %d returned %d, want %d", i, got, want)
						}
						if i%10 > 0 {
							continue
						}
						for _, e := range events(t, a, id) {
							if d, ok := e.Data.(*history.ActivityCompleted); ok && (d.Number != 1 || len(d.Lost) > 0) {
								t.Errorf("run %d completed with attempt %d, want 1 (losses: %v)", i, d.Number, d.Lost)
							}
						}
					}
					runs.Range(func(id, n any) bool {
						if n := n.(*atomic.Int32).Load(); n != 1 {
							t.Errorf("the activity of %s ran %d times", id, n)
						}
						return true
					})
				})
			})
		}
	}
}
