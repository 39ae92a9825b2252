//go:build !linux

package postgres

import "syscall"

// userTimeout sets nothing: the option exists on Linux only; other systems use keep-alives.
func userTimeout(string, string, syscall.RawConn) error { return nil }
