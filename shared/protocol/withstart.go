package protocol

import "encoding/json"

// SignalWithStartRequest starts a workflow and sends it a signal, or sends the signal to the open run of the workflow
// ID. Without a conflict policy, use-existing applies. Headers apply to the run and to the signal.
type SignalWithStartRequest struct {
	StartRequest
	SignalName  string          `json:"signal_name" minLength:"1" maxLength:"255"`
	SignalInput json.RawMessage `json:"signal_input,omitempty"` // a plain array of arguments or an envelope
}

// Check rejects a request that is invalid regardless of stored data.
func (r SignalWithStartRequest) Check() error {
	if err := CheckLimits(r); err != nil {
		return err
	}
	return r.checkWithStart("signal-with-start")
}

// SignalWithStartResponse is the receipt of the signal, and whether the request started the run.
type SignalWithStartResponse struct {
	CommandReceipt
	StartOutcome string `json:"start_outcome" enum:"started_new,returned_existing_active"`
}

// UpdateWithStartRequest starts a workflow and sends it an update, or sends the update to the open run of the workflow
// ID. Without a conflict policy, use-existing applies. Headers apply to the run and to the update.
type UpdateWithStartRequest struct {
	StartRequest
	UpdateName  string          `json:"update_name" minLength:"1" maxLength:"255"`
	UpdateInput json.RawMessage `json:"update_input,omitempty"`                       // a plain array of arguments or an envelope
	WaitFor     string          `json:"wait_for,omitempty" enum:"accepted,completed"` // accepted (default), completed
	WaitTimeout *int64          `json:"wait_timeout_seconds,omitempty" minimum:"1"`   // default 30, at most 60
}

// Check rejects a request that is invalid regardless of stored data.
func (r UpdateWithStartRequest) Check() error {
	if err := CheckLimits(r); err != nil {
		return err
	}
	return r.checkWithStart("update-with-start")
}

// UpdateWithStartResponse is the update in its current state, and whether the request started the run.
type UpdateWithStartResponse struct {
	UpdateResponse
	StartOutcome string `json:"start_outcome" enum:"started_new,returned_existing_active"`
}

// checkWithStart rejects options of a start that the route does not have.
func (r StartRequest) checkWithStart(route string) error {
	switch {
	case r.Cron != "":
		return Invalid("cron", "cannot be combined with %s; create a schedule", route)
	case r.WaitSeconds != 0:
		return Invalid("wait_seconds", "cannot be combined with %s; read the result by its own route", route)
	case r.ConflictPolicy == ConflictFail:
		return Invalid("conflict_policy", "must be use-existing or terminate-existing with %s", route)
	case r.DuplicatePolicy == ConflictFail:
		return Invalid("duplicate_policy", "must be use-existing with %s", route)
	}
	return r.Check()
}
