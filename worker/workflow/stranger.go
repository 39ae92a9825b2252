package workflow

import (
	"errors"
	"runtime"
	"runtime/debug"
)

// errStranger is what is wrong with a goroutine of one's own.
var errStranger = errors.New(
	"workflow: called from a goroutine that is no branch of the workflow; start branches with workflow.Go, not with go",
)

// onBranch says whether the caller runs on the goroutine of the branch that has its turn.
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

// Disturbed says that a goroutine that is no branch of the code has called. History tells nothing of that: a machine
// that replays it may well not meet the goroutine again.
func (m *Machine) Disturbed() bool { return m.stranger.Load() != nil }

// visited makes a stranger's call the machine's fault.
func (m *Machine) visited() {
	if s := m.stranger.Load(); s != nil {
		m.fault = s
	}
}
