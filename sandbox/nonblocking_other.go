//go:build !linux

package sandbox

import "syscall"

func readAtOnce(fd int, b []byte) (int, error) { return syscall.Read(fd, b) }

// place is the path of a file or folder that is checked often.
type place string

func placeAt(path string) place { return place(path) }

// look returns the current stamp.
func (p *place) look() (fileStamp, bool) { return stampAt(string(*p)) }
