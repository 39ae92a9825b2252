package presence

import (
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
)

// quietFor is how long a worker is silent until the app that heard it stores when exactly that was. The other apps can
// then tell which of them heard it last, and that one misses it as soon as its time is over.
const quietFor = 15 * time.Second

// Unheard lists the workers whose last sign of life other apps are to know of: it is a minute since one was stored, or
// the worker went quiet, or it was given something and nothing says yet that its heartbeats are stored. With them, or
// when anything is written anyway, come those whose minute is half over: so a fleet is stored in step, once a minute,
// and not each worker at a time of its own.
func (r *Registry) Unheard(every, holds time.Duration, anyway bool) (list []engine.WorkerKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, h := range r.known {
		fresh, since := h.At.After(h.Stored), time.Since(h.StoredAt)
		pressing := fresh && (since >= every || time.Since(h.At) >= quietFor) ||
			!h.At.IsZero() && h.Closely(holds) && !h.Promised
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
