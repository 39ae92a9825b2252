//go:build !unix

package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/sojourn-run/sojourn/app/store"
)

// lock is a file next to the database that exists while the store is open. On this system there is no kernel lock that
// shows whether the process is alive, so the file must be removed by hand after a crash.
type lock struct{ path string }

func acquire(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, held(path)
	}
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(f, os.Getpid())
	return &lock{path}, errors.Join(err, f.Close())
}

// held returns an ErrBusy that names the process with the lock, or nil if there is none.
func held(path string) error {
	holder, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return fmt.Errorf("%w: process %s has it open, or ended without removing %s", store.ErrBusy, strings.TrimSpace(string(holder)), path)
}

func (l *lock) release() error { return os.Remove(l.path) }
