package membership

import (
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
)

// learnEvery bounds how often signals of a type that no worker known here runs make this app look for workers that
// other apps registered.
const learnEvery = time.Second

// Signals are the signals that the living workers of a queue declared for a workflow type, and whether any of them runs
// it. A list that is empty, or left out, says nothing: where one worker has none, nothing is known.
func (r *Registry) Signals(q engine.QueueKey, typ string) (names []string, known bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, h := range r.known {
		if k.Namespace != q.Namespace || !h.Worker.Serves(q.Name) || !slices.Contains(h.Worker.WorkflowTypes, typ) ||
			!r.Alive(*h, now) {
			continue
		}
		said := h.signals[typ]
		if len(said) == 0 {
			return nil, true
		}
		names, known = append(names, said...), true
	}
	return names, known
}

// AskAgain reports whether the workers of a queue should be read again.
func (r *Registry) AskAgain(q engine.QueueKey, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.asked[q]) < learnEvery {
		return false
	}
	if r.asked == nil || len(r.asked) > 1000 {
		r.asked = map[engine.QueueKey]time.Time{}
	}
	r.asked[q] = now
	return true
}
