package examples_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/worker"
)

// A TypeScript handler is killed between its write and its result: it is retried in a process that opens the database
// again, and the write has effect once.
func TestADatabaseHandleIsRebuiltWhenItsProcessIsKilled(t *testing.T) {
	t.Parallel()
	if sandboxtest.Race {
		t.Skip("the race detector does not live with the limits of executors")
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not on this machine")
	}
	a, dir := apptest.Start(t, apptest.Options{}), t.TempDir()
	work(t, a, func(o *worker.Options) {
		o.Handlers, o.DataDir = "ledger/activities", t.TempDir()
		o.Executors = worker.ExecutorOptions{Write: []string{dir}}
	})
	app, err := client.New(client.Options{URLs: []string{a.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(dir, "journal")
	begin := func(amount, slow int) *client.Workflow {
		t.Helper()
		deposit := map[string]any{"file": journal, "account": "ada", "amount": amount, "slow": slow}
		run, err := app.StartActivity(t.Context(), "account.deposit", client.Args{deposit}, client.ActivityOptions{
			SessionID: "ledger", Retry: &client.RetryPolicy{MaxAttempts: 3},
		})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	balance := func(run *client.Workflow, want int) {
		t.Helper()
		var got int
		if err := run.Result(t.Context(), &got); err != nil || got != want {
			t.Errorf("balance %d, want %d: %v", got, want, err)
		}
	}
	type entry struct{ Amount, Process int }
	written := func() (all []entry) {
		t.Helper()
		raw, _ := os.ReadFile(journal) // not there before the first
		for line := range bytes.Lines(raw) {
			var e entry
			if !bytes.HasSuffix(line, []byte("\n")) {
				break
			}
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		return all
	}
	balance(begin(5, 0), 5)
	held := begin(7, 600_000)
	for len(written()) < 2 {
		if t.Context().Err() != nil {
			t.Fatal("the second deposit is not written")
		}
		time.Sleep(5 * time.Millisecond)
	}
	first := written()
	if first[0].Process != first[1].Process {
		t.Errorf("two processes wrote in one session: %+v", first)
	}
	if err := syscall.Kill(first[1].Process, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	balance(held, 12)
	balance(begin(1, 0), 13)
	if all := written(); len(all) != 3 || all[2].Process == first[0].Process {
		t.Errorf("written: %+v, want three entries, the last by another process", all)
	}
}

// usesDefinition is a file with a session definition and with a wrong type, which tsc must report.
const usesDefinition = `import type { Context, SetUp, TearDown } from './sojourn';
export const setUp: SetUp<string, Map<string, number>> = async (text, ctx) => new Map([[text, ctx.session!.epoch]]);
export const tearDown: TearDown<Map<string, number>> = (counts) => counts.clear();
export const main = (word: string, ctx: Context<Map<string, number>>) => ctx.session!.state.get(word);
// @ts-expect-error
export const wrong: SetUp<string, Map<string, number>> = async (text, ctx) => new Map([[text, ctx.session!.id]]);
`

// The example, and a file with a session definition, compile with the types for editors in TypeScript's strictest mode.
func TestTheLedgerFitsItsTypes(t *testing.T) {
	t.Parallel()
	web, err := filepath.Abs("../web/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(web, ".bin", "tsc")); err != nil {
		t.Skip("the dashboard's packages, with tsc among them, are not installed")
	}
	files, err := filepath.Glob("ledger/activities/account/*.ts")
	if err != nil || len(files) != 3 {
		t.Fatalf("files %v, %v", files, err)
	}
	types, err := os.ReadFile("ledger/activities/sojourn.d.ts")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"sojourn.d.ts": string(types), "words.session.ts": usesDefinition} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files = append(files, filepath.Join(dir, "words.session.ts"))
	args := []string{
		"--noEmit", "--strict", "--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022",
		"--types", "node", "--typeRoots", filepath.Join(web, "@types"),
	}
	out, err := exec.Command(filepath.Join(web, ".bin", "tsc"), append(args, files...)...).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The type file next to the example equals the output of `sojourn types`.
func TestTheTypeFileOfTheLedgerIsCurrent(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("../sandbox/internal/shim/sojourn.d.ts")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("ledger/activities/sojourn.d.ts")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("run `sojourn types examples/ledger/activities`: they differ (%v)", err)
	}
}
