package history

// AwakeableOpened records an open_awakeable command: the run waits until a caller of the API completes or fails the
// awakeable, which is named by its ID.
type AwakeableOpened struct {
	Sequence    int64  `json:"sequence"`
	AwakeableID string `json:"awakeable_id"`
	Timeout     int64  `json:"timeout_seconds,omitempty"`
}

// AwakeableCompleted resolves an awakeable with a result.
type AwakeableCompleted struct {
	Sequence     int64  `json:"sequence"`
	AwakeableID  string `json:"awakeable_id"`
	Result       string `json:"result,omitempty"`
	PayloadCodec string `json:"payload_codec,omitempty"`
	BodyHash     string `json:"body_hash,omitempty"` // hash of the accepted request: a repetition gets the first response
	Identity     string `json:"identity,omitempty"`
}

// AwakeableFailed resolves an awakeable with a failure that the workflow may catch.
type AwakeableFailed struct {
	Sequence    int64  `json:"sequence"`
	AwakeableID string `json:"awakeable_id"`
	BodyHash    string `json:"body_hash,omitempty"` // as in AwakeableCompleted
	Identity    string `json:"identity,omitempty"`
	Failure
}

// AwakeableTimedOut ends an awakeable whose timeout has elapsed.
type AwakeableTimedOut struct {
	Sequence    int64  `json:"sequence"`
	AwakeableID string `json:"awakeable_id"`
	Timeout     int64  `json:"timeout_seconds"`
}

// AwakeableClosed ends an awakeable without an outcome, because its run closed or its workflow cancelled it.
type AwakeableClosed struct {
	Sequence    int64  `json:"sequence"`
	AwakeableID string `json:"awakeable_id"`
	Reason      string `json:"reason,omitempty"`
}

// AwakeableCancelRequested records a cancel_awakeable command; Effect is "cancelled" or "too_late".
type AwakeableCancelRequested struct {
	CommandSequence int64  `json:"command_sequence"`
	Target          int64  `json:"target"`
	Effect          string `json:"effect"`
}

// Type is "AwakeableOpened".
func (*AwakeableOpened) Type() string { return "AwakeableOpened" }

// Type is "AwakeableCompleted".
func (*AwakeableCompleted) Type() string { return "AwakeableCompleted" }

// Type is "AwakeableFailed".
func (*AwakeableFailed) Type() string { return "AwakeableFailed" }

// Type is "AwakeableTimedOut".
func (*AwakeableTimedOut) Type() string { return "AwakeableTimedOut" }

// Type is "AwakeableClosed".
func (*AwakeableClosed) Type() string { return "AwakeableClosed" }

// Type is "AwakeableCancelRequested".
func (*AwakeableCancelRequested) Type() string { return "AwakeableCancelRequested" }
