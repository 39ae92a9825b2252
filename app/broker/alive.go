package broker

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// quietFor is how long a worker is silent until the app that heard it stores when exactly that was. The other apps can
// then tell which of them heard it last, and that one misses it as soon as its time is over.
const quietFor = 15 * time.Second

// aliveAtOnce is how many workers' signs of life are stored in one change.
const aliveAtOnce = 500

// unheard lists the workers whose last sign of life other apps are to know of: it is half a minute since one was
// stored, or the worker went quiet, or it was given something and nothing says yet that its heartbeats are stored. With
// them, or when anything is written anyway, come those whose half a minute is half over: so a fleet is stored in step,
// twice a minute, and not each worker at a time of its own.
func (r *registry) unheard(every, holds time.Duration, anyway bool) (list []engine.WorkerKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, h := range r.known {
		fresh, since := h.at.After(h.stored), time.Since(h.storedAt)
		pressing := fresh && (since >= every || time.Since(h.at) >= quietFor) ||
			!h.at.IsZero() && h.closely(holds) && !h.promised
		if anyway = anyway || pressing; pressing || fresh && since >= every/2 {
			list = append(list, k)
		}
	}
	if !anyway {
		return nil
	}
	return list
}

// storeAlive stores the last signs of life of workers.
func (b *Broker) storeAlive(ctx context.Context, keys ...engine.WorkerKey) error {
	_, err := b.storeSigns(ctx, keys)
	return err
}

// storeSigns stores the last signs of life of workers, and of apps in the rows beside, and returns the store's time.
// What this app knows of a process that another one superseded, at whatever app, ends with that.
func (b *Broker) storeSigns(
	ctx context.Context, keys []engine.WorkerKey, beside ...func(now time.Time) engine.Worker,
) (time.Time, error) {
	type sign struct {
		heard
		silent time.Duration
		later  time.Duration // how much later its last heartbeat may have been, for all that is stored
	}
	signs := make(map[engine.WorkerKey]sign, len(keys))
	for _, k := range keys {
		b.workers.with(k, func(h *heard) {
			later := b.opt.StoreAlive
			if h.closely(b.opt.HTTPLease) {
				later = 0
			}
			signs[k] = sign{*h, time.Since(h.at), later}
		})
	}
	type answer struct {
		older []store.Process
		now   time.Time
	}
	a, err := change.Commit[answer](ctx, b.store, store.Change{
		Needs: store.Keys{Workers: keys},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			var older []store.Process
			var w store.Writes
			for _, k := range keys {
				s, known := signs[k]
				old := rows.Worker(k)
				switch {
				case !known || old == nil || !old.Left.IsZero():
					continue
				case old.Incarnation != s.worker.Incarnation:
					if older = append(older, store.Process{Worker: k, Incarnation: s.worker.Incarnation}); old.Explicit ||
						s.worker.Explicit {
						continue
					} // a worker that names no process is heard as the newest
				}
				next, at := *old, now.Add(-s.silent)
				if old.HeartbeatAt.After(at) {
					at = old.HeartbeatAt.Time // another app heard it later
				} else {
					next.HeardBy = b.opt.App
				}
				next.AliveUntil, next.HeartbeatAt = history.At(at.Add(b.opt.Alive+s.later)), history.At(at)
				if old.HeardBy != b.opt.App && old.AliveUntil.After(next.AliveUntil.Time) {
					next.AliveUntil = old.AliveUntil // it may have been heard there since
				}
				next.Beats = next.Beats || s.beats
				next.Status = protocol.WorkerActive
				if s.draining {
					next.Status = protocol.WorkerDraining
				}
				w.Workers = append(w.Workers, next)
			}
			for _, row := range beside {
				w.Workers = append(w.Workers, row(now))
			}
			w.Answer = answer{older, now}
			return w, nil
		},
	})
	if err != nil {
		return time.Time{}, err
	}
	for k, s := range signs {
		b.workers.with(k, func(h *heard) {
			if h.worker.Incarnation == s.worker.Incarnation && h.stored.Before(s.at) {
				h.storedAt, h.stored = time.Now(), s.at
			}
			if h.worker.Incarnation == s.worker.Incarnation {
				h.promised = s.later < b.opt.StoreAlive
			}
		})
	}
	for _, p := range a.older {
		b.superseded(ctx, p)
	}
	return a.now, nil
}
