package protocol

import "github.com/sojourn-run/sojourn/shared/history"

// LeaseRequest leases the task with this ID, whatever its place in the queue.
type LeaseRequest struct {
	TaskID      string   `json:"task_id"`
	Kind        TaskKind `json:"kind"` // workflow or activity
	WorkerID    string   `json:"worker_id"`
	Namespace   string   `json:"namespace,omitempty"`
	Incarnation string   `json:"incarnation,omitempty"`
	Release     string   `json:"release,omitempty"`
	Gated       bool     `json:"-"`
	BuildID     string   `json:"build_id,omitempty"`
	PageSize    int      `json:"history_page_size,omitempty"`
	Queues      []string `json:"-"` // queues of the caller's token; empty: all
}

// LeaseStatus reports whether a task can be leased, and if not, why. The request changes nothing.
type LeaseStatus struct {
	Claimed bool `json:"claimed"` // the requesting worker has leased it
	// the task is ready, and the requesting worker, or without one any worker, may lease it
	Claimable    bool         `json:"claimable"`
	TaskID       string       `json:"task_id"`
	TaskStatus   string       `json:"task_status"` // ready, delayed, leased, quarantined, completed
	WorkflowID   string       `json:"workflow_id"`
	RunID        string       `json:"run_id"`
	RunStatus    string       `json:"run_status"`
	WorkflowType *string      `json:"workflow_type"`
	ActivityID   *string      `json:"activity_execution_id"`
	AttemptID    *string      `json:"activity_attempt_id"` // attempt of the live lease
	ActivityType *string      `json:"activity_type"`
	TaskQueue    *string      `json:"task_queue"`
	LeaseOwner   *string      `json:"lease_owner"`
	LeaseExpires history.Time `json:"lease_expires_at"`
	Reason       *string      `json:"reason"`
	ReasonDetail *string      `json:"reason_detail"`
	RetryAfter   *int64       `json:"retry_after_seconds"`
}

// AttemptStatus equals the response to a heartbeat, but the request renews nothing.
type AttemptStatus struct {
	HeartbeatResponse
	WorkflowID     string `json:"workflow_id,omitempty"`
	RunID          string `json:"run_id,omitempty"`
	ExecutionID    string `json:"activity_execution_id"`
	AttemptNumber  *int   `json:"attempt_number"`
	ActivityStatus string `json:"activity_status"` // ready, delayed, leased, closed
	AttemptState   string `json:"attempt_status"`  // running, closed
	TaskStatus     string `json:"task_status"`     // equals activity_status
}
