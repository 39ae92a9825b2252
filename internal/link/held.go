package link

import (
	"sync"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// held lists the tasks of this process whose end the app has not confirmed.
type held struct {
	mu    sync.Mutex // guards tasks
	tasks map[string]struct{}
}

func (h *held) addTask(t protocol.Task) {
	var key string
	switch {
	case t.Activity != nil:
		key = protocol.TaskKey(protocol.KindActivity, t.Activity.TaskID, t.Activity.AttemptID, 0)
	case t.Workflow != nil:
		key = protocol.TaskKey(protocol.KindWorkflow, t.Workflow.TaskID, "", t.Workflow.Attempt)
	default:
		return // queries are not recorded
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

// keys returns the keys of all tasks, never nil.
func (h *held) keys() *[]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := make([]string, 0, len(h.tasks))
	for k := range h.tasks {
		keys = append(keys, k)
	}
	return &keys
}
