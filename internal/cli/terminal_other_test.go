//go:build !linux

package cli_test

// coloured needs a terminal, and only the Linux tests create one.
func (s shell) coloured(_, _ string, _ ...string) { s.t.Helper() }
