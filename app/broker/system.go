package broker

import (
	"context"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These passes are started by hand. Each item of them goes through its own decision, as what the sweeper brings does,
// so one that somebody else dealt with meanwhile is skipped, and a pass may run at any time and next to another.

// RepairPass takes runs out of quarantine: those named, else all that are listed.
func (b *Broker) RepairPass(ctx context.Context, in protocol.RepairRequest) (protocol.SystemPass, error) {
	p := protocol.SystemPass{Results: []protocol.SystemResult{}}
	if err := protocol.CheckLimits(in); err != nil {
		return p, err
	}
	s, err := b.view.RepairStatus(ctx, in.Namespace)
	if err != nil {
		return p, err
	}
	// Those that are named need not be listed: whether one is in quarantine is looked at when it is repaired.
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
		// One that cannot be repaired holds up none of the others; the pass says of each what became of it.
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

// ActivityTimeoutPass moves activities on whose time has ended: those named, else all that are due.
func (b *Broker) ActivityTimeoutPass(ctx context.Context, in protocol.TimeoutRequest) (protocol.SystemPass, error) {
	p := protocol.SystemPass{Results: []protocol.SystemResult{}}
	if err := protocol.CheckLimits(in); err != nil {
		return p, err
	}
	if in.Limit == 0 {
		in.Limit = 1000
	}
	due, err := b.view.DueActivities(ctx, change.Namespace(in.Namespace), in.Limit)
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
		// The same as what the sweeper would do with it, a moment later: a pass has no rules of its own.
		if err := b.Due(ctx, d); err != nil {
			return p, err
		}
		add(id, d.Run, "enforced")
		p.Enforced++
	}
	// Each id that was named is answered, also one that is not due or does not exist.
	for _, id := range in.IDs {
		if run, _, _ := engine.ParseStepID(id); !seen[id] {
			add(id, run, "skipped")
			p.Skipped++
		}
	}
	return p, nil
}

// Audit records an operator's action that no other write carries.
func (b *Broker) Audit(ctx context.Context, a store.Audit) error {
	_, err := b.store.Commit(ctx, store.Change{Decide: func(_ store.Rows, now time.Time) (store.Writes, error) {
		a.At = history.At(now)
		return store.Writes{Audit: []store.Audit{a}}, nil
	}})
	return err
}
