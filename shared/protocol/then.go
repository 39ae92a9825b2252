package protocol

import (
	"encoding/json"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
)

// Then is the turn of a workflow that the result of its activity causes, decided by the worker that had the activity
// and keeps the run. Without commands the code waits on. Whatever is wrong with it, the result counts as without it.
type Then struct {
	SeenThrough int64 `json:"seen_through"` // last event that the code had seen, the one before the result's
	// of the result's event, as the code was told: not before the last event and the attempt, and not to come
	At       history.Time `json:"time"`
	Commands []Command    `json:"commands,omitempty"`
	Slot     bool         `json:"slot,omitempty"` // the worker has one for an activity that this schedules
	// Unread is why it could not be read. What is wrong with a turn must not be an error of the call.
	Unread error `json:"-"`
}

type thenFrame Then

// UnmarshalJSON never fails.
func (t *Then) UnmarshalJSON(raw []byte) error {
	var f thenFrame
	if err := json.Unmarshal(raw, &f); err != nil {
		*t = Then{Unread: fmt.Errorf("the turn could not be read: %w", err)}
		return nil
	}
	*t = Then(f)
	return nil
}

// Taken reports that the app accepted an eager workflow task, and how the run continued.
type Taken struct {
	Events    []history.Event `json:"history_events,omitempty"` // events of the eager task, after the result's event
	Next      *ActivityTask   `json:"next,omitempty"`           // activity that it scheduled, leased to this worker
	StoreTime history.Time    `json:"store_time,omitzero"`      // lower bound of the store's clock at the response
}
