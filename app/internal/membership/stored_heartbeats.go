package membership

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Heartbeats are stored seldom and together, because a statement for each would be most of the load of a database at
// rest. The row of a worker that sends heartbeats is up to a minute old, so it allows for later ones: HeardUntil names
// the apps that may have received them. When a worker falls silent, each app stores the exact time of its last
// heartbeat and removes its entry. Then the worker expires one Alive after that heartbeat, at every app.

// heartbeatsElsewhere returns the unexpired entries of the other apps in a worker's HeardUntil. A row of an earlier
// build has no entries: then AliveUntil is the entry of the app that received the last stored heartbeat.
func heartbeatsElsewhere(w *engine.Worker, app string, alive time.Duration, now time.Time) map[string]history.Time {
	until := map[string]history.Time{}
	for by, t := range w.AliveByApp {
		if by != app && t.After(now) {
			until[by] = t
		}
	}
	if w.AliveByApp == nil && w.HeartbeatApp != app && w.AliveUntil.After(w.HeartbeatAt.Add(alive)) {
		until[w.HeartbeatApp] = w.AliveUntil
	}
	return until
}

// maxStoredHeartbeats is the maximum number of workers whose heartbeats one transaction stores.
const maxStoredHeartbeats = 1000

// storeAlive stores the last heartbeats of workers.
func (ws *Workers) storeAlive(ctx context.Context, keys ...engine.WorkerKey) error {
	_, err := ws.storeHeartbeatRows(ctx, keys)
	return err
}

// storeHeartbeatRows stores the last heartbeats of workers and the app rows of appRows, and returns the store's time.
// If another process has superseded a worker, at any app, storeHeartbeatRows forgets the state of the old process.
func (ws *Workers) storeHeartbeatRows(
	ctx context.Context, keys []engine.WorkerKey, appRows ...func(now time.Time) engine.Worker,
) (time.Time, error) {
	type sign struct {
		TrackedWorker
		silent time.Duration
	}
	signs := make(map[engine.WorkerKey]sign, len(keys))
	for _, k := range keys {
		ws.With(k, func(h *TrackedWorker) {
			s := sign{*h, time.Since(h.At)}
			s.StoresEach = h.StoresEachHeartbeat(ws.opt.HTTPLease)
			s.ExactExpiry = s.StoresEach || s.silent >= ws.opt.Quiet
			signs[k] = s
		})
	}
	type answer struct {
		older    []store.Process
		now      time.Time
		draining map[engine.WorkerKey]bool // drain states of the stored rows
	}
	a, err := transaction.Commit[answer](ctx, ws.store, store.Transaction{
		Needs: store.Keys{Workers: keys, Present: true},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			var older []store.Process
			draining := make(map[engine.WorkerKey]bool, len(keys))
			var w store.Writes
			for _, k := range keys {
				s, known := signs[k]
				old := rows.Worker(k)
				switch {
				case !known || old == nil || !old.DeregisteredAt.IsZero():
					continue
				case old.Incarnation != s.Worker.Incarnation:
					if older = append(older, store.Process{Worker: k, Incarnation: s.Worker.Incarnation}); old.Explicit ||
						s.Worker.Explicit {
						continue
					} // a worker without an incarnation counts as the newest process
				}
				next, at := *old, now.Add(-s.silent)
				if old.HeartbeatAt.After(at) {
					at = old.HeartbeatAt.Time // another app received a later heartbeat
				} else {
					next.HeartbeatApp = ws.opt.App
				}
				next.AliveByApp = heartbeatsElsewhere(old, ws.opt.App, ws.opt.Alive, now)
				if !s.ExactExpiry {
					next.AliveByApp[ws.opt.App] = history.At(now.Add(ws.opt.Alive + ws.opt.StoreAlive - s.silent))
				}
				next.HeartbeatAt, next.AliveUntil = history.At(at), history.At(at.Add(ws.opt.Alive))
				for _, until := range next.AliveByApp {
					if until.After(next.AliveUntil.Time) {
						next.AliveUntil = until
					}
				}
				next.Beats = next.Beats || s.Beats
				if s.DrainUnstored {
					next.Status = protocol.WorkerActive
					if s.Draining {
						next.Status = protocol.WorkerDraining
					}
				}
				draining[k] = next.Status == protocol.WorkerDraining
				w.Workers = append(w.Workers, next)
			}
			for _, row := range appRows {
				w.Workers = append(w.Workers, row(now))
			}
			w.Answer = answer{older, now, draining}
			return w, nil
		},
	})
	if err != nil {
		return time.Time{}, err
	}
	for k, s := range signs {
		ws.withDrainState(k, func(h *TrackedWorker) { // another app may have stored a newer drain state
			if h.Worker.Incarnation == s.Worker.Incarnation && h.Stored.Before(s.At) {
				h.StoredAt, h.Stored = time.Now(), s.At
			}
			if h.Worker.Incarnation != s.Worker.Incarnation {
				return
			}
			h.StoresEach, h.ExactExpiry = s.StoresEach, s.ExactExpiry
			// A drain state that the worker reported meanwhile is stored with the next batch.
			if drains, stored := a.draining[k]; stored && h.Draining == s.Draining && h.DrainUnstored == s.DrainUnstored {
				h.Draining, h.DrainUnstored = drains, false
			}
		})
	}
	for _, p := range a.older {
		ws.checkSuperseded(ctx, p)
	}
	return a.now, nil
}
