package protocol

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// TypePending is the type of a failure by which a worker reports that an attempt is pending: it stays open until a
// caller of the API completes it. An app of an earlier release records it as a failure.
const TypePending = "ActivityPending"

// TypeInvalidPending is the type of the failure of code that returns activity.ErrPending although it has no attempt
// that can become pending: a local step, or the set-up or rebuild of a session.
const TypeInvalidPending = "InvalidPending"

// PendingFailure returns the failure by which a worker reports a pending attempt.
func PendingFailure() *Failure {
	return &Failure{
		Type: TypePending, NonRetryable: true,
		Message: "the outcome of this activity comes from outside of the worker, which this app does not support; " +
			"update the app",
	}
}

// ExternalOutcome is a result or a failure that a caller outside of Sojourn reports.
type ExternalOutcome struct {
	// Result is any JSON value, or an envelope; absent: null. An object with the members codec and blob is an envelope.
	Result  json.RawMessage `json:"result,omitempty"`
	Failure *Failure        `json:"failure,omitempty"`
}

// Envelope returns the result as an envelope: the empty one for null. A result that is not an envelope is encoded.
func (r *ExternalOutcome) Envelope() (payload.Payload, error) {
	return ReadResult("result", r.Result, "")
}

// CleanedFailure returns the failure in the form that history stores: with cleaned texts, and with details as an
// envelope. It rejects a failure without a message.
func (r *ExternalOutcome) CleanedFailure() (*Failure, error) {
	f := r.Failure.Cleaned()
	if f.Message == "" {
		return nil, Invalid("failure.message", "must not be empty")
	}
	if string(f.Details) == "null" {
		f.Details = nil
	}
	return f, f.EncodeDetails()
}

// ActivityOutcomeRequest reports the outcome of an attempt of an activity by the attempt's token.
type ActivityOutcomeRequest struct {
	Namespace string `json:"-"`
	Token     string `json:"-"`
	ExternalOutcome
}

// ActivityReceipt is the response to an accepted outcome of an attempt, also to each repetition of the request.
type ActivityReceipt struct {
	Token        string `json:"activity_token"`
	WorkflowID   string `json:"workflow_id"`
	RunID        string `json:"run_id"`
	ActivityType string `json:"activity_type"`
	Outcome      string `json:"outcome" enum:"completed,failed,cancelled"`
	Retry        bool   `json:"retry_scheduled"` // the attempt failed, and another attempt follows
}

// HeartbeatMembers are the members of a heartbeat that its sender chooses; all are optional.
type HeartbeatMembers struct {
	Message json.RawMessage `json:"message,omitempty"`
	Current json.RawMessage `json:"current,omitempty"`
	Total   json.RawMessage `json:"total,omitempty"`
	Unit    json.RawMessage `json:"unit,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

// Join returns the members as one object; nil if all are absent or null.
func (m HeartbeatMembers) Join() (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	for name, v := range map[string]json.RawMessage{
		"message": m.Message, "current": m.Current, "total": m.Total, "unit": m.Unit, "details": m.Details,
	} {
		if len(v) > 0 && string(v) != "null" {
			members[name] = v
		}
	}
	if len(members) == 0 {
		return nil, nil
	}
	return json.Marshal(members)
}

// ActivityHeartbeatRequest is a heartbeat of an attempt, sent with the attempt's token.
type ActivityHeartbeatRequest struct {
	Namespace string `json:"-"`
	Token     string `json:"-"`
	HeartbeatMembers
}

// ActivityHeartbeatReceipt is the response to a heartbeat that was sent with a token.
type ActivityHeartbeatReceipt struct {
	Token           string       `json:"activity_token"`
	WorkflowID      string       `json:"workflow_id"`
	RunID           string       `json:"run_id"`
	ActivityType    string       `json:"activity_type"`
	LastHeartbeatAt history.Time `json:"last_heartbeat_at"`
	CancelRequested bool         `json:"cancel_requested"` // the workflow asks the attempt to stop
}
