// Package examples gathers the examples that the stock binary carries.
package examples

import (
	"github.com/sojourn-run/sojourn/examples/research"
	"github.com/sojourn-run/sojourn/worker"
)

// Register offers every example to a worker.
func Register(r *worker.Registry) {
	research.Register(r)
}
