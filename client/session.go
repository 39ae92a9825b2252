package client

import "time"

// SessionInfo describes a worker session.
type SessionInfo struct {
	ID             string    `json:"session_id"`
	Namespace      string    `json:"namespace"`
	Origin         string    `json:"door"`        // implicit, worker or workflow
	WorkflowID     string    `json:"workflow_id"` // workflow that started it; empty: none
	Queue          string    `json:"queue"`
	Requirements   []string  `json:"requirements"`
	Status         string    `json:"status"` // active, closed, expired, failed or orphaned
	Epoch          int64     `json:"epoch"`  // rises with every acquisition
	WorkerID       string    `json:"lease_owner"`
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
	TTLExpiresAt   time.Time `json:"ttl_expires_at"` // zero: no TTL
	ClosedAt       time.Time `json:"closed_at"`
	FailureReason  string    `json:"failure_reason"` // ttl_expired, lease_expired or worker_heartbeat_stale
	EndedReason    string    `json:"ended_reason"`   // why the last epoch ended
	Release        string    `json:"release"`
	ReleasePolicy  string    `json:"release_policy"`
	Affinity       string    `json:"affinity"` // hard or soft
	Definition     string    `json:"session_definition"`
	Pinned         bool      `json:"pinned"`                // never released to make room for another session
	Active         int       `json:"active_activity_count"` // activities that run in it
	Ready          int       `json:"ready_activity_count"`  // activities that wait for it
	LastActivityAt time.Time `json:"last_activity_at"`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
	Wait           *Wait     `json:"wait"` // reason why its tasks wait; nil: they do not
}
