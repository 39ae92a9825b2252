// Package filelock locks files between processes. It never waits for a lock, and the kernel releases a lock when its
// process ends.
package filelock

import "errors"

// ErrHeld reports that another process has the lock.
var ErrHeld = errors.New("locked by another process")
