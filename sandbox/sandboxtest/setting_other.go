//go:build !linux

package sandboxtest

// Enter does nothing: settings need Linux.
func Enter() {}
