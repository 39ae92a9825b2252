package history

// Condition identifies a condition wait in every event of the wait, as replayers compare it.
type Condition struct {
	Sequence        int64  `json:"sequence"`
	ConditionWaitID string `json:"condition_wait_id"`
	Occurrence      string `json:"condition_wait_occurrence_id,omitempty"`
	Key             string `json:"condition_key,omitempty"`
	Fingerprint     string `json:"condition_definition_fingerprint,omitempty"`
}

// ConditionWaitOpened records that the workflow waits until a condition over its state holds; signals and updates may
// change that state.
type ConditionWaitOpened struct {
	Condition
	Timeout *int64 `json:"timeout_seconds,omitempty"`
	// in a selection: event that may have satisfied the condition before the wait was opened
	Signal int64 `json:"signal_event_sequence,omitempty"`
	Parallel
}

// ConditionWaitSatisfied ends a condition wait whose condition a worker evaluated. If the condition did not hold, the
// code opened a new wait after it.
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
