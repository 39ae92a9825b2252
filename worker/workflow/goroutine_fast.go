//go:build amd64 || arm64

package workflow

// goroutine identifies the calling goroutine by the address of its runtime record. Every call of this package needs it,
// and parsing runtime.Stack takes as long as the call.
func goroutine() uintptr
