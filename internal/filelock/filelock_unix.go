//go:build unix

package filelock

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Acquire opens a file for reading and writing, with additional flags, and acquires its lock. Closing the file releases
// the lock. It returns ErrHeld if another process holds the lock.
func Acquire(path string, flags int) (*os.File, error) {
	return taken(path, func() (*os.File, error) { return os.OpenFile(path, os.O_RDWR|flags, 0o600) })
}

// TakeFolder acquires the lock of an existing folder, with the same errors as Take.
func TakeFolder(path string) (*os.File, error) {
	return taken(path, func() (*os.File, error) { return os.Open(path) })
}

// taken locks an open file and checks that the path still refers to it. Between open and lock, the previous owner may
// have removed the file; a lock on a removed file excludes no process.
func taken(path string, open func() (*os.File, error)) (*os.File, error) {
	for {
		f, err := open()
		if err != nil {
			return nil, err
		}
		if err := lock(f, syscall.LOCK_EX); err != nil {
			_ = f.Close()
			return nil, err
		}
		switch same, err := names(path, f); {
		case err != nil:
			_ = f.Close()
			return nil, err
		case same:
			return f, nil
		}
		_ = f.Close()
	}
}

// names reports whether path still names the open file f.
func names(path string, f *os.File) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

// Held reports whether another process has the lock on a file. It changes nothing. A file that does not exist, or that
// this process cannot read, counts as free.
func Held(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(lock(f, syscall.LOCK_SH), ErrHeld)
}

func lock(f *os.File, how int) error {
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}
