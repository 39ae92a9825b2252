package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// handlers are handler files by language: index.load creates the session state, index.find needs it, index.die ends the
// executor process.
var handlers = map[string]map[string]string{
	"node": {
		"load.mjs": `export async function main(text, ctx) {
			await new Promise((later) => setTimeout(later, 50));
			ctx.session.state.rebuilds = (ctx.session.state.rebuilds ?? 0) + 1;
			ctx.session.state.text = text;
		}`,
		"find.mjs": `export const recovery = { rebuildActivity: 'index.load' };
		export async function main(_, ctx) {
			return ctx.session.require('text').length * 10 + ctx.session.state.rebuilds;
		}`,
		"pair.cjs": `exports.main = ([text, n], ctx) => { ctx.session.state.pair = text.length + n; };`,
		"both.cjs": `exports.main = (_, ctx) => ctx.session.require('pair');
		exports.recovery = { rebuildActivity: 'index.pair', rebuildArguments: 2 };`,
		"die.cjs":     `module.exports = () => process.kill(process.pid, 'SIGKILL') && new Promise(() => {});`,
		"selfish.cjs": `exports.main = (_, ctx) => ctx.session.require('text'); exports.recovery = { rebuildActivity: 'index.selfish' };`,
		"strange.cjs": `exports.main = (_, ctx) => ctx.session.require('text'); exports.recovery = { rebuild: 'index.load' };`,
		"missing.cjs": `exports.main = (_, ctx) => ctx.session.require('text'); exports.recovery = { rebuildActivity: 'index.none' };`,
	},
	"python3": {
		"load.py": "import time\n\ndef main(text, ctx):\n\ttime.sleep(0.05)\n\tstate = ctx.session.state\n" +
			"\tstate.rebuilds = getattr(state, 'rebuilds', 0) + 1\n\tstate.text = text\n",
		"find.py": "recovery = {'rebuild_activity': 'index.load'}\n\ndef main(_, ctx):\n" +
			"\treturn len(ctx.session.require('text')) * 10 + ctx.session.state.rebuilds\n",
		"pair.py": "def main(both, ctx):\n\tctx.session.state.pair = len(both[0]) + both[1]\n",
		"both.py": "recovery = {'rebuild_activity': 'index.pair', 'rebuild_arguments': 2}\n\ndef main(_, ctx):\n" +
			"\treturn ctx.session.require('pair')\n",
		"die.py":     "import os, signal, time\n\ndef main(_, ctx):\n\tos.kill(os.getpid(), signal.SIGKILL)\n\ttime.sleep(60)\n",
		"selfish.py": "recovery = {'rebuild_activity': 'index.selfish'}\n\ndef main(_, ctx):\n\treturn ctx.session.require('text')\n",
		"strange.py": "recovery = {'rebuild': 'index.load'}\n\ndef main(_, ctx):\n\treturn ctx.session.require('text')\n",
		"missing.py": "recovery = {'rebuild_activity': 'index.none'}\n\ndef main(_, ctx):\n\treturn ctx.session.require('text')\n",
	},
}

// languages runs a test once per language, with the handlers of that language in a folder.
func languages(t *testing.T, test func(t *testing.T, dir string)) {
	for program, files := range handlers {
		t.Run(program, func(t *testing.T) {
			apptest.Program(t, program)
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "index"), 0o700); err != nil {
				t.Fatal(err)
			}
			for name, code := range files {
				if err := os.WriteFile(filepath.Join(dir, "index", name), []byte(code), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			test(t, dir)
		})
	}
}

// A handler in another language can export a recovery policy, which works as in Go: all activities without state share
// one rebuild in the same attempt, with the same events, also after the executor was killed.
func TestAHandlersRecoveryPolicyIsKept(t *testing.T) {
	languages(t, func(t *testing.T, dir string) {
		a := apptest.Start(t, apptest.Options{})
		start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
			o.Handlers, o.Concurrency = dir, 5
			o.Registry.Workflow("finds", func(ctx workflow.Context) (int, error) {
				s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
				if err != nil {
					return 0, err
				}
				sum := 0
				for range 2 { // the state is missing at first, and again after the executor was killed
					var all []workflow.Future
					for range 4 {
						all = append(all, s.Execute(ctx, "index.find", "abc", 7))
					}
					for _, f := range all {
						n, err := workflow.Await[int](ctx, f)
						if err != nil {
							return 0, err
						}
						sum += n
					}
					once := workflow.ActivityOptions{Retry: &workflow.RetryPolicy{MaxAttempts: 1}}
					if err := s.Execute(workflow.WithActivity(ctx, once), "index.die").Get(ctx, nil); err == nil {
						return 0, errors.New("the executor is still running")
					}
				}
				n, err := workflow.Await[int](ctx, s.Execute(ctx, "index.both", "abc", 7))
				if err != nil {
					return 0, err
				}
				return sum + n, s.End(ctx)
			})
		})
		answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "finds"})
		if err != nil {
			t.Fatal(err)
		}
		// 31 comes from three letters whose state was rebuilt once, 10 from the rebuild that receives both arguments.
		if got := result[int](t, end(t, a, answer.RunID)); got != 2*4*31+10 {
			t.Errorf("got %d", got)
		}
		reasons := map[string]int{}
		for _, e := range events(t, a, answer.RunID) {
			if d, ok := e.Data.(*history.SessionRecovered); ok {
				if d.Rebuild == "index.pair" {
					continue
				}
				reasons[d.Reason]++
				if d.Outcome != protocol.Rebuilt || d.Rebuild != "index.load" || d.Retries != 1 {
					t.Errorf("the rebuild events in history: %+v", d)
				}
			}
		}
		if reasons["declared"] != 4 || reasons["crash"] != 4 {
			t.Errorf("recoveries by reason: %v, want 4 of each", reasons)
		}
	})
}

// If a handler is added while its worker watches the folder, the worker offers it without a restart. History stores
// with each attempt, also a failed one, the version of the handler that ran, and the registration contains the
// versions. The app and the workers report when two workers of the same release have different code.
func TestHandlersHaveVersions(t *testing.T) {
	languages(t, func(t *testing.T, dir string) {
		a := apptest.Start(t, apptest.Options{})
		socket := func() link.Carrier { return &link.Socket{URLs: []string{a.URL()}} }
		start(t, a, socket(), func(o *worker.Options) { o.Handlers, o.Watch, o.WorkerID = dir, true, "writes" })
		code := map[string]string{
			"late.mjs": "export const main = (_, ctx) => { if (ctx.attempt < 2) throw new Error('no'); return 'late'; };",
		}
		if filepath.Base(t.Name()) == "python3" {
			code = map[string]string{
				"late.py": "def main(_, ctx):\n\tif ctx.attempt < 2:\n\t\traise ValueError('no')\n\treturn 'late'\n",
			}
		}
		for name, text := range code {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		answer, err := a.Broker().StartActivity(t.Context(), protocol.ActivityRequest{
			ActivityType: "late", ActivityOptions: protocol.ActivityOptions{
				RetryPolicy: &retry.Policy{MaxAttempts: new(2)},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := result[string](t, end(t, a, answer.RunID)); got != "late" {
			t.Errorf("got %q", got)
		}
		registered := func(id string) protocol.WorkerView {
			v, err := a.View().Worker(t.Context(), "", id)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		version := registered("writes").Versions["late"]
		if len(version) != 32 {
			t.Errorf("registered version %q", version)
		}
		recorded := 0
		for _, e := range events(t, a, answer.RunID) {
			if seq, attempt := history.EndedAttempt(e.Data); seq > 0 {
				recorded++
				if attempt.CodeVersion != version {
					t.Errorf("%s has the version %q, want %q", e.Type(), attempt.CodeVersion, version)
				}
			}
		}
		if recorded != 2 {
			t.Errorf("%d attempts in the history, want 2", recorded)
		}
		other := t.TempDir()
		for name, text := range code {
			if err := os.WriteFile(filepath.Join(other, name), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		start(t, a, socket(), func(o *worker.Options) { o.Handlers, o.WorkerID = other, "differs" })
		eventually(t, "both are pointed out", func() bool {
			one, two := registered("writes").Differs, registered("differs").Differs
			return len(one) == 1 && len(two) == 1 && one[0].WorkerID == "differs" && two[0].WorkerID == "writes" &&
				one[0].ActivityType == "late" && two[0].Version == version
		})
	})
}

// A handler replaces an example activity of the same name, because users do not know the names of the examples in the
// stock binary. This also holds for handlers that are added while the worker runs. A handler cannot replace any other
// registered activity.
func TestAHandlerReplacesAnExample(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not on this machine")
	}
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		code := "export const main = () => 'handler';"
		if err := os.WriteFile(filepath.Join(dir, name+".mjs"), []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("charge")
	a := apptest.Start(t, apptest.Options{})
	r := worker.NewRegistry()
	r.Examples(func(r *worker.Registry) {
		for _, name := range []string{"charge", "say", "stays"} {
			r.Activity(name, func(context.Context) (string, error) { return "example", nil })
		}
		r.Activity(
			"isolated", func(context.Context) (string, error) { return "example", nil }, activity.Options{Isolated: true},
		)
	})
	r.Activity("own", func(context.Context) (string, error) { return "own", nil })
	w := start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
		o.Registry, o.Handlers, o.Watch = r, dir, true
	})
	run := func(name, want string) {
		t.Helper()
		answer, err := a.Broker().StartActivity(t.Context(), protocol.ActivityRequest{ActivityType: name})
		if err != nil {
			t.Fatal(err)
		}
		if got := result[string](t, end(t, a, answer.RunID)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	run("charge", "handler")
	run("say", "example")
	write("say")
	write("isolated")
	eventually(t, "the handlers are found", func() bool { return len(w.Handlers().Names()) == 3 })
	run("say", "handler")
	run("isolated", "handler")
	run("stays", "example")
	write("own")
	if _, err := worker.FindHandlers(dir, r, map[string]string{"node": "node"}); err == nil ||
		!strings.Contains(err.Error(), `"own" is registered in Go`) {
		t.Errorf("a handler with the name of a registered activity: %v", err)
	}
}

// The worker reports its executors in its heartbeats and in its metrics.
func TestExecutorsAreReported(t *testing.T) {
	languages(t, func(t *testing.T, dir string) {
		name := map[string]string{"node": "node", "python3": "python"}[filepath.Base(t.Name())]
		a := apptest.Start(t, apptest.Options{})
		w := start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
			o.Handlers, o.WorkerID = dir, "w"
			// leases are renewed, and heartbeats sent, every second
			o.Sessions.Lease, o.Sessions.Buffer = 2*time.Second, time.Second
		})
		s := httptest.NewServer(w.Probes())
		t.Cleanup(s.Close)
		call := func(activity string) {
			answer, err := a.Broker().StartActivity(t.Context(), protocol.ActivityRequest{
				ActivityType: activity, ActivityOptions: protocol.ActivityOptions{SessionID: "ada"},
				Input: json.RawMessage(`["abc"]`),
			})
			if err != nil {
				t.Fatal(err)
			}
			end(t, a, answer.RunID)
		}
		call("index.load")
		call("index.load")
		call("index.die")
		call("index.load")
		eventually(t, "the app knows the session's executor", func() bool {
			v, err := a.View().Worker(t.Context(), "", "w")
			if err != nil {
				t.Fatal(err)
			}
			var m protocol.MachineInformation
			if err := json.Unmarshal(v.Machine, &m); err != nil {
				return false
			}
			return slices.ContainsFunc(m.Sandboxes, func(e protocol.SandboxInfo) bool {
				return e.SessionID == "ada" && e.Epoch > 0 && e.Runtime == name && e.Memory > 0 && e.Calls == 1 && !e.Since.IsZero()
			})
		})
		r, err := http.Get(s.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		for _, want := range []string{
			`sojourn_executor_running{runtime="` + name + `",state="session"} 1`,
			`sojourn_executor_calls_total{runtime="` + name + `"} 3`,
			`sojourn_executor_ends_total{cause="crash",runtime="` + name + `"} 1`,
			`sojourn_executor_starts_total{runtime="` + name + `"}`, `sojourn_executor_memory_bytes{runtime="` + name + `"}`,
			`sojourn_executor_oldest_seconds{runtime="` + name + `"}`,
		} {
			if err != nil || !strings.Contains(string(body), want) {
				t.Errorf("metrics do not contain %s: %v\n%s", want, err, body)
			}
		}
	})
}

// A setting selects the interpreter of handlers: the interpreter of a virtual environment finds the packages in it.
func TestHandlersRunInTheInterpreterThatIsNamed(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not on this machine")
	}
	env, dir := filepath.Join(t.TempDir(), "env"), t.TempDir()
	if out, err := exec.Command(python, "-m", "venv", "--without-pip", env).CombinedOutput(); err != nil {
		t.Skipf("no virtual environment can be made here: %v %s", err, out)
	}
	packages, err := filepath.Glob(filepath.Join(env, "lib", "python3*", "site-packages"))
	if err != nil || len(packages) != 1 {
		t.Fatal(packages, err)
	}
	for path, code := range map[string]string{
		filepath.Join(packages[0], "only_here.py"): "word = 'found'\n",
		filepath.Join(dir, "uses.py"):              "import only_here\n\ndef main(_, ctx):\n\treturn only_here.word\n",
	} {
		if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := apptest.Start(t, apptest.Options{})
	start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
		o.Handlers, o.Executors.Python = dir, filepath.Join(env, "bin", "python")
	})
	answer, err := a.Broker().StartActivity(t.Context(), protocol.ActivityRequest{ActivityType: "uses"})
	if err != nil {
		t.Fatal(err)
	}
	if got := result[string](t, end(t, a, answer.RunID)); got != "found" {
		t.Errorf("got %q", got)
	}
	_, err = worker.New(workeropt.Over(&link.Socket{URLs: []string{a.URL()}}, worker.Options{
		Registry: worker.NewRegistry(), Handlers: dir,
		Executors: worker.ExecutorOptions{Node: "no-such-node"},
	}))
	if err == nil || !strings.Contains(err.Error(), "no-such-node") {
		t.Errorf("an interpreter that does not exist: %v", err)
	}
}

// If the recovery policy of a handler is invalid, an activity fails as it does without a policy. If only the rebuild
// activity is missing, the error names it.
func TestAHandlersUnusablePolicyRecoversNothing(t *testing.T) {
	languages(t, func(t *testing.T, dir string) {
		a := apptest.Start(t, apptest.Options{})
		start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
			o.Handlers = dir
			o.Registry.Workflow("uses", func(ctx workflow.Context, name string) error {
				s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
				if err != nil {
					return err
				}
				once := workflow.ActivityOptions{Retry: &workflow.RetryPolicy{MaxAttempts: 1}}
				return s.Execute(workflow.WithActivity(ctx, once), name, "abc").Get(ctx, nil)
			})
		})
		for name, want := range map[string]string{
			"index.selfish": "SessionLost", "index.strange": "SessionLost", "index.missing": "RebuildNotRegistered",
		} {
			failed, ok := run(t, a, "uses", name).Data.(*history.WorkflowFailed)
			if !ok || failed.ExceptionType != want {
				t.Errorf("%s: %+v, want %s", name, failed, want)
			}
		}
	})
}

// While the file of a handler is missing (an editor may be replacing it), the handler's tasks wait without a time
// limit, with a wait reason. They run when the file exists again.
func TestTasksWaitForAHandlersFile(t *testing.T) {
	languages(t, func(t *testing.T, dir string) {
		a := apptest.Start(t, apptest.Options{})
		start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
			o.Handlers = dir
			o.Registry.Workflow("loads", func(ctx workflow.Context) error {
				s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
				if err != nil {
					return err
				}
				return s.Execute(ctx, "index.load", "abc").Get(ctx, nil)
			})
		})
		away := filepath.Join(dir, "elsewhere")
		if err := os.Rename(filepath.Join(dir, "index"), away); err != nil {
			t.Fatal(err)
		}
		answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "loads"})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the task waits, and says for what", func() bool {
			v, err := a.View().Describe(t.Context(), protocol.Target{RunID: answer.RunID})
			if err != nil {
				t.Fatal(err)
			}
			w := v.Wait
			return w != nil && w.Reason == protocol.WaitTaskReturned && w.Attention && strings.Contains(w.Detail, "its file")
		})
		if err := os.Rename(away, filepath.Join(dir, "index")); err != nil {
			t.Fatal(err)
		}
		if last := end(t, a, answer.RunID); last.Type() != "WorkflowCompleted" {
			t.Errorf("the run ended with %s", last.Type())
		}
	})
}
