package protocol

import "github.com/sojourn-run/sojourn/shared/history"

// ClaimRequest asks for one task that the caller knows by its id, instead of whichever comes next.
type ClaimRequest struct {
	TaskID      string   `json:"task_id"`
	Kind        TaskKind `json:"kind"` // workflow or activity
	WorkerID    string   `json:"worker_id"`
	Namespace   string   `json:"namespace,omitempty"`
	Incarnation string   `json:"incarnation,omitempty"`
	Release     string   `json:"release,omitempty"`
	Gated       bool     `json:"-"`
	BuildID     string   `json:"build_id,omitempty"`
	PageSize    int      `json:"history_page_size,omitempty"`
	Queues      []string `json:"-"` // those the caller's token is good for; empty: all
}

// ClaimStatus says whether a task can be claimed and, when it cannot, why. It changes nothing.
type ClaimStatus struct {
	Claimed bool `json:"claimed"` // the worker that asks holds it
	// it waits, and the worker that asks (any worker, when none is named) may have it
	Claimable    bool         `json:"claimable"`
	TaskID       string       `json:"task_id"`
	TaskStatus   string       `json:"task_status"` // ready, delayed, leased, quarantined, completed
	WorkflowID   string       `json:"workflow_id"`
	RunID        string       `json:"run_id"`
	RunStatus    string       `json:"run_status"`
	WorkflowType *string      `json:"workflow_type"`
	ActivityID   *string      `json:"activity_execution_id"`
	AttemptID    *string      `json:"activity_attempt_id"` // of the live lease
	ActivityType *string      `json:"activity_type"`
	TaskQueue    *string      `json:"task_queue"`
	LeaseOwner   *string      `json:"lease_owner"`
	LeaseExpires history.Time `json:"lease_expires_at"`
	Reason       *string      `json:"reason"`
	ReasonDetail *string      `json:"reason_detail"`
	RetryAfter   *int64       `json:"retry_after_seconds"`
}

// AttemptStatus is what a heartbeat would answer, without being one: nothing is renewed.
type AttemptStatus struct {
	HeartbeatAnswer
	WorkflowID     string `json:"workflow_id,omitempty"`
	RunID          string `json:"run_id,omitempty"`
	ExecutionID    string `json:"activity_execution_id"`
	AttemptNumber  *int   `json:"attempt_number"`
	ActivityStatus string `json:"activity_status"` // ready, delayed, leased, closed
	AttemptState   string `json:"attempt_status"`  // running, closed
	TaskStatus     string `json:"task_status"`     // as activity_status
}
