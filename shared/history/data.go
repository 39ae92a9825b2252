package history

import (
	"encoding/json"
	"slices"

	"github.com/sojourn-run/sojourn/internal/retry"
)

// Payload members named result, output, arguments, input and value are the bare base64 blob; PayloadCodec next to them
// is "avro" or absent, never null.

// KindActivity is the kind of an activity run: one activity without workflow code.
const KindActivity = "activity"

// WorkflowStarted is event 1 of a run.
type WorkflowStarted struct {
	// "activity" for an activity run, whose activity type is WorkflowType; empty: a workflow
	Kind              string          `json:"kind,omitempty"`
	WorkflowType      string          `json:"workflow_type"`
	WorkflowID        string          `json:"workflow_id,omitempty"`
	RunID             string          `json:"run_id,omitempty"`
	RunNumber         int64           `json:"run_number,omitempty"`
	TaskQueue         string          `json:"task_queue,omitempty"`
	Arguments         string          `json:"arguments,omitempty"`
	PayloadCodec      string          `json:"payload_codec,omitempty"`
	ContinuedFrom     string          `json:"continued_from_run_id,omitempty"`
	ParentRunID       string          `json:"parent_run_id,omitempty"`
	ParentWorkflowID  string          `json:"parent_workflow_id,omitempty"`
	ParentSequence    int64           `json:"parent_command_sequence,omitempty"`
	RunTimeout        int64           `json:"run_timeout_seconds,omitempty"`
	ExecutionTimeout  int64           `json:"execution_timeout_seconds,omitempty"`
	ExecutionDeadline Time            `json:"execution_deadline_at,omitzero"`
	RunDeadline       Time            `json:"run_deadline_at,omitzero"`
	BusinessKey       string          `json:"business_key,omitempty"`
	Priority          int             `json:"priority,omitempty"`
	FairnessKey       string          `json:"fairness_key,omitempty"`
	FairnessWeight    int             `json:"fairness_weight,omitempty"`
	Memo              json.RawMessage `json:"memo,omitempty"`
	SearchAttributes  json.RawMessage `json:"search_attributes,omitempty"`
	Headers           Headers         `json:"headers,omitempty"`
	Trace             TraceContext    `json:"observability_context,omitzero"` // of the start
	BuildID           string          `json:"build_id,omitempty"`
	DelayUntil        Time            `json:"delay_until,omitzero"`
	CarriedSignals    int             `json:"carried_signals,omitempty"`
	Identity          string          `json:"identity,omitempty"`
	// ChainRunID is the first run of the chain; absent in the first chain of a workflow ID
	ChainRunID string `json:"chain_run_id,omitempty"`
	// ParentChainRunID is the chain_run_id of the parent
	ParentChainRunID string `json:"parent_chain_run_id,omitempty"`
	// NameRules is the version of the rules that the names in the run's commands follow; absent in runs that an earlier
	// build started, and in runs that continue them
	NameRules int `json:"name_rules,omitempty"`
	// CopiedFrom is set if the run began with a copy of the history of an earlier run, by a redrive or a reset
	CopiedFrom *CopiedFrom `json:"reset_from,omitempty"`
}

// CopiedFrom says that the events 1 … Event of a run are copies of the events of an earlier run, with their times. The
// commands in them keep their IDs of sessions and children.
type CopiedFrom struct {
	CopiedRange
	At     Time   `json:"at"`               // time of the copy, at which the run began
	Reason string `json:"reason,omitempty"` // reason of a reset, for people
	// Earlier are the runs from which the earlier run had copied events, the oldest first
	Earlier []CopiedRange `json:"earlier,omitempty"`
}

// CopiedRange says that code which an event up to Event woke ran in RunID first, and that RunID recorded its commands
// up to number Command.
type CopiedRange struct {
	RunID   string `json:"run_id"`
	Event   int64  `json:"event"`
	Command int64  `json:"command,omitempty"`
	// Seen is the last event that had woken code of RunID when it recorded Event; absent: Event. After a reset, the code
	// that the later copied events wake is new code, which must not get the identifiers that RunID used for its own.
	Seen int64 `json:"seen,omitempty"`
}

// SeenEvent returns the last copied event that woke code of the earlier run.
func (c CopiedRange) SeenEvent() int64 {
	if c.Seen > 0 {
		return c.Seen
	}
	return c.Event
}

// Ranges returns which run's code each copied event woke, in the order of the events.
func (c *CopiedFrom) Ranges() []CopiedRange {
	if c == nil {
		return nil
	}
	return append(slices.Clip(c.Earlier), c.CopiedRange)
}

// ActivitySnapshot has the options of a scheduled activity, as replayers compare them with the command.
type ActivitySnapshot struct {
	Queue       string        `json:"queue"`
	RetryPolicy *retry.Policy `json:"retry_policy,omitempty"`
}

// ActivityScheduled opens an activity. The member worker_session is that of the command; with only a session ID in the
// command it is {"session_id": …}; outside sessions it is absent.
type ActivityScheduled struct {
	Sequence     int64             `json:"sequence"`
	ExecutionID  string            `json:"activity_execution_id"`
	ActivityType string            `json:"activity_type"`
	Arguments    string            `json:"arguments,omitempty"`
	PayloadCodec string            `json:"payload_codec,omitempty"`
	Activity     *ActivitySnapshot `json:"activity,omitempty"`
	SessionID    string            `json:"session_id,omitempty"`
	Session      json.RawMessage   `json:"worker_session,omitempty"`
	// SessionDefinition is the name of the session's definition that the command named.
	SessionDefinition string `json:"session_definition,omitempty"`
	// SessionWarning reports that the session keeps other arguments than those of the command.
	SessionWarning  string   `json:"session_warning,omitempty"`
	Requirements    []string `json:"requirements,omitempty"`
	Priority        int      `json:"priority,omitempty"`
	FairnessKey     string   `json:"fairness_key,omitempty"`
	FairnessWeight  int      `json:"fairness_weight,omitempty"`
	StartToClose    int64    `json:"start_to_close_timeout,omitempty"`
	ScheduleToStart int64    `json:"schedule_to_start_timeout,omitempty"`
	ScheduleToClose int64    `json:"schedule_to_close_timeout,omitempty"`
	Heartbeat       int64    `json:"heartbeat_timeout,omitempty"`
	MaxBlamed       int      `json:"max_blamed_losses,omitempty"`
	ExecutionMode   string   `json:"execution_mode,omitempty"` // as in Attempt
	// CancellationPolicy is the policy of the command; absent: try_cancel.
	CancellationPolicy string  `json:"cancellation_policy,omitempty"`
	Headers            Headers `json:"headers,omitempty"`
	// Borrow: the app completes the activity by lending the run a session of a pool.
	Borrow *Borrow `json:"borrow,omitempty"`
	Parallel
}

// Borrow requests a session of a pool.
type Borrow struct {
	Pool string `json:"pool"`
	// Loan is the maximum length of the loan in seconds; 0 or absent: no limit.
	Loan int64 `json:"loan_seconds,omitempty"`
}

// ActivityRetryScheduled records that an attempt ended and that another one will follow.
type ActivityRetryScheduled struct {
	Sequence     int64  `json:"sequence"`
	ExecutionID  string `json:"activity_execution_id"`
	ActivityType string `json:"activity_type"`
	AvailableAt  Time   `json:"retry_available_at"`
	TimeoutKind  string `json:"timeout_kind,omitempty"`
	// BodyHash is the hash of a failure that was reported outside of a worker; see ActivityCompleted.
	BodyHash string `json:"body_hash,omitempty"`
	// Redriven: the run began with a copy of the history of an earlier run (a redrive or a reset), and the activity begins
	// again with its first attempt
	Redriven bool `json:"redriven,omitempty"`
	Attempt
	Failure
	Parallel
}

// ActivityCompleted resolves an activity with its result.
type ActivityCompleted struct {
	Sequence     int64  `json:"sequence"`
	ExecutionID  string `json:"activity_execution_id"`
	ActivityType string `json:"activity_type"`
	Result       string `json:"result,omitempty"`
	PayloadCodec string `json:"payload_codec,omitempty"`
	// hash of the accepted completion: the same completion again gets the first response
	BodyHash string `json:"body_hash,omitempty"`
	// hash of the accepted eager workflow task: the events after this one belong to the workflow task that the result
	// would have caused
	EagerHash string `json:"then_hash,omitempty"`
	// set for an activity in a session with an eager workflow task: time at which the app recorded it; the event's time is
	// the worker's
	RecordedAt Time `json:"taken_at,omitzero"`
	Recovered  int  `json:"recovered,omitempty"` // rebuilds that ran inside this attempt
	// run in which the activity ran, and its execution ID there, if this event is a copy
	ReusedFrom      string `json:"reused_from_run_id,omitempty"`
	ReusedExecution string `json:"reused_activity_execution_id,omitempty"`
	Attempt
	Parallel
}

// ActivityFailed ends an activity with a failure that the workflow may catch.
type ActivityFailed struct {
	Sequence     int64  `json:"sequence"`
	ExecutionID  string `json:"activity_execution_id"`
	ActivityType string `json:"activity_type"`
	BodyHash     string `json:"body_hash,omitempty"`
	Attempt
	Failure
	Parallel
}

// TypeActivityTimeout is the type of the failure of an activity that ran out of time, whether its worker or the app
// noticed it first.
const TypeActivityTimeout = "ActivityTimeout"

// ActivityTimedOut ends an activity by one of its timeouts: schedule_to_start, start_to_close, schedule_to_close or
// heartbeat.
type ActivityTimedOut struct {
	Sequence     int64  `json:"sequence"`
	ExecutionID  string `json:"activity_execution_id"`
	ActivityType string `json:"activity_type"`
	TimeoutKind  string `json:"timeout_kind"`
	BodyHash     string `json:"body_hash,omitempty"` // hash of the worker's report, if a worker reported the timeout
	Attempt
	Failure
	Parallel
}

// ActivityCancelled ends an activity because its run closed or the workflow cancelled it.
type ActivityCancelled struct {
	Sequence     int64  `json:"sequence"`
	ExecutionID  string `json:"activity_execution_id"`
	ActivityType string `json:"activity_type"`
	Reason       string `json:"reason,omitempty"`
	Attempt
	Parallel
}

// ActivityCancelRequested records a cancel_activity command. Effect is "cancelled"; "requested" if the activity ends
// only when its worker has stopped it; "abandoned" if its worker is not requested to stop it; or "too_late" if the
// activity had already ended.
type ActivityCancelRequested struct {
	CommandSequence int64  `json:"command_sequence"` // 0: the activity was cancelled as a member of a selection
	Target          int64  `json:"target"`
	Effect          string `json:"effect"`
}

// TimerScheduled opens a durable timer. Kind is empty for a timer of the workflow's code, and condition_timeout or
// signal_timeout for the timeout of a wait.
type TimerScheduled struct {
	Sequence        int64  `json:"sequence"`
	TimerID         string `json:"timer_id"`
	Delay           int64  `json:"delay_seconds"`
	DelayMicros     int64  `json:"delay_micros,omitempty"` // the exact length when it is no whole number of seconds
	FireAt          Time   `json:"fire_at"`
	Kind            string `json:"timer_kind,omitempty"`
	ConditionWaitID string `json:"condition_wait_id,omitempty"`
	Occurrence      string `json:"condition_wait_occurrence_id,omitempty"`
	SignalWaitID    string `json:"signal_wait_id,omitempty"`
	Parallel
}

// TimerFired resolves a timer.
type TimerFired struct {
	Sequence int64  `json:"sequence"`
	TimerID  string `json:"timer_id"`
	Delay    int64  `json:"delay_seconds"`
	Kind     string `json:"timer_kind,omitempty"`
	Parallel
}

// TimerCancelled ends a timer without firing.
type TimerCancelled struct {
	Sequence int64  `json:"sequence"`
	TimerID  string `json:"timer_id"`
	Kind     string `json:"timer_kind,omitempty"`
	Parallel
}

// TimerCancelRequested records a cancel_timer command; Effect is "cancelled" or "too_late".
type TimerCancelRequested struct {
	CommandSequence int64  `json:"command_sequence"`
	Target          int64  `json:"target"`
	Effect          string `json:"effect"`
}

// SignalReceived records a signal; Value is the argument-array blob exactly as the caller sent it.
type SignalReceived struct {
	SignalName   string       `json:"signal_name"`
	SignalID     string       `json:"workflow_signal_id,omitempty"`
	Value        string       `json:"value,omitempty"`
	PayloadCodec string       `json:"payload_codec,omitempty"`
	RequestID    string       `json:"request_id,omitempty"`
	Identity     string       `json:"identity,omitempty"`
	Headers      Headers      `json:"headers,omitempty"`
	Trace        TraceContext `json:"observability_context,omitzero"` // of the sender
}

// SignalWaitOpened records that the workflow waits for a signal.
type SignalWaitOpened struct {
	Sequence     int64  `json:"sequence"`
	SignalName   string `json:"signal_name"`
	SignalWaitID string `json:"signal_wait_id"`
	Timeout      int64  `json:"timeout_seconds,omitempty"`
	Buffers      bool   `json:"buffers_signals,omitempty"`
	Parallel
}

// SignalApplied records that a signal resolved the wait of Sequence. It is written when the workflow task that the
// signal caused completes.
type SignalApplied struct {
	Sequence     int64  `json:"sequence,omitempty"`
	SignalName   string `json:"signal_name"`
	SignalWaitID string `json:"signal_wait_id,omitempty"`
	SignalID     string `json:"workflow_signal_id,omitempty"`
	Value        string `json:"value,omitempty"`
	PayloadCodec string `json:"payload_codec,omitempty"`
	Parallel
}

// SideEffectRecorded records a value that the workflow computed once.
type SideEffectRecorded struct {
	Sequence     int64  `json:"sequence"`
	Result       string `json:"result,omitempty"`
	PayloadCodec string `json:"payload_codec,omitempty"`
}

// VersionMarkerRecorded records the version of a code change that the run uses.
type VersionMarkerRecorded struct {
	Sequence     int64  `json:"sequence"`
	ChangeID     string `json:"change_id"`
	Version      int    `json:"version"`
	MinSupported int    `json:"min_supported"`
	MaxSupported int    `json:"max_supported"`
}

// SignalSent records a signal_workflow command.
type SignalSent struct {
	CommandSequence int64  `json:"command_sequence"`
	WorkflowID      string `json:"workflow_id"`
	SignalName      string `json:"signal_name"`
}

// SessionStarted records a start_session command: a workflow-scoped session without an owner.
type SessionStarted struct {
	CommandSequence int64           `json:"command_sequence"`
	SessionID       string          `json:"session_id"`
	Options         json.RawMessage `json:"options,omitempty"`
	// SessionDefinition is the name of the session's definition that the command named.
	SessionDefinition string `json:"session_definition,omitempty"`
}

// SessionEnded records an end_session command; Effect is "ended", or "already_ended" the second time. Histories of
// older builds have "already_ended" also for a session that was never started.
type SessionEnded struct {
	CommandSequence int64  `json:"command_sequence,omitempty"`
	SessionID       string `json:"session_id"`
	Effect          string `json:"effect"`
}

// SessionRecovered records that the session's state was missing in an attempt of an activity, and that the attempt ran
// or awaited a rebuild. It precedes the event that ends the attempt and comes from the worker's report or, if there was
// none, from its heartbeats. Outcome is the result of the rebuild.
type SessionRecovered struct {
	CommandSequence int64  `json:"command_sequence"` // of the activity
	SessionID       string `json:"session_id"`
	Epoch           int64  `json:"epoch"`
	Rebuild         string `json:"rebuild_activity"`
	Cause           string `json:"cause,omitempty"`
	Reason          string `json:"reason,omitempty"`  // missing_state, or the end of the executor
	Retries         int    `json:"retries"`           // of the activity, after a rebuild
	Outcome         string `json:"outcome,omitempty"` // rebuilt; failed or cancelled: the attempt ended with the rebuild
}

// The outcomes of a set-up. An attempt that ended during a set-up has the outcome cancelled.
const (
	SetUpCompleted = "completed"
	SetUpFailed    = "failed"
	SetUpCancelled = "cancelled"
)

// SessionSetUp records that a worker ran the set-up of a session by its definition in an attempt of an activity. It
// precedes the event that ends the attempt and comes from the worker's report or, if there was none, from its
// heartbeats. Attempts that waited for the set-up of another attempt have no such event.
type SessionSetUp struct {
	CommandSequence int64   `json:"command_sequence"` // of the activity
	SessionID       string  `json:"session_id"`
	Epoch           int64   `json:"epoch"`
	Definition      string  `json:"definition"`
	Outcome         string  `json:"outcome"` // completed, failed, cancelled
	Seconds         float64 `json:"set_up_seconds,omitempty"`
	Reason          string  `json:"reason,omitempty"` // why the state was missing; absent: the first epoch
	Cause           string  `json:"cause,omitempty"`  // error of a set-up that failed
}

// WorkflowContinuedAsNew closes a run that continues as a new run of the same workflow ID.
type WorkflowContinuedAsNew struct {
	Sequence     int64  `json:"sequence"`
	NewRunID     string `json:"continued_to_run_id"`
	NewRunNumber int64  `json:"continued_to_run_number"`
	ClosedReason string `json:"closed_reason"`
}

// WorkflowCompleted closes a run with its result.
type WorkflowCompleted struct {
	Output       string `json:"output,omitempty"`
	PayloadCodec string `json:"payload_codec,omitempty"`
}

// WorkflowFailed closes a run with a failure.
type WorkflowFailed struct {
	SourceKind string `json:"source_kind,omitempty"`
	SourceID   string `json:"source_id,omitempty"`
	Failure
}

// WorkflowCancelled closes a run that an operator cancelled, or whose code ended after a cancellation request.
type WorkflowCancelled struct {
	Reason       string `json:"reason,omitempty"`
	ClosedReason string `json:"closed_reason"`
	Failure
}

// WorkflowTerminated closes a run that an operator terminated.
type WorkflowTerminated struct {
	Reason       string `json:"reason,omitempty"`
	ClosedReason string `json:"closed_reason"`
	// NewRunID is the run that continues this one after a reset; absent: none
	NewRunID string `json:"continued_to_run_id,omitempty"`
	Failure
}

// WorkflowTimedOut closes a run whose run or execution deadline passed.
type WorkflowTimedOut struct {
	// run_timeout, execution_timeout; of an activity run the time-out of its activity
	TimeoutKind       string `json:"timeout_kind"`
	RunDeadline       Time   `json:"run_deadline_at,omitzero"`
	ExecutionDeadline Time   `json:"execution_deadline_at,omitzero"`
	Failure
}

// CancelRequested precedes WorkflowCancelled and has the caller's identity.
type CancelRequested struct {
	CommandID string       `json:"workflow_command_id,omitempty"`
	Reason    string       `json:"reason,omitempty"`
	Identity  string       `json:"identity,omitempty"`
	Trace     TraceContext `json:"observability_context,omitzero"` // of the caller
}

// TerminateRequested precedes WorkflowTerminated and has the caller's identity.
type TerminateRequested struct {
	CommandID string `json:"workflow_command_id,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Identity  string `json:"identity,omitempty"`
}

// WorkflowCancellationRequested cancels the root context of the workflow's code. The code decides how it ends.
type WorkflowCancellationRequested struct {
	Reason   string       `json:"reason,omitempty"`
	Identity string       `json:"identity,omitempty"`
	Trace    TraceContext `json:"observability_context,omitzero"` // of the caller
}

// RepairRequested ends the quarantine of a run.
type RepairRequested struct {
	Identity string `json:"identity,omitempty"`
	Was      string `json:"was,omitempty"` // why the run was quarantined
}
