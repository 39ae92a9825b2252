package membership

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The app that ended a registration released the tasks that were leased at that time. It cannot see leases that other
// apps were writing at that moment, so each app releases its own leases when it is notified, or when a notification may
// be lost.

// watchSuperseded handles notifications until ctx ends: processes that other apps superseded or deregistered, and
// processes that reported the start or end of a drain to other apps.
func (ws *Workers) watchSuperseded(ctx context.Context) {
	ws.dispatch.Each(ctx, dispatch.TopicSuperseded, func(changed store.Changed, overflow bool) {
		if overflow { // a notification that an app ended may also be lost
			changed.Superseded = append(changed.Superseded, store.Process{Worker: engine.WorkerKey{Namespace: appsNamespace}})
			for k, h := range ws.All("") {
				changed.Superseded = append(changed.Superseded, store.Process{Worker: k, Incarnation: h.Worker.Incarnation})
			}
		}
		for _, p := range append(changed.Superseded, changed.DrainChanged...) {
			if p.Worker.Namespace == appsNamespace { // an app ended: read soon which apps are alive
				ws.appLeft.Store(true)
				ws.storeSoon()
				if ws.opt.AppLeft != nil {
					ws.opt.AppLeft()
				}
				ws.dispatch.Due(time.Unix(0, 0)) // only the ended app may have known of some due rows: read them
				continue
			}
			if known := ws.Get(p.Worker); p.Incarnation == "" && known != nil {
				p.Incarnation = known.Incarnation
			}
			if p.Incarnation != "" {
				ws.checkSuperseded(ctx, p)
			}
		}
	})
}

// checkSuperseded reads whether a process is still the registered incarnation. If not, the app forgets the process,
// ends its polls and releases the tasks that this app leased to it since: the app that ended the registration has
// released the leases of that time, but could not see leases that this app was writing.
func (ws *Workers) checkSuperseded(ctx context.Context, p store.Process) {
	w, err := ws.storedWorker(ctx, p.Worker)
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		if ctx.Err() == nil {
			store.Warn(&ws.log, err).Str("worker_id", p.Worker.ID).Msg("failed to read the registration of a worker")
		}
		return
	case err == nil && w.Incarnation == p.Incarnation && w.DeregisteredAt.IsZero():
		ws.applyDrainState(&w)
		return
	}
	ws.dispatch.Deregistered(p)
	why, lost := engine.ReturnedDraining, noLoss
	if err == nil {
		if w.Incarnation == p.Incarnation {
			return // a removed worker may finish its tasks
		}
		why, lost = reasonRestarted, leasedBefore(&w)
	}
	if _, _, err := ws.endProcesses(ctx, p.Worker, why, lost, func(incarnation string) bool {
		return incarnation == p.Incarnation
	}); err != nil && ctx.Err() == nil {
		store.Warn(&ws.log, err).Str("worker_id", p.Worker.ID).Msg("failed to release tasks leased to a deregistered process; they expire with their leases")
	}
}

// applyDrainState applies the drain state in a worker's row, which another app stored. A newer state that this app
// received and has not stored yet takes precedence.
func (ws *Workers) applyDrainState(row *engine.Worker) {
	ws.withDrainState(row.Key(), func(h *TrackedWorker) {
		if h.Worker.Incarnation == row.Incarnation && !h.DrainUnstored {
			h.Draining = row.Status == protocol.WorkerDraining
		}
	})
}
