package workflowtest_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
	"github.com/sojourn-run/sojourn/workflowtest"
)

// paying returns a registry with a workflow that calls an activity of this name.
func paying(activity string, amount int) *worker.Registry {
	r := worker.NewRegistry()
	r.Workflow("pay", func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(ctx, activity, amount).Get(ctx, nil)
	})
	r.Activity(activity, func(context.Context, int) error { return nil })
	return r
}

// Recorded histories are replayed by the code of today. A history that the code does not fit fails the test with the
// name of the file; so do a workflow that is missing, a file without a history and a pattern without files. Other
// arguments than recorded are logged.
func TestReplayOfRecordedHistoriesFailsForCodeThatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	var events []history.Event
	workflowtest.Run(t, paying("charge", 7), func(t *testing.T, env *workflowtest.Env) {
		run := env.Start("pay")
		if _, err := workflowtest.Result[any](run); err != nil {
			t.Fatal(err)
		}
		events = run.Recorded()
	})
	list, err := json.Marshal(events)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list.json": string(list), "export.json": `{"history_events":` + string(list) + `}`, "empty.txt": "[]",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replayed := func(r *worker.Registry, pattern string) *recorder {
		rec, done := &recorder{TB: t}, make(chan struct{})
		go func() {
			defer close(done)
			workflowtest.Replay(rec, r, filepath.Join(dir, pattern))
		}()
		<-done
		return rec
	}
	if got := replayed(paying("charge", 7), "*.json").text(); got != "" {
		t.Errorf("the same code: %s", got)
	}
	if got := replayed(paying("charge", 8), "*.json").text(); got != "" {
		t.Errorf("other arguments: %s", got)
	}
	for _, c := range []struct {
		r             *worker.Registry
		pattern, want string
	}{
		{paying("reserve", 7), "*.json", `export.json: pay, replayed: `},
		{paying("reserve", 7), "*.json", `list.json: pay, replayed: `},
		{worker.NewRegistry(), "list.json", `list.json: workflow "pay" is not registered`},
		{paying("charge", 7), "empty.txt", "empty.txt: contains no history"},
		{paying("charge", 7), "*.none", "no file matches"},
	} {
		if got := replayed(c.r, c.pattern).text(); !strings.Contains(got, c.want) {
			t.Errorf("want %q, got %q", c.want, got)
		}
	}
}
