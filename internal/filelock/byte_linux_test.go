package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A byte of a file is locked under all of its names, and closing another descriptor of the file releases nothing.
func TestAByteIsLockedUnderAllNamesOfItsFile(t *testing.T) {
	path, link := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "link")
	open := func(path string) *os.File {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first := open(path)
	if err := os.Link(path, link); err != nil {
		t.Fatal(err)
	}
	if err := TakeByte(first, 1<<40); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		second := open(link)
		if err := TakeByte(second, 1<<40); !errors.Is(err, ErrHeld) || !ByteHeld(second, 1<<40) {
			t.Errorf("the same byte: %v", err)
		}
		if err := TakeByte(second, 1<<40+1); err != nil {
			t.Errorf("another byte: %v", err)
		}
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	third := open(link)
	defer third.Close()
	if err := TakeByte(third, 1<<40); err != nil {
		t.Errorf("after its holder: %v", err)
	}
}

// A lock on a file that its last owner removed between open and lock excludes no process: the lock must be on the file
// that has the path now.
func TestALockIsNeverOnARemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	tries := 0
	first, err := taken(path, func() (*os.File, error) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if tries++; tries == 1 {
			err = errors.Join(err, os.Remove(path))
		}
		return f, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if second, err := Acquire(path, os.O_CREATE); !errors.Is(err, ErrHeld) {
		t.Errorf("two hold the lock %s: %v", second.Name(), err)
	}
}
