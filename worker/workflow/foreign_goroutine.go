package workflow

import (
	"errors"
	"runtime"
	"runtime/debug"
)

// errForeignGoroutine reports a call from a goroutine that workflow.Go did not start.
var errForeignGoroutine = errors.New(
	"workflow: called from a foreign goroutine; start branches of a workflow with workflow.Go, not with go",
)

// onBranch reports whether the caller runs on the goroutine of the current branch.
func (m *machine) onBranch() bool {
	co := m.current
	return co != nil && co.goroutine == goroutine()
}

// failForeignGoroutine ends the calling goroutine, which is not a branch, and fails the workflow task. It does not
// panic, because a panic in that goroutine could not be recovered and would end the worker with all its runs.
func (m *machine) failForeignGoroutine() {
	m.foreignCall.CompareAndSwap(nil, &PanicError{Value: errForeignGoroutine, Stack: string(debug.Stack())})
	runtime.Goexit()
}

// CalledByForeignGoroutine reports that a foreign goroutine has called the machine. History does not record the call,
// so another replay may not detect it.
func (m *machine) CalledByForeignGoroutine() bool { return m.foreignCall.Load() != nil }

// checkForeignCall fails the task if a foreign goroutine has called the machine.
func (m *machine) checkForeignCall() {
	if s := m.foreignCall.Load(); s != nil {
		m.fault = s
	}
}
