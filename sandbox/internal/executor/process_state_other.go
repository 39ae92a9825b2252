//go:build !linux

package executor

// process is the part of processState that is restored on Linux only.
type process struct{}

func (*process) record() error  { return nil }
func (*process) restore() error { return nil }
