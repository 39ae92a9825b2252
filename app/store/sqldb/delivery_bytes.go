package sqldb

import (
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// deliveryBytes returns the size of a picked task in the response to one of the polls.
func (b *batch) deliveryBytes(t pick, r *store.LeaseRequest, poller int) int64 {
	row := b.runs[t.run]
	if t.seq > 0 {
		a, _ := row.Activities.Get(t.seq)
		return a.DeliveryBytes()
	}
	return row.DeliveryBytes(hasCached(r, t.run, r.Pollers[poller].Lessee.Worker))
}

// hasCached reports whether a worker has a run in its sticky cache, as far as this app knows.
func hasCached(r *store.LeaseRequest, run string, w *engine.Worker) bool {
	return r.StickyWorkers != nil && slices.ContainsFunc(r.StickyWorkers(run), func(p store.Process) bool {
		return p.Worker == w.Key() && p.Incarnation == w.Incarnation
	})
}
