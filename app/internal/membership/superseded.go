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

// Another app ended a registration and freed what was leased by then. What this one was leasing to the process in that
// moment it could not see, so each app frees its own part when it hears of it, or when a hint may have been lost.

// watchSuperseded hears, until ctx ends, of processes whose registration ended at other apps on the database: another
// took their place, or they left. And of those that said there that they drain, or the opposite.
func (ws *Workers) watchSuperseded(ctx context.Context) {
	ws.dispatch.Each(ctx, dispatch.TopicSuperseded, func(changed store.Changed, overflow bool) {
		if overflow { // an app may have left as well
			changed.Superseded = append(changed.Superseded, store.Process{Worker: engine.WorkerKey{Namespace: appsNamespace}})
			for k, h := range ws.All("") {
				changed.Superseded = append(changed.Superseded, store.Process{Worker: k, Incarnation: h.Worker.Incarnation})
			}
		}
		for _, p := range append(changed.Superseded, changed.Said...) {
			if p.Worker.Namespace == appsNamespace { // an app left: who is there now is looked at soon
				ws.appLeft.Store(true)
				ws.storeSoon()
				ws.dispatch.Due(time.Unix(0, 0)) // and so is what only that one knew to be due
				continue
			}
			if known := ws.Get(p.Worker); p.Incarnation == "" && known != nil {
				p.Incarnation = known.Incarnation
			}
			if p.Incarnation != "" {
				ws.superseded(ctx, p)
			}
		}
	})
}

// superseded looks whether a process is still the registered one. If not it is forgotten, its polls end, and what this
// app leased to it since goes back: who ended the registration has freed what was leased by then, and could not know of
// what was being written here.
func (ws *Workers) superseded(ctx context.Context, p store.Process) {
	w, err := ws.storedWorker(ctx, p.Worker)
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		if ctx.Err() == nil {
			store.Warn(&ws.log, err).Str("worker_id", p.Worker.ID).Msg("failed to read the registration of a worker")
		}
		return
	case err == nil && w.Incarnation == p.Incarnation && w.Left.IsZero():
		ws.tookWord(&w)
		return
	}
	ws.dispatch.Gone(p)
	why, lost := engine.ReturnedDraining, returned
	if err == nil {
		if w.Incarnation == p.Incarnation {
			return // it may end what it holds
		}
		why, lost = restarted, diedWith(&w)
	}
	if _, _, err := ws.loseProcesses(ctx, p.Worker, why, lost, func(incarnation string) bool {
		return incarnation == p.Incarnation
	}); err != nil && ctx.Err() == nil {
		store.Warn(&ws.log, err).Str("worker_id", p.Worker.ID).Msg("failed to release tasks leased to a deregistered process; they expire with their leases")
	}
}

// tookWord notes what a process said at another app, by its row: whether it drains. What it said here last, and is not
// stored yet, counts more.
func (ws *Workers) tookWord(row *engine.Worker) {
	ws.heed(row.Key(), func(h *Heard) {
		if h.Worker.Incarnation == row.Incarnation && !h.Unsaid {
			h.Draining = row.Status == protocol.WorkerDraining
		}
	})
}
