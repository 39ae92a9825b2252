package protocol

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// QueryRequest queries a workflow's code, which must not change its state. Closed runs can be queried too.
type QueryRequest struct {
	Target
	QueryName string          `json:"query_name" minLength:"1" maxLength:"255"`
	Input     json.RawMessage `json:"input,omitempty"` // a plain array of arguments or an envelope
	Headers   history.Headers `json:"headers,omitempty"`
	Identity  string          `json:"-"`
}

// QueryResponse is the result of a query.
type QueryResponse struct {
	WorkflowID     string           `json:"workflow_id"`
	RunID          string           `json:"run_id"`
	WorkflowType   string           `json:"workflow_type"`
	QueryName      string           `json:"query_name"`
	TargetScope    string           `json:"target_scope"` // run if the request named a run, else instance
	Result         json.RawMessage  `json:"result"`
	ResultEnvelope *payload.Payload `json:"result_envelope"`
}
