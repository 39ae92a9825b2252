// Package shop shows common patterns of workflows, one per file.
package shop

import "github.com/sojourn-run/sojourn/worker"

// Register registers the workflows and activities of the shop.
func Register(r *worker.Registry) {
	r.Workflow("payment", Payment)
	r.Activity("pay", Pay)
}
