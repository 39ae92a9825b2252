package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/filelock"
	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// native opens a pool for tests of the pool itself: native executors start fastest.
func native(t *testing.T, o sandbox.Options) *Bench { return Open(t, Targets[0], o) }

// hold starts a call that runs until cancel is called, and waits until it runs; ended receives its error.
func hold(t *testing.T, b *Bench, inv sandbox.Invocation) (cancel context.CancelFunc, ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	running, done := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := b.Invoke(ctx, inv, sandbox.Hooks{OnProgress: func([]byte) { close(running) }})
		done <- err
	}()
	Receive(t, "the call runs", running)
	return cancel, done
}

func TestFullPoolThrottlesAndEvictsOnlyLongIdleSessions(t *testing.T) {
	b := native(t, sandbox.Options{MaxExecutors: 2, Blank: -1, IdleEvictable: time.Nanosecond})
	pinned := func(inv sandbox.Invocation) sandbox.Invocation { inv.Session.Pinned = true; return inv }
	b.Run(pinned(In("workflow", 1, b.Call("count"))))
	cancel, ended := hold(t, b, In("busy", 1, b.Call("wait")))
	e := WantType(t, b.Fail(In("third", 1, b.Call("count"))), sandbox.Unavailable)
	if !strings.Contains(string(e.Details), "throttled") || !e.Retryable {
		t.Errorf("got %+v", e)
	}
	cancel()
	WantType(t, Receive(t, "the end of the call", ended), sandbox.Cancelled)
	b.Run(In("third", 1, b.Call("count"))) // replaces the executor that is idle and not pinned
	if lost := Receive(t, "OnLost", b.Lost); lost.Session != "busy" || lost.Cause != sandbox.CauseEvictedPressure {
		t.Errorf("told %+v", lost)
	}
	WantLost(t, b.Fail(In("busy", 1, b.Call("count"))), sandbox.CauseEvictedPressure)
	if got := Got[int](t, b.Run(In("workflow", 1, b.Call("count")))); got != 2 {
		t.Errorf("the pinned session counted %d", got)
	}
}

func TestFullPoolEndsPreparedExecutorsFirst(t *testing.T) {
	b := native(t, sandbox.Options{MaxExecutors: 2, IdleEvictable: time.Hour})
	b.Run(In("one", 1, b.Call("count")))
	Eventually(t, "one waits in reserve", func() bool { return len(b.Snapshot()) == 2 })
	b.Run(In("two", 1, b.Call("count")))
	WantType(t, b.Fail(In("three", 1, b.Call("count"))), sandbox.Unavailable)
	if got := Got[int](t, b.Run(In("one", 1, b.Call("count")))); got != 2 {
		t.Errorf("counted %d", got)
	}
}

// The lease of a call may expire while its executor starts.
func TestACallThatMayNotBeginAnyMoreIsNotSent(t *testing.T) {
	b := native(t, sandbox.Options{})
	refused := errors.New("its lease is over")
	_, err := b.Invoke(t.Context(), In("s", 1, b.Call("count")), sandbox.Hooks{OnBegin: func() error { return refused }})
	if !errors.Is(err, refused) {
		t.Errorf("a refused call ended with %v", err)
	}
	late := In("s", 1, b.Call("count"))
	late.Deadline = time.Now().Add(Ceiling)
	_, err = b.Invoke(t.Context(), late, sandbox.Hooks{OnBegin: func() error {
		if len(b.Snapshot()) == 0 {
			t.Error("no executor is there when the call begins")
		}
		return nil
	}})
	if err != nil {
		t.Error(err)
	}
	if got := Got[int](t, b.Run(In("s", 1, b.Call("count")))); got != 2 {
		t.Errorf("the calls were counted %d times, want 2: one was not to begin", got)
	}
}

func TestDrainFinishesCallsThenClosesSessions(t *testing.T) {
	dir := t.TempDir()
	b := native(t, sandbox.Options{Write: []string{dir}})
	proof := filepath.Join(dir, "closed")
	b.Run(In("s", 1, b.Call("on_close", proof)))
	cancel, ended := hold(t, b, In("s", 1, b.Call("wait")))
	drained := make(chan error, 1)
	go func() { drained <- b.Drain(t.Context()) }()
	Eventually(t, "new calls are refused", func() bool {
		_, err := b.Invoke(t.Context(), In("s", 1, b.Call("count")), sandbox.Hooks{})
		var e *sandbox.Error
		return errors.As(err, &e) && e.Type == sandbox.Unavailable
	})
	select {
	case err := <-drained:
		t.Fatalf("drained (%v) while a call ran", err)
	default:
	}
	cancel()
	WantType(t, Receive(t, "the end of the call", ended), sandbox.Cancelled)
	if err := Receive(t, "the drain", drained); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(proof); err != nil {
		t.Errorf("the close hook did not run: %v", err)
	}
	for _, e := range b.Snapshot() {
		if e.SessionID != "" {
			t.Errorf("still there: %+v", e)
		}
	}
}

func TestDrainEndsAtItsDeadline(t *testing.T) {
	b := native(t, sandbox.Options{})
	_, ended := hold(t, b, In("s", 1, b.Call("wait")))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("time is over"))
	if err := b.Drain(ctx); err == nil || !strings.Contains(err.Error(), "time is over") {
		t.Errorf("got %v", err)
	}
	b.Close()
	WantType(t, Receive(t, "the end of the call", ended), sandbox.Unavailable)
	WantType(t, b.Fail(b.Call("pid")), sandbox.Unavailable)
	b.Close()
}

func TestCloseSessionLetsCallsFinish(t *testing.T) {
	b := native(t, sandbox.Options{})
	cancel, ended := hold(t, b, In("s", 1, b.Call("wait")))
	closed := make(chan error, 1)
	go func() { closed <- b.CloseSession(t.Context(), sandbox.Session{ID: "s"}, "done") }()
	Eventually(t, "new calls find it closed", func() bool {
		_, err := b.Invoke(t.Context(), In("s", 1, b.Call("count")), sandbox.Hooks{})
		var lost *sandbox.SessionLost
		return errors.As(err, &lost) && lost.Cause == sandbox.CauseClosed
	})
	select {
	case <-ended:
		t.Fatal("the call was ended")
	default:
	}
	cancel()
	Receive(t, "the end of the call", ended)
	if err := Receive(t, "the close", closed); err != nil {
		t.Fatal(err)
	}
	if err := b.CloseSession(t.Context(), sandbox.Session{ID: "s", Epoch: 1}, "again"); err != nil {
		t.Errorf("closing what is closed: %v", err)
	}
	b.Run(In("s", 2, b.Call("count"))) // the session is held again
	if err := b.CloseSession(t.Context(), sandbox.Session{ID: "s", Epoch: 1}, "late"); err != nil {
		t.Error(err)
	}
	if got := Got[int](t, b.Run(In("s", 2, b.Call("count")))); got != 2 {
		t.Errorf("a close of an earlier epoch reached a later one: counted %d", got)
	}
}

func TestASessionOfSeveralRuntimesIsLostAsAWhole(t *testing.T) {
	b := Open(t, Targets[1], sandbox.Options{})
	python := b.Call("count")
	python.Activity = "python"
	b.Run(In("s", 1, b.Call("count")))
	b.Run(In("s", 1, python))
	b.Fail(In("s", 1, b.Call("exit")))
	WantLost(t, b.Fail(In("s", 1, python)), sandbox.CauseCrash)
	Eventually(t, "both executors are gone", func() bool {
		for _, e := range b.Snapshot() {
			if e.SessionID == "s" {
				return false
			}
		}
		return true
	})
	if lost := Receive(t, "OnLost", b.Lost); lost.Cause != sandbox.CauseCrash {
		t.Errorf("told %+v", lost)
	}
	select {
	case second := <-b.Lost:
		t.Errorf("reported twice: %+v", second)
	default:
	}
}

func TestManySessionsAtOnce(t *testing.T) {
	b := native(t, sandbox.Options{MaxExecutors: 12})
	var sessions sync.WaitGroup
	for s := range 8 {
		sessions.Go(func() {
			for want := 1; want <= 20; want++ {
				if got := Got[int](t, b.Run(In(fmt.Sprint("s", s), 1, b.Call("count")))); got != want {
					t.Errorf("session %d counted %d, want %d", s, got, want)
					return
				}
			}
		})
	}
	sessions.Wait()
}

func TestCallsThatCannotBeginAreRefused(t *testing.T) {
	b := native(t, sandbox.Options{})
	late := b.Call("count")
	late.Deadline = time.Now().Add(-time.Second)
	WantType(t, b.Fail(late), sandbox.DeadlineExceeded)
	unknown := b.Call("count")
	unknown.Activity = "nowhere"
	WantType(t, b.Fail(unknown), sandbox.Unavailable)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Invoke(ctx, b.Call("count"), sandbox.Hooks{})
	WantType(t, err, sandbox.Cancelled)
	large := b.Call("main")
	large.Input = make([]byte, 3<<20)
	if e := WantType(t, b.Fail(large), sandbox.UserError); e.Retryable || e.Class != "InputTooLarge" {
		t.Errorf("got %+v", e)
	}
	if len(b.Snapshot()) > 2 {
		t.Errorf("executors: %+v", b.Snapshot())
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	if _, err := sandbox.NewPool(sandbox.Options{Dir: t.TempDir(), Node: "/nowhere/node"}); err == nil {
		t.Error("a named interpreter that is not there was accepted")
	}
	if _, err := sandbox.NewPool(sandbox.Options{Dir: t.TempDir(), Read: []string{"/nowhere"}}); err == nil {
		t.Error("a folder that is not there was taken for one that may be read")
	}
	dir := t.TempDir()
	first, err := sandbox.NewPool(sandbox.Options{Dir: dir, Instance: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := sandbox.NewPool(sandbox.Options{Dir: dir, Instance: "w1"}); err == nil {
		t.Error("two pools share a folder")
	}
}

// The lock of a killed worker may stay held for a moment by a process that it was starting.
func TestLockedFolderIsRemovedLater(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "pool-old")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := filelock.Acquire(filepath.Join(old, "lock"), os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	native(t, sandbox.Options{Dir: dir, Blank: -1})
	if _, err := os.Stat(old); err != nil {
		t.Errorf("a folder whose lock is held: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the folder is gone", func() bool { _, err := os.Stat(old); return errors.Is(err, fs.ErrNotExist) })
}
