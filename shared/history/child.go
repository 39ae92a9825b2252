package history

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/internal/retry"
)

// Child identifies a child workflow in every event of the child in its parent's history, as replayers compare it.
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
	// memo and SearchAttributes of the child's runs
	Memo             json.RawMessage `json:"memo,omitempty"`
	SearchAttributes json.RawMessage `json:"search_attributes,omitempty"`
	Headers          Headers         `json:"headers,omitempty"`              // of the child's runs
	Trace            TraceContext    `json:"observability_context,omitzero"` // of the command, or else of the parent
	// ChainRunID is the first run of the child's chain; absent in the first chain of a workflow ID
	ChainRunID string `json:"chain_run_id,omitempty"`
	// UsedExisting means that an earlier step started the child: this step ends with it.
	UsedExisting bool `json:"used_existing,omitempty"`
	Parallel
}

// ChildRunStarted records that a run of the child began: the first, a retry, or a run that the previous run continued
// as.
type ChildRunStarted struct {
	Child
	Number  int64 `json:"child_run_number"`
	Attempt int   `json:"child_attempt,omitempty"` // number of failed runs before this one, plus one
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

// ChildEnded is the end of a child without a result.
type ChildEnded struct {
	Child
	Number       int64  `json:"child_run_number"`
	Status       string `json:"child_status"`
	ClosedReason string `json:"closed_reason"`
	ClosedAt     Time   `json:"closed_at,omitzero"`
	Failure
	Parallel
}

// ChildRunFailed ends a child that failed or timed out and is not retried.
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

// ParentClosePolicyApplied records the effect of the parent-close policy on a child that was open when its parent
// closed.
type ParentClosePolicyApplied struct {
	WorkflowID string `json:"child_instance_id"`
	RunID      string `json:"child_run_id"`
	Policy     string `json:"policy"`
	Reason     string `json:"reason"`
}

// Types of failures that Sojourn generates for a child or an attached child.
const (
	TypeWorkflowIDTaken = "workflow_id_taken" // the id that was chosen for a child belongs to another workflow
	// no run of this workflow ID ever started the child, or the child was deleted
	TypeChildNotFound = "child_not_found"
)

// AttachedToChild records an attach_child_workflow command. Effect is "attached": AttachedChildEnded follows when the
// child ends; "ended": it follows at once; or "unknown": it follows with a failure, because no run of the chain started
// the child. An earlier run of the workflow ID may have started the child, and this history does not have that run's
// events. Therefore the members have other names than those of the Child events, which replayers compare.
type AttachedToChild struct {
	CommandSequence int64  `json:"command_sequence"`
	WorkflowID      string `json:"workflow_id"`
	WorkflowType    string `json:"workflow_type,omitempty"`
	ClosePolicy     string `json:"close_policy,omitempty"`
	Effect          string `json:"effect"`
}

// AttachedChildEnded is the end of a child that the run had attached to: with a result if ClosedReason is completed.
type AttachedChildEnded struct {
	CommandSequence int64  `json:"command_sequence"` // sequence of the attach_child_workflow command
	WorkflowID      string `json:"workflow_id"`
	WorkflowType    string `json:"workflow_type,omitempty"`
	RunID           string `json:"run_id,omitempty"`
	ClosedReason    string `json:"closed_reason"`
	ClosedAt        Time   `json:"closed_at,omitzero"`
	Result          string `json:"result,omitempty"`
	PayloadCodec    string `json:"payload_codec,omitempty"`
	Failure
}
