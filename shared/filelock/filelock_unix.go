//go:build unix

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// Take opens a file for reading and writing, with these flags beside, and takes the lock on it, which ends when the
// file is closed. It is ErrHeld where somebody has it already.
func Take(path string, flags int) (*os.File, error) {
	return taken(os.OpenFile(path, os.O_RDWR|flags, 0o600))
}

// TakeFolder takes the lock on a folder that is there, as Take does on a file.
func TakeFolder(path string) (*os.File, error) { return taken(os.Open(path)) }

// taken locks what was opened, or closes it.
func taken(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	if err := lock(f, syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Held says whether somebody has the lock on a file. It leaves everything as it is; a file that is not there, or not
// for us to read, is held by nobody we could name.
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
