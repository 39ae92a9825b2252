package presence

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// Silence is judged by the app that heard a worker last. A worker that went over to another app is that one's to miss,
// so before anything is taken away the row is read: it says who heard it since.

// takeUp makes the workers that were left behind this app's concern, as far as they hold anything. Those that live will
// be heard, here or at another app, by the time that is stored of them; a database of one's own stores none, so there
// the time since the start has to do.
func (ws *Workers) takeUp(ctx context.Context) error {
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
	ws.expires(time.Now()) // of those without anything it is enough to know who is silent
	for i := range workers {
		at := time.Now()
		if ws.opt.Shared {
			at = at.Add(workers[i].AliveUntil.Sub(now))
		}
		ws.Leave(&workers[i], at)
	}
	return nil
}

// look takes away what a worker holds that this app used to hear and hears no more, or that a dead app left behind. One
// that another app heard since is that app's to miss; of one that a dead app heard only the stored time says how long
// it may live.
func (ws *Workers) look(ctx context.Context, k engine.WorkerKey, h Heard) error {
	switch {
	case h.At.IsZero() && h.LookAt.IsZero(), ws.Hears(h), time.Now().Before(h.LookAt):
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
			h.Left && w.AliveUntil.After(h.Worker.AliveUntil.Time),
			!h.Left && w.HeardBy != ws.opt.App && w.HeartbeatAt.After(now.Add(-time.Since(h.At))):
			ws.Forget(k, h)
			return nil
		}
	}
	if !ws.opt.Shared && !h.At.IsZero() { // nothing else says how long it is silent once it is forgotten here
		if err := ws.storeAlive(ctx, k); err != nil {
			return err
		}
	}
	if !h.Missed() {
		ws.Forget(k, h)
		return nil
	}
	ws.expires(time.Now().Add(ws.expiryPause()))
	if err := ws.orphan(ctx, k, h.Worker.Incarnation); err != nil {
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

// releaseExpired sets free what a silent worker of the HTTP contract has, whose leases are many times what its
// heartbeats take; but for attempts whose own heartbeats came since then. Should the worker live after all, what it
// reports is refused, as its delivery has ended. Other workers renew what they hold and believe the expiry they were
// told: theirs is free when the lease has ended, and never before.
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
	return ws.loseUnheard(ctx, k, w.Incarnation, refs, since)
}

// storedWorker reads a worker's row.
func (ws *Workers) storedWorker(ctx context.Context, k engine.WorkerKey) (w engine.Worker, err error) {
	err = ws.store.View(ctx, func(r store.Reader) (err error) {
		w, err = r.Worker(ctx, k)
		return err
	})
	return w, err
}

// orphan takes the sessions of a silent worker away. Its attempts have their own leases.
func (ws *Workers) orphan(ctx context.Context, k engine.WorkerKey, incarnation string) error {
	return ws.stepSessions(ctx, k, func(*engine.Session) engine.SessionInput {
		return engine.OrphanSession{Worker: k.ID, Incarnation: incarnation}
	}, engine.IsNotDue)
}
