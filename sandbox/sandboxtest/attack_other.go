//go:build !linux

package sandboxtest

// attack returns no results: the list applies only to Linux.
func attack(Aim) map[string]string { return nil }
