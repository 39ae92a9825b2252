package worker_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/link"
)

// A worker sees to its handlers' packages when it starts, before anybody calls one.
func TestAWorkerInstallsPackagesAtItsStart(t *testing.T) {
	handlers := sandboxtest.HandlersDir(t)
	for name, text := range map[string]string{
		"requirements.txt": "./gone-1.0-py3-none-any.whl\n", "greet.py": "def main(name):\n    return name\n",
	} {
		if err := os.WriteFile(filepath.Join(handlers, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a := apptest.Start(t, apptest.Options{})
	var log bytes.Buffer
	said := zerolog.SyncWriter(&log)
	told := make(chan struct{})
	w := start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
		o.Handlers, o.Log = handlers, zerolog.New(zerolog.MultiLevelWriter(said, &watcher{"wait for their packages", told}))
	})
	if r, ok := w.Sandbox(); !ok || r.Runtimes[sandbox.RuntimePython] == "" {
		t.Skip("Python is not on this machine")
	}
	select {
	case <-told:
	case <-time.After(time.Minute):
		t.Errorf("nobody tried to install them:\n%s", &log)
	}
}

// watcher closes a channel when a text is written.
type watcher struct {
	text string
	told chan struct{}
}

func (w *watcher) Write(line []byte) (int, error) {
	if w.told != nil && strings.Contains(string(line), w.text) {
		close(w.told)
		w.told = nil
	}
	return len(line), nil
}
