package membership

import (
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
)

// Orphans tracks workers that no app may be monitoring: workers of apps that ended, including this app before a
// restart.
type Orphans struct {
	Due  time.Time // when to search for orphaned workers; zero: there are none
	apps []string  // apps that were alive at the last announcement
	Gone time.Time // when one of these apps has been silent for too long; zero: there is none
}

// Update compares the live apps with the live apps of the last call, and reports whether an app has ended: the workers
// of that app may have died with it.
func (o *Orphans) Update(own string, alive map[string]time.Time) (ended bool) {
	o.Gone = time.Time{}
	var apps []string
	for id, until := range alive {
		if apps = append(apps, id); id != own && (o.Gone.IsZero() || until.Before(o.Gone)) {
			o.Gone = until
		}
	}
	for _, id := range o.apps {
		if !alive[id].IsZero() {
			continue
		}
		ended = true
		if now := time.Now(); o.Due.IsZero() || o.Due.After(now) {
			o.Due = now
		}
	}
	o.apps = apps
	return ended
}

// Others reports whether another live app stored the last heartbeat of a worker; this other app monitors the worker.
func (o *Orphans) Others(own string, w *engine.Worker) bool {
	return w.HeartbeatApp != own && slices.Contains(o.apps, w.HeartbeatApp)
}

// TrackOrphan records a worker of an ended app and the time to check it, unless this app has heartbeats of the worker
// or monitors it. A repeated call replaces the time: another app may have received heartbeats since and ended too.
func (r *Registry) TrackOrphan(w *engine.Worker, lookAt time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[w.Key()]; h != nil && !h.Orphaned && !(h.At.IsZero() && h.CheckAt.IsZero()) {
		return
	}
	h := TrackRow(w)
	h.CheckAt, h.Orphaned, h.Beats = lookAt, true, w.HeartbeatAt.After(w.RegisteredAt.Time) && w.HeartbeatApp == ""
	r.known[w.Key()] = &h
}

// AnyOrphaned reports whether there are recorded workers of ended apps.
func (r *Registry) AnyOrphaned() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.known {
		if h.Orphaned {
			return true
		}
	}
	return false
}

// Forget deletes the state of a worker, unless a heartbeat has arrived since seen was read.
func (r *Registry) Forget(k engine.WorkerKey, seen TrackedWorker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[k]; h != nil && h.Worker.Incarnation == seen.Worker.Incarnation && h.At.Equal(seen.At) {
		delete(r.known, k)
	}
}
