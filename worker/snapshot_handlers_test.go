package worker_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// snapshotFiles are, by language, a session definition with snapshots and a handler that counts the calls of its
// session.
var snapshotFiles = map[string]map[string]string{
	"node": {
		"tally.session.ts": `export function setUp() { return { n: 0 }; }
		export const onHandOver = (state: { n: number }) => ({ n: state.n });
		export async function restore(state: { n: number }, snapshot: { n: number }) { state.n = snapshot.n; }`,
		"count.mjs": `export const session = 'tally';
		export function main(input, ctx) { return String(++ctx.session.state.n); }`,
	},
	"python3": {
		"tally.session.py": "def set_up(args, ctx):\n\treturn {'n': 0}\n\ndef on_hand_over(state):\n\treturn state['n']\n\n" +
			"async def restore(state, snapshot):\n\tstate['n'] = snapshot\n",
		"count.py": "session = 'tally'\n\ndef main(_, ctx):\n\tctx.session.state['n'] += 1\n\treturn str(ctx.session.state['n'])\n",
	},
}

// The functions of a definition in a file run in the executor of the session.
func TestHandlersMoveTheirState(t *testing.T) {
	for program, files := range snapshotFiles {
		t.Run(program, func(t *testing.T) {
			apptest.Program(t, program)
			dir := t.TempDir()
			for name, code := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(code), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			a := apptest.Start(t, apptest.Options{})
			run := func(id string) (stop func()) {
				t.Helper()
				w, err := worker.New(workeropt.Over(ways["socket"](a), worker.Options{
					Registry: worker.NewRegistry(), Release: "test", WorkerID: id, DataDir: t.TempDir(), Handlers: dir,
					Logger: slogbridge.Slog(apptest.Log(t)), Sessions: worker.SessionOptions{Max: 10},
				}))
				if err != nil {
					t.Fatal(err)
				}
				ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
				done := make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				ready, cancel := context.WithTimeout(t.Context(), ceiling)
				defer cancel()
				if err := w.WaitReady(ready); err != nil {
					t.Fatal(err)
				}
				return func() {
					end()
					if err := <-done; err != nil {
						t.Errorf("worker %s: %v", id, err)
					}
				}
			}
			call := func() string {
				t.Helper()
				run, err := a.Broker().StartActivity(t.Context(), protocol.ActivityRequest{
					ActivityType: "count", ActivityOptions: protocol.ActivityOptions{
						SessionID: "s", SessionDefinition: &protocol.ActivitySession{
							Name: "tally", Arguments: json.RawMessage(`[]`),
						},
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				return result[string](t, end(t, a, run.RunID))
			}
			stop := run("A")
			call()
			if got := call(); got != "2" {
				t.Fatal(got)
			}
			stop()
			stop = run("B")
			defer stop()
			if got := call(); got != "3" {
				t.Errorf("after the move: %s; %q", got, timelineOf(t, a))
			}
		})
	}
}
