package protocol

import "github.com/sojourn-run/sojourn/shared/history"

// RepairStatus lists the quarantined runs of a namespace: their workflow tasks wait for a repair.
type RepairStatus struct {
	Namespace  string            `json:"namespace"`
	Policy     RepairPolicy      `json:"policy"`
	Candidates []RepairCandidate `json:"candidates"`
	ScanLimit  int               `json:"scan_limit"`
	Pressure   bool              `json:"scan_pressure"` // more may exist
}

// RepairPolicy describes recovery: a lost task is redelivered when its lease expires, a quarantined task waits for an
// operator.
type RepairPolicy struct {
	Redelivery string `json:"redelivery"` // lease_expiry
	Quarantine string `json:"quarantine"` // manual_repair
	ScanLimit  int    `json:"scan_limit"`
}

// RepairCandidate is one quarantined run.
type RepairCandidate struct {
	WorkflowID   string       `json:"workflow_id"`
	RunID        string       `json:"run_id"`
	WorkflowType string       `json:"workflow_type"`
	TaskQueue    string       `json:"task_queue"`
	TaskID       string       `json:"task_id"`
	Problem      string       `json:"problem"`
	StartedAt    history.Time `json:"started_at"`
}

// RepairRequest selects the runs of a repair pass; without any, all quarantined runs.
type RepairRequest struct {
	Namespace  string   `json:"-"`
	RunIDs     []string `json:"run_ids,omitempty" maxItems:"1000"`
	WorkflowID string   `json:"instance_id,omitempty"`
	Identity   string   `json:"-"`
}

// SystemPass is the result of a repair pass or a timeout pass.
type SystemPass struct {
	Processed int            `json:"processed"`
	Repaired  int            `json:"repaired"` // of a repair pass
	Enforced  int            `json:"enforced"` // of a timeout pass
	Skipped   int            `json:"skipped"`
	Failed    int            `json:"failed"`
	Results   []SystemResult `json:"results"`
}

// SystemResult is the result for one run or activity.
type SystemResult struct {
	RunID       string `json:"run_id"`
	ExecutionID string `json:"activity_execution_id,omitempty"`
	Outcome     string `json:"outcome"` // repair_dispatched, repair_not_needed, enforced, skipped, failed
	Reason      string `json:"reason,omitempty"`
}

// TimeoutStatus lists the activities whose timeout expired and was not yet enforced.
type TimeoutStatus struct {
	Namespace string   `json:"namespace"`
	Count     int      `json:"expired_count"` // at most the scan limit
	IDs       []string `json:"expired_execution_ids"`
	ScanLimit int      `json:"scan_limit"`
	Pressure  bool     `json:"scan_pressure"`
}

// TimeoutRequest selects the activities of a timeout pass; without any, all that are due.
type TimeoutRequest struct {
	Namespace string   `json:"-"`
	IDs       []string `json:"execution_ids,omitempty"`
	Limit     int      `json:"limit,omitempty" minimum:"0" maximum:"1000"` // 1 to 1000; default all
}
