package history

// UpdateAccepted records an update that the workflow will answer; Arguments is the argument-array blob exactly as the
// caller sent it.
type UpdateAccepted struct {
	UpdateID     string `json:"update_id"`
	UpdateName   string `json:"update_name"`
	Arguments    string `json:"arguments,omitempty"`
	PayloadCodec string `json:"payload_codec,omitempty"`
	RequestID    string `json:"request_id,omitempty"`
	Identity     string `json:"identity,omitempty"`
	CarriedFrom  string `json:"carried_from_run_id,omitempty"` // accepted by the run before, which continued as new
}

// UpdateApplied says that a handler took the update, so that a replayer runs it again. UpdateCompleted follows at once,
// or later when the handler waits. Sequence is the number the next command will get: an update takes none.
type UpdateApplied struct {
	UpdateID     string `json:"update_id"`
	UpdateName   string `json:"update_name"`
	Sequence     int64  `json:"sequence"`
	Arguments    string `json:"arguments,omitempty"`
	PayloadCodec string `json:"payload_codec,omitempty"`
}

// UpdateCompleted ends an update: with a result behind UpdateApplied, or with a failure.
type UpdateCompleted struct {
	UpdateID     string `json:"update_id"`
	UpdateName   string `json:"update_name"`
	Sequence     int64  `json:"sequence,omitempty"`
	Result       string `json:"result,omitempty"`
	PayloadCodec string `json:"payload_codec,omitempty"`
	Failed       bool   `json:"failed,omitempty"`
	Failure
}
