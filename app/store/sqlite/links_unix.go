//go:build unix

package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// links returns the number of hard links of a file.
func links(f *os.File) (uint64, error) {
	st, err := status(f)
	if err != nil {
		return 0, err
	}
	return uint64(st.Nlink), nil //nolint:unconvert // of another size elsewhere
}

// inodeOf returns the file's inode number, which distinguishes a file from its copies.
func inodeOf(f *os.File) (uint64, error) {
	st, err := status(f)
	if err != nil {
		return 0, err
	}
	return st.Ino, nil
}

func status(f *os.File) (*syscall.Stat_t, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st, nil
	}
	return nil, errors.ErrUnsupported
}
