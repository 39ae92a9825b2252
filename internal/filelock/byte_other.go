//go:build !linux

package filelock

import (
	"errors"
	"os"
)

// TakeByte has no lock to offer here that survives the closing of another descriptor of the file.
func TakeByte(*os.File, int64) error { return errors.ErrUnsupported }

// ByteHeld knows of no such lock.
func ByteHeld(*os.File, int64) bool { return false }
