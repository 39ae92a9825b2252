package protocol

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// How long a caller waits for its update: until the workflow accepted it, or until it answered.
const (
	WaitAccepted  = "accepted"
	WaitCompleted = "completed"
)

// UpdateRequest sends an update. The same RequestID again returns the first update in its current state; with other
// arguments the app rejects it.
type UpdateRequest struct {
	Target
	UpdateName string          `json:"update_name" minLength:"1" maxLength:"255"`
	Input      json.RawMessage `json:"input,omitempty"` // a plain array of arguments or an envelope
	// not compared with those of an earlier request of the same RequestID
	Headers     history.Headers      `json:"headers,omitempty"`
	Trace       history.TraceContext `json:"observability_context,omitzero"` // span of the caller
	RequestID   string               `json:"request_id,omitempty" maxLength:"255"`
	WaitFor     string               `json:"wait_for,omitempty" enum:"accepted,completed"` // accepted (default), completed
	WaitTimeout *int64               `json:"wait_timeout_seconds,omitempty" minimum:"1"`   // default 30, at most 60
	Identity    string               `json:"-"`
}

// UpdateResponse is an update in its current state: accepted, completed or failed.
type UpdateResponse struct {
	Outcome        string           `json:"outcome"` // update_accepted, update_completed, update_failed
	WorkflowID     string           `json:"workflow_id"`
	RunID          string           `json:"run_id"` // run that completed the update or has it now
	WorkflowType   string           `json:"workflow_type"`
	UpdateID       string           `json:"update_id"`
	UpdateName     string           `json:"update_name"`
	UpdateStatus   string           `json:"update_status"` // accepted, completed, failed
	CommandID      string           `json:"command_id"`
	CommandStatus  string           `json:"command_status"` // accepted
	Sequence       *int64           `json:"workflow_sequence"`
	Result         json.RawMessage  `json:"result"`
	ResultEnvelope *payload.Payload `json:"result_envelope"`
	FailureID      *string          `json:"failure_id"`
	FailureMessage *string          `json:"failure_message"`
	Failure        *history.Failure `json:"failure,omitempty"`
	AcceptedAt     history.Time     `json:"accepted_at"`
	AppliedAt      history.Time     `json:"applied_at"`
	RejectedAt     history.Time     `json:"rejected_at"`
	ClosedAt       history.Time     `json:"closed_at"`
	WaitFor        string           `json:"wait_for"`
	WaitTimedOut   bool             `json:"wait_timed_out"`
	WaitTimeout    int64            `json:"wait_timeout_seconds"`
	Retained       bool             `json:"retained,omitempty"` // the request id was seen before
}
