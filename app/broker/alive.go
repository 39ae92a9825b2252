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

// unheard lists the workers whose last sign of life other apps are to know of: it is half a minute since one was
// stored, or the worker went quiet, or it was given something and nothing says yet that its heartbeats are stored.
func (r *registry) unheard(every, holds time.Duration) (list []engine.WorkerKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, h := range r.known {
		if h.at.After(h.stored) && (time.Since(h.storedAt) >= every || time.Since(h.at) >= quietFor) ||
			!h.at.IsZero() && h.closely(holds) && !h.promised {
			list = append(list, k)
		}
	}
	return list
}

// watchHeard stores, until ctx ends, what the other apps on the database are to know of the workers that are heard
// here: many at a time, and only when something is to be stored.
func (b *Broker) watchHeard(ctx context.Context) {
	tick := time.NewTicker(b.lookEvery())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-b.unstored:
		}
		for list := b.workers.unheard(b.opt.StoreAlive, b.opt.HTTPLease); len(list) > 0 &&
			ctx.Err() == nil; list = list[min(len(list), piece):] {
			if err := b.storeAlive(ctx, list[:min(len(list), piece)]...); err != nil && ctx.Err() == nil {
				b.log.Warn().Err(err).Msg("store signs of life of workers")
				break
			}
		}
	}
}

// storeAlive stores the last signs of life of workers. What this app knows of a process that another one superseded, at
// whatever app, ends with that.
func (b *Broker) storeAlive(ctx context.Context, keys ...engine.WorkerKey) error {
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
	older, err := change.Commit[[]store.Process](ctx, b.store, store.Change{
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
			w.Answer = older
			return w, nil
		},
	})
	if err != nil {
		return err
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
	for _, p := range older {
		b.superseded(ctx, p)
	}
	return nil
}
