package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// leave notes a worker that an app left behind, and when to look whether it lives; not one that is heard or watched
// here already. One that was left before is noted anew: another app may have heard it since, and be gone as well.
func (r *registry) leave(w *engine.Worker, lookAt time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[w.Key()]; h != nil && !h.left && !(h.at.IsZero() && h.lookAt.IsZero()) {
		return
	}
	if r.known == nil {
		r.known = map[engine.WorkerKey]*heard{}
	}
	r.known[w.Key()] = &heard{
		worker: w, signals: w.Declares("signals"), lookAt: lookAt, left: true,
		beats: w.HeartbeatAt.After(w.RegisteredAt.Time) && w.HeardBy == "",
	}
}

// anyLeft says whether there are workers that an app left behind.
func (r *registry) anyLeft() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.known {
		if h.left {
			return true
		}
	}
	return false
}

// forget drops what is known of a worker, unless it was heard since seen was read.
func (r *registry) forget(k engine.WorkerKey, seen heard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[k]; h != nil && h.worker.Incarnation == seen.worker.Incarnation && h.at.Equal(seen.at) {
		delete(r.known, k)
	}
}

// orphans are the workers that nobody may be looking after: those that an app heard which is gone, be it this one
// before it was started again.
type orphans struct {
	due  time.Time // when to find out who they are; zero: there are none
	apps []string  // that were alive at the last announcement
	gone time.Time // when one of them will have been silent for too long; zero: there is none
}

// met compares the apps that are alive with those of the last time: who was heard by one that is gone may have died
// with it.
func (o *orphans) met(own string, alive map[string]time.Time) {
	o.gone = time.Time{}
	var apps []string
	for id, until := range alive {
		if apps = append(apps, id); id != own && (o.gone.IsZero() || until.Before(o.gone)) {
			o.gone = until
		}
	}
	for _, id := range o.apps {
		if now := time.Now(); alive[id].IsZero() && (o.due.IsZero() || o.due.After(now)) {
			o.due = now
		}
	}
	o.apps = apps
}

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
	for i := range workers {
		at := time.Now()
		if b.opt.Shared {
			at = at.Add(workers[i].AliveUntil.Sub(now))
		}
		b.workers.leave(&workers[i], at)
	}
	return nil
}

// look takes away what a worker holds that this app used to hear and hears no more, or that a dead app left behind. One
// that another app heard since is that app's to miss; of one that a dead app heard only the stored time says how long
// it may live.
func (b *Broker) look(ctx context.Context, k engine.WorkerKey, h heard) error {
	switch {
	case h.at.IsZero() && h.lookAt.IsZero(), b.hears(h), time.Now().Before(h.lookAt):
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
			b.workers.forget(k, h)
			return nil
		case err != nil:
			return err
		case w.Incarnation != h.worker.Incarnation,
			h.left && w.AliveUntil.After(h.worker.AliveUntil.Time),
			!h.left && w.HeardBy != b.opt.App && w.HeartbeatAt.After(now.Add(-time.Since(h.at))):
			b.workers.forget(k, h)
			return nil
		}
	}
	if !h.missed() {
		b.workers.forget(k, h)
		return nil
	}
	if err := b.orphan(ctx, k, h.worker.Incarnation); err != nil {
		return err
	}
	if err := b.releaseExpired(ctx, k, h.worker, history.At(now.Add(-b.opt.Alive))); err != nil {
		return err
	}
	e := b.log.Warn().Str("worker_id", k.ID)
	if !h.at.IsZero() {
		e = e.Dur("silent", time.Since(h.at))
	}
	e.Msg("worker fell silent")
	b.workers.forget(k, h)
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
	held, err := b.heldBy(ctx, k)
	if err != nil {
		return err
	}
	for _, s := range held {
		_, err := b.stepSession(ctx, s.Key(), engine.OrphanSession{Worker: k.ID, Incarnation: incarnation})
		if err != nil && !engine.IsNotDue(err) {
			return err
		}
	}
	return nil
}
