package worker_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A worker installs its handlers' packages at its start, before the first call.
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
	output := zerolog.SyncWriter(&log)
	seen := make(chan struct{})
	w := start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
		o.Handlers = handlers
		o.Logger = slogbridge.Slog(zerolog.New(zerolog.MultiLevelWriter(output, &watcher{"installation failed", seen})))
	})
	if r, ok := w.Sandbox(); !ok || r.Runtimes[sandbox.RuntimePython] == "" {
		t.Skip("Python is not on this machine")
	}
	select {
	case <-seen:
	case <-time.After(time.Minute):
		t.Errorf("no installation was tried:\n%s", &log)
	}
}

// While the packages of a handler are being installed, and after a failed installation, every view of the run reports
// that the handler's task waits for its packages. The task starts soon after the installation.
func TestTasksWaitForPackages(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	index := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		once.Do(func() { close(asked) })
		<-answer
		http.Error(w, "there is no such package", http.StatusNotFound)
	}))
	t.Cleanup(index.Close)
	release := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(release)
	t.Setenv("PIP_CONFIG_FILE", os.DevNull)
	t.Setenv("PIP_INDEX_URL", index.URL+"/simple/")
	for _, name := range []string{
		"PIP_FIND_LINKS", "PIP_NO_INDEX", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY",
	} {
		t.Setenv(name, "")
	}
	handlers := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(handlers, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("requirements.txt", "never-heard-of\n")
	write("greet.py", "def main(name, ctx):\n    return 'hello ' + name\n")
	a := apptest.Start(t, apptest.Options{})
	w := start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
		o.Handlers, o.WorkerID = handlers, "installs"
		o.Registry.Workflow("greets", func(ctx workflow.Context) error {
			_, err := workflow.Execute[string](ctx, "greet", "you")
			return err
		})
	})
	if r, ok := w.Sandbox(); !ok || r.Runtimes[sandbox.RuntimePython] == "" {
		t.Skip("Python is not on this machine")
	}
	run, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "greets"})
	if err != nil {
		t.Fatal(err)
	}
	waits := func(r protocol.WaitReason, attention bool, detail string) {
		t.Helper()
		var last *protocol.Wait
		defer func() {
			if t.Failed() {
				t.Logf("the run waits: %+v", last)
			}
		}()
		eventually(t, string(r), func() bool {
			v, err := a.View().Describe(t.Context(), protocol.Target{RunID: run.RunID})
			if err != nil {
				t.Fatal(err)
			}
			last = v.Wait
			return last != nil && last.Reason == r && last.Attention == attention && last.Worker != "" &&
				strings.Contains(last.Detail, detail)
		})
	}
	reports := func(state sandbox.PackagesState, detail string) {
		t.Helper()
		eventually(t, "the app knows that packages are "+string(state), func() bool {
			v, err := a.View().Worker(t.Context(), "", "installs")
			if err != nil {
				t.Fatal(err)
			}
			var m protocol.MachineInformation
			return json.Unmarshal(v.Machine, &m) == nil && len(m.Packages) == 1 && m.Packages[0].State == string(state) &&
				m.Packages[0].Runtime == sandbox.RuntimePython && slices.Equal(m.Packages[0].Files, []string{"requirements.txt"}) &&
				strings.Contains(m.Packages[0].Detail, detail) && !m.Packages[0].Since.IsZero()
		})
	}
	<-asked
	waits(protocol.WaitInstalling, false, "requirements.txt is being installed")
	reports(sandbox.PackagesInstalling, "Looking in ")
	waits(protocol.WaitInstalling, false, ": Looking in ") // the last line that the installer printed
	release()
	waits(protocol.WaitNoPackages, true, "never-heard-of")
	reports(sandbox.PackagesFailed, "never-heard-of")
	write("requirements.txt", "# none\n")
	if last := end(t, a, run.RunID); last.Type() != "WorkflowCompleted" {
		t.Errorf("the run ended with %s", last.Type())
	}
}

// watcher is a writer that closes a channel when a text is written.
type watcher struct {
	text string
	seen chan struct{}
}

func (w *watcher) Write(line []byte) (int, error) {
	if w.seen != nil && strings.Contains(string(line), w.text) {
		close(w.seen)
		w.seen = nil
	}
	return len(line), nil
}
