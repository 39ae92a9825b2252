package engine

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// A response that is too large for its transport would deliver nothing, and the next one would lease the same tasks.
// Therefore the size of every delivery is known before it is leased: claims and dispatches subtract it from the size
// budget of the response. Sizes are those of the JSON, rounded up.

// These are the components of the size of a delivery.
const (
	// MaxPageBytes is the maximum size of one page of a history; a single event may be larger.
	MaxPageBytes = 4 << 20
	// MaxUnseenBytes is the maximum size of the run's events that an activity task contains for a worker with the run
	// in its sticky cache.
	MaxUnseenBytes = 64 << 10
	// EventBytes is the size of an event without its payload; TaskBytes is the size of a task without payloads and
	// events.
	EventBytes = history.FrameSize
	TaskBytes  = 2 << 10
)

// DeliveryBytes returns the size of the run's workflow task in a response: the history, or its first page; for a worker
// that has the run in its sticky cache, only the events that it has not seen. Each task contains the trace context.
func (h *Head) DeliveryBytes(cached bool) int64 {
	n := h.Bytes + h.ArgumentBytes
	if cached {
		n = h.Bytes - h.SeenBytes
	}
	n = min(n, MaxPageBytes)
	if t := h.Task; t != nil && t.Cause.Kind == "workflow_signal" { // the response repeats the signal's value
		n += min(h.Bytes-h.SeenBytes, payload.MaxBytes)
	}
	return TaskBytes + n + int64(h.Trace.Size())
}

// DeliveryBytes returns the size of the activity in a response: its arguments, and the event that scheduled it, which
// contains the arguments again, up to a limit.
func (a *Activity) DeliveryBytes() int64 {
	n := TaskBytes + a.Bytes + min(a.Bytes, MaxUnseenBytes)
	if a.LastHeartbeat != nil {
		n += int64(len(a.LastHeartbeat.Details))
	}
	return n
}
