//go:build !linux

package sandbox

import "syscall"

func readNonblocking(fd int, b []byte) (int, error) { return syscall.Read(fd, b) }

// place is the path of a file or folder that is checked often.
type place string

func placeAt(path string) place { return place(path) }

// stat returns the current stamp.
func (p *place) stat() (fileStamp, bool) { return stampAt(string(*p)) }
