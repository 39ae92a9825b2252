package membership

import (
	"context"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/release"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An app that does not share its database receives the heartbeats of all workers. On a shared database it receives some
// of them; of the other workers it knows only their rows, which are older. So heartbeats that this app received take
// precedence over rows.

// Roster contains the workers of a namespace: from this app's memory if it receives their heartbeats, else from their
// rows.
type Roster map[engine.WorkerKey]TrackedWorker

// Roster returns the roster of a namespace. On a shared database a worker may be connected to any app; of a worker at
// another app this app knows only the row.
func (r *Registry) Roster(ctx context.Context, from store.Reader, ns string) (Roster, error) {
	known := r.All(ns)
	if !r.opt.Shared {
		return known, nil
	}
	rows, err := from.Workers(ctx, store.WorkerQuery{Namespace: ns, Limit: 10_000})
	if err != nil {
		return nil, err
	}
	all := make(Roster, len(rows))
	for i := range rows {
		w := &rows[i]
		if !w.DeregisteredAt.IsZero() {
			continue
		}
		if h, ok := known[w.Key()]; ok && !h.At.IsZero() && h.Worker.Incarnation == w.Incarnation {
			if w.HeartbeatApp != r.opt.App {
				h.Elsewhere = w.AliveUntil
			}
			all[w.Key()] = h
			continue
		}
		h := TrackRow(w)
		h.Gate = r.gatedElsewhere(w)
		all[w.Key()] = h
	}
	return all, nil
}

// Starting reports whether live workers may not have sent a heartbeat to this app yet, because it started less than
// Options.Alive ago.
func (ws *Workers) Starting() bool { return time.Since(ws.started) <= ws.opt.Alive }

// RosterWithRows is like Roster, and contains every registered worker, also if this app is alone on its database and
// has not received a heartbeat of the worker since it started.
func (ws *Workers) RosterWithRows(ctx context.Context, from store.Reader, ns string) (Roster, error) {
	all, err := ws.Roster(ctx, from, ns)
	if err != nil || ws.opt.Shared {
		return all, err
	}
	rows, err := from.Workers(ctx, store.WorkerQuery{Namespace: ns, Limit: 10_000})
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if w := &rows[i]; w.DeregisteredAt.IsZero() && all[w.Key()].Worker == nil {
			h := TrackRow(w)
			if v := release.Gate(ws.opt.Release, w.Release, ws.opt.StrictRelease); w.Explicit && !v.Allowed {
				h.Gate = v.Message
			}
			all[w.Key()] = h
		}
	}
	return all, nil
}

// gatedElsewhere returns why the release gate holds a worker that is connected to another app: no live app serves its
// release. It returns "" if one does, or if the worker is not subject to the gate.
func (r *Registry) gatedElsewhere(w *engine.Worker) string {
	served := r.Releases()
	if !w.Explicit || w.Release == "" || len(served) == 0 || slices.ContainsFunc(served, func(app string) bool {
		return release.Gate(app, w.Release, r.opt.StrictRelease).Allowed
	}) {
		return ""
	}
	return release.Gate(r.opt.Release, w.Release, r.opt.StrictRelease).Message
}

// Gated reports whether the release gate held a worker at its last request to this app.
func (r *Registry) Gated(namespace, id string) (gated bool) {
	r.With(engine.WorkerKey{Namespace: namespace, ID: id}, func(h *TrackedWorker) { gated = h.Gate != "" })
	return gated
}

// Serve records the releases that live apps serve.
func (r *Registry) Serve(releases []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releases = releases
}

// Releases returns the releases that live apps serve; none before the first announcement.
func (r *Registry) Releases() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.releases
}

// DrainOf returns the drain of a worker, as this app knows it; nil if the worker is not drained.
func (r *Registry) DrainOf(w *engine.Worker) *engine.Drain {
	return r.opt.Settings(engine.QueueKey{Namespace: w.Namespace}).DrainOf(w)
}

// Stopped reports whether a worker gets no tasks because it drains itself or an operator drains it.
func (r *Registry) Stopped(h *TrackedWorker) bool {
	return h.Draining || r.DrainOf(h.Worker) != nil
}

// Status returns the status of a worker for lists. A worker whose build is drained in all of its queues gets no new
// tasks, so it is draining too.
func (r *Registry) Status(h TrackedWorker, now time.Time) protocol.WorkerStatus {
	switch {
	case !r.Alive(h, now):
		return protocol.WorkerStale
	case h.Gate != "":
		return protocol.WorkerMismatched
	case h.Draining, r.DrainOf(h.Worker) != nil:
		return protocol.WorkerDraining
	}
	for _, q := range h.Worker.Queues {
		if !r.opt.Settings(engine.QueueKey{Namespace: h.Worker.Namespace, Name: q}).Drained(h.Worker.BuildID) {
			return protocol.WorkerActive
		}
	}
	return protocol.WorkerDraining
}
