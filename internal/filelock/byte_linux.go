package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// TakeByte locks one byte of an open file, possibly beyond its end, until the file is closed. The kernel stores the
// lock with the inode, so it applies to every name of the file. It is an open-file-description lock: closing another
// descriptor of the file does not release it, unlike a POSIX lock. The error is ErrUnsupported if the file system does
// not support such locks.
func TakeByte(f *os.File, at int64) error {
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return ErrHeld
	case unsupported(err):
		return errors.ErrUnsupported
	}
	return err
}

// ByteHeld reports whether another open file has locked the byte.
func ByteHeld(f *os.File, at int64) bool {
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l) == nil && l.Type != unix.F_UNLCK
}

func unsupported(err error) bool {
	for _, e := range []error{unix.EINVAL, unix.ENOSYS, unix.ENOLCK, unix.EOPNOTSUPP} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
