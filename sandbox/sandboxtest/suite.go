package sandboxtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
)

// Run runs the suite of behaviours that all runtimes share.
func Run(t *testing.T, target Target) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Target)
	}{
		{"values come back as they went", echo},
		{"state stays between the calls of a session", stateStays},
		{"two sessions share nothing", sessionsApart},
		{"a handler learns who it is", about},
		{"a call gets the heartbeat details of an earlier attempt", lastHeartbeat},
		{"a call gets the headers of its activity", headers},
		{"calls of a session overlap", overlap},
		{"getOrCreate makes once", makesOnce},
		{"missing state is declared and a rebuild goes on in the epoch", declared},
		{"a crash is told to the call in flight and then to the next one", crash},
		{"a later epoch replaces the executor", laterEpoch},
		{"a failing handler keeps its session", failing},
		{"a cancelled handler keeps its session", cancelled},
		{"a deaf handler is killed after its cancellation", ignoredCancellation},
		{"a call waits while one before it is being cancelled", afterCancelled},
		{"a call waits while one before it is being killed", afterDeaf},
		{"a spinning handler is killed at its deadline", spinning},
		{"a call waits while one before it is over its deadline", afterDeadline},
		{"too much memory is out of memory", hog},
		{"close runs the hooks and wipes the scratch folder", closes},
		{"output and log lines come with the result", contains},
		{"calls outside sessions reuse an executor", reuse},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, target) })
	}
}

func echo(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	if got := Got[map[string]any](t, b.Run(b.Call("main", map[string]any{
		"a": 1, "b": []any{"é", nil, true, 1.5},
	}))); got["a"] != int64(1) || len(got["b"].([]any)) != 4 {
		t.Errorf("got %v", got)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	if got := Got[string](t, b.Run(b.Call("main", big))); got != big {
		t.Errorf("1 MiB came back as %d bytes", len(got))
	}
	if got := Got[any](t, b.Run(b.Call("main"))); got != nil {
		t.Errorf("no argument came back as %v", got)
	}
}

func stateStays(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	for want := 1; want <= 5; want++ {
		if got := Got[int](t, b.Run(In("s", 1, b.Call("count")))); got != want {
			t.Fatalf("call %d counted %d", want, got)
		}
	}
}

func sessionsApart(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	b.Run(In("one", 1, b.Call("count")))
	if got := Got[int](t, b.Run(In("two", 1, b.Call("count")))); got != 1 {
		t.Errorf("the second session counted %d", got)
	}
	one, two := Got[map[string]any](t, b.Run(In("one", 1, b.Call("about")))),
		Got[map[string]any](t, b.Run(In("two", 1, b.Call("about"))))
	if one["pid"] == two["pid"] || one["dir"] == two["dir"] {
		t.Errorf("shared between sessions: %v, %v", one, two)
	}
	if got := Got[string](t, b.Run(In("one", 1, b.Call("write", "a")))); got != "kept a" && got != "kept .code,a" &&
		got != "kept a,.code" {
		t.Errorf("own scratch folder: %q", got)
	}
	if got := Got[string](t, b.Run(In("two", 1, b.Call("write", "b")))); strings.Contains(got, "a") {
		t.Errorf("the other session's scratch folder: %q", got)
	}
}

func about(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	first := In("s", 1_700_000_000_000_001, b.Call("about"))
	first.Attempt = 3
	got := Got[map[string]any](t, b.Run(first))
	if got["id"] != "s" || got["epoch"] != int64(1_700_000_000_000_001) || got["is_new"] != true ||
		got["attempt"] != int64(3) || got["key"] != "R-1" {
		t.Errorf("first call: %v", got)
	}
	if info, err := os.Stat(got["dir"].(string)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("scratch folder: %v, %v", info, err)
	}
	if got := Got[map[string]any](t, b.Run(first)); got["is_new"] != false {
		t.Errorf("second call: %v", got)
	}
}

// A call gets the heartbeat details of an earlier attempt, also if they are larger than a frame header. The next call
// in the same executor gets none.
func lastHeartbeat(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	for _, details := range []string{"at 17", strings.Repeat("x", 100_000)} {
		in := In("s", 1, b.Call("last_heartbeat"))
		in.LastHeartbeat = []byte(`{"details":"` + details + `","at":"2026-01-02T03:04:05.000000Z","attempt_number":2}`)
		got := Got[[]any](t, b.Run(in))
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Unix()
		if len(got) != 3 || got[0] != details || got[2] != int64(2) || got[1] != at && got[1] != float64(at) {
			t.Errorf("details of %d bytes: got %.100v", len(details), got)
		}
		if got := Got[any](t, b.Run(In("s", 1, b.Call("last_heartbeat")))); got != nil {
			t.Errorf("the next call: got %.100v", got)
		}
	}
}

// A call gets the headers of its activity, also if they are larger than a frame header. The next call in the same
// executor gets none.
func headers(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	for _, value := range []string{"acme", strings.Repeat("ü", 4_000)} {
		in := In("s", 1, b.Call("headers"))
		in.Headers = []byte(`{"tenant":"` + value + `","__proto__":"p"}`)
		got := Got[map[string]any](t, b.Run(in))
		if len(got) != 2 || got["tenant"] != value || got["__proto__"] != "p" {
			t.Errorf("headers of %d bytes: got %.100v", len(value), got)
		}
		if got := Got[map[string]any](t, b.Run(In("s", 1, b.Call("headers")))); len(got) != 0 {
			t.Errorf("the next call: got %.100v", got)
		}
	}
}

func overlap(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() { b.Run(In("s", 1, b.Call("meet", 4))) })
	}
	calls.Wait()
}

func makesOnce(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	var calls sync.WaitGroup
	for range 5 {
		calls.Go(func() {
			res := b.Run(In("s", 1, b.Call("once")))
			if got := Got[[]any](t, res); got[0] != "made" || got[1] != int64(1) {
				t.Errorf("got %v", got)
			}
		})
	}
	calls.Wait()
}

func declared(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	if lost := WantLost(t, b.Fail(In("s", 7, b.Call("require_model"))), sandbox.CauseDeclared); lost.Session != "s" ||
		lost.EpochRequested != 7 {
		t.Errorf("got %+v", lost)
	}
	b.Run(In("s", 7, b.Call("set_model", "weights")))
	if got := Got[string](t, b.Run(In("s", 7, b.Call("require_model")))); got != "weights" {
		t.Errorf("got %q", got)
	}
}

func crash(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	b.Run(In("s", 1, b.Call("set_model", "weights")))
	if e := WantType(t, b.Fail(In("s", 1, b.Call("crash"))), sandbox.Crashed); !strings.Contains(e.Stack, "last words") ||
		!e.Retryable {
		t.Errorf("got %+v", e)
	}
	for range 2 {
		lost := WantLost(t, b.Fail(In("s", 1, b.Call("require_model"))), sandbox.CauseCrash)
		if lost.EpochRequested != 1 || lost.EpochNow != 0 || time.Since(lost.When) > Ceiling {
			t.Errorf("got %+v", lost)
		}
	}
	if lost := Receive(t, "OnLost", b.Lost); lost.Session != "s" || lost.Cause != sandbox.CauseCrash {
		t.Errorf("reported %+v", lost)
	}
	rebuild := In("s", 1, b.Call("set_model", "again"))
	rebuild.Rebuild = true
	b.Run(rebuild)
	if got := Got[string](t, b.Run(In("s", 1, b.Call("require_model")))); got != "again" {
		t.Errorf("after the rebuild: %q", got)
	}
	if e := WantType(t, b.Fail(b.Call("exit")), sandbox.Crashed); !strings.Contains(e.Message, "status 3") {
		t.Errorf("got %+v", e)
	}
}

func laterEpoch(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	b.Run(In("s", 1, b.Call("count")))
	if got := Got[int](t, b.Run(In("s", 2, b.Call("count")))); got != 1 {
		t.Errorf("the later epoch counted %d", got)
	}
	if lost := WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseClosed); lost.EpochNow != 2 ||
		lost.EpochRequested != 1 {
		t.Errorf("got %+v", lost)
	}
	Eventually(t, "the earlier executor is closed", func() bool {
		for _, e := range b.Snapshot() {
			if e.SessionID == "s" && e.Epoch == 1 {
				return false
			}
		}
		return true
	})
}

func failing(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	b.Run(In("s", 1, b.Call("count")))
	e := WantType(t, b.Fail(In("s", 1, b.Call("fail"))), sandbox.UserError)
	if e.Class != "TypeError" || e.Message != "this is wrong" || e.Retryable ||
		strings.ReplaceAll(string(e.Details), " ", "") != `{"code":7}` || e.Stack == "" {
		t.Errorf("got %+v", e)
	}
	if got := Got[int](t, b.Run(In("s", 1, b.Call("count")))); got != 2 {
		t.Errorf("counted %d after the failure", got)
	}
}

func cancelled(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	b.Run(In("s", 1, b.Call("count")))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	beats := make(chan struct{}, 100)
	shown := make(chan string, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := b.Invoke(ctx, In("s", 1, b.Call("wait")), sandbox.Hooks{
			OnHeartbeat: func() {
				select {
				case beats <- struct{}{}:
				default:
				}
			},
			OnProgress: func(p []byte) { shown <- string(p) },
		})
		ended <- err
	}()
	if got := Receive(t, "progress", shown); got != `"waiting"` {
		t.Errorf("progress %s", got)
	}
	Receive(t, "a heartbeat", beats)
	Receive(t, "another heartbeat", beats)
	cancel()
	WantType(t, Receive(t, "the end of the call", ended), sandbox.Cancelled)
	if got := Got[int](t, b.Run(In("s", 1, b.Call("count")))); got != 2 {
		t.Errorf("counted %d after the cancellation", got)
	}
}

func ignoredCancellation(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{CancelTerm: 50 * time.Millisecond, CancelKill: 150 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	shown := make(chan struct{}, 1)
	go func() {
		_, err := b.Invoke(ctx, In("s", 1, b.Call("stubborn")), sandbox.Hooks{OnProgress: func([]byte) {
			shown <- struct{}{}
		}})
		ended <- err
	}()
	Receive(t, "progress", shown)
	cancel()
	WantType(t, Receive(t, "the end of the call", ended), sandbox.Cancelled)
	WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseDeadline)
}

// afterCancelled starts a call right after the cancellation of the previous call, which then ends without being killed.
// F
func afterCancelled(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	b.Run(In("s", 1, b.Call("count")))
	ended, cancel := underway(t, b, In("s", 1, b.Call("wait")))
	cancel()
	if got := Got[int](t, b.Run(In("s", 1, b.Call("count")))); got != 2 {
		t.Errorf("counted %d after the cancellation", got)
	}
	WantType(t, Receive(t, "the end of the call", ended), sandbox.Cancelled)
}

// afterDeaf is like afterCancelled, but the cancelled call must be killed: the next call finds its state lost. It is
// neither killed with the first call, nor acknowledged with a state that is lost right afterwards.
func afterDeaf(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{CancelTerm: 100 * time.Millisecond, CancelKill: 300 * time.Millisecond})
	b.Run(In("s", 1, b.Call("count")))
	ended, cancel := underway(t, b, In("s", 1, b.Call("stubborn")))
	cancel()
	WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseDeadline)
	WantType(t, Receive(t, "the end of the call", ended), sandbox.Cancelled)
}

// afterDeadline starts a call when the previous call, which ignores cancellation, has reached its deadline and is not
// killed yet.
func afterDeadline(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{DeadlineGrace: 300 * time.Millisecond})
	b.Run(In("s", 1, b.Call("count")))
	inv := In("s", 1, b.Call("spin"))
	inv.Deadline = time.Now().Add(500 * time.Millisecond)
	ended, _ := underway(t, b, inv)
	<-time.After(time.Until(inv.Deadline))
	WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseDeadline)
	WantType(t, Receive(t, "the end of the call", ended), sandbox.DeadlineExceeded)
}

// underway runs a call that shows progress, and returns when it did.
func underway(t *testing.T, b *Bench, inv sandbox.Invocation) (ended <-chan error, cancel context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	shown, end := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		_, err := b.Invoke(ctx, inv, sandbox.Hooks{OnProgress: func([]byte) { shown <- struct{}{} }})
		end <- err
	}()
	Receive(t, "progress", shown)
	return end, cancel
}

func spinning(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{DeadlineGrace: 20 * time.Millisecond})
	about := Got[map[string]any](t, b.Run(In("s", 1, b.Call("about"))))
	inv := In("s", 1, b.Call("spin"))
	inv.Deadline = time.Now().Add(200 * time.Millisecond)
	err := b.Fail(inv)
	if time.Now().Before(inv.Deadline) {
		t.Error("killed before its deadline")
	}
	WantType(t, err, sandbox.DeadlineExceeded)
	if pid := int(about["pid"].(int64)); !Gone(pid) {
		t.Errorf("process %d is still there", pid)
	}
	WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseDeadline)
}

func hog(t *testing.T, target Target) {
	// The heap limit is disabled, so the watchdog or a control group must enforce the memory limit.
	b := Open(t, target, sandbox.Options{Limits: map[string]sandbox.Limits{target.Runtime: {Memory: 128 << 20, Data: -1}}})
	WantType(t, b.Fail(In("s", 1, b.Call("hog"))), sandbox.OutOfMemory)
	WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseOutOfMemory)
}

func closes(t *testing.T, target Target) {
	dir := t.TempDir()
	b := Open(t, target, sandbox.Options{Write: []string{dir}})
	proof := filepath.Join(dir, "closed")
	b.Run(In("s", 1, b.Call("on_close", proof)))
	about := Got[map[string]any](t, b.Run(In("s", 1, b.Call("about"))))
	if err := b.CloseSession(t.Context(), sandbox.Session{ID: "s", Epoch: 1}, "done"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(proof); err != nil || string(text) != "closed" {
		t.Errorf("the hook left %q, %v", text, err)
	}
	if _, err := os.Stat(about["dir"].(string)); !os.IsNotExist(err) {
		t.Errorf("scratch folder: %v", err)
	}
	if pid := int(about["pid"].(int64)); !Gone(pid) {
		t.Errorf("process %d is still there", pid)
	}
	WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseClosed)
	select {
	case l := <-b.Lost:
		t.Errorf("told of a lost session: %+v", l)
	default:
	}
}

func contains(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{})
	var hooked []string
	ctx, cancel := context.WithTimeout(t.Context(), Ceiling)
	defer cancel()
	res, err := b.Invoke(ctx, b.Call("say"), sandbox.Hooks{OnLog: func(l sandbox.LogLine) {
		hooked = append(hooked, l.Text)
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, l := range res.Logs {
		got[l.Text] = l.Source + " " + l.Level
	}
	want := map[string]string{"to stdout": "stdout info", "to stderr": "stderr warn", "to the log": "log warn"}
	for text, from := range want {
		if got[text] != from {
			t.Errorf("%q came from %q, want %q", text, got[text], from)
		}
	}
	if len(hooked) != 3 {
		t.Errorf("the hook was told %q", hooked)
	}
}

func reuse(t *testing.T, target Target) {
	b := Open(t, target, sandbox.Options{Blank: -1})
	idle := func() bool {
		all := b.Snapshot()
		return len(all) == 1 && !all[0].Busy
	}
	first := Got[int](t, b.Run(b.Call("pid")))
	Eventually(t, "the executor is given back", idle)
	second := 0
	Eventually(t, "the executor is used again", func() bool {
		second++
		return Got[int](t, b.Run(b.Call("pid"))) == first
	})
	fresh := b.Call("pid")
	fresh.Fresh = true
	if got := Got[int](t, b.Run(fresh)); got == first {
		t.Error("a fresh call ran in a used executor")
	}
}
