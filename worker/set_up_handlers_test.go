package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// definitionFiles are, by language, a session definition, a handler that uses the session's state, and a handler that
// ends the executor.
var definitionFiles = map[string]map[string]string{
	"node": {
		"llama.session.mjs": `import { appendFileSync } from 'node:fs';
		export async function setUp([path, log], ctx) {
			await new Promise((later) => setTimeout(later, 2500));
			appendFileSync(log, 'set up ' + ctx.session.id + '\n');
			return { path, log, calls: 0 };
		}
		export function tearDown(state) { appendFileSync(state.log, 'tear down ' + state.path + '\n'); }`,
		"ask.mjs": `export const session = 'llama';
		export function main(word, ctx) { return word + ' ' + ctx.session.state.path + ' ' + ++ctx.session.state.calls; }`,
		"end.cjs": `module.exports = () => process.kill(process.pid, 'SIGKILL') && new Promise(() => {});`,
	},
	"python3": {
		"llama.session.py": "import time\n\ndef set_up(args, ctx):\n\ttime.sleep(2.5)\n" +
			"\twith open(args[1], 'a') as log:\n\t\tlog.write('set up ' + ctx.session.id + '\\n')\n" +
			"\treturn {'path': args[0], 'log': args[1], 'calls': 0}\n\n" +
			"def tear_down(state):\n\twith open(state['log'], 'a') as log:\n\t\tlog.write('tear down ' + state['path'] + '\\n')\n",
		"ask.py": "session = 'llama'\n\ndef main(word, ctx):\n\tctx.session.state['calls'] += 1\n" +
			"\treturn '%s %s %d' % (word, ctx.session.state['path'], ctx.session.state['calls'])\n",
		"end.py": "import os, signal, time\n\ndef main(_, ctx):\n\tos.kill(os.getpid(), signal.SIGKILL)\n\ttime.sleep(60)\n",
	},
}

// A file NAME.session.mjs or NAME.session.py sets a session up in its executor. The set-up runs once for two concurrent
// calls, may take longer than their timeout, and runs again after the executor ended; the tear-down runs when the
// session is released. A handler that names the definition fails outside a session with it.
func TestHandlersUseSessionDefinitionsInFiles(t *testing.T) {
	for program, files := range definitionFiles {
		t.Run(program, func(t *testing.T) {
			apptest.Program(t, program)
			dir, out := t.TempDir(), t.TempDir()
			for name, code := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(code), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			log := filepath.Join(out, "log")
			a := apptest.Start(t, apptest.Options{})
			start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
				o.Handlers, o.Executors.Write = dir, []string{out}
				o.Registry.Workflow("asks", func(ctx workflow.Context) (string, error) {
					slow := workflow.WithActivity(ctx, workflow.ActivityOptions{StartToClose: time.Minute})
					plain := workflow.ExecuteActivity(workflow.InSession(slow, "plain"), "ask", "x").Get(ctx, nil)
					ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{StartToClose: 2 * time.Second})
					def := workflow.SessionDefinition{Name: "llama", Arguments: []any{"m.gguf", log}}
					s, err := workflow.StartSession(ctx, workflow.SessionOptions{Definition: &def, MaxActivities: 4})
					if err != nil {
						return "", err
					}
					all := ""
					if plain != nil {
						all = strings.TrimSuffix(plain.Error(), "\n") + "; "
					}
					one, two := s.Execute(ctx, "ask", "a"), s.Execute(ctx, "ask", "a")
					for i, f := range []workflow.Future{one, two, nil} {
						if f == nil {
							_ = s.Execute(ctx, "end").Get(ctx, nil)
							f = s.Execute(ctx, "ask", "b")
						}
						got, err := workflow.Await[string](ctx, f)
						if err != nil {
							return all, fmt.Errorf("call %d: %w", i, err)
						}
						all += got[:len(got)-1]
					}
					return all, s.End(ctx)
				})
			})
			asks := begin(t, a, "asks")
			got := result[string](t, end(t, a, asks.RunID))
			if !strings.Contains(got, "requires a session with the definition llama") ||
				!strings.HasSuffix(got, "a m.gguf a m.gguf b m.gguf ") {
				t.Errorf("the result is %q", got)
			}
			if n := setUps(events(t, a, asks.RunID)); n != 2 {
				t.Errorf("%d set-ups are recorded, want 2", n)
			}
			eventually(t, "the tear-down", func() bool {
				raw, _ := os.ReadFile(log)
				return strings.Count(string(raw), "set up ") == 2 && strings.Count(string(raw), "tear down m.gguf") == 1
			})
		})
	}
}

// setUps counts the set-up events in a history.
func setUps(list []history.Event) (n int) {
	for _, e := range list {
		if _, ok := e.Data.(*history.SessionSetUp); ok {
			n++
		}
	}
	return n
}
