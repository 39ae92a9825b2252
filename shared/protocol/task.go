package protocol

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// Task is a task in the response to a poll. Exactly one member besides Kind is set.
type Task struct {
	Kind       TaskKind        `json:"kind"`
	Workflow   *WorkflowTask   `json:"workflow,omitempty"`
	Activity   *ActivityTask   `json:"activity,omitempty"`
	Query      *QueryTask      `json:"query,omitempty"`
	Validation *ValidationTask `json:"update_validation,omitempty"`
}

// WorkflowTask is a workflow task. Its history may be the first page only.
type WorkflowTask struct {
	Kind         TaskKind        `json:"task_kind,omitempty"` // in responses to polls for several kinds
	TaskID       string          `json:"task_id"`             // ID in the paths of the task's routes
	WorkflowID   string          `json:"workflow_id"`
	RunID        string          `json:"run_id"`
	Namespace    string          `json:"namespace,omitempty"`
	Attempt      int64           `json:"workflow_task_attempt"` // number of the delivery, a fencing token
	WorkflowType string          `json:"workflow_type"`
	PayloadCodec string          `json:"payload_codec"` // always "avro"
	Arguments    payload.Payload `json:"arguments"`     // list of the run's arguments
	// headers of the run's start; absent without the first event, which contains them as well
	Headers history.Headers `json:"headers,omitempty"`
	// trace context of the run's start
	Trace history.TraceContext `json:"observability_context,omitzero"`
	// trace contexts of the signals, updates and cancellations that the task contains
	TraceLinks   *TraceLinks     `json:"observability_links,omitempty"`
	RunStatus    string          `json:"run_status"`
	RunNumber    int64           `json:"run_number,omitempty"`
	LastSequence int64           `json:"last_history_sequence"`
	Events       []history.Event `json:"history_events"`       // the first page of the history
	TotalEvents  int64           `json:"total_history_events"` // number of events on all pages
	// OmittedSignals are events that are on no page of the task: signals that the run inherited. The worker fetches them
	// with after_sequence when the code receives signals. Only for polls with paged_signals.
	OmittedSignals *EventRange  `json:"omitted_signals,omitempty"`
	NextPageToken  *string      `json:"next_history_page_token"` // null: there is no further page
	TaskQueue      string       `json:"task_queue"`
	LeaseOwner     string       `json:"lease_owner"`
	LeaseExpiresAt history.Time `json:"lease_expires_at"` // end of the lease
	Release        string       `json:"release,omitempty"`
	FairnessClass  string       `json:"fairness_class,omitempty"` // fairness class; set if the queue has fairness keys
	Resume
}

// EventRange is a range of events of a history.
type EventRange struct {
	First int64 `json:"first" minimum:"1"`
	Last  int64 `json:"last" minimum:"1"`
}

// Resume is the cause of a workflow task; members are null if they do not apply.
type Resume struct {
	WaitKind   *string `json:"workflow_wait_kind"`
	OpenWaitID *string `json:"open_wait_id"`
	// activity, timer, child, workflow_signal, workflow_update, condition, …
	SourceKind        *string          `json:"resume_source_kind"`
	SourceID          *string          `json:"resume_source_id"`
	UpdateID          *string          `json:"workflow_update_id"` // the update to complete
	SignalID          *string          `json:"workflow_signal_id"`
	SignalName        *string          `json:"signal_name"`
	SignalWaitID      *string          `json:"signal_wait_id"`
	SignalArguments   *payload.Payload `json:"signal_arguments,omitempty"` // list of arguments of the signal that resolved the wait
	CommandID         *string          `json:"workflow_command_id"`
	ActivityID        *string          `json:"activity_execution_id"`
	ActivityAttemptID *string          `json:"activity_attempt_id"`
	ActivityType      *string          `json:"activity_type"`
	ChildCallID       *string          `json:"child_call_id"`
	ChildRunID        *string          `json:"child_workflow_run_id"`
	TimerID           *string          `json:"timer_id"`
	ConditionWaitID   *string          `json:"condition_wait_id"`
	ConditionKey      *string          `json:"condition_key"`
	Fingerprint       *string          `json:"condition_definition_fingerprint"`
	Sequence          *int64           `json:"workflow_sequence"`   // command sequence of the step that ended
	EventType         *string          `json:"workflow_event_type"` // type of the event that caused the task
}

// ActivityTask is one attempt of an activity. ExecutionID is the idempotency key offered to user code, AttemptID
// identifies this attempt.
type ActivityTask struct {
	TaskID         string          `json:"task_id"` // ID in the paths of the task's routes
	WorkflowID     string          `json:"workflow_id"`
	RunID          string          `json:"run_id"`
	Namespace      string          `json:"namespace,omitempty"`
	ExecutionID    string          `json:"activity_execution_id"`
	AttemptID      string          `json:"activity_attempt_id"` // required in every report of the attempt
	IdempotencyKey string          `json:"idempotency_key"`     // the same in all attempts
	Attempt        int             `json:"attempt_number"`      // 1, 2, 3, …
	ActivityType   string          `json:"activity_type"`
	PayloadCodec   string          `json:"payload_codec"`
	Arguments      payload.Payload `json:"arguments"`         // list of arguments
	Headers        history.Headers `json:"headers,omitempty"` // of the command that scheduled the activity
	// trace context of the run's start
	Trace       history.TraceContext `json:"observability_context,omitzero"`
	RetryPolicy *retry.Policy        `json:"retry_policy,omitempty"`
	TaskQueue   string               `json:"task_queue"`
	LeaseOwner  string               `json:"lease_owner"`
	// end of the lease; heartbeats extend it
	LeaseExpiresAt history.Time     `json:"lease_expires_at"`
	Release        string           `json:"release,omitempty"`
	FairnessClass  string           `json:"fairness_class,omitempty"` // fairness class; set if the queue has fairness keys
	Deadlines      Deadlines        `json:"deadlines"`
	HeartbeatEvery int64            `json:"heartbeat_timeout,omitempty"` // seconds; 0: none
	Session        *SessionAffinity `json:"worker_session,omitempty"`    // absent outside sessions
	// LastHeartbeat has the details that an earlier attempt of the activity reported last; absent: none reported any
	LastHeartbeat *LastHeartbeat `json:"last_heartbeat,omitempty"`
	// Suspect: a worker process or executor ended while it ran this task and others, and it is not known which ended it.
	Suspect bool `json:"suspect,omitempty"`
	// For a worker that polls with eager workflow tasks: the run's last event, and, if the run is in the worker's sticky
	// cache, the events after the last one that it has seen.
	LastSequence int64           `json:"last_history_sequence,omitempty"`
	Unseen       []history.Event `json:"unseen_events,omitempty"`
}

// LastHeartbeat is what the latest attempt that ended and had sent heartbeats with details left for the attempts after
// it.
type LastHeartbeat struct {
	// Details are the details of the last heartbeat that had any. If that heartbeat also had message, current, total or
	// unit, details are an object with all of them.
	Details json.RawMessage `json:"details"`
	At      history.Time    `json:"at"`             // time of the last heartbeat of that attempt
	Attempt int             `json:"attempt_number"` // of the attempt that sent it
}

// HeartbeatDetails returns the value that activity code passed to its heartbeat, from the progress of the heartbeat. An
// object whose only member is details stands for the value of details.
func HeartbeatDetails(progress json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(progress, &members) != nil || len(members) != 1 || members["details"] == nil {
		return progress
	}
	return members["details"]
}

// Deadlines are the deadlines of an attempt; null: none.
type Deadlines struct {
	ScheduleToStart history.Time `json:"schedule_to_start"`
	StartToClose    history.Time `json:"start_to_close"`
	ScheduleToClose history.Time `json:"schedule_to_close"`
	Heartbeat       history.Time `json:"heartbeat"`
}

// SessionAffinity is the session an attempt runs in. Epoch is the fencing token: it rises with every
// acquisition. IsNew is true for the first task of an epoch.
type SessionAffinity struct {
	SessionID    string   `json:"session_id"`
	Epoch        int64    `json:"epoch"`
	IsNew        bool     `json:"is_new"`
	Origin       string   `json:"door,omitempty"`
	Queue        string   `json:"queue,omitempty"`
	Requirements []string `json:"requirements"`
	Lease        int64    `json:"lease_seconds"`
	// the leases of the session and of its attempts are at most 10 s
	FailFast bool  `json:"fail_fast,omitempty"`
	TTL      int64 `json:"ttl_seconds,omitempty"`
	// absent: the owner's setting, by default its number of slots
	MaxActivities  int          `json:"max_concurrent_activities,omitempty"`
	Create         bool         `json:"create_if_missing"`
	Reacquire      bool         `json:"allow_reacquire_after_failure"`
	Status         string       `json:"status"`
	LeaseOwner     string       `json:"lease_owner"`
	LeaseExpiresAt history.Time `json:"lease_expires_at"`
	TTLExpiresAt   history.Time `json:"ttl_expires_at"`
	LastEnd        string       `json:"last_end,omitempty"` // why the previous epoch ended
	Definition     string       `json:"definition,omitempty"`
	OnLost         string       `json:"on_lost,omitempty"` // that of the definition; absent: set_up
	// Arguments are the stored arguments of the definition, until a worker has reported the set-up of this epoch.
	Arguments payload.Payload `json:"definition_arguments,omitzero"`
	// PreparedFor is the epoch for which this worker prepared the state before it acquired the session; absent: it did
	// not.
	PreparedFor int64 `json:"prepared_for_epoch,omitempty"`
	// Snapshot is the state that the previous owner stored, until a worker has reported the set-up of this epoch.
	Snapshot *SessionSnapshot `json:"snapshot,omitempty"`
}

// QueryTask requests a worker to query the state of a run, which must not change.
type QueryTask struct {
	TaskID            string          `json:"query_task_id"`
	Attempt           int64           `json:"query_task_attempt"`
	WorkflowID        string          `json:"workflow_id"`
	RunID             string          `json:"run_id"`
	Namespace         string          `json:"namespace,omitempty"`
	WorkflowType      string          `json:"workflow_type"`
	QueryName         string          `json:"query_name"`
	PayloadCodec      string          `json:"payload_codec"`
	WorkflowArguments payload.Payload `json:"workflow_arguments"`
	QueryArguments    payload.Payload `json:"query_arguments"`
	Headers           history.Headers `json:"headers,omitempty"` // of the query
	Events            []history.Event `json:"history_events"`
	TotalEvents       int64           `json:"total_history_events"`
	NextPageToken     *string         `json:"next_history_page_token,omitempty"` // only to workers that page
	RunStatus         string          `json:"run_status"`
	TaskQueue         string          `json:"task_queue"`
	LeaseOwner        string          `json:"lease_owner"`
	LeaseExpiresAt    history.Time    `json:"lease_expires_at"`
}

// ValidationTask requests a worker to run the validator of an update on the current history. The update is accepted
// afterwards.
type ValidationTask struct {
	Kind              TaskKind        `json:"task_kind"`
	TaskID            string          `json:"update_validation_task_id"`
	Attempt           int64           `json:"update_validation_attempt"`
	WorkflowID        string          `json:"workflow_id"`
	RunID             string          `json:"run_id"`
	Namespace         string          `json:"namespace,omitempty"`
	WorkflowType      string          `json:"workflow_type"`
	UpdateName        string          `json:"update_name"`
	PayloadCodec      string          `json:"payload_codec"`
	WorkflowArguments payload.Payload `json:"workflow_arguments"`
	UpdateArguments   payload.Payload `json:"update_arguments"`
	Headers           history.Headers `json:"headers,omitempty"` // of the update
	Events            []history.Event `json:"history_events"`
	TotalEvents       int64           `json:"total_history_events"`
	NextPageToken     *string         `json:"next_history_page_token,omitempty"` // only to workers that page
	RunStatus         string          `json:"run_status"`
	TaskQueue         string          `json:"task_queue"`
	LeaseOwner        string          `json:"lease_owner"`
	LeaseExpiresAt    history.Time    `json:"lease_expires_at"`
}

// Failure is the failure of an activity attempt or a workflow task, as reported by the worker.
type Failure struct {
	Message      string          `json:"message"`
	Type         string          `json:"type,omitempty"`
	Class        string          `json:"class,omitempty"`
	Code         json.RawMessage `json:"code,omitempty"`
	Kind         string          `json:"kind,omitempty"` // timeout, session_lost, …
	TimeoutType  string          `json:"timeout_type,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	StackTrace   string          `json:"stack_trace,omitempty"`
	NonRetryable bool            `json:"non_retryable,omitempty"`
	Retryable    *bool           `json:"retryable,omitempty"`
	Cancelled    bool            `json:"cancelled,omitempty"`
	Sequence     int64           `json:"sequence,omitempty"` // of a workflow task: the command at which the code failed
	Details      json.RawMessage `json:"details,omitempty"`  // an envelope, kept verbatim
	Errors       json.RawMessage `json:"validation_errors,omitempty"`
	// Diagnostics of an activity are stored in the exception of its event, up to 16 KiB.
	Diagnostics json.RawMessage `json:"diagnostics,omitempty"`
}

// FailureWaiting is the type of a workflow task failure that is not an error: the task had no new events for the
// workflow.
const FailureWaiting = "WorkflowTaskWaitingForHistory"
