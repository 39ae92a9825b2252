//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/sojourn-run/sojourn/app/store"
)

// lock is held on a file beside the database for as long as the store is open. The kernel lets go of it when the process ends, however it ends.
type lock struct{ f *os.File }

func acquire(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = busy(f)
	}
	if err == nil {
		err = sign(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &lock{f}, nil
}

// held is an ErrBusy that names the holder, or nil when there is none. It leaves everything as it is.
func held(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // nobody ever opened the database, or it is not for us to see who
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return busy(f)
	}
	return nil
}

func busy(f *os.File) error {
	holder, _ := io.ReadAll(io.LimitReader(f, 64))
	return fmt.Errorf("%w: process %s holds it", store.ErrBusy, strings.TrimSpace(string(holder)))
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
