//go:build !linux

package sqlite

// room is asked on Linux; elsewhere a write that is tried has to do.
func room(string) error { return nil }
