//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
)

// lock is held on a file beside the database for as long as the store is open. The kernel lets go of it when the process ends, however it ends.
type lock struct{ f *os.File }

func acquire(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err = seize(f); err == nil {
		err = sign(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &lock{f}, nil
}

// linger is how long the lock of a process that is gone is waited for. One that was killed while it started another leaves the lock to that one for
// the moment until it is a program of its own; whoever restarts the first at once must not be turned away for that.
const linger = 5 * time.Second

func seize(f *os.File) error {
	for late := time.Now().Add(linger); ; time.Sleep(10 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		text := make([]byte, 64)
		n, _ := f.ReadAt(text, 0) // without a name it is somebody all the same
		holder := strings.TrimSpace(string(text[:n]))
		if pid, _ := strconv.Atoi(holder); pid <= 0 || alive(pid) || time.Now().After(late) {
			return fmt.Errorf("%w: process %s holds it", store.ErrBusy, holder)
		}
	}
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// sign writes the process id, for whoever is turned away.
func sign(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

func (l *lock) release() error { return l.f.Close() }
