//go:build amd64 || arm64

package workflow

// goroutine identifies the calling goroutine by the address of its runtime g. Every call into this package needs it,
// and the alternative, parsing runtime.Stack, takes as long as the whole call.
func goroutine() uintptr
