package broker

import (
	"context"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/presence"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/release"
)

// fleet is what is known of the workers of a namespace: by this app's own ears, else as another app stored it.
type fleet map[engine.WorkerKey]presence.Heard

// fleet gathers it. On a database that other apps share a worker may be connected to any of them, and its row is all
// that is known of it here.
func (b *Broker) fleet(ctx context.Context, r store.Reader, ns string) (fleet, error) {
	known := fleet(b.workers.All(ns))
	if !b.opt.Shared {
		return known, nil
	}
	rows, err := r.Workers(ctx, store.WorkerQuery{Namespace: ns, Limit: 10_000})
	if err != nil {
		return nil, err
	}
	all := make(fleet, len(rows))
	for i := range rows {
		w := &rows[i]
		if !w.Left.IsZero() {
			continue
		}
		if h, ok := known[w.Key()]; ok && !h.At.IsZero() && h.Worker.Incarnation == w.Incarnation {
			all[w.Key()] = h
			continue
		}
		all[w.Key()] = presence.Heard{Worker: w, Gate: b.gatedElsewhere(w)}
	}
	return all, nil
}

// gatedElsewhere is why a worker that another app hears is given no work: no app serves its release. "" when one does,
// or the worker is not asked for its release.
func (b *Broker) gatedElsewhere(w *engine.Worker) string {
	served := b.served()
	if !w.Explicit || w.Release == "" || len(served) == 0 || slices.ContainsFunc(served, func(app string) bool {
		return release.Gate(app, w.Release, b.opt.StrictRelease).Allowed
	}) {
		return ""
	}
	return release.Gate(b.opt.Release, w.Release, b.opt.StrictRelease).Message
}
