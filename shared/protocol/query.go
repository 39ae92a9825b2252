package protocol

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// QueryRequest asks a workflow's code for something about its state, without changing it. A run that has closed can be
// asked as well.
type QueryRequest struct {
	Target
	QueryName string          `json:"query_name" minLength:"1" maxLength:"255"`
	Input     json.RawMessage `json:"input,omitempty"` // a plain array of arguments or an envelope
	Identity  string          `json:"-"`
}

// QueryAnswer is what the code said.
type QueryAnswer struct {
	WorkflowID     string           `json:"workflow_id"`
	RunID          string           `json:"run_id"`
	WorkflowType   string           `json:"workflow_type"`
	QueryName      string           `json:"query_name"`
	TargetScope    string           `json:"target_scope"` // instance, or run when the target named one
	Result         json.RawMessage  `json:"result"`
	ResultEnvelope *payload.Payload `json:"result_envelope"`
}
