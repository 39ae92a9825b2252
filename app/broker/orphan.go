package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/presence"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// takeUp makes the workers that were left behind this app's concern, as far as they hold anything. Those that live will
// be heard, here or at another app, by the time that is stored of them; a database of one's own stores none, so there
// the time since the start has to do.
func (b *Broker) takeUp(ctx context.Context) error {
	now, err := b.store.Now(ctx)
	if err != nil {
		return err
	}
	var workers []engine.Worker
	err = b.store.View(ctx, func(r store.Reader) (err error) {
		workers, err = r.Workers(ctx, store.WorkerQuery{Holding: true, Limit: 10_000})
		return err
	})
	if err != nil {
		return err
	}
	b.expires(time.Now()) // of those without anything it is enough to know who is silent
	for i := range workers {
		at := time.Now()
		if b.opt.Shared {
			at = at.Add(workers[i].AliveUntil.Sub(now))
		}
		b.workers.Leave(&workers[i], at)
	}
	return nil
}

// look takes away what a worker holds that this app used to hear and hears no more, or that a dead app left behind. One
// that another app heard since is that app's to miss; of one that a dead app heard only the stored time says how long
// it may live.
func (b *Broker) look(ctx context.Context, k engine.WorkerKey, h presence.Heard) error {
	switch {
	case h.At.IsZero() && h.LookAt.IsZero(), b.workers.Hears(h), time.Now().Before(h.LookAt):
		return nil
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return err
	}
	if b.opt.Shared {
		w, err := b.storedWorker(ctx, k)
		switch {
		case errors.Is(err, store.ErrNotFound):
			b.workers.Forget(k, h)
			return nil
		case err != nil:
			return err
		case w.Incarnation != h.Worker.Incarnation,
			h.Left && w.AliveUntil.After(h.Worker.AliveUntil.Time),
			!h.Left && w.HeardBy != b.opt.App && w.HeartbeatAt.After(now.Add(-time.Since(h.At))):
			b.workers.Forget(k, h)
			return nil
		}
	}
	if !b.opt.Shared && !h.At.IsZero() { // nothing else says how long it is silent once it is forgotten here
		if err := b.storeAlive(ctx, k); err != nil {
			return err
		}
	}
	if !h.Missed() {
		b.workers.Forget(k, h)
		return nil
	}
	b.expires(time.Now().Add(b.expiryPause()))
	if err := b.orphan(ctx, k, h.Worker.Incarnation); err != nil {
		return err
	}
	if err := b.releaseExpired(ctx, k, h.Worker, history.At(now.Add(-b.opt.Alive))); err != nil {
		return err
	}
	e := b.log.Warn().Str("worker_id", k.ID)
	if !h.At.IsZero() {
		e = e.Dur("silent", time.Since(h.At))
	}
	e.Msg("worker fell silent")
	b.workers.Forget(k, h)
	return nil
}

// releaseExpired sets free what a silent worker of the HTTP contract has, whose leases are many times what its
// heartbeats take; but for attempts whose own heartbeats came since then. Should the worker live after all, what it
// reports is refused, as its delivery is over. Other workers renew what they hold and believe the expiry they were
// told: theirs is free when the lease is over, and never before.
func (b *Broker) releaseExpired(ctx context.Context, k engine.WorkerKey, w *engine.Worker, since history.Time) error {
	if w.Explicit {
		return nil
	}
	var refs []store.TaskRef
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		refs, err = r.Owned(ctx, k, w.Incarnation)
		return err
	})
	if err != nil {
		return err
	}
	for _, ref := range refs {
		in, needs := change.ReleaseOf(ref, engine.ReasonOrphaned, false, true)
		if a, ok := in.(engine.ReleaseActivity); ok {
			a.UnlessHeard = since
			in = a
		}
		_, err := b.store.Commit(ctx, change.Step("", ref.Run, needs, in))
		if err != nil && protocol.ReasonOf(err) == "" { // else somebody ended it meanwhile
			return err
		}
	}
	return nil
}

// storedWorker reads a worker's row.
func (b *Broker) storedWorker(ctx context.Context, k engine.WorkerKey) (w engine.Worker, err error) {
	err = b.store.View(ctx, func(r store.Reader) (err error) {
		w, err = r.Worker(ctx, k)
		return err
	})
	return w, err
}

// orphan takes the sessions of a silent worker away. Its attempts have leases of their own.
func (b *Broker) orphan(ctx context.Context, k engine.WorkerKey, incarnation string) error {
	held, err := change.SessionsOf(ctx, b.store, k)
	if err != nil {
		return err
	}
	for _, s := range held {
		_, err := change.StepSession(
			ctx, b.store, b.dispatch, s.Key(), engine.OrphanSession{Worker: k.ID, Incarnation: incarnation},
		)
		if err != nil && !engine.IsNotDue(err) {
			return err
		}
	}
	return nil
}
