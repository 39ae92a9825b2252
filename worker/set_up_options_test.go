package worker_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// optionFiles are session definitions with options, and a handler that uses them. FAILS is replaced by an expression.
var optionFiles = map[string]map[string]string{
	"node": {
		"slow.session.mjs": `export const options = { setUpTimeoutSeconds: 0.3 };
		export const setUp = () => new Promise((later) => setTimeout(later, 60_000));`,
		"wrong.session.mjs": `export const options = { setupTimeout: 3 };
		export const setUp = () => ({});`,
		"gpu.session.mjs": `export const options = { onFailure: 'try_another_worker' };
		export function setUp() { if (FAILS) throw new Error('no GPU'); return { ready: true }; }`,
		"use.mjs": `export function main(_, { fence, session }) {
			const whole = fence.namespace === 'default' && fence.sessionId === session.id && fence.epoch === session.epoch;
			if (!session.state.ready || !whole) throw new Error(JSON.stringify(fence));
		}`,
		"need.mjs": `export const session = 'go'; export const main = () => 1;`,
	},
	"python3": {
		"slow.session.py": "import time\n\noptions = {'set_up_timeout_seconds': 0.3}\n\n" +
			"def set_up(_, ctx):\n\ttime.sleep(60)\n",
		"wrong.session.py": "options = {'setup_timeout': 3}\n\ndef set_up(_, ctx):\n\treturn {}\n",
		"gpu.session.py": "options = {'on_failure': 'try_another_worker'}\n\ndef set_up(_, ctx):\n" +
			"\tif FAILS:\n\t\traise RuntimeError('no GPU')\n\treturn {'ready': True}\n",
		"use.py": "def main(_, ctx):\n\tf = ctx.fence\n" +
			"\tassert (f.namespace, f.session_id, f.epoch) == ('default', ctx.session.id, ctx.session.epoch)\n" +
			"\tassert ctx.session.state['ready']\n",
		"need.py": "session = 'go'\n\ndef main(_, ctx):\n\treturn 1\n",
	},
}

// writeOptionFiles writes the files of a language to a new folder.
func writeOptionFiles(t *testing.T, program, fails string) string {
	t.Helper()
	dir := t.TempDir()
	for name, code := range optionFiles[program] {
		code = strings.ReplaceAll(code, "FAILS", fails)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// useDefinition calls a handler in a session with a definition and returns the type of its failure.
func useDefinition(ctx workflow.Context, definition, handler string) (string, error) {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{Retry: &workflow.RetryPolicy{MaxAttempts: 1}})
	in := workflow.InSession(ctx, "s-"+definition, workflow.SessionDefinition{Name: definition})
	err := workflow.ExecuteActivity(in, handler).Get(ctx, nil)
	if failed, ok := errors.AsType[*workflow.ActivityError](err); ok {
		return failed.Type, nil
	}
	return "done", err
}

// A file with a session definition exports its timeout and its failure policy. Unknown options fail the activity
// without a retry, and so does a handler that requires the state of a definition in Go.
func TestSessionDefinitionsInFilesHaveOptions(t *testing.T) {
	for program, yes := range map[string]string{"node": "true", "python3": "True"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			apptest.Program(t, program)
			a := apptest.Start(t, apptest.Options{})
			add := func(dir string) func(*worker.Options) {
				return func(o *worker.Options) {
					o.Handlers = dir
					o.Registry.Session("go", activity.SessionDefinition{
						SetUp: func(context.Context) (int, error) { return 1, nil },
					})
					o.Registry.Workflow("options", useDefinition)
				}
			}
			start(t, a, ways["socket"](a), add(writeOptionFiles(t, program, yes)))
			for _, c := range [][3]string{
				{"slow", "use", "SessionSetUpTimeout"},
				{"wrong", "use", "InvalidSessionOptions"},
				{"go", "need", "SessionStateElsewhere"},
			} {
				if got := result[string](t, run(t, a, "options", c[0], c[1])); got != c[2] {
					t.Errorf("%s: got %q, want %q", c[0], got, c[2])
				}
			}
			gpu := begin(t, a, "options", "gpu", "use")
			eventually(t, "a failed set-up", func() bool {
				s, err := a.View().Session(t.Context(), "", "s-gpu")
				return err == nil && slices.ContainsFunc(s.Timeline, func(e protocol.SessionEvent) bool {
					return e.What == "released" && strings.HasPrefix(e.Why, "set_up_failed")
				})
			})
			start(t, a, ways["socket"](a), add(writeOptionFiles(t, program, "0")))
			if got := result[string](t, end(t, a, gpu.RunID)); got != "done" {
				t.Errorf("with another worker: got %q", got)
			}
		})
	}
}
