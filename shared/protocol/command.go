// Package protocol is what apps, workers and clients say to each other: commands, tasks, verbs, statuses and refusal reasons, in the JSON that
// every transport carries.
package protocol

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/retry"
)

// Wait is how long a wait may take, in seconds; false says that it has no limit.
func (c *Command) Wait() (seconds int64, limited bool) {
	if c.Timeout == nil {
		return 0, false
	}
	return *c.Timeout, true
}

// CommandType names what a command asks for.
type CommandType string

// The commands a workflow task may be completed with. The first three end the run and stand last, at most one of them.
const (
	CompleteWorkflow       CommandType = "complete_workflow"
	FailWorkflow           CommandType = "fail_workflow"
	ContinueAsNew          CommandType = "continue_as_new"
	ScheduleActivity       CommandType = "schedule_activity"
	StartTimer             CommandType = "start_timer"
	OpenSignalWait         CommandType = "open_signal_wait"
	RecordSideEffect       CommandType = "record_side_effect"
	RecordVersionMarker    CommandType = "record_version_marker"
	StartSession           CommandType = "start_session"
	EndSession             CommandType = "end_session"
	CancelActivity         CommandType = "cancel_activity"
	CancelTimer            CommandType = "cancel_timer"
	SignalWorkflow         CommandType = "signal_workflow"
	StartChildWorkflow     CommandType = "start_child_workflow"
	CancelChildWorkflow    CommandType = "cancel_child_workflow"
	CompleteUpdate         CommandType = "complete_update"
	FailUpdate             CommandType = "fail_update"
	UpsertSearchAttributes CommandType = "upsert_search_attributes"
	UpsertMemo             CommandType = "upsert_memo"
	OpenConditionWait      CommandType = "open_condition_wait"
	CancelSelection        CommandType = "cancel_selection_operation"
)

// Terminal says whether the command ends the run.
func (t CommandType) Terminal() bool {
	return t == CompleteWorkflow || t == FailWorkflow || t == ContinueAsNew
}

// Command is one thing a workflow asks for. It is the only command type: the Go authoring API and a client in any language fill the same members,
// each command reading its own and ignoring the rest. Durations are whole seconds.
type Command struct {
	Type CommandType `json:"type"`

	// schedule_activity
	ActivityType    string          `json:"activity_type,omitempty"`
	Arguments       payload.Payload `json:"arguments,omitzero"` // an array blob; also start_child_workflow, continue_as_new
	Queue           string          `json:"queue,omitempty"`    // empty: the run's own queue
	RetryPolicy     *retry.Policy   `json:"retry_policy,omitempty"`
	StartToClose    int64           `json:"start_to_close_timeout,omitempty"`
	ScheduleToStart int64           `json:"schedule_to_start_timeout,omitempty"`
	ScheduleToClose int64           `json:"schedule_to_close_timeout,omitempty"`
	Heartbeat       int64           `json:"heartbeat_timeout,omitempty"`
	WorkerSession   *SessionOptions `json:"worker_session,omitempty"` // the door with options
	SessionID       string          `json:"session_id,omitempty"`     // the implicit door; start_session, end_session: the handle
	Requirements    []string        `json:"requirements,omitempty"`
	Priority        *int            `json:"priority,omitempty"`     // 0 first … 9 last; the run's when absent
	FairnessKey     string          `json:"fairness_key,omitempty"` // empty: the run's, with its weight
	FairnessWeight  int             `json:"fairness_weight,omitempty"`
	history.Parallel

	// start_timer; DelayMicros, ours, is the exact length and wins over the whole seconds
	Delay       *int64 `json:"delay_seconds,omitempty"`
	DelayMicros int64  `json:"delay_micros,omitempty"`

	// open_signal_wait, signal_workflow
	SignalName string `json:"signal_name,omitempty"`
	// Buffers, ours: the worker keeps the signals it has seen until its code wants them, and asks for one it has not seen. Without it a wait is for the
	// first signal of the name that no earlier wait got.
	Buffers bool `json:"buffers_signals,omitempty"`
	// Unreceived, ours, with Buffers of continue_as_new: the events, in their order, of the signals the worker has seen and its code has not received.
	// They go with the run. Without Buffers all go that were the answer to no wait.
	Unreceived []int64 `json:"unreceived_signals,omitempty"`
	Timeout    *int64  `json:"timeout_seconds,omitempty"` // also open_condition_wait; 0 is over at once
	WorkflowID string  `json:"workflow_id,omitempty"`

	// cancel_activity, cancel_timer, cancel_child_workflow: the command sequence that opened it
	Target int64 `json:"target,omitempty"`

	// record_side_effect, complete_workflow, complete_update. Some clients send the bare blob; both forms are read.
	Result payload.Payload `json:"result,omitzero"`

	// record_version_marker
	ChangeID     string `json:"change_id,omitempty"`
	Version      *int   `json:"version,omitempty"`
	MinSupported *int   `json:"min_supported,omitempty"`
	MaxSupported *int   `json:"max_supported,omitempty"`

	// fail_workflow, fail_update
	Message          string          `json:"message,omitempty"`
	ExceptionType    string          `json:"exception_type,omitempty"`
	ExceptionClass   string          `json:"exception_class,omitempty"`
	Exception        json.RawMessage `json:"exception,omitempty"`
	NonRetryable     bool            `json:"non_retryable,omitempty"`
	FailedSequence   int64           `json:"failed_step_sequence,omitempty"`
	FailedActivityID string          `json:"failed_activity_execution_id,omitempty"`

	// continue_as_new, start_child_workflow
	WorkflowType      string `json:"workflow_type,omitempty"`
	ParentClosePolicy string `json:"parent_close_policy,omitempty"`
	ExecutionTimeout  int64  `json:"execution_timeout_seconds,omitempty"`
	RunTimeout        int64  `json:"run_timeout_seconds,omitempty"`

	// complete_update, fail_update
	UpdateID string `json:"update_id,omitempty"`

	// upsert_search_attributes, upsert_memo
	Attributes     json.RawMessage `json:"attributes,omitempty"`
	AttributeTypes json.RawMessage `json:"attribute_types,omitempty"`
	Entries        payload.Payload `json:"entries,omitzero"`

	// open_condition_wait
	ConditionKey         string `json:"condition_key,omitempty"`
	ConditionFingerprint string `json:"condition_definition_fingerprint,omitempty"`
	ConditionOccurrence  string `json:"condition_wait_occurrence_id,omitempty"`

	// cancel_selection_operation
	SelectionGroup string          `json:"selection_group_id,omitempty"`
	Member         json.RawMessage `json:"member_key,omitempty"`
	MemberIndex    int             `json:"member_index,omitempty"`
	MemberBase     int64           `json:"member_base_sequence,omitempty"`
	MemberSize     int             `json:"member_size,omitempty"`
	OperationKind  string          `json:"operation_kind,omitempty"`
	OperationID    string          `json:"operation_identity,omitempty"`
}

// SessionOptions is the worker_session object: in a command, and flat beside worker_id in the create verb. Nil pointers mean the default.
type SessionOptions struct {
	SessionID     string   `json:"session_id"`
	Connection    string   `json:"connection,omitempty"`
	Queue         string   `json:"queue,omitempty"`
	Requirements  []string `json:"requirements,omitempty"`
	Lease         int64    `json:"lease_seconds,omitempty"`             // 120
	TTL           int64    `json:"ttl_seconds,omitempty"`               // 1800
	MaxActivities int      `json:"max_concurrent_activities,omitempty"` // 1
	Create        *bool    `json:"create_if_missing,omitempty"`         // true
	Reacquire     *bool    `json:"allow_reacquire_after_failure,omitempty"`
	Idle          int64    `json:"idle_seconds,omitempty"`   // ours
	ReleasePolicy string   `json:"release_policy,omitempty"` // ours: migrate, finish, fail
}
