package presence

import (
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
)

// overdue says whether the last heartbeat of a worker has to be stored now, because other apps would expire the worker
// by its row otherwise. An exact row leaves no time for heartbeats that are not stored, so the next one is stored when
// three quarters of Alive have passed.
func (r *Registry) overdue(h *Heard) bool {
	switch {
	case !r.opt.Shared || !h.At.After(h.Stored):
		return false
	case h.Exact:
		return time.Since(h.Stored) >= r.opt.Alive*3/4
	}
	return time.Since(h.StoredAt) >= r.opt.StoreAlive
}

// quiet says whether a worker is silent and its row may still allow for heartbeats that this app has not stored.
func (r *Registry) quiet(h *Heard) bool {
	return !h.At.IsZero() && time.Since(h.At) >= r.opt.Quiet && (h.At.After(h.Stored) || !h.Exact)
}

// Unheard lists the workers whose last heartbeat has to be stored for the other apps: it is overdue, or the worker is
// quiet, or it was given something since its row was stored last. With them, or
// when anything is written anyway, come those whose minute is half over: so a fleet is stored in step, once a minute,
// and not each worker at a time of its own.
func (r *Registry) Unheard(every, holds time.Duration, anyway bool) (list []engine.WorkerKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, h := range r.known {
		fresh, since := h.At.After(h.Stored), time.Since(h.StoredAt)
		pressing := r.overdue(h) || r.quiet(h) || !h.At.IsZero() && h.Closely(holds) && !h.Close
		if anyway = anyway || pressing; pressing || fresh && since >= every/2 {
			list = append(list, k)
		}
	}
	if !anyway {
		return nil
	}
	return list
}

// AnyClosely says whether there are workers whose every heartbeat is stored.
func (r *Registry) AnyClosely(holds time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.known {
		if !h.At.IsZero() && h.Closely(holds) {
			return true
		}
	}
	return false
}
