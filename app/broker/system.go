package broker

import (
	"context"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An operator starts these passes. Each item is one decision, as in the sweeper. An item that another transaction has
// already handled is skipped, so passes may run at any time and concurrently.

// RepairPass releases runs from quarantine: the runs that the request names, or else all quarantined runs.
func (b *Broker) RepairPass(ctx context.Context, in protocol.RepairRequest) (protocol.SystemPass, error) {
	p := protocol.SystemPass{Results: []protocol.SystemResult{}}
	if err := protocol.CheckLimits(in); err != nil {
		return p, err
	}
	s, err := b.view.RepairStatus(ctx, in.Namespace)
	if err != nil {
		return p, err
	}
	// Runs in the request need not be in the list: the repair itself checks whether a run is quarantined.
	requested := in.RunIDs
	for _, c := range s.Candidates {
		if len(in.RunIDs) == 0 && (in.WorkflowID == "" || in.WorkflowID == c.WorkflowID) {
			requested = append(requested, c.RunID)
		}
	}
	for _, id := range requested {
		res := protocol.SystemResult{RunID: id}
		repair := transaction.UpdateRun(s.Namespace, id, store.Keys{Runs: []string{id}}, engine.Repair{Identity: in.Identity})
		o, err := transaction.Commit[transaction.Outcome](ctx, b.store, repair)
		switch {
		case err == nil && o.Outcome == "repair_dispatched":
			res.Outcome = o.Outcome
			p.Repaired++
		case err == nil:
			res.Outcome = o.Outcome
			p.Skipped++
		// A run that cannot be repaired does not stop the others; the pass reports the result of each run.
		case protocol.ReasonOf(err) != "":
			res.Outcome, res.Reason = "skipped", string(protocol.ReasonOf(err))
			p.Skipped++
		default:
			return p, err
		}
		p.Processed++
		p.Results = append(p.Results, res)
	}
	return p, nil
}

// ActivityTimeoutPass times out activities whose deadline has passed: the ones in the request, or else all that
// are due.
func (b *Broker) ActivityTimeoutPass(ctx context.Context, in protocol.TimeoutRequest) (protocol.SystemPass, error) {
	p := protocol.SystemPass{Results: []protocol.SystemResult{}}
	if err := protocol.CheckLimits(in); err != nil {
		return p, err
	}
	if in.Limit == 0 {
		in.Limit = 1000
	}
	due, err := b.view.DueActivities(ctx, transaction.NamespaceOrDefault(in.Namespace), in.Limit)
	if err != nil {
		return p, err
	}
	add := func(id, run, outcome string) {
		p.Processed++
		p.Results = append(p.Results, protocol.SystemResult{RunID: run, ExecutionID: id, Outcome: outcome})
	}
	seen := map[string]bool{}
	for _, d := range due {
		id := engine.StepID(d.Run, d.Seq)
		if len(in.IDs) > 0 && !slices.Contains(in.IDs, id) {
			continue
		}
		seen[id] = true
		// The sweeper would do the same a moment later; a pass has no separate rules.
		if err := b.Due(ctx, d); err != nil {
			return p, err
		}
		add(id, d.Run, "enforced")
		p.Enforced++
	}
	// The response has an entry for each ID in the request, also for one that is not due or does not exist.
	for _, id := range in.IDs {
		if run, _, _ := engine.ParseStepID(id); !seen[id] {
			add(id, run, "skipped")
			p.Skipped++
		}
	}
	return p, nil
}

// Audit records an operator's action whose transaction has no audit entry.
func (b *Broker) Audit(ctx context.Context, a store.Audit) error {
	_, err := b.store.Commit(ctx, store.Transaction{Decide: func(_ store.Rows, now time.Time) (store.Writes, error) {
		a.At = history.At(now)
		return store.Writes{Audit: []store.Audit{a}}, nil
	}})
	return err
}
