package protocol

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// MaxWorkflowID is the maximum length of a workflow ID in bytes of UTF-8.
const MaxWorkflowID = 255

// IsWorkflowID reports whether a text is valid as a workflow ID. It must fit into one segment of a path after encoding:
// clients and proxies resolve "." and "..", and routers read "/" as the end of a path. Control characters are invalid
// because people cannot type them.
func IsWorkflowID(id string) bool {
	return id != "" && len(id) <= MaxWorkflowID && id != "." && id != ".." && id != "/" && utf8.ValidString(id) &&
		!strings.ContainsFunc(id, unicode.IsControl)
}

// StartRequest starts a workflow. Input is an envelope, or a plain JSON array of arguments that the app encodes.
type StartRequest struct {
	Namespace string `json:"namespace,omitempty"`
	// generated if empty
	WorkflowID       string          `json:"workflow_id,omitempty" pattern:"^[^#?\\x00-\\x1f\\x7f-\\x9f]{1,255}$"`
	WorkflowType     string          `json:"workflow_type" minLength:"1" maxLength:"255"`
	TaskQueue        string          `json:"task_queue,omitempty" maxLength:"255"` // default "default"
	Input            json.RawMessage `json:"input,omitempty"`
	BusinessKey      string          `json:"business_key,omitempty" maxLength:"255"`
	Memo             json.RawMessage `json:"memo,omitempty"`
	SearchAttributes json.RawMessage `json:"search_attributes,omitempty"`
	// the first event and the tasks of the run contain them
	Headers history.Headers `json:"headers,omitempty"`
	// span of the caller: the first event and the tasks of the run contain it
	Trace history.TraceContext `json:"observability_context,omitzero"`
	// fail (default), use-existing; not together with conflict_policy
	DuplicatePolicy string `json:"duplicate_policy,omitempty" enum:"fail,use-existing"`
	// whether the ID of a closed run may be used again: reject (default), allow-after-failure (the run failed, timed
	// out, was cancelled or terminated), allow
	ReusePolicy string `json:"reuse_policy,omitempty" enum:"reject,allow-after-failure,allow"`
	// what a start does if a run of the ID is open: fail (default), use-existing returns that run, terminate-existing
	// ends it and starts a new run
	ConflictPolicy   string `json:"conflict_policy,omitempty" enum:"fail,use-existing,terminate-existing"`
	ExecutionTimeout int64  `json:"execution_timeout_seconds,omitempty" minimum:"0" maximum:"315360000"`
	RunTimeout       int64  `json:"run_timeout_seconds,omitempty" minimum:"0" maximum:"315360000"`
	PayloadCodec     string `json:"payload_codec,omitempty" enum:"avro"`
	Priority         *int   `json:"priority,omitempty" minimum:"0" maximum:"9"` // 0 first … 9 last, default 5
	FairnessKey      string `json:"fairness_key,omitempty" pattern:"^[A-Za-z0-9._:-]{1,64}$"`
	FairnessWeight   int    `json:"fairness_weight,omitempty" minimum:"0" maximum:"1000"`
	StartDelay       int64  `json:"start_delay_seconds,omitempty" minimum:"0" maximum:"315360000"`
	Cron             string `json:"cron,omitempty"`          // creates a schedule with this ID instead of a run
	CronTimezone     string `json:"cron_timezone,omitempty"` // default UTC
	// BuildID pins the run to a build; default: the queue's promoted build. The contract calls the same value
	// compatibility; a request may use either name.
	BuildID       string `json:"build_id,omitempty" maxLength:"255"`
	Compatibility string `json:"compatibility,omitempty" maxLength:"255"`
	// hold the response until the run, or the run that continues it, has closed; 0: do not wait
	WaitSeconds int64 `json:"wait_seconds,omitempty" minimum:"0" maximum:"60"`
	// IdempotencyKey is the header Idempotency-Key, at most 255 bytes: a repeated start with the same key returns the
	// run that it started. Empty: none; the client generates one.
	IdempotencyKey string `json:"-"`
	Identity       string `json:"-"`
}

// StartResponse identifies the run that was started or that exists already.
type StartResponse struct {
	WorkflowID   string  `json:"workflow_id"`
	RunID        string  `json:"run_id"`
	WorkflowType string  `json:"workflow_type"`
	Namespace    string  `json:"namespace"`
	Status       string  `json:"status"`
	BusinessKey  *string `json:"business_key"`
	PayloadCodec string  `json:"payload_codec"`
	// started_new, returned_existing_active; with cron schedule_created, returned_existing_schedule
	Outcome    string    `json:"outcome"`
	ScheduleID string    `json:"schedule_id,omitempty"`
	Warnings   []Warning `json:"warnings,omitempty"`
	New        bool      `json:"-"`
	// Repeated means that an earlier request with the same Idempotency-Key started the run, which may have closed
	// since.
	Repeated bool `json:"-"`
}

// StartResult is the response to a start with WaitSeconds: the run as the result routes show it, and the outcome of the
// start. The run is open if the wait ended first. If the run continued as new, it is the last run of the chain.
type StartResult struct {
	RunView
	Outcome  string    `json:"outcome" enum:"started_new,returned_existing_active"`
	Warnings []Warning `json:"warnings,omitempty"`
}

// Target names a workflow's current run, or one run of it.
type Target struct {
	Namespace  string `json:"namespace,omitempty"`
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id,omitempty"`
}

// SignalRequest sends a signal. A repeated request with the same RequestID returns the first receipt; the app rejects
// it if its content differs.
type SignalRequest struct {
	Target
	SignalName string          `json:"signal_name" minLength:"1" maxLength:"255"`
	Input      json.RawMessage `json:"input,omitempty"`
	// not compared with those of an earlier request of the same RequestID
	Headers   history.Headers      `json:"headers,omitempty"`
	Trace     history.TraceContext `json:"observability_context,omitzero"` // span of the sender
	RequestID string               `json:"request_id,omitempty" maxLength:"255"`
	Identity  string               `json:"-"`
}

// EndRequest cancels, terminates, repairs or archives a run, or requests its cancellation.
type EndRequest struct {
	Target
	Reason string `json:"reason,omitempty" maxLength:"1000"` // for people
	// span of the caller; stored by cancel and request-cancellation
	Trace     history.TraceContext `json:"observability_context,omitzero"`
	RequestID string               `json:"request_id,omitempty" maxLength:"255"`
	Identity  string               `json:"-"`
}

// RedriveRequest continues a failed run as a new run.
type RedriveRequest struct {
	Target
	// a repeated request with the same ID returns the first response
	RequestID string `json:"request_id,omitempty" maxLength:"255"`
	Identity  string `json:"-"`
}

// RedriveReceipt is the response to the redrive of a run. RunID is the ID of the new run, and the outcome is redriven.
type RedriveReceipt struct {
	CommandReceipt
	ContinuedFrom string `json:"continued_from_run_id"` // the failed run
	// ResumeSequence is the number of the first command that the new run executes; earlier commands have the results of
	// the failed run.
	ResumeSequence int64 `json:"resume_step_sequence"`
}

// ResetTo names a workflow task of a run, at whose end a reset continues.
type ResetTo string

// These are the workflow tasks that a reset can name without an event number.
const (
	ResetToFirstTask ResetTo = "first_task"
	ResetToLastTask  ResetTo = "last_task"
)

// ResetRequest continues a run from the end of one of its workflow tasks as a new run. Either Event or To is set.
type ResetRequest struct {
	Target
	// number of the last event that a workflow task of the run recorded
	Event int64 `json:"event,omitempty" minimum:"1"`
	// instead of event: the end of the first or last workflow task that recorded events and left the run open
	To     ResetTo `json:"to,omitempty" enum:"first_task,last_task"`
	Reason string  `json:"reason,omitempty" maxLength:"1000"` // for people
	// false: drop signals, unanswered updates and outcomes of awakeables that arrived after the event; absent: true, the
	// new run receives them
	Reapply *bool `json:"reapply,omitempty"`
	// a repeated request with the same ID returns the first response
	RequestID string `json:"request_id,omitempty" maxLength:"255"`
	Identity  string `json:"-"`
}

// Check refuses a request without a point or with two points, and members that exceed their limits.
func (r *ResetRequest) Check() error {
	if err := CheckLimits(*r); err != nil {
		return err
	}
	switch {
	case (r.Event == 0) == (r.To == ""):
		return Invalid("event", "is required, or to; not both")
	case r.Event < 0:
		return Invalid("event", "must be at least 1")
	case r.To != "" && r.To != ResetToFirstTask && r.To != ResetToLastTask:
		return Invalid("to", "must be %s or %s", ResetToFirstTask, ResetToLastTask)
	}
	return nil
}

// ResetReceipt is the response to the reset of a run. RunID is the ID of the new run, and the outcome is reset.
type ResetReceipt struct {
	CommandReceipt
	ContinuedFrom string `json:"continued_from_run_id"` // the run that was reset
	Event         int64  `json:"event"`                 // last copied event
}

// RunDeletion is a request to delete a closed run.
type RunDeletion struct {
	Target
	Reason   string `json:"reason,omitempty" maxLength:"1000"` // for people; the audit entry has it
	Identity string `json:"-"`
}

// DeletedRun is the response to the deletion of a run.
type DeletedRun struct {
	WorkflowID    string `json:"workflow_id"`
	RunID         string `json:"run_id"`
	WorkflowType  string `json:"workflow_type"`
	Outcome       string `json:"outcome"`         // deleted
	HistoryLength int64  `json:"history_length"`  // events deleted
	Sessions      int    `json:"worker_sessions"` // ended sessions deleted, which the run's code had started
	// CurrentRunID is the current run of the workflow ID after the deletion; null: the ID is free.
	CurrentRunID *string `json:"current_run_id"`
}

// CommandReceipt is the response to signal, cancel, terminate, request-cancellation, repair, archive, redrive and
// reset.
type CommandReceipt struct {
	// signal_received, cancelled, terminated, cancellation_requested, repair_dispatched, repair_not_needed, archived,
	// archive_not_needed, redriven, reset
	Outcome      string `json:"outcome"`
	WorkflowID   string `json:"workflow_id"`
	RunID        string `json:"run_id"`
	WorkflowType string `json:"workflow_type"`
	CommandID    string `json:"command_id"`
	Status       string `json:"command_status"` // accepted
	SignalName   string `json:"signal_name,omitempty"`
	UpdateID     string `json:"update_id,omitempty"`
	Retained     bool   `json:"retained,omitempty"` // the request_id was used before; this is the first receipt
}

// Retain marks the receipt as the stored one of an earlier request.
func (r *CommandReceipt) Retain() { r.Retained = true }

// RunView is a run in the responses of describe and lists.
type RunView struct {
	WorkflowID   string  `json:"workflow_id"`
	RunID        string  `json:"run_id"`
	Namespace    string  `json:"namespace"`
	Kind         string  `json:"kind" enum:"workflow,activity"`
	WorkflowType string  `json:"workflow_type"` // of an activity run, the activity type
	BusinessKey  *string `json:"business_key"`
	Status       string  `json:"status" enum:"pending,running,waiting,completed,failed,cancelled,terminated"`
	StatusBucket string  `json:"status_bucket" enum:"running,completed,failed"`
	Terminal     bool    `json:"is_terminal"`
	ClosedReason *string `json:"closed_reason"`
	TaskQueue    string  `json:"task_queue"`
	RunNumber    int64   `json:"run_number"`
	RunCount     int64   `json:"run_count"` // of the run's chain; in lists the number of the run
	// first run of the chain of runs; absent in the first chain of the workflow ID
	ChainRunID        *string          `json:"chain_run_id,omitempty"`
	Current           bool             `json:"is_current_run"`
	Compatibility     *string          `json:"compatibility"` // the build id that the run is pinned to, or null
	PayloadCodec      string           `json:"payload_codec"`
	ExecutionTimeout  *int64           `json:"execution_timeout_seconds"`
	RunTimeout        *int64           `json:"run_timeout_seconds"`
	ExecutionDeadline history.Time     `json:"execution_deadline_at"`
	RunDeadline       history.Time     `json:"run_deadline_at"`
	Input             json.RawMessage  `json:"input,omitempty"`
	Output            json.RawMessage  `json:"output,omitempty"`
	InputEnvelope     *payload.Payload `json:"input_envelope,omitempty"`
	OutputEnvelope    *payload.Payload `json:"output_envelope"`
	StartedAt         history.Time     `json:"started_at"`
	ClosedAt          history.Time     `json:"closed_at"`
	LastProgressAt    history.Time     `json:"last_progress_at"`
	WaitKind          *string          `json:"wait_kind"`
	WaitReason        *string          `json:"wait_reason"`    // why this run waits, for people
	Wait              *Wait            `json:"wait,omitempty"` // wait_reason for programs
	Memo              json.RawMessage  `json:"memo"`
	SearchAttributes  json.RawMessage  `json:"search_attributes"`
	HistoryLength     int64            `json:"history_length"`
	Failure           json.RawMessage  `json:"failure,omitempty"`
	// of a run that timed out: run_timeout or execution_timeout; of an activity run: the timeout of its activity
	Reason           string       `json:"reason,omitempty"`
	Error            *string      `json:"error,omitempty"`
	ErrorType        string       `json:"error_type,omitempty"` // class of the error, as named by the code
	ArchivedAt       history.Time `json:"archived_at"`          // null unless archived
	ArchiveReason    string       `json:"archive_reason,omitempty"`
	Quarantined      *string      `json:"blocked_reason,omitempty"`
	Stuck            *RunStuck    `json:"stuck,omitempty"` // set while the run makes no progress and needs an operator
	Actions          *RunActions  `json:"actions,omitempty"`
	Pending          *Pending     `json:"pending,omitempty"`
	ParentWorkflowID *string      `json:"parent_workflow_id,omitempty"`
	ParentRunID      *string      `json:"parent_run_id,omitempty"`
	// with values=preview or none: values that the response does not contain whole, by member
	Truncated Truncated `json:"truncated,omitempty"`
}

// RunStuck is the reason why a run makes no progress, and since when: its workflow task is quarantined or failed three
// times in a row, or one of its tasks has been ready for a minute and no live worker may lease it (for 30 seconds, if
// it waits for a worker with room for its session). A change is visible within 30 seconds.
type RunStuck struct {
	Since   history.Time `json:"since"`
	Reason  WaitReason   `json:"reason"` // from the list of wait reasons
	Message string       `json:"message"`
}

// Failed returns the failure of the run; empty if it did not fail. In lists it has only the class and the message.
func (v RunView) Failed() (f history.Failure) {
	brief := history.Failure{ExceptionType: v.ErrorType}
	if v.Error != nil {
		brief.Message = *v.Error
	}
	if json.Unmarshal(v.Failure, &f) != nil || f.Message != brief.Message {
		return brief
	}
	return f
}

// IsClosed reports whether the run has closed.
func (v *RunView) IsClosed() bool { return v.Terminal }

// Target identifies the run.
func (v *RunView) Target() Target { return Target{WorkflowID: v.WorkflowID, RunID: v.RunID} }

// RunActions are the operations that are possible on the run now.
type RunActions struct {
	Signal    bool `json:"can_signal"`
	Query     bool `json:"can_query"`
	Update    bool `json:"can_update"`
	Cancel    bool `json:"can_cancel"`
	Terminate bool `json:"can_terminate"`
	Repair    bool `json:"can_repair"`
	Archive   bool `json:"can_archive"`
}

// Pending lists the open steps of a run, each with the reason why it waits.
type Pending struct {
	Activities []PendingActivity `json:"activities"`
	Timers     []PendingTimer    `json:"timers"`
	Waits      []PendingWait     `json:"waits"`
	Updates    []PendingUpdate   `json:"updates"`
	Children   []PendingChild    `json:"children"`
	Sessions   []string          `json:"sessions"`
	Task       *PendingTask      `json:"workflow_task"`
	// Cancellation is the first request to cancel the run.
	Cancellation *PendingCancellation `json:"cancellation,omitempty"`
}

// PendingCancellation is a request to cancel a run that is still open.
type PendingCancellation struct {
	RequestedAt history.Time `json:"requested_at"`
	Seen        bool         `json:"seen"`            // a live worker has received the request
	Attention   bool         `json:"needs_attention"` // no live worker has received the request for a minute
	Message     string       `json:"message"`
}

// PendingActivity is an open activity.
type PendingActivity struct {
	Sequence     int64           `json:"sequence"`
	ExecutionID  string          `json:"activity_execution_id"`
	ActivityType string          `json:"activity_type"`
	TaskQueue    string          `json:"task_queue"`
	State        string          `json:"state" enum:"ready,delayed,leased,pending"`
	Attempt      int             `json:"attempt_number"`
	Worker       string          `json:"worker_id,omitempty"`
	SessionID    string          `json:"session_id,omitempty"`
	Epoch        int64           `json:"session_epoch,omitempty"`
	ScheduledAt  history.Time    `json:"scheduled_at"`
	StartedAt    history.Time    `json:"started_at"`
	NextAt       history.Time    `json:"next_attempt_at"`
	LeaseUntil   history.Time    `json:"lease_expires_at"`
	Heartbeat    history.Time    `json:"last_heartbeat_at"`
	Progress     json.RawMessage `json:"progress,omitempty"`
	// heartbeat details that the current attempt received, or the next one will receive
	LastHeartbeat *LastHeartbeat `json:"last_heartbeat,omitempty"`
	// rebuild of the session's state in the current attempt, as reported by the worker
	Rebuild     *Recovered `json:"rebuild,omitempty"`
	LastFailure string     `json:"last_failure,omitempty"`
	Stack       string     `json:"stack_trace,omitempty"` // stack trace of the last failure, truncated
	// Lost lists the deliveries of the current attempt that ended without an outcome, oldest first, at most 10.
	Lost []history.Lost `json:"lost_deliveries,omitempty"`
	Why  string         `json:"why,omitempty"`
	Wait *Wait          `json:"wait"`
	// when the worker returned without an outcome, and the token to report the outcome; absent: state is not pending
	PendingSince history.Time `json:"pending_since,omitzero"`
	Token        string       `json:"activity_token,omitempty"`
}

// PendingTimer is an open timer.
type PendingTimer struct {
	Sequence int64        `json:"sequence"`
	TimerID  string       `json:"timer_id"`
	FireAt   history.Time `json:"fire_at"`
}

// PendingWait is a signal, a condition or an awakeable that the run waits for.
type PendingWait struct {
	Sequence     int64  `json:"sequence"`
	Kind         string `json:"kind"` // signal, condition, awakeable
	SignalName   string `json:"signal_name"`
	ConditionKey string `json:"condition_key,omitempty"`
	AwakeableID  string `json:"awakeable_id,omitempty"`
}

// PendingChild is an open child workflow. FormerRun is the run that started it, if it is an earlier run of the workflow
// ID; Sequence then is a command sequence of that run.
type PendingChild struct {
	Sequence    int64  `json:"sequence"`
	CallID      string `json:"child_call_id"`
	WorkflowID  string `json:"workflow_id"`
	RunID       string `json:"run_id"`
	Type        string `json:"workflow_type"`
	ClosePolicy string `json:"parent_close_policy"`
	Attempt     int    `json:"attempt_number"`

	FormerRun string  `json:"former_run_id,omitempty"` // Sojourn only
	Attached  []int64 `json:"attached,omitempty"`      // Sojourn only: commands of this run that attached to it
}

// PendingUpdate is an accepted update without a result.
type PendingUpdate struct {
	UpdateID   string `json:"update_id"`
	UpdateName string `json:"update_name"`
	Applied    bool   `json:"applied"` // the handler began and completes the update when it returns
}

// PendingTask is the open workflow task.
type PendingTask struct {
	TaskID      string       `json:"task_id"`
	State       string       `json:"state" enum:"ready,delayed,leased,quarantined"`
	Attempt     int64        `json:"workflow_task_attempt"`
	Worker      string       `json:"worker_id,omitempty"`
	LeaseUntil  history.Time `json:"lease_expires_at"`
	Why         string       `json:"why,omitempty"`
	LastFailure string       `json:"last_failure,omitempty"` // last failure of its code
	Stack       string       `json:"stack_trace,omitempty"`  // stack trace of last_failure
	Wait        *Wait        `json:"wait"`
}

// ListRequest pages through runs, newest start first.
type ListRequest struct {
	Namespace    string `json:"namespace,omitempty"`
	WorkflowType string `json:"workflow_type,omitempty"`
	Kind         string `json:"kind,omitempty"`          // RunOfWorkflow or RunOfActivity: only such runs
	Status       string `json:"status,omitempty"`        // a bucket, running completed failed, or a stored status
	StoredStatus string `json:"stored_status,omitempty"` // exact status: failed does not include timed_out
	Query        string `json:"query,omitempty"`         // a filter, or a substring of workflow id or business key
	Stuck        bool   `json:"stuck,omitempty"`         // only stuck runs: they make no progress and need an operator
	PageSize     int    `json:"page_size,omitempty"`
	PageToken    string `json:"next_page_token,omitempty"`
	// include what each open run waits for, which reads all its open steps
	WaitReasons bool `json:"wait_reasons,omitempty"`
	// return the runs found so far if the search takes too long, instead of an error
	Partial bool `json:"partial,omitempty"`
}

// ListResponse is one page of runs.
type ListResponse struct {
	Workflows     []RunView `json:"workflows"`
	Count         int       `json:"workflow_count"`
	NextPageToken *string   `json:"next_page_token"`
	Warnings      []Warning `json:"warnings,omitempty"` // about parts of the filter that are probably a mistake
	// for an incomplete response: the search covered runs started since this time; the next page has older runs
	SearchedTo *history.Time `json:"searched_to,omitempty"`
}

// Warning describes a part of a request that was accepted but is probably a mistake.
type Warning struct {
	// unknown_attribute: neither registered in the namespace nor on any run of it; unknown_member: the route does not
	// read the member; unknown_build: no worker has registered the build; name_not_allowed: the imported name is not
	// allowed for a new run; session_missing: end_session of a session that the workflow never started
	Code    string `json:"code"`
	Subject string `json:"subject"` // the attribute, the member or the session, as the request names it
	Message string `json:"message"` // for people
}

// The codes of warnings.
const (
	WarnUnknownAttribute = "unknown_attribute"
	WarnUnknownMember    = "unknown_member"
	WarnUnknownBuild     = "unknown_build"
	WarnName             = "name_not_allowed"
	WarnSessionMissing   = "session_missing"
)

// WarningOf returns the warning about a member that a check rejects with err; none if err is nil.
func WarningOf(code, member string, err error) []Warning {
	if err == nil {
		return nil
	}
	text := err.Error()
	var e *Error
	if errors.As(err, &e) {
		text = e.Message
	}
	return []Warning{{Code: code, Subject: member, Message: text}}
}

// HistoryQuery reads a run's history. Wait holds the request until an event after the token exists, at most 30 s.
type HistoryQuery struct {
	Target
	PageSize  int    `json:"page_size,omitempty"` // default and most 1000
	PageToken string `json:"next_page_token,omitempty"`
	After     int64  `json:"after,omitempty"` // sequence of the event before the page; not with PageToken
	Wait      bool   `json:"wait_new_event,omitempty"`
}

// PreviewBytes is the maximum size of a value in a preview, in bytes.
const PreviewBytes = 4 << 10

// Values selects how a view shows encoded values.
type Values string

// The selections of values.
const (
	ValuesFull    Values = "full"    // all values, encoded
	ValuesPreview Values = "preview" // decoded values up to PreviewBytes, and the beginnings of larger ones
	ValuesNone    Values = "none"    // no values, only their sizes
)

// TruncatedValue describes a value that a response does not contain whole.
type TruncatedValue struct {
	Size    int    `json:"size_bytes"`        // of the whole value: its encoded bytes, or its JSON text
	Preview string `json:"preview,omitempty"` // beginning of its JSON text, at most 4096 bytes
	// the app cannot decode the value: the preview is the beginning of its encoded form, in Base64
	Encoded bool `json:"encoded,omitempty"`
}

// Truncated maps the names of values to the values that a response does not contain whole.
type Truncated map[string]TruncatedValue

// WorkerView is a worker in lists.
type WorkerView struct {
	WorkerID    string       `json:"worker_id"`
	Namespace   string       `json:"namespace"`
	TaskQueue   string       `json:"task_queue"`
	TaskQueues  []string     `json:"task_queues"`
	Runtime     string       `json:"runtime"`
	SDKVersion  string       `json:"sdk_version,omitempty"`
	BuildID     *string      `json:"build_id"`
	Release     string       `json:"release,omitempty"`
	Incarnation string       `json:"incarnation,omitempty"`
	Status      WorkerStatus `json:"status"`
	// reason why the release gate holds its polls; absent: it does not
	Gate          string   `json:"gate,omitempty"`
	Capabilities  []string `json:"capabilities"`
	WorkflowTypes []string `json:"supported_workflow_types"`
	ActivityTypes []string `json:"supported_activity_types"`
	WorkflowSlots int      `json:"max_concurrent_workflow_tasks"`
	ActivitySlots int      `json:"max_concurrent_activity_tasks"`
	MaxSessions   int      `json:"max_concurrent_worker_sessions"`
	// Resources are the amounts that the worker has for sessions, and the amounts that its sessions use.
	Resources map[string]ResourceUse `json:"resources,omitempty"`
	// SessionResources are the amounts that sessions of a definition use by default; "*": all sessions.
	SessionResources  map[string]Resources `json:"session_resources,omitempty"`
	MaxSetUps         int                  `json:"max_set_ups,omitempty"` // set-ups of sessions that it runs at once; absent: not declared
	Session           *SessionSettings     `json:"session_settings,omitempty"`
	HeartbeatInterval int64                `json:"heartbeat_interval_seconds"`
	LastHeartbeatAt   history.Time         `json:"last_heartbeat_at"`
	RegisteredAt      history.Time         `json:"registered_at"`
	UpdatedAt         history.Time         `json:"updated_at"`
	Machine           json.RawMessage      `json:"machine,omitempty"`
	Isolation         json.RawMessage      `json:"isolation,omitempty"`
	Slots             json.RawMessage      `json:"task_slots,omitempty"`
	Process           json.RawMessage      `json:"process_metrics,omitempty"`
	Leases            int                  `json:"active_leases"`
	WorkflowTasks     int                  `json:"active_workflow_tasks"` // of these
	Activities        int                  `json:"active_activity_tasks"`
	Sessions          int                  `json:"held_sessions"`
	Group             string               `json:"group,omitempty"` // group of the worker's token
	Drain             *WorkerDrain         `json:"drain,omitempty"` // the operator's drain, if there is one
	// Settings is the revision of the operators' settings that the worker reported; absent: it applies none.
	Settings *int64 `json:"settings_revision,omitempty"`
	// Versions identify the code of the worker's activity types, as reported by the worker.
	Versions map[string]string `json:"activity_versions,omitempty"`
	// Differs are the activity types for which another live worker of the same release and queue has different code.
	Differs []CodeDifference `json:"code_differs,omitempty"`
}

// CodeDifference is an activity type of which two workers have different code under one release.
type CodeDifference struct {
	ActivityType string `json:"activity_type"`
	WorkerID     string `json:"worker_id"` // the other worker
	Version      string `json:"version"`   // version of the other worker's code
}
