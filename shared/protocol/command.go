// Package protocol defines the requests, responses, commands, statuses and refusal reasons that apps, workers and
// clients exchange as JSON.
package protocol

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// Wait returns the maximum wait in seconds; limited is false if there is none.
func (c *Command) Wait() (seconds int64, limited bool) {
	if c.Timeout == nil {
		return 0, false
	}
	return *c.Timeout, true
}

// Session returns the ID of the session that the command names, in either member; empty without a session.
func (c *Command) Session() string {
	if c.WorkerSession != nil {
		return c.WorkerSession.SessionID
	}
	return c.SessionID
}

// CommandType is the type of a command.
type CommandType string

// The cancellation policies of activities and children.
const (
	CancelTry     = "try_cancel"
	CancelAbandon = "abandon"
	CancelWait    = "wait_cancellation_completed"
)

// The outcomes of a local activity.
const (
	LocalCompleted = "completed"
	LocalFailed    = "failed"
	LocalTimedOut  = "timed_out"
	LocalCancelled = "cancelled"
)

// The commands of a completed workflow task. The first three end the run; at most one of them is allowed, as the last
// command.
const (
	CompleteWorkflow    CommandType = "complete_workflow"
	FailWorkflow        CommandType = "fail_workflow"
	ContinueAsNew       CommandType = "continue_as_new"
	ScheduleActivity    CommandType = "schedule_activity"
	StartTimer          CommandType = "start_timer"
	OpenSignalWait      CommandType = "open_signal_wait"
	RecordSideEffect    CommandType = "record_side_effect"
	RecordVersionMarker CommandType = "record_version_marker"
	StartSession        CommandType = "start_session"
	EndSession          CommandType = "end_session"
	CancelActivity      CommandType = "cancel_activity"
	CancelTimer         CommandType = "cancel_timer"
	SignalWorkflow      CommandType = "signal_workflow"
	StartChildWorkflow  CommandType = "start_child_workflow"
	CancelChildWorkflow CommandType = "cancel_child_workflow"
	// Sojourn only: subscribe this run to the end of a child that an earlier run of its workflow ID may have started
	AttachChildWorkflow CommandType = "attach_child_workflow"
	// Sojourn only: the handler has started and completes the update later
	ApplyUpdate            CommandType = "apply_update"
	CompleteUpdate         CommandType = "complete_update"
	FailUpdate             CommandType = "fail_update"
	UpsertSearchAttributes CommandType = "upsert_search_attributes"
	UpsertMemo             CommandType = "upsert_memo"
	OpenConditionWait      CommandType = "open_condition_wait"
	CancelSelection        CommandType = "cancel_selection_operation"
	RecordLocalActivity    CommandType = "record_local_activity"
	// Sojourn only: open an awakeable, which a caller of the API completes or fails
	OpenAwakeable   CommandType = "open_awakeable"
	CancelAwakeable CommandType = "cancel_awakeable"
)

// Terminal reports whether the command ends the run.
func (t CommandType) Terminal() bool {
	return t == CompleteWorkflow || t == FailWorkflow || t == ContinueAsNew
}

// Command is a request of workflow code. It is the only command type: the Go API and clients in any language set the
// same members, and each command reads its own members and ignores the others. Durations are whole seconds. The tag of
// lists the commands that read a member; ! after a command means that the command requires the member, | that it
// requires one of the members with |. CheckCommand checks this and the limits in the other tags.
type Command struct {
	Type CommandType `json:"type" required:"true"`

	ActivityType string `json:"activity_type,omitempty" of:"schedule_activity! record_local_activity!" minLength:"1" maxLength:"255"`
	// Arguments is an array.
	Arguments payload.Payload `json:"arguments,omitzero" of:"schedule_activity start_child_workflow continue_as_new signal_workflow record_local_activity"`
	// Queue is the run's queue if empty.
	Queue           string        `json:"queue,omitempty" of:"schedule_activity start_child_workflow continue_as_new" maxLength:"255"`
	RetryPolicy     *retry.Policy `json:"retry_policy,omitempty" of:"schedule_activity start_child_workflow record_local_activity"`
	StartToClose    Timeout       `json:"start_to_close_timeout,omitempty" of:"schedule_activity record_local_activity" minimum:"1" maximum:"315360000"`
	ScheduleToStart Timeout       `json:"schedule_to_start_timeout,omitempty" of:"schedule_activity" minimum:"1" maximum:"315360000"`
	ScheduleToClose Timeout       `json:"schedule_to_close_timeout,omitempty" of:"schedule_activity record_local_activity" minimum:"1" maximum:"315360000"`
	Heartbeat       Timeout       `json:"heartbeat_timeout,omitempty" of:"schedule_activity record_local_activity" minimum:"1" maximum:"315360000"`
	// Sojourn only: the number of blamed worker losses after which the activity fails; 0: the app's
	// setting. If the retry policy allows more attempts, its number applies.
	MaxBlamedLosses int `json:"max_blamed_losses,omitempty" of:"schedule_activity" minimum:"0" maximum:"1000"`
	// CancellationPolicy selects the effect of cancel_activity on a running activity. try_cancel, the default: the app
	// requests its worker to stop it, and the activity ends at once. wait_cancellation_completed: the activity ends
	// when its worker has stopped it. abandon: the app sends no request, and the activity ends neither with
	// cancel_activity nor with its run; see docs/guide/histories.md.
	//
	// For start_child_workflow it selects the effect of cancel_child_workflow. Absent or wait_cancellation_completed:
	// the child is cancelled, and its step ends when the child closes. try_cancel: the step ends at once. abandon: the
	// child is not cancelled.
	CancellationPolicy string `json:"cancellation_policy,omitempty" of:"schedule_activity start_child_workflow" enum:"try_cancel,abandon,wait_cancellation_completed"`
	// WorkerSession is a session with options. schedule_activity requires its session_id.
	WorkerSession *SessionOptions `json:"worker_session,omitempty" of:"schedule_activity start_session"`
	// Sojourn only: headers of the activity, the run or the signal; a replay never compares them
	Headers history.Headers `json:"headers,omitempty" of:"schedule_activity start_child_workflow continue_as_new signal_workflow"`
	// span that sent the command, for the new run; default: the trace context of this run. A replay never compares it
	Trace history.TraceContext `json:"observability_context,omitzero" of:"start_child_workflow continue_as_new"`
	// SessionID is a session without options, or one that the run started. end_session: the session to end.
	SessionID string `json:"session_id,omitempty" of:"schedule_activity end_session!" maxLength:"255"`
	// Sojourn only: as in WorkerSession, for a session without options, together with FallbackAfter. The latest
	// activity that sets them applies.
	Affinity      string `json:"affinity,omitempty" of:"schedule_activity" enum:"hard,soft"`
	FallbackAfter int64  `json:"fallback_after_seconds,omitempty" of:"schedule_activity" minimum:"0" maximum:"315360000"`

	// Sojourn only: as in WorkerSession, for a session without options. It stays set.
	FailFast bool `json:"fail_fast,omitempty" of:"schedule_activity"`

	// Sojourn only: the definition by which workers set up the session of session_id, worker_session or start_session.
	SessionDefinition *SessionDefinition `json:"session_definition,omitempty" of:"schedule_activity start_session"`

	// Sojourn only: the app completes the activity by lending the run a session of a pool, when one is free. Requires
	// the activity type sojourn.borrow.
	Borrow *history.Borrow `json:"borrow,omitempty" of:"schedule_activity"`

	Requirements []string `json:"requirements,omitempty" of:"schedule_activity start_session"`
	// from 0 (first) to 9 (last); default: that of the run
	Priority *int `json:"priority,omitempty" of:"schedule_activity" minimum:"0" maximum:"9"`
	// FairnessKey is by default the run's key, with its weight.
	FairnessKey    string `json:"fairness_key,omitempty" of:"schedule_activity" pattern:"^[A-Za-z0-9._:-]{1,64}$"`
	FairnessWeight int    `json:"fairness_weight,omitempty" of:"schedule_activity" minimum:"0" maximum:"1000"`

	history.Parallel `of:"schedule_activity start_timer open_signal_wait open_condition_wait start_child_workflow"`

	Delay *int64 `json:"delay_seconds,omitempty" of:"start_timer!" minimum:"0" maximum:"315360000"`
	// Sojourn only: the exact delay; overrides the whole seconds
	DelayMicros int64 `json:"delay_micros,omitempty" of:"start_timer" minimum:"0" maximum:"315360000000000"`

	SignalName string `json:"signal_name,omitempty" of:"open_signal_wait! signal_workflow!" minLength:"1" maxLength:"255"`
	// Sojourn only: the worker buffers signals that it has seen until the code receives them, and opens a wait only for
	// a signal that it has not seen. If false, a wait is for the first signal of the name that no earlier wait
	// received.
	Buffers bool `json:"buffers_signals,omitempty" of:"open_signal_wait continue_as_new"`
	// Sojourn only, with buffers_signals: event numbers, in order, of signals that the worker has seen and the code has
	// not received. The next run inherits these signals. Without buffers_signals it inherits the signals that were not
	// handled, which depends on the runtime that the worker registered.
	Unreceived []int64 `json:"unreceived_signals,omitempty" of:"continue_as_new"`
	// Sojourn only: signals that the run inherited and the worker did not fetch, so that they need not be listed in
	// unreceived_signals. The next run inherits them too.
	UnreceivedRange *EventRange `json:"unreceived_signal_range,omitempty" of:"continue_as_new"`
	// Timeout is the maximum wait; 0 times out at once.
	Timeout *int64 `json:"timeout_seconds,omitempty" of:"open_signal_wait open_condition_wait open_awakeable" minimum:"0" maximum:"315360000"`
	// WorkflowID is the receiver of a signal, or the child to attach. For start_child_workflow, Sojourn only, it is the
	// child's ID, generated if empty; if the ID is taken, the child fails with the type workflow_id_taken.
	WorkflowID string `json:"workflow_id,omitempty" of:"signal_workflow! attach_child_workflow! start_child_workflow" minLength:"1" maxLength:"255"`
	// Sojourn only, with workflow_id: whether the child may use the ID of a closed run; as in a start, reject by
	// default.
	ReusePolicy string `json:"reuse_policy,omitempty" of:"start_child_workflow" enum:"reject,allow-after-failure,allow"`
	// Sojourn only, with workflow_id: what happens if a run of the ID is open. fail, the default: the child fails.
	// use-existing: the step ends with that run. terminate-existing: that run ends, and the child begins in the same
	// commit. Both require that the run is a child of this workflow; otherwise the child fails.
	ConflictPolicy string `json:"conflict_policy,omitempty" of:"start_child_workflow" enum:"fail,use-existing,terminate-existing"`

	// Target is the command sequence that opened the activity, timer, child or awakeable to cancel, or that is attached
	// to the child.
	Target int64 `json:"target,omitempty" of:"cancel_activity! cancel_timer! cancel_child_workflow! cancel_awakeable!" minimum:"1"`

	// Sojourn only: the app requests the worker to stop a leased activity, and the activity ends with the
	// worker's report or the end of its lease. If false, the activity ends at once.
	UntilEnded bool `json:"until_ended,omitempty" of:"cancel_activity"`

	// Result is an envelope. Some clients send the bare blob; both forms are read.
	Result payload.Payload `json:"result,omitzero" of:"record_side_effect! complete_workflow complete_update record_local_activity"`

	// ExecutionMode is local; other values of record_local_activity are refused.
	ExecutionMode string `json:"execution_mode,omitempty" of:"record_local_activity" enum:"local"`
	// Outcome is the outcome of the last attempt. A local activity that completed has a result, the others a message.
	Outcome string `json:"outcome,omitempty" of:"record_local_activity!" enum:"completed,failed,timed_out,cancelled"`
	// TimeoutKind is the timeout that ended an activity with the outcome timed_out; absent: start_to_close.
	TimeoutKind string `json:"timeout_kind,omitempty" of:"record_local_activity" enum:"start_to_close,schedule_to_close,heartbeat"`
	// Attempts is a list with one object for each attempt. The app records their number, and from duration_ms of the
	// last one, in milliseconds, when it started.
	Attempts []json.RawMessage `json:"attempts,omitempty" of:"record_local_activity"`

	ChangeID     string `json:"change_id,omitempty" of:"record_version_marker!" minLength:"1" maxLength:"255"`
	Version      *int   `json:"version,omitempty" of:"record_version_marker!"`
	MinSupported *int   `json:"min_supported,omitempty" of:"record_version_marker!"`
	MaxSupported *int   `json:"max_supported,omitempty" of:"record_version_marker!"`

	Message        string          `json:"message,omitempty" of:"fail_workflow| fail_update| record_local_activity" clean:"true"`
	ExceptionType  string          `json:"exception_type,omitempty" of:"fail_workflow| fail_update| record_local_activity" clean:"true"`
	ExceptionClass string          `json:"exception_class,omitempty" of:"fail_workflow| fail_update| record_local_activity" clean:"true"`
	Exception      json.RawMessage `json:"exception,omitempty" of:"fail_workflow| fail_update| record_local_activity"`
	NonRetryable   bool            `json:"non_retryable,omitempty" of:"fail_workflow fail_update record_local_activity"`
	// FailedSequence is the command sequence of the activity that failed; FailedActivityID is preferred.
	FailedSequence   int64  `json:"failed_step_sequence,omitempty" of:"fail_workflow"`
	FailedActivityID string `json:"failed_activity_execution_id,omitempty" of:"fail_workflow"`

	// WorkflowType is unchanged if absent.
	WorkflowType      string  `json:"workflow_type,omitempty" of:"start_child_workflow! continue_as_new" minLength:"1" maxLength:"255"`
	ParentClosePolicy string  `json:"parent_close_policy,omitempty" of:"start_child_workflow" enum:"abandon,request_cancel,terminate,request_cancellation"`
	ExecutionTimeout  Timeout `json:"execution_timeout_seconds,omitempty" of:"start_child_workflow" minimum:"1" maximum:"315360000"`
	RunTimeout        Timeout `json:"run_timeout_seconds,omitempty" of:"start_child_workflow" minimum:"1" maximum:"315360000"`

	UpdateID string `json:"update_id,omitempty" of:"apply_update! complete_update! fail_update!" minLength:"1" maxLength:"255"`

	// name → value; null removes an attribute
	Attributes json.RawMessage `json:"attributes,omitempty" of:"upsert_search_attributes! start_child_workflow"`
	// name → type
	AttributeTypes json.RawMessage `json:"attribute_types,omitempty" of:"upsert_search_attributes"`
	// a map; null removes an entry
	Entries payload.Payload `json:"entries,omitzero" of:"upsert_memo! start_child_workflow"`

	ConditionKey         string `json:"condition_key,omitempty" of:"open_condition_wait" maxLength:"255"`
	ConditionFingerprint string `json:"condition_definition_fingerprint,omitempty" of:"open_condition_wait" maxLength:"255"`
	ConditionOccurrence  string `json:"condition_wait_occurrence_id,omitempty" of:"open_condition_wait" maxLength:"255"`

	SelectionGroup string          `json:"selection_group_id,omitempty" of:"cancel_selection_operation!" minLength:"1" maxLength:"255"`
	Member         json.RawMessage `json:"member_key,omitempty" of:"cancel_selection_operation"`
	MemberIndex    int             `json:"member_index,omitempty" of:"cancel_selection_operation"`
	MemberBase     int64           `json:"member_base_sequence,omitempty" of:"cancel_selection_operation!" minimum:"1"`
	MemberSize     int             `json:"member_size,omitempty" of:"cancel_selection_operation!" minimum:"1" maximum:"2000"`
	OperationKind  string          `json:"operation_kind,omitempty" of:"cancel_selection_operation"`
	OperationID    string          `json:"operation_identity,omitempty" of:"cancel_selection_operation"`

	// Streams and cancellation scopes are not supported. A command with one of these members is rejected, since
	// ignoring the member would change the effect of the command.
	WorkflowStream json.RawMessage `json:"workflow_stream,omitempty" of:"record_side_effect"`
	ScopeID        json.RawMessage `json:"cancellation_scope_id,omitempty" of:"schedule_activity start_timer open_signal_wait open_condition_wait start_child_workflow"`
	ScopeCleanup   json.RawMessage `json:"cancellation_cleanup,omitempty" of:"schedule_activity start_timer open_signal_wait open_condition_wait start_child_workflow"`
}

// SessionOptions is the worker_session object: in a command, and flat next to worker_id in the create verb. Nil
// pointers mean the default.
type SessionOptions struct {
	SessionID     string   `json:"session_id,omitempty" minLength:"1" maxLength:"255"`
	Connection    string   `json:"connection,omitempty"`
	Queue         string   `json:"queue,omitempty" maxLength:"255"`
	Requirements  []string `json:"requirements,omitempty"`
	Lease         Count    `json:"lease_seconds,omitempty" minimum:"1" maximum:"315360000"`             // default 120
	TTL           TTL      `json:"ttl_seconds,omitzero" minimum:"1" maximum:"315360000"`                // default 1800; null: none
	MaxActivities Count    `json:"max_concurrent_activities,omitempty" minimum:"1" maximum:"315360000"` // default 1
	// Sojourn only; a workflow starts its own sessions with start_session
	Scope         string `json:"scope,omitempty" enum:"namespace"`
	Create        *bool  `json:"create_if_missing,omitempty"` // default true
	Reacquire     *bool  `json:"allow_reacquire_after_failure,omitempty"`
	Idle          int64  `json:"idle_seconds,omitempty" minimum:"0" maximum:"315360000"` // Sojourn only: the session ends after this time without an activity
	ReleasePolicy string `json:"release_policy,omitempty" enum:"migrate,finish,fail"`    // Sojourn only
	// Sojourn only: hard (default), or soft: another worker may acquire a held session when one of its
	// tasks has waited for the owner for FallbackAfter seconds.
	Affinity      string `json:"affinity,omitempty" enum:"hard,soft"`
	FallbackAfter int64  `json:"fallback_after_seconds,omitempty" minimum:"0" maximum:"315360000"` // with soft: default 30
	// Sojourn only: the session is never released to make room for another one when its worker is at its
	// session limit.
	Pinned bool `json:"pinned,omitempty"`
	// Sojourn only: the leases of the session and of attempts in it are at most 10 s; only workers with the capability
	// fail_fast_sessions acquire it.
	FailFast bool `json:"fail_fast,omitempty"`
	// Sojourn only: amounts of the resources of workers that the session needs, as quantities: {"gpu_mem": "24GiB"}.
	Resources Resources `json:"resources,omitempty"`
}

// SessionDefinition names the definition of a session's state. Only workers that registered the definition acquire the
// session; they run its set-up with the arguments before the first task of each epoch.
type SessionDefinition struct {
	Name string `json:"name" required:"true" minLength:"1" maxLength:"200"`
	// Arguments is an array. The app stores the arguments of the first use, at most 2 MiB, as long as it stores the
	// session; other arguments of later uses have no effect, and their event has session_warning.
	Arguments payload.Payload `json:"arguments,omitzero"`
	// OnLost selects the effect of the loss of the state. set_up, the default: the next owner runs the set-up again.
	// fail: the first task of an epoch that is not the first one fails with session_lost before the set-up.
	OnLost string `json:"on_lost,omitempty" enum:"set_up,fail"`
}

// Blob returns the encoded arguments; empty for none.
func (d *SessionDefinition) Blob() string {
	if d == nil {
		return ""
	}
	return d.Arguments.Blob
}

// The values of on_lost.
const (
	OnLostSetUp = "set_up"
	OnLostFail  = "fail"
)

// DefinitionCapability is the capability of workers that registered a session definition.
func DefinitionCapability(name string) string { return "session:" + name }

// PrepareCapability is the capability of workers that registered a session definition whose set-up may run while
// another worker holds the session.
func PrepareCapability(name string) string { return "session_prepare:" + name }
