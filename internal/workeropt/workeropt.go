// Package workeropt holds the options of a worker that only this module sets: the command line, the test environment
// and tests. They mention types without a compatibility promise, so worker.Options does not export them.
package workeropt

import (
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Options of a worker. The zero value works.
type Options struct {
	// OnTaskFailed is called for each workflow task that fails in workflow code, with the stack if available, before
	// the failure is reported to the app. It must not block. nil: no call.
	OnTaskFailed func(t *protocol.WorkflowTask, f *protocol.Failure)
	// OnBranchRun is that of replay.Options.
	OnBranchRun func(run replay.Run, stack func() string) (done func())
}

var set func(options any, o Options) any

// Register sets the function that adds Options to a worker.Options. Package worker calls it when it is initialised.
func Register(fn func(options any, o Options) any) { set = fn }

// With returns a copy of a worker.Options with additional options.
func With[T any](options T, o Options) T { return set(options, o).(T) }
