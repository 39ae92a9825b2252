package sandbox_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/frame"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// lie encodes data that a handler writes directly to the control socket, bypassing the shim.
func lie(parts ...string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Join(parts, "")))
}

func lengths(header, body uint32) string {
	var b [8]byte
	binary.LittleEndian.PutUint32(b[:], header)
	binary.LittleEndian.PutUint32(b[4:], body)
	return string(b[:])
}

func framed(t *testing.T, h frame.Header, body string) string {
	t.Helper()
	b, err := frame.Append(nil, frame.Frame{Header: h, Body: []byte(body)}, frame.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBrokenProtocolKillsTheExecutor(t *testing.T) {
	for name, bytes := range map[string]string{
		"prefix of all ones":  "\xff\xff\xff\xff\xff\xff\xff\xff",
		"body of 2 GiB":       lengths(10, 2<<30),
		"header not JSON":     lengths(5, 0) + "hello",
		"header not UTF-8":    lengths(9, 0) + "{\"t\":\"\xff\"}",
		"text on the socket":  "print this please, it is not a frame\n",
		"half a frame":        lengths(50, 0) + `{"t":`,
		"a hundred strangers": strings.Repeat(framed(t, frame.Header{T: frame.Result, ID: "zz"}, "1"), 100),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyRuntime(t, sandbox.Options{Blank: -1}.WithPatience(30*time.Millisecond), func(t *testing.T, b *Bench) {
				WantType(t, b.Fail(In("s", 1, b.Call("raw", lie(bytes)))), sandbox.ProtocolError)
				WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseProtocolError)
			})
		})
	}
}

func TestFramesThatBelongToNoCallAreDropped(t *testing.T) {
	everyRuntime(t, sandbox.Options{}, func(t *testing.T, b *Bench) {
		b.Run(In("s", 1, b.Call("count"))) // has id 1
		b.Run(In("s", 1, b.Call("raw", lie(
			framed(t, frame.Header{T: frame.Result, ID: "1"}, `"late"`),
			framed(t, frame.Header{T: frame.Progress, ID: "1"}, `1`),
			framed(t, frame.Header{T: frame.Result, ID: "unknown"}, `1`),
			framed(t, frame.Header{T: frame.Error, ID: "unknown", Type: "SessionLost"}, ``),
			framed(t, frame.Header{T: "never heard of"}, ``), framed(t, frame.Header{T: frame.Ready, Proto: 9}, ``),
		))))
		if got := Got[int](t, b.Run(In("s", 1, b.Call("count")))); got != 2 {
			t.Errorf("counted %d", got)
		}
	})
}

func TestClosingTheSocketEndsTheExecutor(t *testing.T) {
	b := python(t, sandbox.Options{})
	about := Got[map[string]any](t, b.Run(In("s", 1, b.Call("about"))))
	b.Fail(In("s", 1, b.Call("close_socket")))
	if pid := int(about["pid"].(int64)); !Gone(pid) {
		t.Errorf("process %d is still there", pid)
	}
}

func TestResultsThatCannotBeStoredAreErrorsOfTheHandler(t *testing.T) {
	for _, target := range Targets[1:] {
		t.Run(target.Runtime, func(t *testing.T) {
			b := Open(t, target, sandbox.Options{})
			b.Run(In("s", 1, b.Call("count")))
			WantType(t, b.Fail(In("s", 1, b.Call("nested", 900))), sandbox.UserError)
			WantType(t, b.Fail(In("s", 1, b.Call("nested", 100_000))), sandbox.UserError)
			n := 3
			for _, body := range []string{
				"", "nope", `1e999`, `"\ud800"`, `[1,]`, "\xff", `18446744073709551616`,
				strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000),
			} {
				n++
				// The handler sends a result for its own call: IDs count up in base 36.
				answer := framed(t, frame.Header{T: frame.Result, ID: string("0123456789abcdefghijklmnopqrstuvwxyz"[n])}, body)
				res, err := b.Invoke(t.Context(), In("s", 1, b.Call("raw", lie(answer))), sandbox.Hooks{})
				if err != nil {
					if e := WantType(t, err, sandbox.UserError); e.Retryable {
						t.Errorf("%.20q: %v is retryable", body, e)
					}
				} else if body != `"\ud800"` { // the only one that is a value: a replacement character
					t.Errorf("%.20q was stored as %s", body, res.Output)
				}
			}
			if got := Got[map[string]any](t, b.Run(In("s", 1, b.Call("main", map[string]any{
				"__proto__": map[string]any{"polluted": true},
			})))); got["__proto__"] == nil {
				t.Errorf("got %v", got)
			}
			if got := Got[int](t, b.Run(In("s", 1, b.Call("count")))); got != 2 {
				t.Errorf("counted %d", got)
			}
		})
	}
}

func TestFloodOfOutputIsTruncatedAndTakesNoMemory(t *testing.T) {
	everyRuntime(t, sandbox.Options{Blank: -1}, func(t *testing.T, b *Bench) {
		runtime.GC()
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		var most uint64
		stop := make(chan struct{})
		var watching sync.WaitGroup
		watching.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					runtime.ReadMemStats(&now)
					most = max(most, now.HeapAlloc)
				}
			}
		})
		res := b.Run(b.Call("flood", 128)) // MiB, without a line feed, binary and with terminal sequences
		close(stop)
		watching.Wait()
		if most > before.HeapAlloc+8<<20 {
			t.Errorf("heap grew by %d KiB", (most-before.HeapAlloc)>>10)
		}
		kept := 0
		for _, l := range res.Logs {
			kept += len(l.Text)
			if strings.ContainsAny(l.Text, "\x00\x1b\n") || !utf8.ValidString(l.Text) {
				t.Fatalf("line %.40q", l.Text)
			}
		}
		if kept == 0 || kept > 2<<20 || res.LogsTruncated < 100<<20 {
			t.Errorf("kept %d bytes, truncated %d", kept, res.LogsTruncated)
		}
	})
}

// Large values are passed in memory that worker and executor share. One call at a time uses it, so that concurrent
// calls each receive their own values and no value is overwritten; when idle it occupies no memory. F
func TestSharedMemoryIsUsedByOneCallAtATime(t *testing.T) {
	for _, target := range Targets[1:] {
		t.Run(target.Runtime, func(t *testing.T) {
			b := Open(t, target, sandbox.Options{Blank: -1})
			pid := Got[int](t, b.Run(In("s", 1, b.Call("pid"))))
			taken := func() int64 {
				var st syscall.Stat_t
				if err := syscall.Stat(fmt.Sprintf("/proc/%d/fd/4", pid), &st); err != nil {
					t.Skip("no room to look at: ", err)
				}
				return st.Blocks
			}
			text := func(i int) string { return strings.Repeat(string(rune('a'+i)), 1<<20-i) }
			before := taken()
			if got := Got[string](t, b.Run(In("s", 1, b.Call("main", text(0))))); got != text(0) {
				t.Errorf("%d bytes came back, %.5q", len(got), got)
			}
			if before != 0 || taken() == 0 {
				t.Errorf("the room took %d blocks before, and %d after a large value", before, taken())
			}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					res, err := b.Invoke(t.Context(), In("s", 1, b.Call("main", text(i))), sandbox.Hooks{})
					if err != nil {
						t.Error(err)
					} else if got := Got[string](t, res); got != text(i) {
						t.Errorf("%d bytes came back to call %d, %.5q", len(got), i, got)
					}
				})
			}
			all.Wait()
			Eventually(t, "the room is empty", func() bool { return taken() == 0 })

			cancel, running := hold(t, b, In("s", 1, b.Call("wait")))
			id := "c" // not used by the ten calls before; the waiting call uses the shared memory
			WantType(
				t, b.Fail(In("s", 1, b.Call("raw", lie(framed(t, frame.Header{T: frame.Result, ID: id, Shared: 3}, ""))))),
				sandbox.ProtocolError,
			)
			cancel()
			Receive(t, "the end of the call", running)
			big := framed(t, frame.Header{T: frame.Result, ID: "1", Shared: frame.DefaultLimits.Body + 1}, "")
			WantType(t, b.Fail(In("t", 1, b.Call("raw", lie(big)))), sandbox.ProtocolError)
		})
	}
}
