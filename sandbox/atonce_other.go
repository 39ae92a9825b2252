//go:build !linux

package sandbox

import "syscall"

func readAtOnce(fd int, b []byte) (int, error) { return syscall.Read(fd, b) }

// place is where a file or folder is, to be looked at often.
type place string

func placeAt(path string) place { return place(path) }

// look says what is there now.
func (p *place) look() (fileStamp, bool) { return stampAt(string(*p)) }
