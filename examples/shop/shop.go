// Package shop shows common patterns of workflows, one per file.
package shop

import "github.com/sojourn-run/sojourn/worker"

// Register registers the workflows and activities of the shop.
func Register(r *worker.Registry) {
	r.Workflow("agent", Agent)
	r.Workflow("approval", Approval)
	r.Workflow("cart", Cart)
	r.Workflow("count", Count)
	r.Workflow("digest", Digest)
	r.Workflow("export", Export)
	r.Workflow("import", Import)
	r.Workflow("order", Order)
	r.Workflow("parcel", Parcel)
	r.Workflow("payment", Payment)
	r.Workflow("quote", Quote)
	r.Workflow("refund", Refund)
	r.Workflow("rental", Rental)
	r.Activity("call", Call)
	r.Activity("pay", Pay)
	r.Activity("tool", Tool)
	r.Activity("write_rows", WriteRows)
}
