package view

import (
	"context"
	"slices"

	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Settings of a fleet describe the intended state, and each worker reports the revision that it runs with. The view
// shows workers that do not have the latest revision, and workers that are too old to report one.

// shownPending is the maximum number of workers with outdated settings that the response names.
const shownPending = 100

// FleetSettings returns the stored settings and the workers that run with them, whichever app receives their
// heartbeats.
func (v *View) FleetSettings(ctx context.Context, ns string) (protocol.FleetSettingsState, error) {
	out := protocol.FleetSettingsState{Namespace: transaction.NamespaceOrDefault(ns), Pending: []string{}}
	decided, err := v.queueSettings(ctx, out.Namespace)
	if err != nil {
		return out, err
	}
	is := decided[""].Fleet()
	out.Revision, out.FleetSettings, out.UpdatedAt, out.By = is.Revision, is.FleetSettings, is.At, is.By
	workers, err := v.Workers(ctx, ns, "", "")
	if err != nil {
		return out, err
	}
	for _, w := range workers {
		switch {
		// A stale worker does not fetch settings, so it does not count as pending.
		case w.Status == protocol.WorkerStale:
		case w.Settings == nil:
			out.Unaware++
		case *w.Settings == is.Revision:
			out.Workers, out.Applied = out.Workers+1, out.Applied+1
		default:
			out.Workers++
			out.Pending = append(out.Pending, w.WorkerID)
		}
	}
	slices.Sort(out.Pending)
	out.Pending = out.Pending[:min(len(out.Pending), shownPending)]
	return out, nil
}
