package membership

import (
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
)

// overdue reports whether the last heartbeat of a worker has to be stored now, because the row would expire for the
// other apps otherwise. An exact row allows for no heartbeat that is not stored, so the next one is stored after three
// quarters of Alive.
func (r *Registry) overdue(h *TrackedWorker) bool {
	switch {
	case !r.opt.Shared || !h.At.After(h.Stored):
		return false
	case h.ExactExpiry:
		return time.Since(h.Stored) >= r.opt.Alive*3/4
	}
	return time.Since(h.StoredAt) >= r.opt.StoreAlive
}

// fellSilent reports whether a worker is silent and its row is not exact or lacks the last heartbeat.
func (r *Registry) fellSilent(h *TrackedWorker) bool {
	return !h.At.IsZero() && time.Since(h.At) >= r.opt.Quiet && (h.At.After(h.Stored) || !h.ExactExpiry)
}

// UnstoredHeartbeats lists the workers whose last heartbeat must be stored for the other apps: the heartbeat is
// overdue, the worker is quiet, or StoresEachHeartbeat became true after the row was stored. If any is listed, or
// anyway is true, UnstoredHeartbeats also lists the workers with a newer heartbeat whose rows are older than half of
// StoreAlive. So the rows of a fleet are stored together, once per interval.
func (r *Registry) UnstoredHeartbeats(anyway bool) (list []engine.WorkerKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, h := range r.known {
		fresh, since := h.At.After(h.Stored), time.Since(h.StoredAt)
		pressing := r.overdue(h) || r.fellSilent(h) || !h.At.IsZero() && h.StoresEachHeartbeat(r.opt.HTTPLease) &&
			!h.StoresEach
		if anyway = anyway || pressing; pressing || fresh && since >= r.opt.StoreAlive/2 {
			list = append(list, k)
		}
	}
	if !anyway {
		return nil
	}
	return list
}

// AnyStoresEachHeartbeat reports whether StoresEachHeartbeat is true for any worker of this app.
func (r *Registry) AnyStoresEachHeartbeat() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.known {
		if !h.At.IsZero() && h.StoresEachHeartbeat(r.opt.HTTPLease) {
			return true
		}
	}
	return false
}
