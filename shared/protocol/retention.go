package protocol

import "github.com/sojourn-run/sojourn/shared/history"

// RetentionStatus lists the runs that a retention pass would delete now.
type RetentionStatus struct {
	Namespace     string       `json:"namespace"`
	RetentionDays int          `json:"retention_days"`
	Cutoff        history.Time `json:"cutoff"`
	Count         int          `json:"expired_run_count"` // at most the scan limit
	RunIDs        []string     `json:"expired_run_ids"`
	ScanLimit     int          `json:"scan_limit"`
	Pressure      bool         `json:"scan_pressure"` // more may exist
}

// RetentionPass is the result of a retention pass.
type RetentionPass struct {
	Processed int               `json:"processed"`
	Pruned    int               `json:"pruned"`
	Skipped   int               `json:"skipped"`
	Failed    int               `json:"failed"`
	Results   []RetentionResult `json:"results"`
}

// RetentionRequest requests a retention pass over RunIDs, or over all runs of the namespace if RunIDs is absent.
type RetentionRequest struct {
	Namespace string   `json:"-"`
	RunIDs    []string `json:"run_ids,omitempty" maxItems:"1000" each:"255"`
	Limit     int      `json:"limit,omitempty" minimum:"1" maximum:"1000000"` // maximum number of deleted runs; absent: no limit
}

// RetentionResult is the result for one run.
type RetentionResult struct {
	RunID   string `json:"run_id"`
	Outcome string `json:"outcome"` // pruned, skipped
}
