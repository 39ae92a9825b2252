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

// lock is a file beside the database that exists for as long as the store is open. After a crash it has to be removed by hand, since there is no
// kernel lock to tell whether its writer still lives.
type lock struct{ path string }

func acquire(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		holder, _ := os.ReadFile(path)
		return nil, fmt.Errorf("%w: process %s holds it, or left %s behind", store.ErrBusy, strings.TrimSpace(string(holder)), path)
	}
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(f, os.Getpid())
	return &lock{path}, errors.Join(err, f.Close())
}

func (l *lock) release() error { return os.Remove(l.path) }
