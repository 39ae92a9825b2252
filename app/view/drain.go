package view

import (
	"cmp"
	"context"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A drain is complete when its workers hold nothing. This state is not stored, as workers register, finish their tasks
// and exit on their own. Each request computes the progress of a drain from the leases of its workers.

// shownDrained is the maximum number of workers listed per drain.
const shownDrained = 1000

// FleetDrains lists the drains of a namespace with their progress.
func (v *View) FleetDrains(ctx context.Context, ns string) (protocol.FleetDrains, error) {
	out := protocol.FleetDrains{Namespace: transaction.NamespaceOrDefault(ns), Drains: []protocol.FleetDrainState{}}
	decided, err := v.queueSettings(ctx, out.Namespace)
	if err != nil || decided[""] == nil {
		return out, err
	}
	if out.Drains, err = v.Drains(ctx, out.Namespace, decided[""].Drains); err != nil {
		return out, err
	}
	slices.SortStableFunc(out.Drains, func(x, y protocol.FleetDrainState) int { return x.Since.Compare(y.Since.Time) })
	return out, nil
}

// Drains returns the progress of drains: the leases and sessions that their workers still hold.
func (v *View) Drains(
	ctx context.Context, ns string, list []engine.Drain,
) ([]protocol.FleetDrainState, error) {
	workers, err := v.Workers(ctx, ns, "", "")
	if err != nil {
		return nil, err
	}
	out := make([]protocol.FleetDrainState, len(list))
	for i := range list {
		d := &list[i]
		s := protocol.FleetDrainState{
			Namespace: ns, FleetTarget: d.FleetTarget, State: protocol.DrainEnded, Reason: d.Reason, By: d.By, Since: d.At,
			DeadlineAt: d.Deadline, Evict: d.Evict, Members: []protocol.DrainedWorker{},
		}
		for _, w := range workers {
			row := engine.Worker{ID: w.WorkerID, Group: w.Group, Release: w.Release}
			if w.BuildID != nil {
				row.BuildID = *w.BuildID
			}
			if !d.Covers(&row) {
				continue
			}
			m := protocol.DrainedWorker{
				WorkerID: w.WorkerID, State: protocol.DrainEnded, Status: w.Status, Leases: w.Leases,
				WorkflowTasks: w.WorkflowTasks, Sessions: w.Sessions,
			}
			if w.Leases+w.Sessions > 0 {
				m.State, s.State = protocol.DrainRuns, protocol.DrainRuns
			} else {
				s.Drained++
			}
			s.Workers, s.Leases, s.Sessions = s.Workers+1, s.Leases+w.Leases, s.Sessions+w.Sessions
			s.Members = append(s.Members, m)
		}
		// Sort workers with most leases and sessions first: the drain waits for them, and the list may be cut.
		slices.SortStableFunc(s.Members, func(x, y protocol.DrainedWorker) int {
			return cmp.Compare(y.Leases+y.Sessions, x.Leases+x.Sessions)
		})
		s.Members = s.Members[:min(len(s.Members), shownDrained)]
		out[i] = s
	}
	return out, nil
}
