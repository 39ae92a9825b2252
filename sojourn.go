// Package sojourn is the platform as a library: Main builds one binary from app, worker, dashboard and command line,
// with your workflows and activities.
package sojourn

import (
	"os"

	"github.com/sojourn-run/sojourn/internal/cli"
	"github.com/sojourn-run/sojourn/worker"
)

// Main runs the sojourn command line with the workflows and activities that register offers, and exits. It is all a
// main function needs:
//
//	func main() { sojourn.Main(func(r *worker.Registry) { r.Workflow("research", Research) }) }
//
// The same binary is app, worker, both, and the executor of isolated activities; which, its arguments and
// SOJOURN_CONTAINER_TYPE say.
func Main(register func(*worker.Registry)) {
	os.Exit(cli.Main(register))
}
