//go:build !unix

package worker

import "os"

// lockFile cannot lock here: the app's own check of incarnations is the only guard.
func lockFile(path string) (*os.File, error) { return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) }
