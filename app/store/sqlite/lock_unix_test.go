//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/store"
)

// inherit takes the lock and leaves it to a child alone, which keeps it until its input ends; the lock names pid as its holder.
func inherit(t *testing.T, path string, pid int) (end func()) {
	t.Helper()
	l, err := acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, "%d\n", pid), 0o600); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sh", "-c", "echo here; read -r _ || sleep 0.2")
	child.ExtraFiles = []*os.File{l.f}
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if err := l.release(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = child.Wait() })
	return func() { _ = in.Close() }
}

func TestLockOfAKilledProcessIsWaitedFor(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "lock")
	inherit(t, path, gone.Process.Pid)() // the child still lives for a moment, and holds it
	l, err := acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := os.ReadFile(path); strings.TrimSpace(string(raw)) != fmt.Sprint(os.Getpid()) {
		t.Errorf("the lock names %q", raw)
	}
	if err := l.release(); err != nil {
		t.Error(err)
	}
}

func TestLockOfALivingProcessTurnsAwayAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	inherit(t, path, os.Getpid())
	if _, err := acquire(path); !errors.Is(err, store.ErrBusy) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("got %v", err)
	}
}
