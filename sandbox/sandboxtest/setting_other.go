//go:build !linux

package sandboxtest

// Enter does nothing: settings are those of Linux.
func Enter() {}
