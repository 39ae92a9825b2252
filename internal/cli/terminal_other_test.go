//go:build !linux

package cli_test

// coloured needs a terminal, which is made differently on each system.
func (s shell) coloured(_, _ string, _ ...string) { s.t.Helper() }
