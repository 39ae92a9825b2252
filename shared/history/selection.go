package history

import "encoding/json"

// SelectionMember is a member of a selection: Key is a text or number from the workflow's code, Base and Size are the
// command sequences of its steps, and Identity is its name within the run.
type SelectionMember struct {
	GroupID  string          `json:"selection_group_id"`
	Key      json.RawMessage `json:"member_key"`
	Index    int             `json:"member_index"`
	Base     int64           `json:"member_base_sequence"`
	Size     int64           `json:"member_size"`
	Kind     string          `json:"operation_kind"` // activity, child, timer, signal, condition, group
	Identity string          `json:"operation_identity"`
}

// SelectionResolved names the member that won a selection, and the event that completed the member.
type SelectionResolved struct {
	SelectionMember
	GroupBase int64  `json:"selection_group_base_sequence"`
	GroupSize int    `json:"selection_group_size"`
	Outcome   string `json:"outcome"` // completed, failed
	EventID   string `json:"resolution_event_id"`
	EventType string `json:"resolution_event_type"`
}

// SelectionOperationCancelled records that the workflow cancelled an open member of a selection.
type SelectionOperationCancelled struct{ SelectionMember }
