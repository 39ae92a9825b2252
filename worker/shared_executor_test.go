package worker_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// These tests run one bad call and several innocent calls in the executor of one session. Each call appends a line to a
// file of its name when it begins. In its first run, an innocent call waits until the bad call has ended; the bad call
// waits until the innocent calls have begun.

const innocentCalls = 8

// sharedFolder is the folder in which each activity call of a test appends a line to a file when the call begins.
type sharedFolder struct {
	Dir string `json:"dir"`
	Me  string `json:"me"`
	// Block is the number of innocent calls that run next to the bad one.
	Block int `json:"hold"`
}

// begin records the call and reports whether this is its first run.
func (f sharedFolder) begin() bool {
	path := filepath.Join(f.Dir, f.Me)
	_, err := os.Stat(path)
	first := err != nil
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err == nil {
		_, err = fmt.Fprintln(file, "began")
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		panic(err)
	}
	return first
}

func (f sharedFolder) await(name string) {
	for {
		if _, err := os.Stat(filepath.Join(f.Dir, name)); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond) // another process or an independent call creates the file
	}
}

func (f sharedFolder) awaitInnocents() {
	for i := range f.Block {
		f.await(fmt.Sprint("innocent-", i))
	}
}

// nativeBad are the bad calls in Go, by name. They run in an executor of this binary.
var nativeBad = map[string]func() (string, error){
	"exits":   func() (string, error) { os.Exit(3); return "", nil },
	"crashes": func() (string, error) { go panic("boom"); select {} },
	"is_killed": func() (string, error) {
		return "", syscall.Kill(os.Getpid(), syscall.SIGKILL)
	},
	"deadlocks": func() (string, error) {
		var mu sync.Mutex
		mu.Lock()
		mu.Lock()
		return "", nil
	},
	"runs_out_of_memory": func() (string, error) {
		var all [][]byte
		for {
			all = append(all, make([]byte, 16<<20))
			for i := 0; i < 16<<20; i += 4096 {
				all[len(all)-1][i] = 1
			}
		}
	},
	"floods_output": func() (string, error) {
		for i := range 100_000 {
			fmt.Println("line", i, "of a flood")
		}
		return "", nil
	},
	"returns_too_much": func() (string, error) { return strings.Repeat("x", 3<<20), nil },
}

func registerSharedExecutor(r *worker.Registry) {
	r.Activity("shared.innocent", func(_ context.Context, f sharedFolder) (string, error) {
		if f.begin() && f.Block > 0 {
			f.await("through")
		}
		return f.Me, nil
	}, activity.Isolated)
	for kind, do := range nativeBad {
		r.Activity("shared."+kind, func(_ context.Context, f sharedFolder) (string, error) {
			f.begin()
			f.awaitInnocents()
			out, err := do()
			return out, errors.Join(err, os.WriteFile(filepath.Join(f.Dir, "through"), nil, 0o600))
		}, activity.Isolated)
	}
	r.Workflow("shared", func(ctx workflow.Context, in sharedRun) (string, error) {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{MaxActivities: in.Together})
		if err != nil {
			return "", err
		}
		with := func(seconds int) workflow.Context {
			return workflow.WithActivity(ctx, workflow.ActivityOptions{
				StartToClose: time.Duration(seconds) * time.Second, Retry: &workflow.RetryPolicy{MaxAttempts: in.Attempts},
			})
		}
		var all []workflow.Future
		var bad workflow.Future
		for i := range innocentCalls {
			f := sharedFolder{Dir: in.Dir, Me: fmt.Sprint("innocent-", i)}
			if i < in.Together-1 {
				f.Block = in.Together - 1
			}
			all = append(all, s.Execute(with(in.Innocent), in.Handler+".innocent", f))
			if i == in.Together-2 {
				f.Me = "bad"
				bad = s.Execute(with(in.Bad), in.Handler+"."+in.Kind, f)
			}
		}
		for _, f := range all {
			if err := f.Get(ctx, nil); err != nil {
				return "", err
			}
		}
		failure := ""
		if err := bad.Get(ctx, nil); err != nil {
			failure = err.Error()
		}
		return failure, s.End(ctx)
	})
}

// sharedRun is the input of the workflow "shared".
type sharedRun struct {
	Dir, Handler, Kind string
	// maximum attempts of each call; timeout in seconds of an attempt of an innocent call and of the bad call
	Attempts, Innocent, Bad int
	Together                int // number of calls that run concurrently
}

// sharedHandlers are the handler files in other languages.
var sharedHandlers = map[string]map[string]string{
	"node": {
		"innocent.mjs": `import fs from 'node:fs';
			export async function main(f, ctx) {
				const first = !fs.existsSync(f.dir + '/' + f.me);
				fs.appendFileSync(f.dir + '/' + f.me, 'began\n');
				while (first && !fs.existsSync(f.dir + '/through')) await new Promise((later) => setTimeout(later, 5));
				return f.me;
			}`,
		"bad.mjs": `import fs from 'node:fs';
			export async function main(f, ctx) {
				fs.appendFileSync(f.dir + '/' + f.me, 'began\n');
				for (let i = 0; i < f.hold; i++)
					while (!fs.existsSync(f.dir + '/innocent-' + i)) await new Promise((later) => setTimeout(later, 5));
				try {
					return await (async () => { DO })();
				} finally {
					fs.writeFileSync(f.dir + '/through', '');
				}
			}`,
	},
	"python3": {
		"innocent.py": `import os, time

def main(f, ctx):
    path = f["dir"] + "/" + f["me"]
    first = not os.path.exists(path)
    with open(path, "a") as file:
        file.write("began\n")
    while first and not os.path.exists(f["dir"] + "/through"):
        time.sleep(0.005)
    return f["me"]
`,
		"bad.py": `import os, time

def act():
    DO

def main(f, ctx):
    with open(f["dir"] + "/" + f["me"], "a") as file:
        file.write("began\n")
    for i in range(f["hold"]):
        while not os.path.exists("%s/innocent-%d" % (f["dir"], i)):
            time.sleep(0.005)
    try:
        return act()
    finally:
        open(f["dir"] + "/through", "w").close()
`,
	},
}

// sharedDeeds is the code of the bad calls in other languages, by language and name.
var sharedDeeds = map[string]map[string]string{
	"node": {
		"exits":              `process.exit(3);`,
		"crashes":            `setTimeout(() => { throw new Error('boom'); }); await new Promise(() => {});`,
		"is_killed":          `process.kill(process.pid, 'SIGKILL'); await new Promise(() => {});`,
		"deadlocks":          `await new Promise(() => {});`,
		"runs_out_of_memory": `const all = []; for (;;) all.push(Buffer.alloc(16 << 20, 1));`,
		"floods_output":      `for (let i = 0; i < 100000; i++) console.log('line', i, 'of a flood');`,
		"returns_too_much":   `return 'x'.repeat(3 << 20);`,
	},
	"python3": {
		"exits":              `os._exit(3)`,
		"crashes":            `import ctypes; ctypes.string_at(0)`,
		"is_killed":          `os.kill(os.getpid(), 9); time.sleep(60)`,
		"deadlocks":          `import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()`,
		"runs_out_of_memory": `all = [bytearray(16 << 20) for i in range(10000)]`,
		"floods_output":      `[print("line", i, "of a flood") for i in range(100000)]`,
		"returns_too_much":   `return "x" * (3 << 20)`,
	},
}

// blocks is JavaScript that blocks the event loop of Node.
const blocks = "for (;;);"

// endsExecutor are the names of the bad calls that end the executor.
var endsExecutor = map[string]bool{
	"exits": true, "crashes": true, "is_killed": true, "deadlocks": true, "blocks": true,
}

// checkShared runs a bad call next to innocent calls and counts the runs and attempts of each.
func checkShared(t *testing.T, a *apptest.App, in sharedRun) {
	t.Helper()
	raw, err := json.Marshal([]any{in})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "shared", Input: raw})
	if err != nil {
		t.Fatal(err)
	}
	failure := result[string](t, end(t, a, answer.RunID))
	completed, failed, repeated := 0, 0, 0
	for _, e := range events(t, a, answer.RunID) {
		switch d := e.Data.(type) {
		case *history.ActivityCompleted:
			completed++
			for _, l := range d.Lost {
				repeated++
				// The app releases the attempt if the session gets its next epoch before the worker returns the task.
				why := strings.HasPrefix(l.Why, protocol.ReturnedExecutorEnded) ||
					l.Why == string(protocol.ReasonStaleSessionEpoch)
				if !why || l.Epoch >= d.SessionEpoch || l.Tasks > in.Together {
					t.Errorf("activity %d completed under epoch %d after %+v", d.Sequence, d.SessionEpoch, l)
				}
			}
		case *history.ActivityFailed, *history.ActivityTimedOut, *history.ActivityRetryScheduled:
			failed++
		}
	}
	for i := range innocentCalls {
		name := fmt.Sprint("innocent-", i)
		raw, err := os.ReadFile(filepath.Join(in.Dir, name))
		if n := strings.Count(string(raw), "began"); err != nil || n > 2 || n > 1 && !endsExecutor[in.Kind] && failure == "" {
			t.Errorf("%s ran %d times: %v", name, n, err)
		}
	}
	want := 0 // number of failed attempts; only the bad call may fail
	if failure != "" {
		want = in.Attempts
	}
	if endsExecutor[in.Kind] && failure == "" {
		t.Error("the bad call completed")
	}
	if completed+failed != innocentCalls+max(1, want) || failed != want {
		raw := strings.Builder{}
		for _, e := range events(t, a, answer.RunID) {
			fmt.Fprintf(&raw, "%d %s %+v\n", e.Seq, e.Data.Type(), e.Data)
		}
		t.Errorf("%d attempts completed and %d failed, want %d failed: %s\n%s", completed, failed, want, failure, raw.String())
	}
	if endsExecutor[in.Kind] != (repeated > 0) && in.Kind != "runs_out_of_memory" {
		t.Errorf("%d deliveries ended with the executor", repeated)
	}
}

// testShared starts a new worker and runs one bad call of a kind together with innocent calls.
func testShared(t *testing.T, program, kind string, together int, database string) {
	t.Helper()
	if sharedHandlers[program] != nil {
		apptest.Program(t, program)
	}
	a := apptest.Start(t, apptest.Options{Database: database})
	dir := t.TempDir() // executors may run as another user
	if err := errors.Join(os.Chmod(dir, 0o777), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	in := sharedRun{
		Dir: dir, Handler: "shared", Kind: kind, Attempts: 1, Innocent: 60, Bad: 60, Together: together,
	}
	switch kind {
	case "deadlocks":
		in.Bad = 2
	case "blocks":
		in.Innocent, in.Bad = 5, 6
	}
	start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
		o.Concurrency, o.Executors.Write = innocentCalls+2, []string{dir}
		if sharedHandlers[program] == nil {
			return
		}
		in.Handler, o.Handlers = "calls", t.TempDir()
		folder := filepath.Join(o.Handlers, "calls")
		if err := errors.Join(os.Chmod(filepath.Dir(o.Handlers), 0o755), os.Mkdir(folder, 0o755)); err != nil {
			t.Fatal(err)
		}
		for name, code := range sharedHandlers[program] {
			code = strings.Replace(code, "DO", cmp.Or(sharedDeeds[program][kind], blocks), 1)
			path := filepath.Join(folder, strings.Replace(name, "bad", kind, 1))
			if err := os.WriteFile(path, []byte(code), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
	checkShared(t, a, in)
}

func TestInnocentCallsNextToABadOneInAGoExecutor(t *testing.T) {
	for kind := range nativeBad {
		t.Run(kind, func(t *testing.T) { testShared(t, "go", kind, innocentCalls+1, "") })
	}
}

func TestInnocentCallsNextToABadOneInAHandlersExecutor(t *testing.T) {
	for program, deeds := range sharedDeeds {
		for kind := range deeds {
			t.Run(program+" "+kind, func(t *testing.T) { testShared(t, program, kind, innocentCalls+1, "") })
		}
	}
}

func TestInnocentCallsNextToABadOneOnPostgres(t *testing.T) {
	testShared(t, "go", "is_killed", innocentCalls+1, apptest.Postgres(t))
}

// If one call blocks an executor, the deadlines of the innocent calls pass before the deadline of the blocking call.
func TestCallsInABlockedExecutorDoNotTimeOut(t *testing.T) {
	testShared(t, "node", "blocks", innocentCalls+1, "")
}
