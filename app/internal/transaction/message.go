package transaction

import (
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// startChildren starts child runs in the same transaction. Their workflow IDs belong to the parent run, or the decision
// has checked that they may be used; an open run that a child replaces ends here. If a quota has no room for a child,
// the child is started with its first task held.
func startChildren(rows store.Rows, starts []engine.Start, now time.Time, w *store.Writes) {
	begun := int64(0)    // number of children started in this transaction
	replaced := int64(0) // number of counted open runs that these children replaced
	for i := range w.Runs {
		if h := &w.Runs[i].Next.Head; w.Runs[i].After == 0 && h.Number == 1 && h.Held == "" {
			begun++
		}
	}
	for _, s := range starts {
		if s.Replaces != "" {
			replaced += terminateReplaced(rows, s, now, w)
		}
		// A retry of a child replaces its previous run and needs no additional quota.
		if s.Number == 1 {
			quotas := rows.Quotas(s.Request.Namespace)
			quotas.Usage.OpenRuns -= replaced
			if x := quotas.NewChild(begun); x != nil {
				s.Held = x.Quota
			} else {
				begun++
			}
		}
		w.Runs = append(w.Runs, StartRun(rows, s, now))
		w.Workflows = append(w.Workflows, engine.Workflow{
			Namespace: s.Request.Namespace, ID: s.Request.WorkflowID, RunID: s.RunID, Runs: s.Number,
		})
	}
}

// terminateReplaced ends the open run that a child replaces, in the transaction that starts the child. It returns by
// how many runs that frees the quota of open runs: 1, or 0 if the run was held or had closed.
func terminateReplaced(rows store.Rows, s engine.Start, now time.Time, w *store.Writes) (freed int64) {
	run, at := decidedRun(rows, s.Replaces, w)
	if run == nil {
		return 0
	}
	end, audit := replacement(run, "workflow run "+s.Parent.RunID, now)
	d, err := engine.DecideRun(run, environment(rows, run), end, now)
	if err != nil {
		return 0 // an earlier change of the transaction has closed it
	}
	mergeDecision(rows, d, at, w)
	w.Audit = append(w.Audit, audit)
	if run.Held != "" { // NewChild does not count held runs
		return 0
	}
	return 1
}

// decidedRun returns the run as the transaction leaves it so far, with the index of its decision in w, or -1 if the
// transaction has no decision for it.
func decidedRun(rows store.Rows, id string, w *store.Writes) (*engine.Run, int) {
	for i := range w.Runs {
		if w.Runs[i].Next.ID == id {
			return w.Runs[i].Next, i
		}
	}
	return rows.Run(id), -1
}

// mergeDecision adds a decision to the transaction. There is one decision per run, so a second one is merged into the
// first.
func mergeDecision(rows store.Rows, d engine.Decision, at int, w *store.Writes) {
	if at < 0 {
		w.Runs = append(w.Runs, d)
		return
	}
	first := &w.Runs[at]
	joined := first.Next
	if base := rows.Run(d.Next.ID); base != nil {
		joined = base.Fork()
		joined.Merge(first.Next)
	}
	joined.Merge(d.Next)
	first.Next, first.Events = joined, append(first.Events, d.Events...)
	first.Sessions = append(first.Sessions, d.Sessions...)
	first.Inherited, first.DropInherited = append(first.Inherited, d.Inherited...), first.DropInherited || d.DropInherited
}

// deliverSignals applies signals to other workflows in the same step. If a target is closed or does not exist, the
// signal is dropped.
func deliverSignals(rows store.Rows, owed []engine.Message, now time.Time, w *store.Writes) {
	for _, m := range owed {
		flow := rows.Workflow(engine.WorkflowKey{Namespace: m.Namespace, ID: m.WorkflowID})
		if flow == nil {
			continue
		}
		target, at := decidedRun(rows, flow.RunID, w)
		if target == nil {
			continue
		}
		if d, err := engine.DecideRun(target, environment(rows, target), m.Input(), now); err == nil {
			mergeDecision(rows, d, at, w)
		}
	}
}

// reportChildEnds delivers the end of a child to its parent in the same transaction, if the parent's row is loaded.
// Otherwise the message stays in the outbox, and the sweeper delivers it. The parent-close policy always goes through
// the outbox, since it needs more rows.
func reportChildEnds(rows store.Rows, now time.Time, w *store.Writes) {
	for i := 0; i < len(w.Runs); i++ {
		from := w.Runs[i].Next
		for seq, m := range from.Undelivered.Changes() {
			if m == nil || m.Kind != engine.ChildEnded {
				continue
			}
			parent, at := decidedRun(rows, m.ToRun, w)
			if parent == nil || parent.Superseded() { // the next run of the chain is not loaded
				continue
			}
			d, err := engine.DecideRun(parent, environment(rows, parent), m.Input(), now)
			if err == nil {
				mergeDecision(rows, d, at, w)
				startChildren(rows, d.Spawn, now, w)
			}
			from.Undelivered.Delete(seq)
		}
	}
}
