package membership

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// Only the app that received a worker's last heartbeat may expire the worker. So an app reads the worker's row before
// it releases anything: the row names the app of the last heartbeat.

// adoptWorkers adopts the workers of previous or dead apps that have leases. A live worker sends a heartbeat, to this
// or another app, before its stored expiry. An app alone on its database stores no expiry, so there the time counts
// from the start of the app.
func (ws *Workers) adoptWorkers(ctx context.Context) error {
	now, err := ws.store.Now(ctx)
	if err != nil {
		return err
	}
	var workers []engine.Worker
	err = ws.store.View(ctx, func(r store.Reader) (err error) {
		workers, err = r.Workers(ctx, store.WorkerQuery{Holding: true, Limit: 10_000})
		return err
	})
	if err != nil {
		return err
	}
	ws.scheduleExpiry(time.Now()) // workers that hold nothing only need to expire
	for i := range workers {
		at := time.Now()
		if ws.opt.Shared {
			at = at.Add(workers[i].AliveUntil.Sub(now))
		}
		ws.TrackOrphan(&workers[i], at)
	}
	return nil
}

// expireSilent releases the tasks and sessions of a worker when its heartbeats at this app have stopped, or when its
// app has died. If another app has received a heartbeat since, that app monitors the worker. After the death of an app,
// only the worker's row shows how long the worker counts as alive.
func (ws *Workers) expireSilent(ctx context.Context, k engine.WorkerKey, h TrackedWorker) error {
	switch {
	case h.At.IsZero() && h.CheckAt.IsZero(), ws.ReceivesHeartbeats(h), time.Now().Before(h.CheckAt):
		return nil
	}
	now, err := ws.store.Now(ctx)
	if err != nil {
		return err
	}
	if ws.opt.Shared {
		w, err := ws.storedWorker(ctx, k)
		switch {
		case errors.Is(err, store.ErrNotFound):
			ws.Forget(k, h)
			return nil
		case err != nil:
			return err
		case w.Incarnation != h.Worker.Incarnation,
			h.Orphaned && w.AliveUntil.After(h.Worker.AliveUntil.Time),
			!h.Orphaned && w.HeartbeatApp != ws.opt.App && w.HeartbeatAt.After(now.Add(-time.Since(h.At))):
			ws.Forget(k, h)
			return nil
		}
	}
	if !ws.opt.Shared && !h.At.IsZero() { // once it is evicted from memory, only the row has its last heartbeat
		if err := ws.storeAlive(ctx, k); err != nil {
			return err
		}
	}
	if !h.SendsHeartbeats() {
		ws.Forget(k, h)
		return nil
	}
	ws.scheduleExpiry(time.Now().Add(ws.expiryPause()))
	if err := ws.orphanSessions(ctx, k, h.Worker.Incarnation); err != nil {
		return err
	}
	if err := ws.releaseExpired(ctx, k, h.Worker, history.At(now.Add(-ws.opt.Alive))); err != nil {
		return err
	}
	e := ws.log.Warn().Str("worker_id", k.ID)
	if !h.At.IsZero() {
		e = e.Dur("silent", time.Since(h.At))
	}
	e.Msg("worker lost: no heartbeat within the liveness timeout; its leases are expired")
	ws.Forget(k, h)
	return nil
}

// releaseExpired releases the leases of a silent HTTP worker, which last many times longer than its heartbeat interval.
// It keeps attempts that sent a heartbeat after since. If the worker is alive after all, its completions are refused,
// as the delivery has ended. Leases of other workers expire at their end and never before: those workers renew their
// leases themselves and rely on the expiry that they received.
func (ws *Workers) releaseExpired(ctx context.Context, k engine.WorkerKey, w *engine.Worker, since history.Time) error {
	if w.Explicit {
		return nil
	}
	var refs []store.TaskRef
	err := ws.store.View(ctx, func(r store.Reader) (err error) {
		refs, err = r.Owned(ctx, k, w.Incarnation)
		return err
	})
	if err != nil {
		return err
	}
	return ws.endSilent(ctx, k, w.Incarnation, refs, since)
}

// storedWorker reads a worker's row from the store.
func (ws *Workers) storedWorker(ctx context.Context, k engine.WorkerKey) (w engine.Worker, err error) {
	err = ws.store.View(ctx, func(r store.Reader) (err error) {
		w, err = r.Worker(ctx, k)
		return err
	})
	return w, err
}

// orphanSessions ends the leases of a silent worker on its sessions. The leases of its attempts expire on their own.
func (ws *Workers) orphanSessions(ctx context.Context, k engine.WorkerKey, incarnation string) error {
	return ws.updateSessions(ctx, k, func(*engine.Session) engine.SessionInput {
		return engine.OrphanSession{Worker: k.ID, Incarnation: incarnation}
	}, engine.IsNotDue)
}
