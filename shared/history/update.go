package history

// UpdateAccepted records an accepted update; Arguments is the blob of the argument array exactly as the caller sent it.
type UpdateAccepted struct {
	UpdateID     string       `json:"update_id"`
	UpdateName   string       `json:"update_name"`
	Arguments    string       `json:"arguments,omitempty"`
	PayloadCodec string       `json:"payload_codec,omitempty"`
	RequestID    string       `json:"request_id,omitempty"`
	Identity     string       `json:"identity,omitempty"`
	Headers      Headers      `json:"headers,omitempty"`
	Trace        TraceContext `json:"observability_context,omitzero"` // of the caller
	CarriedFrom  string       `json:"carried_from_run_id,omitempty"`  // previous run, which accepted the update and continued as new
}

// UpdateApplied records that a handler started the update, so that a replay runs the handler again. UpdateCompleted
// follows at once, or later if the handler waits. Sequence is the number of the next command: an update has no command
// sequence.
type UpdateApplied struct {
	UpdateID     string `json:"update_id"`
	UpdateName   string `json:"update_name"`
	Sequence     int64  `json:"sequence"`
	Arguments    string `json:"arguments,omitempty"`
	PayloadCodec string `json:"payload_codec,omitempty"`
}

// UpdateCompleted ends an update: with a result after UpdateApplied, or with a failure. Without a Sequence, no handler
// ends the update: the run closed, or a run before its reset completed the update.
type UpdateCompleted struct {
	UpdateID     string `json:"update_id"`
	UpdateName   string `json:"update_name"`
	Sequence     int64  `json:"sequence,omitempty"`
	Result       string `json:"result,omitempty"`
	PayloadCodec string `json:"payload_codec,omitempty"`
	Failed       bool   `json:"failed,omitempty"`
	Failure
}
