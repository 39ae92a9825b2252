package history

import "encoding/json"

// Parallel is the position of a command in a parallel group. It is copied unchanged from the command to its scheduled
// event and to every terminal event, because SDKs match members of a group by it during replay.
type Parallel struct {
	GroupID    string          `json:"parallel_group_id,omitempty"`
	GroupKind  string          `json:"parallel_group_kind,omitempty"`
	GroupBase  int64           `json:"parallel_group_base_sequence,omitempty"`
	GroupSize  int             `json:"parallel_group_size,omitempty"`
	GroupIndex *int            `json:"parallel_group_index,omitempty"`
	GroupPath  json.RawMessage `json:"parallel_group_path,omitempty"`

	// A selection is a group in which the first member to end wins. A member is a single command or a nested group.
	GroupMode   string          `json:"parallel_group_mode,omitempty"` // select
	SelectKey   json.RawMessage `json:"selection_member_key,omitempty"`
	SelectIndex *int            `json:"selection_member_index,omitempty"`
	SelectBase  int64           `json:"selection_member_base_sequence,omitempty"`
	SelectSize  int64           `json:"selection_member_size,omitempty"`
	SelectKind  string          `json:"selection_member_kind,omitempty"`
}

// Lost is one delivery of an attempt that ended without an outcome.
type Lost struct {
	Delivery    int64  `json:"delivery"`
	Worker      string `json:"worker_id"`
	Epoch       int64  `json:"session_epoch,omitempty"`
	At          Time   `json:"at"`
	Why         string `json:"why"`                        // lease_expired, worker_restarted, worker_error, returned: …
	StartedAt   Time   `json:"started_at,omitzero"`        // time of the delivery's lease
	HeartbeatAt Time   `json:"last_heartbeat_at,omitzero"` // time of the last heartbeat from its code
	// HeartbeatDetails is the progress in the last heartbeat. It is set only in the latest lost delivery of a list.
	HeartbeatDetails json.RawMessage `json:"last_heartbeat_details,omitempty"`
	// number of tasks leased to the worker process of this delivery when the process ended
	Tasks int `json:"leased_tasks,omitempty"`
	// the task is a suspect of the loss of its worker process, or blamed for it; empty: neither
	Verdict string `json:"verdict,omitempty" enum:"suspect,blamed"`
}

// Attempt identifies the attempt of an activity that ended; it is part of retry and terminal events.
type Attempt struct {
	AttemptID    string `json:"activity_attempt_id,omitempty"`
	Number       int    `json:"attempt_number,omitempty"`
	Worker       string `json:"worker_id,omitempty"`
	Release      string `json:"release,omitempty"`
	CodeVersion  string `json:"code_version,omitempty"` // version of the activity's code, if the worker reported it
	SessionEpoch int64  `json:"session_epoch,omitempty"`
	StartedAt    Time   `json:"started_at,omitzero"`
	Lost         []Lost `json:"lost_deliveries,omitempty"`
	// ModeLocal: the worker ran the activity inside a workflow task; absent: it was dispatched as a task
	ExecutionMode string `json:"execution_mode,omitempty"`
}

// ModeLocal is the execution mode of a local step: an activity that a worker runs inside a workflow task.
const ModeLocal = "local"

// EndedAttempt returns the activity whose attempt this event ends, or whose lost deliveries it records: the command
// sequence, 0 for any other event.
func EndedAttempt(d Data) (seq int64, a Attempt) {
	switch d := d.(type) {
	case *ActivityCompleted:
		seq, a = d.Sequence, d.Attempt
	case *ActivityFailed:
		seq, a = d.Sequence, d.Attempt
	case *ActivityTimedOut:
		seq, a = d.Sequence, d.Attempt
	case *ActivityCancelled:
		seq, a = d.Sequence, d.Attempt
	case *ActivityRetryScheduled:
		seq, a = d.Sequence, d.Attempt
	}
	if a.AttemptID == "" && len(a.Lost) == 0 {
		return 0, a
	}
	return seq, a
}
