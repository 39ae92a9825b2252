package broker

import (
	"context"
	"errors"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// watchSuperseded hears, until ctx ends, of workers that registered anew at other apps on the database: what this app remembers of them is out of
// date, and the process it knows is to be told so.
func (b *Broker) watchSuperseded(ctx context.Context) {
	b.dispatch.Each(ctx, dispatch.TopicSuperseded, func(changed store.Changed, overflow bool) {
		if overflow {
			for k := range b.workers.all("") {
				changed.Superseded = append(changed.Superseded, k)
			}
		}
		for _, k := range changed.Superseded {
			b.superseded(ctx, k)
		}
	})
}

// superseded looks whether the process that this app knows of a worker is still the registered one. If not it is forgotten, and its polls, which might
// otherwise take work, end refused.
func (b *Broker) superseded(ctx context.Context, k engine.WorkerKey) {
	known := b.workers.get(k)
	if known == nil {
		return
	}
	var w engine.Worker
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		w, err = r.Worker(ctx, k)
		return err
	})
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		if ctx.Err() == nil {
			b.log.Warn().Err(err).Str("worker_id", k.ID).Msg("look which process a worker is")
		}
	case err == nil && w.Incarnation == known.Incarnation:
	default:
		var now *engine.Worker
		if err == nil {
			now = &w
		}
		b.workers.swap(k, known, now)
		newest := b.workers.get(k)                                                                    // by now perhaps a process that came to this app meanwhile: it has told the older ones itself
		if (newest == nil || newest.Incarnation == w.Incarnation) && (known.Explicit || w.Explicit) { // one that names no process polls as the newest
			b.dispatch.Drop(k, w.Incarnation, stale(k.ID))
		}
	}
}
