package engine

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// A response that is too large for its transport delivers nothing, and the same tasks would be leased for the next one.
// So the size of every delivery is known before it is leased: a claim and a hand-over subtract it from the budget of
// the response. Sizes are of the JSON that is sent, and rather too large than too small.

// The sizes that deliveries are made of.
const (
	// MaxPageBytes is how much of a history one page has at most; a single event may be larger.
	MaxPageBytes = 4 << 20
	// MaxUnseenBytes is how much of its run an activity shows its worker at most.
	MaxUnseenBytes = 64 << 10
	// EventBytes is what an event has next to its payload, TaskBytes what a task has next to its payloads and events.
	EventBytes = history.FrameSize
	TaskBytes  = 2 << 10
)

// DeliveryBytes returns the size of the run's workflow task in a response: the history, or its first page, or for a
// worker that has the run in its sticky cache the events that it has not seen.
func (h *Head) DeliveryBytes(kept bool) int64 {
	n := h.Bytes + h.ArgumentBytes
	if kept {
		n = h.Bytes - h.SeenBytes
	}
	n = min(n, MaxPageBytes)
	if t := h.Task; t != nil && t.Cause.Kind == "workflow_signal" { // the response repeats the signal's value
		n += min(h.Bytes-h.SeenBytes, payload.MaxBytes)
	}
	return TaskBytes + n
}

// DeliveryBytes is the size of the activity as a worker gets it: its arguments, and as far as they are shown twice the
// event that scheduled it.
func (a *Activity) DeliveryBytes() int64 { return TaskBytes + a.Bytes + min(a.Bytes, MaxUnseenBytes) }
