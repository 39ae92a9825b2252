package protocol

import "github.com/sojourn-run/sojourn/shared/history"

// ImportRequest restores a closed run from its exported history.
type ImportRequest struct {
	Namespace string
	Events    []history.Event // all events of the history
	Identity  string
}

// ImportResponse identifies the imported run.
type ImportResponse struct {
	Outcome    string `json:"outcome"` // imported, import_not_needed
	Namespace  string `json:"namespace"`
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
	RunNumber  int64  `json:"run_number"`
	Status     string `json:"status"`
	Events     int64  `json:"history_length"`

	Warnings []Warning `json:"warnings,omitempty"` // warnings about names that a new run must not have
}
