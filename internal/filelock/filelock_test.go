//go:build unix

package filelock_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sojourn-run/sojourn/internal/filelock"
)

func TestALockHasOneHolderUntilItIsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if _, err := filelock.Acquire(path, 0); !errors.Is(err, fs.ErrNotExist) || filelock.Held(path) {
		t.Errorf("a file that is not there: %v", err)
	}
	f, err := filelock.Acquire(path, os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	if filelock.Held(path) != true {
		t.Error("a lock that was taken is not held")
	}
	if _, err := filelock.Acquire(path, os.O_CREATE); !errors.Is(err, filelock.ErrHeld) {
		t.Errorf("a second holder: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if filelock.Held(path) {
		t.Error("a lock whose file was closed is held")
	}
	second, err := filelock.Acquire(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

func TestAFolderIsLockedLikeAFile(t *testing.T) {
	dir := t.TempDir()
	f, err := filelock.TakeFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filelock.TakeFolder(dir); !errors.Is(err, filelock.ErrHeld) {
		t.Errorf("a second holder: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := filelock.TakeFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
