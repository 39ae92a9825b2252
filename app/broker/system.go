package broker

import (
	"context"
	"slices"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The most a look at what waits for repair, or is due, tells; and how many open runs it reads to find them.
const (
	systemScan = 100
	repairRead = 10_000
)

// RepairStatus lists the quarantined runs of a namespace, newest first.
func (b *Broker) RepairStatus(ctx context.Context, ns string) (protocol.RepairStatus, error) {
	s := protocol.RepairStatus{
		Namespace: change.Namespace(ns), Candidates: []protocol.RepairCandidate{}, ScanLimit: systemScan,
		Policy: protocol.RepairPolicy{Redelivery: "lease_expiry", Quarantine: "manual_repair", ScanLimit: systemScan},
	}
	err := b.store.View(ctx, func(r store.Reader) error {
		heads, err := r.Quarantined(ctx, s.Namespace, repairRead, systemScan)
		if err != nil {
			return err
		}
		for _, h := range heads {
			s.Candidates = append(s.Candidates, protocol.RepairCandidate{
				WorkflowID: h.WorkflowID, RunID: h.ID, WorkflowType: h.Type, TaskQueue: h.Queue,
				TaskID: engine.TaskID(h.ID, h.Task.Number), Problem: h.Task.Problem, StartedAt: h.StartedAt,
			})
		}
		open, err := r.RunCountsUpTo(ctx, s.Namespace, repairRead)
		s.Pressure = len(heads) == systemScan || open[protocol.RunRunning] == repairRead
		return err
	})
	return s, err
}

// RepairPass takes runs out of quarantine: those named, else all that are listed.
func (b *Broker) RepairPass(ctx context.Context, in protocol.RepairRequest) (protocol.SystemPass, error) {
	p := protocol.SystemPass{Results: []protocol.SystemResult{}}
	if len(in.RunIDs) > 1000 {
		return p, protocol.Invalid("run_ids", "more than 1000 runs")
	}
	s, err := b.RepairStatus(ctx, in.Namespace)
	if err != nil {
		return p, err
	}
	wanted := in.RunIDs
	for _, c := range s.Candidates {
		if len(in.RunIDs) == 0 && (in.WorkflowID == "" || in.WorkflowID == c.WorkflowID) {
			wanted = append(wanted, c.RunID)
		}
	}
	for _, id := range wanted {
		res := protocol.SystemResult{RunID: id}
		repair := change.Step(s.Namespace, id, store.Keys{Runs: []string{id}}, engine.Repair{Identity: in.Identity})
		o, err := change.Commit[change.Outcome](ctx, b.store, repair)
		switch {
		case err == nil && o.Outcome == "repair_dispatched":
			res.Outcome = o.Outcome
			p.Repaired++
		case err == nil:
			res.Outcome = o.Outcome
			p.Skipped++
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

// ActivityTimeouts lists activities whose time is over: the sweeper moves them on by itself, so there is rarely any.
func (b *Broker) ActivityTimeouts(ctx context.Context, ns string) (protocol.TimeoutStatus, error) {
	s := protocol.TimeoutStatus{Namespace: change.Namespace(ns), IDs: []string{}, ScanLimit: systemScan}
	due, err := b.dueActivities(ctx, s.Namespace, systemScan)
	for _, d := range due {
		s.IDs = append(s.IDs, engine.StepID(d.Run, d.Seq))
	}
	s.Count, s.Pressure = len(s.IDs), len(s.IDs) == systemScan
	return s, err
}

func (b *Broker) dueActivities(ctx context.Context, ns string, limit int) (list []store.Due, err error) {
	now, err := b.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	return list, b.store.View(ctx, func(r store.Reader) (err error) {
		list, err = r.DueActivities(ctx, ns, now, limit)
		return err
	})
}

// ActivityTimeoutPass moves activities on whose time is over: those named, else all that are due.
func (b *Broker) ActivityTimeoutPass(ctx context.Context, in protocol.TimeoutRequest) (protocol.SystemPass, error) {
	p := protocol.SystemPass{Results: []protocol.SystemResult{}}
	if in.Limit < 0 || in.Limit > 1000 {
		return p, protocol.Invalid("limit", "must be between 1 and 1000")
	}
	if in.Limit == 0 {
		in.Limit = 1000
	}
	due, err := b.dueActivities(ctx, change.Namespace(in.Namespace), in.Limit)
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
		if err := b.Due(ctx, d); err != nil {
			return p, err
		}
		add(id, d.Run, "enforced")
		p.Enforced++
	}
	for _, id := range in.IDs {
		if run, _, _ := engine.ParseStepID(id); !seen[id] {
			add(id, run, "skipped")
			p.Skipped++
		}
	}
	return p, nil
}
