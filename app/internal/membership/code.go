package membership

import (
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
)

// Two workers of one release with different code for an activity type point to an incomplete deployment. The app only
// logs this: it cannot know which code is right, and both workers continue.

// differentCode returns the activity types for which two workers registered different code versions.
func differentCode(a, b map[string]string) []string {
	var all []string
	for name, version := range a {
		if other, both := b[name]; both && other != version {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// warnOfOtherCode logs that a registering worker and a live worker of the same release have different code.
func (ws *Workers) warnOfOtherCode(w *engine.Worker) {
	if len(w.Versions) == 0 {
		return
	}
	type difference struct {
		worker string
		types  []string
	}
	var all []difference
	ws.Each(w.Namespace, func(key engine.WorkerKey, h *TrackedWorker) {
		o := h.Worker
		if key.ID == w.ID || o.Release != w.Release || !o.DeregisteredAt.IsZero() || h.Draining ||
			!slices.ContainsFunc(w.Queues, o.Serves) {
			return
		}
		if types := differentCode(w.Versions, o.Versions); len(types) > 0 {
			all = append(all, difference{key.ID, types})
		}
	})
	for _, d := range all {
		ws.log.Warn().Str("worker_id", w.ID).Str("other_worker_id", d.worker).Str("release", w.Release).
			Strs("activity_types", d.types).Msg("activity code differs between two workers of the same release")
	}
}
