package protocol

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// CapAwakeables is the capability of workers that replay histories with awakeables. Only they receive the workflow
// tasks of a run that has opened one.
const CapAwakeables = "awakeables"

// AwakeableRequest completes an awakeable with a result, or fails it with a failure.
type AwakeableRequest struct {
	Namespace   string `json:"-"`
	AwakeableID string `json:"-"`
	Identity    string `json:"-"`

	// Result is any JSON value, or an envelope; absent: null. An object with the members codec and blob is an envelope.
	Result  json.RawMessage `json:"result,omitempty"`
	Failure *Failure        `json:"failure,omitempty"`
}

// AwakeableReceipt is the response to an accepted outcome of an awakeable, also to each repetition of the request.
type AwakeableReceipt struct {
	AwakeableID string `json:"awakeable_id"`
	WorkflowID  string `json:"workflow_id"`
	RunID       string `json:"run_id"`
	Outcome     string `json:"outcome" enum:"completed,failed"`
}

// Envelope returns the result as an envelope: the empty one for null. A result that is not an envelope is encoded.
func (r *AwakeableRequest) Envelope() (payload.Payload, error) {
	return ReadResult("result", r.Result, "")
}

// CleanedFailure returns the failure in the form that history stores: with cleaned texts, and with details as an
// envelope. It rejects a failure without a message.
func (r *AwakeableRequest) CleanedFailure() (*Failure, error) {
	f := r.Failure.Cleaned()
	if f.Message == "" {
		return nil, Invalid("failure.message", "must not be empty")
	}
	if string(f.Details) == "null" {
		f.Details = nil
	}
	return f, f.EncodeDetails()
}
