package protocol

import "github.com/sojourn-run/sojourn/shared/history"

// DebugView is the diagnosis of a run that does not continue: its status, its open tasks and waits, and findings in
// order of severity.
type DebugView struct {
	WorkflowID   string       `json:"workflow_id"`
	RunID        string       `json:"run_id"`
	WorkflowType string       `json:"workflow_type"`
	Status       string       `json:"status"`
	StatusBucket string       `json:"status_bucket"`
	Terminal     bool         `json:"is_terminal"`
	TaskQueue    string       `json:"task_queue"`
	Diagnosis    string       `json:"diagnostic_status"` // closed, quarantined, running, waiting_for_worker, waiting
	WaitKind     *string      `json:"wait_kind"`
	WaitReason   *string      `json:"wait_reason"`
	Wait         *Wait        `json:"wait,omitempty"`
	Findings     []Finding    `json:"findings"` // the most severe first
	Pending      *Pending     `json:"pending"`
	Queues       []DebugQueue `json:"task_queues"` // queues of open tasks
	HistorySize  int64        `json:"history_length"`
	LastEvent    DebugEvent   `json:"last_event"`
	LastProgress history.Time `json:"last_progress_at"`
	RunDeadline  history.Time `json:"run_deadline_at"`
	ExecDeadline history.Time `json:"execution_deadline_at"`
	Actions      *RunActions  `json:"actions"`
	// last failure of the code, of an open task or of the run; absent if none was reported
	Stack *DebugStack `json:"stack,omitempty"`
}

// DebugStack is the stack trace of a failure.
type DebugStack struct {
	Of    string       `json:"of"` // the workflow, or the activity, with its type
	At    history.Time `json:"at"` // time of the report; null for a workflow task's failure, which is not an event
	Trace string       `json:"stack_trace"`
}

// Finding is a fact about a run that may explain why it does not continue.
type Finding struct {
	Severity string `json:"severity"` // error, warning, info
	// quarantined, waiting_for_worker, failing, lost, lease_over, deadline_near, failed, signal_not_waited_for,
	// clock_jumped
	Code    string `json:"code"`
	Subject string `json:"subject"` // ID of the task or of the run
	Message string `json:"message"`
}

// DebugQueue is a queue with the number of live workers that poll it.
type DebugQueue struct {
	Name    string `json:"name"`
	Workers int    `json:"live_workers"`
}

// DebugEvent names an event of a history.
type DebugEvent struct {
	Sequence int64        `json:"sequence"`
	Type     string       `json:"event_type"`
	At       history.Time `json:"timestamp"`
}

// TaskWhy is the reason why an open task waits.
type TaskWhy struct {
	TaskID     string       `json:"task_id"`
	Kind       TaskKind     `json:"kind"`
	State      string       `json:"state" enum:"ready,delayed,leased,quarantined"`
	WorkflowID string       `json:"workflow_id"`
	RunID      string       `json:"run_id"`
	TaskQueue  string       `json:"task_queue"`
	Type       string       `json:"type"` // of the workflow or the activity
	Worker     string       `json:"worker_id,omitempty"`
	SessionID  string       `json:"session_id,omitempty"`
	LeaseUntil history.Time `json:"lease_expires_at"`
	NextAt     history.Time `json:"next_attempt_at"`
	Why        string       `json:"why"`
	Wait       *Wait        `json:"wait"`
}
