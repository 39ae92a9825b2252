package membership

import (
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
)

// readInterval is the minimum interval at which signals for a type without known workers cause reads of other apps'
// registrations.
const readInterval = time.Second

// Signals returns the signals that the live workers of a queue declare for a workflow type. known reports whether any
// live worker runs the type. An empty list means that the signals are unknown: some worker declares none.
func (r *Registry) Signals(q engine.QueueKey, typ string) (names []string, known bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, h := range r.known {
		if k.Namespace != q.Namespace || !h.Worker.Serves(q.Name) || !slices.Contains(h.Worker.WorkflowTypes, typ) ||
			!r.Alive(*h, now) {
			continue
		}
		declared := h.signals[typ]
		if len(declared) == 0 {
			return nil, true
		}
		names, known = append(names, declared...), true
	}
	return names, known
}

// ShouldReadWorkers reports whether the workers of a queue should be read again.
func (r *Registry) ShouldReadWorkers(q engine.QueueKey, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.asked[q]) < readInterval {
		return false
	}
	if r.asked == nil || len(r.asked) > 1000 {
		r.asked = map[engine.QueueKey]time.Time{}
	}
	r.asked[q] = now
	return true
}
