package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// lockedBuffer is a buffer that is safe for concurrent use by a log handler and a test.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// find returns the first log line with a message.
func (b *lockedBuffer) find(t *testing.T, message string) map[string]any {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range bytes.Lines(b.buf.Bytes()) {
		var l map[string]any
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if l[slog.MessageKey] == message {
			delete(l, slog.TimeKey)
			return l
		}
	}
	t.Errorf("no line %q in the log:\n%s", message, &b.buf)
	return nil
}

// The handler of Options.Logger receives the lines of the worker, with their keys, and the lines that workflow code and
// activities log.
func TestTheLoggerInTheOptionsReceivesTheLogOfTheWorker(t *testing.T) {
	var log lockedBuffer
	a := apptest.Start(t, apptest.Options{})
	w := start(t, a, link.Local{Join: a.Connections().Join}, func(o *worker.Options) {
		o.WorkerID = "w-1"
		o.Logger = slog.New(slog.NewJSONHandler(&log, nil)).With("service", "orders")
		o.Registry.Workflow("flow", func(ctx workflow.Context) error {
			workflow.Logger(ctx).WithGroup("order").Warn("charging", "id", "o-1")
			return workflow.ExecuteActivity(ctx, "charge").Get(ctx, nil)
		})
		o.Registry.Activity("charge", func(ctx context.Context) error {
			activity.Logger(ctx).Error("no credit", "account", 7)
			return nil
		})
	})
	run := ended(t, a, "flow")
	if d := cmp.Diff(map[string]any{
		"level": "WARN", "msg": "charging", "service": "orders", "worker_id": w.ID(), "run_id": run,
		"workflow_type": "flow", "order": map[string]any{"id": "o-1"},
	}, log.find(t, "charging")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]any{
		"level": "INFO", "msg": "no credit account=7", "service": "orders", "worker_id": w.ID(), "run_id": run,
		"task_id": run + "-1", "attempt": 1.0, "activity_type": "charge", "source": "log", "level_of_line": "error",
	}, log.find(t, "no credit account=7")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]any{
		"level": "INFO", "msg": "connected to the app", "service": "orders", "worker_id": w.ID(), "app": "this process",
		"app_release": "test",
	}, log.find(t, "connected to the app")); d != "" {
		t.Error(d)
	}
}

func TestAWorkerWithoutALoggerLogsToTheDefaultOne(t *testing.T) {
	var log lockedBuffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	a := apptest.Start(t, apptest.Options{})
	w := start(t, a, link.Local{Join: a.Connections().Join}, func(o *worker.Options) { o.Logger = nil })
	// The worker writes the line after the app has answered, and the app shows the worker before that.
	eventually(t, "the worker reports its connection", func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		return bytes.Contains(log.buf.Bytes(), []byte("connected to the app"))
	})
	if got := log.find(t, "connected to the app")["worker_id"]; got != w.ID() {
		t.Errorf("got worker %v, want %s", got, w.ID())
	}
}
