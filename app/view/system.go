package view

import (
	"context"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These lists serve operators and their scripts: quarantined runs and overdue work. Both are rare, so a list is bounded
// and reports when it reached the bound.

// systemScan is the maximum number of entries that a list of quarantined runs or of overdue work returns.
const systemScan = 100

// RepairStatus lists the quarantined runs of a namespace, newest first.
func (v *View) RepairStatus(ctx context.Context, ns string) (protocol.RepairStatus, error) {
	s := protocol.RepairStatus{
		Namespace: transaction.NamespaceOrDefault(ns), Candidates: []protocol.RepairCandidate{}, ScanLimit: systemScan,
		Policy: protocol.RepairPolicy{Redelivery: "lease_expiry", Quarantine: "manual_repair", ScanLimit: systemScan},
	}
	err := v.store.View(ctx, func(r store.Reader) error {
		heads, err := r.Quarantined(ctx, s.Namespace, systemScan)
		if err != nil {
			return err
		}
		for _, h := range heads {
			s.Candidates = append(s.Candidates, protocol.RepairCandidate{
				WorkflowID: h.WorkflowID, RunID: h.ID, WorkflowType: h.Type, TaskQueue: h.Queue,
				TaskID: engine.TaskID(h.ID, h.Task.Number), Problem: h.Task.Problem, StartedAt: h.StartedAt,
			})
		}
		s.Pressure = len(heads) == systemScan
		return nil
	})
	return s, err
}

// ActivityTimeouts lists activities whose deadline has passed. The list is usually empty, since the sweeper times them
// out.
func (v *View) ActivityTimeouts(ctx context.Context, ns string) (protocol.TimeoutStatus, error) {
	s := protocol.TimeoutStatus{Namespace: transaction.NamespaceOrDefault(ns), IDs: []string{}, ScanLimit: systemScan}
	due, err := v.DueActivities(ctx, s.Namespace, systemScan)
	for _, d := range due {
		s.IDs = append(s.IDs, engine.StepID(d.Run, d.Seq))
	}
	s.Count, s.Pressure = len(s.IDs), len(s.IDs) == systemScan
	return s, err
}

// DueActivities lists the activities of a namespace whose deadline has passed, by deadline.
func (v *View) DueActivities(ctx context.Context, ns string, limit int) (list []store.Due, err error) {
	now, err := v.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	return list, v.store.View(ctx, func(r store.Reader) (err error) {
		list, err = r.DueActivities(ctx, ns, now, limit)
		return err
	})
}
