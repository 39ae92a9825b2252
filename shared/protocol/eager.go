package protocol

import (
	"encoding/json"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
)

// EagerTask is the eager workflow task that an activity's result causes, decided by the worker that ran the activity
// and has the run in its sticky cache. Without commands the code continues to wait. If the eager task is rejected, the
// result is recorded as without it.
type EagerTask struct {
	SeenThrough int64 `json:"seen_through"` // last event that the code had seen, the one before the result's
	// time of the result's event that the code saw: not before the last event and the attempt, and not in the future
	At       history.Time `json:"time"`
	Commands []Command    `json:"commands,omitempty"`
	Slot     bool         `json:"slot,omitempty"` // the worker has a slot for an activity that the task schedules
	// Unread is the decoding error. An invalid eager task must not fail the call.
	Unread error `json:"-"`
}

type eagerTaskFrame EagerTask

// UnmarshalJSON never returns an error; it sets Unread instead.
func (t *EagerTask) UnmarshalJSON(raw []byte) error {
	var f eagerTaskFrame
	if err := json.Unmarshal(raw, &f); err != nil {
		*t = EagerTask{Unread: fmt.Errorf("invalid eager workflow task: %w", err)}
		return nil
	}
	*t = EagerTask(f)
	return nil
}

// EagerResult reports that the app accepted an eager workflow task, and how the run continued.
type EagerResult struct {
	Events    []history.Event `json:"history_events,omitempty"` // events of the eager task, after the result's event
	Next      *ActivityTask   `json:"next,omitempty"`           // activity that it scheduled, leased to this worker
	StoreTime history.Time    `json:"store_time,omitzero"`      // lower bound of the store's clock at the response
}
