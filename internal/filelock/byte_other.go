//go:build !linux

package filelock

import (
	"errors"
	"os"
)

// TakeByte returns ErrUnsupported: this system has no lock that survives closing another descriptor of the file.
func TakeByte(*os.File, int64) error { return errors.ErrUnsupported }

// ByteHeld returns false: this system has no such locks.
func ByteHeld(*os.File, int64) bool { return false }
