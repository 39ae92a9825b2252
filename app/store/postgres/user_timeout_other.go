//go:build !linux

package postgres

import "syscall"

// userTimeout is for Linux; elsewhere keep-alives have to do.
func userTimeout(string, string, syscall.RawConn) error { return nil }
