package membership

import (
	"context"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// A worker that exits without deregistering would remain in the lists. Its row is deleted after a long silence if the
// worker holds nothing: leases and sessions are released through the row.

// The row of a worker is deleted after silencesKept times Options.Alive without a heartbeat (15 minutes at the default
// of 60 s). A worker that only polls may be silent while it runs a task; its row is deleted after removedUnbeating.
const (
	silencesKept     = 15
	removedUnbeating = 3 * 24 * time.Hour
)

// deleteBatchSize is the maximum number of workers that one change deletes.
const deleteBatchSize = 100

// returnTime is the time after the start of an app alone on its database in which workers that only poll are not
// removed: their heartbeats before the restart were not stored.
const returnTime = time.Hour

// expiryPause is the minimum interval between two searches for silent workers.
func (ws *Workers) expiryPause() time.Duration { return ws.opt.Alive }

// scheduleExpiry schedules the next search for silent workers at a time of this app's clock, unless one is scheduled
// earlier.
func (ws *Workers) scheduleExpiry(at time.Time) {
	if ws.expiry.IsZero() || at.Before(ws.expiry) {
		ws.expiry = at
	}
}

// removeSilent deletes expired workers and schedules the next search. It skips workers that another app is responsible
// for, and reads nothing from the store before the search is due.
func (ws *Workers) removeSilent(ctx context.Context, behind *Orphans) error {
	if ws.expiry.IsZero() || time.Now().Before(ws.expiry) {
		return nil
	}
	var list []engine.Worker
	err := ws.store.View(ctx, func(r store.Reader) (err error) {
		list, err = r.Workers(ctx, store.WorkerQuery{Limit: 10_000})
		return err
	})
	list = slices.DeleteFunc(list, func(w engine.Worker) bool { return behind.Others(ws.opt.App, &w) })
	next := time.Duration(0)
	if err == nil {
		next, err = ws.removeExpired(ctx, list)
	}
	ws.expiry = time.Time{}
	if next > 0 || err != nil {
		ws.scheduleExpiry(time.Now().Add(max(next, ws.expiryPause())))
	}
	return err
}

// Prune deletes all expired workers of a namespace, including workers that only poll.
func (ws *Workers) Prune(ctx context.Context, namespace string) error {
	for after := ""; ; {
		var page []engine.Worker
		err := ws.store.View(ctx, func(r store.Reader) (err error) {
			page, err = r.Workers(ctx, store.WorkerQuery{Namespace: namespace, AfterID: after, Limit: deleteBatchSize})
			return err
		})
		if err != nil {
			return err
		}
		if _, err := ws.removeExpired(ctx, page); err != nil || len(page) < deleteBatchSize {
			return err
		}
		after = page[len(page)-1].ID
	}
}

// removeExpired deletes the expired workers of a list that hold nothing. It returns the time until the next worker that
// sends heartbeats expires; zero: none is silent.
func (ws *Workers) removeExpired(ctx context.Context, list []engine.Worker) (next time.Duration, err error) {
	now, err := ws.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	expired := map[string][]*engine.Worker{} // expired workers by namespace
	for i := range list {
		w := &list[i]
		left, silent := ws.untilRemoved(w, now)
		switch {
		case !silent:
		case left <= 0:
			expired[w.Namespace] = append(expired[w.Namespace], w)
		case w.Beats && (next == 0 || left < next):
			next = left
		}
	}
	for ns, workers := range expired {
		held, err := ws.holdings(ctx, ns)
		if err != nil {
			return 0, err
		}
		idle := workers[:0]
		for _, w := range workers {
			if held[w.ID].Empty() {
				idle = append(idle, w)
			} else if retry := 5 * ws.expiryPause(); w.Beats && (next == 0 || retry < next) {
				next = retry
			}
		}
		for some := range slices.Chunk(idle, deleteBatchSize) {
			if err := ws.removeSilentRows(ctx, some); err != nil {
				return 0, err
			}
		}
	}
	return next, nil
}

// untilRemoved returns the time until a worker's row expires, and whether the worker is silent at this app.
func (ws *Workers) untilRemoved(w *engine.Worker, now time.Time) (left time.Duration, silent bool) {
	if w.Namespace == appsNamespace {
		return 0, false
	}
	here := false
	ws.With(w.Key(), func(h *TrackedWorker) { here = ws.ReceivesHeartbeats(*h) })
	if here {
		return 0, false
	}
	most, since, up := removedUnbeating, now.Sub(lastHeartbeat(w)), time.Since(ws.started)
	if w.Beats {
		most = silencesKept * ws.opt.Alive
	}
	switch {
	case ws.opt.Shared:
	case w.Beats: // only heartbeats since this app started count
		since = min(since, up)
	case up < returnTime:
		since = 0
	}
	return most - since, true
}

func (ws *Workers) holdings(ctx context.Context, ns string) (held map[string]store.Holding, err error) {
	return held, ws.store.View(ctx, func(r store.Reader) (err error) {
		held, err = r.Holdings(ctx, ns)
		return err
	})
}

// removeSilentRows deletes workers, except those with a heartbeat since the list was read. A deleted worker that is
// alive registers again.
func (ws *Workers) removeSilentRows(ctx context.Context, list []*engine.Worker) error {
	keys := make([]engine.WorkerKey, len(list))
	for i, w := range list {
		keys[i] = w.Key()
	}
	removed, err := ws.deleteRows(ctx, keys, func(rows store.Rows) (removable []engine.WorkerKey) {
		for _, w := range list {
			is, here := rows.Worker(w.Key()), false
			ws.With(w.Key(), func(h *TrackedWorker) { here = ws.ReceivesHeartbeats(*h) })
			if is != nil && is.Incarnation == w.Incarnation && lastHeartbeat(is).Equal(lastHeartbeat(w)) && !here {
				removable = append(removable, w.Key())
			}
		}
		return removable
	})
	for _, k := range removed {
		ws.Remove(k)
		ws.log.Info().Str("worker_id", k.ID).Msg("worker registration removed: no heartbeat within its retention")
	}
	return err
}

// lastHeartbeat returns the last stored heartbeat of a worker.
func lastHeartbeat(w *engine.Worker) time.Time {
	if w.HeartbeatAt.After(w.RegisteredAt.Time) {
		return w.HeartbeatAt.Time
	}
	return w.RegisteredAt.Time
}
