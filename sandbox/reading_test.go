package sandbox_test

import (
	"context"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// reader reports whether the goroutine of a call with progress reads the executor's frames.
func reader(t *testing.T, b *Bench) (callers bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := b.Invoke(ctx, In("s", 1, b.Call("wait")), sandbox.Hooks{OnProgress: func([]byte) {
		stack := make([]byte, 16<<10)
		callers = strings.Contains(string(stack[:runtime.Stack(stack, false)]), "sandbox_test.reader(")
		cancel()
	}})
	WantType(t, err, sandbox.Cancelled)
	return callers
}

// The goroutine of a call that is alone in its executor reads the response: a handover to another goroutine would cost
// as much as the rest of a short call. Between two calls the executor's own goroutine starts to read after a short
// time; on a busy machine the next call may come later than that, so some calls may find it reading.
func TestAGoroutineThatCallsAloneReadsItsResponse(t *testing.T) {
	everyRuntime(t, sandbox.Options{}, func(t *testing.T, b *Bench) {
		calls := 0
		count := func() {
			calls++
			if got := Got[int](t, b.Run(In("s", 1, b.Call("count")))); got != calls {
				t.Errorf("call %d counted %d", calls, got)
			}
		}
		count()
		for range 3 { // also after a cancelled call for which another goroutine read
			tries := 1
			for ; tries < 20 && !reader(t, b); tries++ {
				count()
			}
			if tries == 20 {
				t.Error("another goroutine read for each of 20 calls that were alone")
			}
			count()
		}
		cancel, ended := hold(t, b, In("s", 1, b.Call("wait")))
		if reader(t, b) {
			t.Error("two goroutines read")
		}
		cancel()
		WantType(t, Receive(t, "cancelled", ended), sandbox.Cancelled)
		count()
	})
}

// The call whose goroutine reads for all others ends before they have their responses.
func TestOtherCallsReadAfterACancelledReader(t *testing.T) {
	everyRuntime(t, sandbox.Options{}, func(t *testing.T, b *Bench) {
		b.Run(In("s", 1, b.Call("count")))
		for range 4 {
			stop, first := hold(t, b, In("s", 1, b.Call("wait")))
			cancel, second := hold(t, b, In("s", 1, b.Call("wait")))
			stop()
			WantType(t, Receive(t, "the first", first), sandbox.Cancelled)
			cancel()
			WantType(t, Receive(t, "the second", second), sandbox.Cancelled)
		}
		if got := Got[int](t, b.Run(In("s", 1, b.Call("count")))); got != 2 {
			t.Errorf("counted %d", got)
		}
	})
}

// After a call no goroutine reads for a short time; then run reads and detects malformed frames.
func TestABrokenFrameWithoutACallEndsTheExecutor(t *testing.T) {
	t.Parallel()
	b := python(t, sandbox.Options{})
	b.Run(In("s", 1, b.Call("count")))
	b.Run(In("s", 1, b.Call("raw_later", lie("no frame at all"))))
	if lost := Receive(t, "loss", b.Lost); lost.Cause != sandbox.CauseProtocolError {
		t.Errorf("lost by %s: %s", lost.Cause, lost.Message)
	}
}

// TestAWarmCallPutsOneThreadToSleep counts how often threads of the worker block during a call. Only the thread that
// waits for the result should. A system call that Go's scheduler observes would wake another thread, which spins for
// work.
func TestAWarmCallPutsOneThreadToSleep(t *testing.T) {
	if Race {
		t.Skip("the race detector has threads of its own")
	}
	slept := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return u.Nvcsw
	}
	for _, target := range Targets[1:] { // for native Go, large values are sent through the socket in parts
		t.Run(target.Runtime, func(t *testing.T) {
			b := Open(t, target, sandbox.Options{Blank: -1})
			for _, size := range []int{100, 48 << 10} {
				call := In("s", 1, b.Call("main", strings.Repeat("x", size)))
				const calls = 30
				fewest := int64(1 << 30)
				// Messages of supervisors, garbage collection and other processes add wake-ups, so the test uses the
				// round with the fewest.
				for try := 0; try < 6 || try < 60 && fewest > 2*calls; try++ {
					before := slept()
					for range calls {
						b.Run(call)
					}
					fewest = min(fewest, slept()-before)
				}
				t.Logf("%d calls of %d bytes: %d times a thread went to sleep", calls, size, fewest)
				if fewest > 2*calls {
					t.Error("more than twice a call")
				}
			}
		})
	}
}
