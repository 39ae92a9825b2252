// Package filelock locks files between processes. Nobody waits for a lock, and none outlives its process, however that
// ends.
package filelock

import "errors"

// ErrHeld says that another process has the lock.
var ErrHeld = errors.New("locked by another process")
