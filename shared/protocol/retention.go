package protocol

import "github.com/sojourn-run/sojourn/shared/history"

// RetentionStatus is what a namespace's retention would remove now.
type RetentionStatus struct {
	Namespace     string       `json:"namespace"`
	RetentionDays int          `json:"retention_days"`
	Cutoff        history.Time `json:"cutoff"`
	Count         int          `json:"expired_run_count"` // at most the scan limit
	RunIDs        []string     `json:"expired_run_ids"`
	ScanLimit     int          `json:"scan_limit"`
	Pressure      bool         `json:"scan_pressure"` // there may be more
}

// RetentionPass is what a pass did.
type RetentionPass struct {
	Processed int               `json:"processed"`
	Pruned    int               `json:"pruned"`
	Skipped   int               `json:"skipped"`
	Failed    int               `json:"failed"`
	Results   []RetentionResult `json:"results"`
}

// RetentionResult is what became of one run.
type RetentionResult struct {
	RunID   string `json:"run_id"`
	Outcome string `json:"outcome"` // pruned, skipped
}
