//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/filelock"
)

// lock is held on a file next to the database while the store is open. The kernel releases it when the process ends,
// including after a crash.
type lock struct{ f *os.File }

func acquire(path string) (*lock, error) {
	f, err := filelock.Acquire(path, os.O_CREATE)
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return nil, busy(path)
	case err != nil:
		return nil, err
	}
	if err := writeProcessID(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &lock{f}, nil
}

// held returns an ErrBusy that names the process with the lock, or nil if there is none. It changes nothing.
func held(path string) error {
	if !filelock.Held(path) {
		return nil // no process has the database open, or this user may not see which process
	}
	return busy(path)
}

func busy(path string) error {
	var holder []byte
	if f, err := os.Open(path); err == nil {
		holder, _ = io.ReadAll(io.LimitReader(f, 64))
		_ = f.Close()
	}
	return fmt.Errorf("%w: process %s holds it", store.ErrBusy, strings.TrimSpace(string(holder)))
}

// writeProcessID writes the process ID, for the error of a process that finds the file locked.
func writeProcessID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

func (l *lock) release() error { return l.f.Close() }
