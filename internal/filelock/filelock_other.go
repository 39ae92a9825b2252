//go:build !unix

package filelock

import "os"

// Take opens a file for reading and writing, with additional flags. It does not lock the file on this platform.
func Take(path string, flags int) (*os.File, error) { return os.OpenFile(path, os.O_RDWR|flags, 0o600) }
