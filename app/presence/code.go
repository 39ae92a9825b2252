package presence

import (
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
)

// Two workers of one release that have different code of an activity are a deployment that went wrong half-way. It is
// only logged: which of them is right nobody here can tell, and work continues by either.

// otherCode are the activity types of which two workers say that they have different code.
func otherCode(a, b map[string]string) []string {
	var all []string
	for name, version := range a {
		if other, both := b[name]; both && other != version {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// warnOfOtherCode logs that a worker which registers has other code than one this app hears, of the same release.
func (ws *Workers) warnOfOtherCode(w *engine.Worker) {
	if len(w.Versions) == 0 {
		return
	}
	type difference struct {
		worker string
		types  []string
	}
	var all []difference
	ws.Each(w.Namespace, func(key engine.WorkerKey, h *Heard) {
		o := h.Worker
		if key.ID == w.ID || o.Release != w.Release || !o.Left.IsZero() || h.Draining ||
			!slices.ContainsFunc(w.Queues, o.Serves) {
			return
		}
		if types := otherCode(w.Versions, o.Versions); len(types) > 0 {
			all = append(all, difference{key.ID, types})
		}
	})
	for _, d := range all {
		ws.log.Warn().Str("worker_id", w.ID).Str("other_worker_id", d.worker).Str("release", w.Release).
			Strs("activity_types", d.types).Msg("activity code differs between two workers of the same release")
	}
}
