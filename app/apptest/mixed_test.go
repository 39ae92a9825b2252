package apptest_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

const goQueue = "go"

func TestMain(m *testing.M) {
	worker.RunExecutor(languages())    // the test binary is also the program of the executors
	_ = flag.Set("test.parallel", "4") // default; most tests wait for polling SDKs
	os.Exit(m.Run())
}

// languages returns the registry of the Go worker in mixed runs.
func languages() *worker.Registry {
	r := worker.NewRegistry()
	r.Workflow("go.languages", func(ctx workflow.Context) ([]string, error) {
		python := workflow.WithActivity(ctx, workflow.ActivityOptions{Queue: pythonQueue})
		greeting, err := workflow.Await[string](ctx, workflow.ExecuteActivity(python, "greet", "Python"))
		if err != nil {
			return nil, err
		}
		shouted, err := workflow.Await[string](ctx, workflow.ExecuteActivity(ctx, "shout", greeting))
		if err != nil {
			return nil, err
		}
		child, err := workflow.Await[string](
			ctx, workflow.StartChild(workflow.WithChild(ctx, workflow.ChildOptions{Queue: pythonQueue}), "hello", "Go"),
		)
		return []string{greeting, shouted, child}, err
	})
	r.Workflow("go.child", func(ctx workflow.Context, parent string) (string, error) {
		return workflow.Await[string](ctx, workflow.ExecuteActivity(ctx, "go.say", parent))
	})
	r.Activity("go.say", func(_ context.Context, what string) (string, error) { return "Go says: " + what, nil })
	r.Activity("go.count", func(ctx context.Context, n int) (string, error) {
		state := activity.SessionState(ctx)
		seen, _ := state.Get("seen")
		count, _ := seen.(int)
		state.Set("seen", count+1)
		return fmt.Sprintf("%d after %d", n, count), nil
	})
	return r
}

// runWorker runs a Go worker until the end of the test.
func runWorker(t *testing.T, w *worker.Worker) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the Go worker: %v", err)
		}
	})
}

// goWork starts a Go worker that connects to the app over the network.
func goWork(t *testing.T, a *apptest.App, way string) {
	t.Helper()
	handlers := t.TempDir()
	code := `export async function main(input) { return input.toUpperCase() + "!"; }`
	if err := os.WriteFile(filepath.Join(handlers, "shout.mjs"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(workeropt.Over(link.To(way, []string{a.URL()}), worker.Options{
		Registry: languages(), Token: pythonToken, Release: "test",
		Queues:   []string{goQueue},
		Handlers: handlers, DataDir: t.TempDir(), DrainTimeout: 10 * time.Second,
		Logger:   slogbridge.Slog(apptest.Log(t)),
		Sessions: worker.SessionOptions{Max: 10},
		Executors: worker.ExecutorOptions{
			Limits: sandboxtest.FitLimits(func(l sandbox.Limits) worker.Limits { return worker.Limits(l) }),
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	runWorker(t, w)
	ready, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := w.WaitReady(ready); err != nil {
		t.Fatal(err)
	}
}

// Workflows and activities in three languages work together in one run and in one session; child workflows are written
// in another language than their parents.
func TestRunsMixLanguages(t *testing.T) {
	t.Parallel()
	python(t)
	if _, err := exec.LookPath("node"); err != nil {
		t.Skipf("no node: %v", err)
	}
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		work(t, a, "py-1", "50")
		for _, way := range []string{link.WaySocket, link.WayHTTP} {
			t.Run(way, func(t *testing.T) {
				goWork(t, a, way)
				var response []string
				output(t, a, runOn(t, a, goQueue, "go.languages"), &response)
				if fmt.Sprint(response) != "[hello Python HELLO PYTHON! hello Go]" {
					t.Errorf("a Go workflow received %q", response)
				}
				var got struct {
					Counted []string `json:"counted"`
					Child   string   `json:"child"`
				}
				output(t, a, run(t, a, "mixed", goQueue, "mixed-"+way), &got)
				if fmt.Sprint(got.Counted) != "[0 after 0 1 after 1 2 after 2]" || got.Child != "Go says: a child of Python" {
					t.Errorf("a Python workflow heard %+v", got)
				}
			})
		}
	})
}
