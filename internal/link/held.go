package link

import (
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// held lists the tasks of this process whose end the app has not confirmed.
type held struct {
	mu        sync.Mutex // guards the fields below
	tasks     map[string]struct{}
	abandoned []abandoned // oldest first
}

// abandoned is an activity attempt that the worker received but will never report: its lease could not be renewed.
// Until the lease has expired at the app too, the attempt is listed as held. Otherwise the app would conclude that the
// attempt never arrived, would not count it, and would not record the lost delivery.
type abandoned struct {
	key string
	at  time.Time
}

// listAbandoned is the time for which an abandoned attempt is listed. A lease that was not renewed ends long before.
const listAbandoned = 10 * time.Minute

func (h *held) addTask(t protocol.Task) {
	var key string
	switch {
	case t.Activity != nil:
		key = protocol.TaskKey(protocol.KindActivity, t.Activity.TaskID, t.Activity.AttemptID, 0)
	case t.Workflow != nil:
		key = protocol.TaskKey(protocol.KindWorkflow, t.Workflow.TaskID, "", t.Workflow.Attempt)
	default:
		return // query tasks are not recorded
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tasks == nil {
		h.tasks = map[string]struct{}{}
	}
	h.tasks[key] = struct{}{}
}

func (h *held) done(item protocol.CompleteItem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.tasks, protocol.TaskKey(item.Kind, item.TaskID, item.AttemptID, item.Attempt))
}

// abandon removes a task that ended without a report to the app.
func (h *held) abandon(item protocol.CompleteItem, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := protocol.TaskKey(item.Kind, item.TaskID, item.AttemptID, item.Attempt)
	if _, ok := h.tasks[key]; !ok {
		return // the app has confirmed its end
	}
	delete(h.tasks, key)
	h.expire(now)
	// A workflow task can be replayed anywhere and needs no count.
	if item.Kind == protocol.KindActivity {
		h.abandoned = append(h.abandoned, abandoned{key, now})
	}
}

// expire removes attempts that were abandoned long ago. The caller holds mu.
func (h *held) expire(now time.Time) {
	n := 0
	for n < len(h.abandoned) && now.Sub(h.abandoned[n].at) > listAbandoned {
		n++
	}
	if h.abandoned = h.abandoned[n:]; len(h.abandoned) == 0 {
		h.abandoned = nil
	}
}

// keys returns the keys of all tasks, including abandoned attempts, never nil.
func (h *held) keys(now time.Time) *[]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire(now)
	keys := make([]string, 0, len(h.tasks)+len(h.abandoned))
	for k := range h.tasks {
		keys = append(keys, k)
	}
	for _, a := range h.abandoned {
		keys = append(keys, a.key)
	}
	return &keys
}
