package membership

import (
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
)

// Orphans tracks workers that no app may be monitoring: workers of apps that ended, including this app before a
// restart.
type Orphans struct {
	Due  time.Time // when to find out who they are; zero: there are none
	apps []string  // that were alive at the last announcement
	Gone time.Time // when one of them will have been silent for too long; zero: there is none
}

// Met compares the apps that are alive with those of the last time: who was heard by one that is gone may have died
// with it. It says whether one is.
func (o *Orphans) Met(own string, alive map[string]time.Time) (fell bool) {
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
		fell = true
		if now := time.Now(); o.Due.IsZero() || o.Due.After(now) {
			o.Due = now
		}
	}
	o.apps = apps
	return fell
}

// Others says whether another app that is alive heard a worker last, as it is stored: that one is to miss it.
func (o *Orphans) Others(own string, w *engine.Worker) bool {
	return w.HeardBy != own && slices.Contains(o.apps, w.HeardBy)
}

// Leave notes a worker that an app left behind, and when to look whether it lives; not one that is heard or watched
// here already. One that was left before is noted anew: another app may have heard it since, and be gone as well.
func (r *Registry) Leave(w *engine.Worker, lookAt time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[w.Key()]; h != nil && !h.Left && !(h.At.IsZero() && h.LookAt.IsZero()) {
		return
	}
	h := Read(w)
	h.LookAt, h.Left, h.Beats = lookAt, true, w.HeartbeatAt.After(w.RegisteredAt.Time) && w.HeardBy == ""
	r.known[w.Key()] = &h
}

// AnyLeft says whether there are workers that an app left behind.
func (r *Registry) AnyLeft() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.known {
		if h.Left {
			return true
		}
	}
	return false
}

// Forget drops what is known of a worker, unless it was heard since seen was read.
func (r *Registry) Forget(k engine.WorkerKey, seen Heard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[k]; h != nil && h.Worker.Incarnation == seen.Worker.Incarnation && h.At.Equal(seen.At) {
		delete(r.known, k)
	}
}
