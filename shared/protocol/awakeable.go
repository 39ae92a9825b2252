package protocol

// CapAwakeables is the capability of workers that replay histories with awakeables. Only they receive the workflow
// tasks of a run that has opened one.
const CapAwakeables = "awakeables"

// AwakeableRequest completes an awakeable with a result, or fails it with a failure.
type AwakeableRequest struct {
	Namespace   string `json:"-"`
	AwakeableID string `json:"-"`
	Identity    string `json:"-"`

	ExternalOutcome
}

// AwakeableReceipt is the response to an accepted outcome of an awakeable, also to each repetition of the request.
type AwakeableReceipt struct {
	AwakeableID string `json:"awakeable_id"`
	WorkflowID  string `json:"workflow_id"`
	RunID       string `json:"run_id"`
	Outcome     string `json:"outcome" enum:"completed,failed"`
}
