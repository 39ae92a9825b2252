//go:build amd64 || arm64

package workflow

// goroutine tells the calling goroutine from every other that lives: it is the address of the runtime's record of it.
// Each call of this package asks, and to read the same out of runtime.Stack takes as long as the call itself.
func goroutine() uintptr
