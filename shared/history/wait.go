package history

// Condition names a condition wait; it stands on every event of the wait, since replayers compare them.
type Condition struct {
	Sequence        int64  `json:"sequence"`
	ConditionWaitID string `json:"condition_wait_id"`
	Occurrence      string `json:"condition_wait_occurrence_id,omitempty"`
	Key             string `json:"condition_key,omitempty"`
	Fingerprint     string `json:"condition_definition_fingerprint,omitempty"`
}

// ConditionWaitOpened says the workflow is blocked until a condition over its own state holds; signals and updates may
// change that state.
type ConditionWaitOpened struct {
	Condition
	Timeout *int64 `json:"timeout_seconds,omitempty"`
	// event that may have made it true before it was opened, in a selection
	Signal int64 `json:"signal_event_sequence,omitempty"`
	Parallel
}

// ConditionWaitSatisfied ends a condition wait whose condition a worker evaluated. When it did not hold, a new wait was
// opened behind it.
type ConditionWaitSatisfied struct {
	Condition
	Parallel
}

// ConditionWaitTimedOut ends a condition wait whose timeout has elapsed.
type ConditionWaitTimedOut struct {
	Condition
	Timeout *int64 `json:"timeout_seconds,omitempty"`
	Parallel
}
