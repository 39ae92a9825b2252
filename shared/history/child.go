package history

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/internal/retry"
)

// Child names a child workflow; it stands on every event of the child in its parent's history, since replayers compare
// them.
type Child struct {
	Sequence    int64  `json:"sequence"`
	CallID      string `json:"child_call_id"`
	WorkflowID  string `json:"child_workflow_instance_id"`
	RunID       string `json:"child_workflow_run_id,omitempty"`
	Type        string `json:"child_workflow_type"`
	ClosePolicy string `json:"parent_close_policy"` // abandon, request_cancel, terminate, request_cancellation
	// CancelPolicy is the cancellation policy of the command; absent: the command had none.
	CancelPolicy string `json:"cancellation_policy,omitempty"`
}

// ChildWorkflowScheduled opens a child workflow. Timeouts are seconds.
type ChildWorkflowScheduled struct {
	Child
	TaskQueue        string        `json:"task_queue,omitempty"`
	Arguments        string        `json:"arguments,omitempty"`
	PayloadCodec     string        `json:"payload_codec,omitempty"`
	RetryPolicy      *retry.Policy `json:"retry_policy,omitempty"`
	ExecutionTimeout int64         `json:"execution_timeout_seconds,omitempty"`
	RunTimeout       int64         `json:"run_timeout_seconds,omitempty"`
	Deadline         Time          `json:"execution_deadline_at,omitzero"`
	// Memo and SearchAttributes are what the child's runs are started with.
	Memo             json.RawMessage `json:"memo,omitempty"`
	SearchAttributes json.RawMessage `json:"search_attributes,omitempty"`
	Parallel
}

// ChildRunStarted says that a run of the child began: the first one, one behind a failure, or one that the run before
// continued as.
type ChildRunStarted struct {
	Child
	Number  int64 `json:"child_run_number"`
	Attempt int   `json:"child_attempt,omitempty"` // failed runs before this one, and itself
	StartAt Time  `json:"start_at,omitzero"`       // end of the back-off
	Parallel
}

// ChildRunCompleted resolves a child with its result.
type ChildRunCompleted struct {
	Child
	Number       int64  `json:"child_run_number"`
	Status       string `json:"child_status"`
	ClosedReason string `json:"closed_reason"`
	ClosedAt     Time   `json:"closed_at,omitzero"`
	Result       string `json:"result,omitempty"`
	PayloadCodec string `json:"payload_codec,omitempty"`
	Parallel
}

// ChildEnded is how a child came to an end without a result.
type ChildEnded struct {
	Child
	Number       int64  `json:"child_run_number"`
	Status       string `json:"child_status"`
	ClosedReason string `json:"closed_reason"`
	ClosedAt     Time   `json:"closed_at,omitzero"`
	Failure
	Parallel
}

// ChildRunFailed ends a child that failed or ran out of time, and is not tried again.
type ChildRunFailed struct{ ChildEnded }

// ChildRunCancelled ends a child that was cancelled.
type ChildRunCancelled struct{ ChildEnded }

// ChildRunTerminated ends a child that was terminated.
type ChildRunTerminated struct{ ChildEnded }

// ChildCancelRequested records a cancel_child_workflow command. Effect is "requested" if the step ends when the child
// closes; "cancelled" if it ends at once; "abandoned" if the child is not cancelled; or "too_late" if the child had
// already ended.
type ChildCancelRequested struct {
	CommandSequence int64  `json:"command_sequence,omitempty"` // 0: the child was cancelled as a member of a selection
	Target          int64  `json:"target"`
	Effect          string `json:"effect"`
}

// ParentClosePolicyApplied says what became of a child that was open when its parent closed.
type ParentClosePolicyApplied struct {
	WorkflowID string `json:"child_instance_id"`
	RunID      string `json:"child_run_id"`
	Policy     string `json:"policy"`
	Reason     string `json:"reason"`
}

// Types of the failures that Sojourn itself gives a child, or what is attached to one.
const (
	TypeWorkflowIDTaken = "workflow_id_taken" // the id that was chosen for a child belongs to another workflow
	// no run of this workflow id ever started such a child, or nothing is kept of it
	TypeChildNotFound = "child_not_found"
)

// AttachedToChild records an attach_child_workflow command. Effect is "attached": AttachedChildEnded comes when the
// child ends; "ended": it follows at once; or "unknown": it follows with a failure, since the workflow id is of no
// child of this one. The child may have been started by an earlier run of the workflow id, whose events do not stand
// here: so its members are named otherwise than those of the Child events, which replayers compare.
type AttachedToChild struct {
	CommandSequence int64  `json:"command_sequence"`
	WorkflowID      string `json:"workflow_id"`
	WorkflowType    string `json:"workflow_type,omitempty"`
	ClosePolicy     string `json:"close_policy,omitempty"`
	Effect          string `json:"effect"`
}

// AttachedChildEnded is how a child came to an end that the run had attached to: with a result when ClosedReason is
// completed.
type AttachedChildEnded struct {
	CommandSequence int64  `json:"command_sequence"` // of attach_child_workflow
	WorkflowID      string `json:"workflow_id"`
	WorkflowType    string `json:"workflow_type,omitempty"`
	RunID           string `json:"run_id,omitempty"`
	ClosedReason    string `json:"closed_reason"`
	ClosedAt        Time   `json:"closed_at,omitzero"`
	Result          string `json:"result,omitempty"`
	PayloadCodec    string `json:"payload_codec,omitempty"`
	Failure
}
