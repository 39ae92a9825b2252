package workflowtest

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
)

// errNoHistory is the error for a file without a recorded history.
var errNoHistory = errors.New("contains no history: want the document of sojourn workflow export, or its events")

// Replay replays the recorded histories of the files that the pattern matches, with the syntax of [filepath.Glob], by
// the workflows of the registry: documents that `sojourn workflow export` writes, or JSON arrays of events. A history
// that the code does not fit, or of a workflow that is not registered, fails the test, and so does a pattern without
// files. Keep exports of production runs as test data, so that a change of the code that breaks open runs fails a test.
//
// Code that passes other arguments than recorded fits the history; the test logs the difference.
func Replay(t testing.TB, r *worker.Registry, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatalf("%s: %v", pattern, err)
	}
	if len(files) == 0 {
		t.Fatalf("no file matches %s", pattern)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, events, err := recordedRun(raw)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		def, ok := r.FindWorkflow(name)
		if !ok {
			t.Errorf("%s: workflow %q is not registered", file, name)
			continue
		}
		o := replay.Options{Names: r, Logger: log.With("file", file), Codecs: codecs.Of(r.Codecs())}
		for range replays {
			if err := replay.Events(def, o, events); err != nil {
				t.Errorf("%s: %s, replayed: %s", file, name, replay.TaskFailure(err).Message)
				break
			}
			o.Logger = nil // the first replay has logged the differences
		}
	}
}

// recordedRun returns the workflow type and the events of a recorded history.
func recordedRun(raw []byte) (name string, events []history.Event, err error) {
	if events, err = replay.DecodeHistory(raw); err != nil {
		return "", nil, err
	}
	if len(events) == 0 {
		return "", nil, errNoHistory
	}
	first, ok := events[0].Data.(*history.WorkflowStarted)
	if !ok {
		return "", nil, errNoHistory
	}
	return first.WorkflowType, events, nil
}
