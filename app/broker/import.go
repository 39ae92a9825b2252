package broker

import (
	"context"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An import restores an exported run for reading, never to continue it, so only closed runs are accepted. It must not
// replace an existing run or workflow, so it reads the rows of its IDs under their locks.

// Import restores a closed run: its history and its entry in listings and filters. It never replaces an open run. The
// workflow ID must be unused, or its runs must belong to another chain, or to the chain of the imported run, directly
// before or after it. Importing the same run again changes nothing.
func (b *Broker) Import(ctx context.Context, in protocol.ImportRequest) (protocol.ImportResponse, error) {
	ns := transaction.NamespaceOrDefault(in.Namespace)
	d, err := engine.ImportRun(ns, in.Events)
	if err != nil {
		return protocol.ImportResponse{}, err
	}
	kept, err := b.Namespace(ctx, ns)
	if err != nil {
		return protocol.ImportResponse{}, err
	}
	run := d.Next
	status, _, _ := protocol.PublicRun(run.Status, true, false)
	out := protocol.ImportResponse{
		Outcome: "imported", Namespace: ns, WorkflowID: run.WorkflowID, RunID: run.ID, RunNumber: run.Number, Status: status,
		Events: run.LastSeq,
		Warnings: slices.Concat(
			protocol.WarningOf(protocol.WarnName, "workflow_id", protocol.CheckNewID("workflow_id", run.WorkflowID)),
			protocol.WarningOf(protocol.WarnName, "workflow_type", protocol.CheckName("workflow_type", run.Type)),
			protocol.WarningOf(protocol.WarnName, "task_queue", protocol.CheckName("task_queue", run.Queue)),
		),
	}
	key := engine.WorkflowKey{Namespace: ns, ID: run.WorkflowID}
	out, err = transaction.Commit[protocol.ImportResponse](ctx, b.store, store.Transaction{
		Needs: store.Keys{Workflows: []engine.WorkflowKey{key}, Current: true, Runs: []string{run.ID}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			// The response to the first import may have been lost, so importing the same run again is not an error.
			if had := rows.Run(run.ID); had != nil {
				if had.Namespace != ns || had.WorkflowID != run.WorkflowID || had.LastSeq != run.LastSeq ||
					!had.ClosedAt.Equal(run.ClosedAt.Time) {
					return store.Writes{}, protocol.Refuse(protocol.ReasonRunExists, "a different run %s already exists", run.ID).
						With("run_id", run.ID)
				}
				out.Outcome = "import_not_needed"
				return store.Writes{Answer: out}, nil
			}
			// The next run of retention would delete this run, so the import is rejected with that reason.
			if cutoff := now.Add(-time.Duration(kept.RetentionDays) * 24 * time.Hour); run.ClosedAt.Before(cutoff) {
				return store.Writes{},
					protocol.Refuse(protocol.ReasonPastRetention, "run %s closed on %s, before the retention of namespace %s (%d days)",
						run.ID, run.ClosedAt.Format(time.DateOnly), ns, kept.RetentionDays).With("retention_days", kept.RetentionDays)
			}
			if err := quotaRefusal(ns, rows.Quotas(ns).NewBytes()); err != nil {
				return store.Writes{}, err
			}
			w := store.Writes{Runs: []engine.Decision{d}, Answer: out}
			flow := engine.Workflow{Namespace: ns, ID: run.WorkflowID, RunID: run.ID, Runs: run.Number}
			if had := rows.Workflow(key); had != nil {
				current := rows.Run(had.RunID)
				switch {
				// The runs of a chain may be imported in any order: the newest run becomes and remains the current one.
				case current != nil && current.ContinuedTo == run.ID:
				case current != nil && run.ContinuedFrom == current.ID && !current.Status.Open():
				case current != nil && current.ContinuedFrom == run.ID:
					return w, nil // the current run stays
				// Runs of different chains do not overlap in time, so the run that started later is of the later chain.
				case current != nil && current.Chain != run.Chain && !run.StartedAt.After(current.StartedAt.Time):
					return w, nil
				case current != nil && current.Chain != run.Chain && !current.Status.Open():
				default:
					refusal := protocol.Refuse(protocol.ReasonAlreadyStarted, "%s", engine.WorkflowIDInUse(had, current))
					return store.Writes{}, refusal.With("workflow_id", had.ID).With("run_id", had.RunID).
						With("outcome", "rejected_duplicate")
				}
			}
			w.Workflows = []engine.Workflow{flow}
			return w, nil
		},
	})
	return out, b.countQuotaRefusal(ns, "import", err)
}
