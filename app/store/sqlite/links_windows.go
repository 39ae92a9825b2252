package sqlite

import (
	"os"
	"syscall"
)

// links returns the number of hard links of a file.
func links(f *os.File) (uint64, error) {
	st, err := status(f)
	return uint64(st.NumberOfLinks), err
}

// inodeOf returns the file's index, which distinguishes a file from its copies.
func inodeOf(f *os.File) (uint64, error) {
	st, err := status(f)
	return uint64(st.FileIndexHigh)<<32 | uint64(st.FileIndexLow), err
}

func status(f *os.File) (st syscall.ByHandleFileInformation, err error) {
	err = syscall.GetFileInformationByHandle(syscall.Handle(f.Fd()), &st)
	return st, err
}
