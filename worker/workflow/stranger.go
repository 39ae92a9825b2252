package workflow

import (
	"errors"
	"runtime"
	"runtime/debug"
)

// errStranger reports a call from a goroutine that workflow.Go did not start.
var errStranger = errors.New(
	"workflow: called from a goroutine that is no branch of the workflow; start branches with workflow.Go, not with go",
)

// onBranch reports whether the caller runs on the goroutine of the current branch.
func (m *Machine) onBranch() bool {
	co := m.current
	return co != nil && co.goroutine == goroutine()
}

// strange ends a calling goroutine that is not a branch and fails the workflow task. A panic in that goroutine could
// not be recovered and would end the worker with all its runs.
func (m *Machine) strange() {
	m.stranger.CompareAndSwap(nil, &PanicError{Value: errStranger, Stack: string(debug.Stack())})
	runtime.Goexit()
}

// Disturbed reports that a foreign goroutine has called the machine. History does not record this, so another replay
// may not detect it.
func (m *Machine) Disturbed() bool { return m.stranger.Load() != nil }

// visited makes a stranger's call the machine's fault.
func (m *Machine) visited() {
	if s := m.stranger.Load(); s != nil {
		m.fault = s
	}
}
