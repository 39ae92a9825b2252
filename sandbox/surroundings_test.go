package sandbox_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// leftovers are traces that a call finds of the previous one.
type leftovers struct {
	Env     string   `json:"env"`
	Path    bool     `json:"path"`
	Cwd     bool     `json:"cwd"`
	Umask   bool     `json:"umask"`
	Files   []string `json:"files"`
	Globals int      `json:"globals"`
	Open    []int    `json:"open"`
	Waiting int      `json:"waiting"` // goroutines that read from a connection
}

// Between calls outside sessions the executor restores environment, working directory and umask, empties the scratch
// folder and closes open files, however the call ended. Global variables stay. In a session everything stays.
func TestACallOutsideSessionsFindsNothingOfTheOneBefore(t *testing.T) {
	for _, target := range Targets {
		for _, entry := range []string{"leave", "leave_later"} {
			t.Run(target.Runtime+" "+entry, func(t *testing.T) {
				t.Parallel()
				b := Open(t, target, sandbox.Options{Blank: -1})
				one := func() bool { return b.Idle() == 1 }
				for n := range 12 {
					got := Got[leftovers](t, b.Run(b.Call(entry)))
					got.Waiting = max(0, got.Waiting-1) // the goroutine of the call before may not have ended yet
					want := leftovers{Path: true, Cwd: true, Umask: true, Files: []string{}, Globals: n, Open: []int{}}
					if d := cmp.Diff(want, got); d != "" {
						t.Fatalf("call %d (-want +got)\n%s", n, d)
					}
					Eventually(t, "it waits for another call", one)
				}
				var e *sandbox.Error
				if err := b.Fail(b.Call("leave_and_fail")); !errors.As(err, &e) {
					t.Fatal(err)
				}
				Eventually(t, "it waits for another call", one)
				got := Got[leftovers](t, b.Run(b.Call(entry)))
				if got.Globals != 13 || got.Waiting > 1 || got.Env != "" || len(got.Files)+len(got.Open) > 0 {
					t.Errorf("after a call that failed: %+v", got)
				}
				var in leftovers
				for range 2 {
					in = Got[leftovers](t, b.Run(In("s", 1, b.Call("leave"))))
				}
				if in.Env != "env" || in.Globals != 1 {
					t.Errorf("in a session: %+v", in)
				}
			})
		}
	}
}

// A handler that requests it gets a new executor for each call, in each form of the export; a handler that only
// mentions it is reused.
func TestAHandlerThatIsFreshHasAnExecutorForEachCall(t *testing.T) {
	t.Parallel()
	dir := files(t, map[string]string{
		"mjs.mjs": "export const main = () => process.pid;\nexport const fresh = true;\n",
		"cjs.cjs": "exports.main = () => process.pid;\nexports.fresh = true;\n",
		"ts.ts":   "export const fresh: boolean = true;\nexport const main = (): number => process.pid;\n",
		"py.py":   "import os\nfresh = True\ndef main(input, ctx):\n    return os.getpid()\n",
		"not.mjs": "// fresh = true\nexport const main = () => { const fresh = true; return fresh && process.pid; };\n",
	})
	for _, target := range Targets[1:] {
		b := Open(t, target, sandbox.Options{Handlers: dir, Blank: -1})
		of := map[string][]string{sandbox.RuntimeNode: {"mjs", "cjs", "ts", "not"}, sandbox.RuntimePython: {"py"}}
		for _, name := range of[target.Runtime] {
			b.Activity = name
			first := Got[int](t, b.Run(b.Call("main")))
			if name == "not" {
				Eventually(t, "it waits for another call", func() bool { return b.Idle() == 1 })
			}
			if second := Got[int](t, b.Run(b.Call("main"))) == first; second != (name == "not") {
				t.Errorf("%s: used again: %v", name, second)
			}
		}
	}
}

// A pool in fresh mode starts a new executor for each call until the mode is switched off; sessions keep their
// executors.
func TestAPoolThatIsFreshHasAnExecutorForEachCall(t *testing.T) {
	t.Parallel()
	b := native(t, sandbox.Options{Blank: -1})
	pid := func() int { return Got[int](t, b.Run(b.Call("pid"))) }
	b.SetFresh(true)
	first := pid()
	if pid() == first {
		t.Error("an executor took two calls")
	}
	in := Got[int](t, b.Run(In("s", 1, b.Call("pid"))))
	if Got[int](t, b.Run(In("s", 1, b.Call("pid")))) != in {
		t.Error("a session lost its executor")
	}
	b.SetFresh(false)
	first = pid()
	Eventually(t, "the executor takes the next call", func() bool { return b.Idle() == 1 })
	if pid() != first {
		t.Error("an executor took one call alone")
	}
}

// An executor ends after a Go handler that leaves more than 64 descriptors open: the next call runs in another
// executor.
func TestExecutorThatCannotBeRestoredIsNotReused(t *testing.T) {
	t.Parallel()
	b := native(t, sandbox.Options{Blank: -1})
	first := Got[int](t, b.Run(b.Call("leave_many")))
	Eventually(t, "it ends", func() bool { return len(b.Stats().Ends[sandbox.RuntimeNative]) > 0 })
	if Got[int](t, b.Run(b.Call("pid"))) == first {
		t.Error("an executor with a hundred descriptors of an earlier call took the next one")
	}
}
