package sandboxtest

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// Ceiling is the timeout of the suite for expected events.
const Ceiling = 30 * time.Second

//go:embed handlers
var handlers embed.FS

// HandlersDir writes the suite's handlers in other languages into a folder of the test and returns it. The activities
// are "javascript" and "python". All users may read the folder, as with the code of any program.
func HandlersDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	sub, err := fs.Sub(handlers, "handlers")
	if err == nil {
		err = errors.Join(os.CopyFS(dir, sub), os.Chmod(filepath.Dir(dir), 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Target is an activity against which the suite runs; its entries are the behaviours.
type Target struct {
	Activity string
	Runtime  string
}

// Targets has all three runtimes, some of which a machine may lack.
var Targets = []Target{
	{NativeActivity, sandbox.RuntimeNative},
	{"javascript", sandbox.RuntimeNode},
	{"python", sandbox.RuntimePython},
}

// Bench is a pool with the suite's handlers, and helpers for tests.
type Bench struct {
	*sandbox.Pool
	Target
	Lost chan sandbox.SessionLost // sessions that the pool reported as lost
	t    testing.TB
	next atomic.Int64
}

// Open creates a pool for a test. It is closed when the test ends, and its folder must then be empty. Open skips the
// test if the machine lacks the target's runtime.
func Open(t testing.TB, target Target, o sandbox.Options) *Bench {
	t.Helper()
	b := &Bench{Target: target, Lost: make(chan sandbox.SessionLost, 100), t: t}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Handlers == "" {
		o.Handlers = HandlersDir(t)
	}
	o.OnLost = func(l sandbox.SessionLost) { b.Lost <- l }
	o = Fit(o)
	pool, err := sandbox.NewPool(o)
	if err != nil {
		t.Fatal(err)
	}
	b.Pool = pool
	t.Cleanup(func() {
		pool.Close()
		if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
			t.Errorf("left in the pool's folder: %v, %v", left, err)
		}
	})
	if _, there := pool.Report().Runtimes[target.Runtime]; !there {
		t.Skipf("%s is not on this machine", target.Runtime)
	}
	return b
}

// Fit removes limits from o that a binary with the race detector exceeds, since its own memory is larger than every
// heap limit.
func Fit(o sandbox.Options) sandbox.Options {
	if !Race {
		return o
	}
	limits := map[string]sandbox.Limits{}
	for _, target := range Targets { // of every runtime: a supervisor sets the limit before it starts the program
		l := o.Limits[target.Runtime]
		l.Data = -1
		limits[target.Runtime] = l
	}
	o.Limits = limits
	return o
}

// FitLimits returns the limits that [Fit] sets, by runtime, in another type.
func FitLimits[L any](convert func(sandbox.Limits) L) map[string]L {
	all := map[string]L{}
	for runtime, l := range Fit(sandbox.Options{}).Limits {
		all[runtime] = convert(l)
	}
	return all
}

// Call returns an invocation of the behaviour named entry, with its arguments.
func (b *Bench) Call(entry string, args ...any) sandbox.Invocation {
	b.t.Helper()
	input, err := payload.EncodeArgs(args...)
	if err != nil {
		b.t.Fatal(err)
	}
	return sandbox.Invocation{
		ID: string(rune('a' +
			b.next.Add(1)%26)), Activity: b.Activity, Entry: entry, Attempt: 1, Input: []byte(input.Blob),
		Keys: map[string]string{"activity_execution_id": "R-1"},
	}
}

// In returns an invocation in a session.
func In(id string, epoch int64, inv sandbox.Invocation) sandbox.Invocation {
	inv.Session = &sandbox.Session{ID: id, Epoch: epoch}
	return inv
}

// Run invokes and fails the test on an error.
func (b *Bench) Run(inv sandbox.Invocation) sandbox.Result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	res, err := b.Invoke(ctx, inv, sandbox.Hooks{})
	if err != nil {
		b.t.Fatalf("%s: %v%s", inv.Entry, err, stack(err))
	}
	return res
}

// Fail invokes and returns the error; it fails the test if there is none.
func (b *Bench) Fail(inv sandbox.Invocation) error {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	res, err := b.Invoke(ctx, inv, sandbox.Hooks{})
	if err == nil {
		b.t.Fatalf("%s gave %s, want an error", inv.Entry, res.Output)
	}
	return err
}

func stack(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) && e.Stack != "" {
		return "\n" + e.Stack
	}
	return ""
}

// Got decodes a result.
func Got[T any](t testing.TB, res sandbox.Result) T {
	t.Helper()
	var v T
	if err := payload.Decode(payload.Payload{Blob: string(res.Output)}, &v); err != nil {
		t.Fatalf("result %s: %v", res.Output, err)
	}
	return v
}

// WantType fails the test unless err is an Error of type want.
func WantType(t testing.TB, err error, want sandbox.ErrorType) *sandbox.Error {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Type != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	return e
}

// WantLost fails the test unless err is a SessionLost with that cause.
func WantLost(t testing.TB, err error, want sandbox.Cause) *sandbox.SessionLost {
	t.Helper()
	var lost *sandbox.SessionLost
	if !errors.As(err, &lost) || lost.Cause != want {
		t.Fatalf("got %v, want a lost session: %s", err, want)
	}
	return lost
}

// Eventually waits until cond holds.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(Ceiling); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", Ceiling, what)
		}
	}
}

// Receive waits for a value from c and returns it.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Ceiling):
		t.Fatalf("not within %s: %s", Ceiling, what)
		panic("not reached")
	}
}

// Gone reports whether no process has that PID, not even a zombie.
func Gone(pid int) bool {
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	return errors.Is(err, fs.ErrNotExist)
}
