// Package workeropt holds the options of a worker that only this module sets: the command line, the test environment
// and tests. They mention types without a compatibility promise, so worker.Options does not export them.
package workeropt

import (
	"log/slog"

	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Options of a worker. The zero value works.
type Options struct {
	// Carrier replaces the URLs, the link and the TLS configuration of the worker, for example for a worker in the app's
	// process.
	Carrier link.Carrier
	// OnTaskFailed is called for each workflow task that fails in workflow code, with the stack if available, before
	// the failure is reported to the app. It must not block. nil: no call.
	OnTaskFailed func(t *protocol.WorkflowTask, f *protocol.Failure)
	// OnBranchRun is the option of this name in replay.Options.
	OnBranchRun func(run replay.Run, stack func() string) (done func())
}

// Implementation contains the functions that package worker implements. Their arguments have types of package worker.
type Implementation struct {
	// Change returns a copy of a worker.Options with changed additional options.
	Change func(options any, change func(*Options)) any
	// FromConfig returns a *worker.Worker that runs a *worker.Registry.
	FromConfig func(registry any, c *config.Config, carrier link.Carrier, logger *slog.Logger) (any, error)
}

var worker Implementation

// Register sets the implementation. Package worker calls it when it is initialised.
func Register(i Implementation) { worker = i }

// With returns a copy of a worker.Options to which change has applied additional options.
func With[T any](options T, o Options) T {
	return worker.Change(options, func(to *Options) { *to = o }).(T)
}

// Over returns a copy of a worker.Options with a carrier.
func Over[T any](c link.Carrier, options T) T {
	return worker.Change(options, func(to *Options) { to.Carrier = c }).(T)
}

// Wrap returns a copy of a worker.Options whose carrier is the result of wrap for the previous carrier.
func Wrap[T any](options T, wrap func(link.Carrier) link.Carrier) T {
	return worker.Change(options, func(to *Options) { to.Carrier = wrap(to.Carrier) }).(T)
}

// FromConfig returns a *worker.Worker with the settings of a process. If no token is configured, the worker uses the
// token that the app has stored in the same data directory.
func FromConfig[W, R any](r R, c *config.Config, carrier link.Carrier, logger *slog.Logger) (W, error) {
	w, err := worker.FromConfig(r, c, carrier, logger)
	if err != nil {
		var none W
		return none, err
	}
	return w.(W), nil
}
