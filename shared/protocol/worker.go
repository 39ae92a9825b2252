package protocol

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// RustSDK is the prefix of the version that the published Rust SDK registers. Its worker ends at refusals that other
// SDKs handle.
const RustSDK = "durable-workflow-rust/"

// PythonSDK is the prefix of the version of the published Python SDK. It counts an open poll for workflow tasks as a
// slot in use.
const PythonSDK = "durable-workflow-python/"

// RegisterRequest registers a worker process. Incarnation, queues and session settings are members of Sojourn's own
// workers; a client of the HTTP contract sends none, and each of its registrations is a new incarnation.
type RegisterRequest struct {
	WorkerID    string   `json:"worker_id,omitempty" maxLength:"255"` // generated if empty
	Namespace   string   `json:"namespace,omitempty"`
	Incarnation string   `json:"incarnation,omitempty"`
	TaskQueue   string   `json:"task_queue,omitempty" minLength:"1" maxLength:"255"`
	TaskQueues  []string `json:"task_queues,omitempty" maxItems:"10000" each:"255"`
	Runtime     string   `json:"runtime,omitempty"`
	SDKVersion  string   `json:"sdk_version,omitempty" maxLength:"255"`
	BuildID     string   `json:"build_id,omitempty" maxLength:"255"`
	Release     string   `json:"release,omitempty"`
	// WorkflowTypes are the only workflow types of which the worker receives tasks.
	WorkflowTypes []string `json:"supported_workflow_types,omitempty" maxItems:"10000" each:"255"`
	// ActivityTypes are the only activity types of which the worker receives tasks.
	ActivityTypes []string `json:"supported_activity_types,omitempty" maxItems:"10000" each:"255"`
	AnyActivity   bool     `json:"any_activity_type,omitempty"` // accepts activities of every type of its queues
	// Capabilities are query_tasks, worker_sessions, update_validation_tasks, and names that activities may require.
	Capabilities []string `json:"capabilities,omitempty" maxItems:"10000" each:"255"`
	// Contracts list, by workflow type, the names of its messages: {queries, signals, updates, update_validators}.
	Contracts json.RawMessage `json:"workflow_command_contracts,omitempty"`
	// Fingerprints identify the code of workflow types at the start of the worker, in a form of its SDK. Absent: they
	// are not compared.
	Fingerprints map[string]string `json:"workflow_definition_fingerprints,omitempty"`
	// Versions identify the code of activity types, in a form of the worker. The dashboard shows workers of one release
	// whose versions differ. Absent: they are not compared.
	Versions      map[string]string `json:"activity_versions,omitempty"`
	Manifest      json.RawMessage   `json:"capability_manifest,omitempty"`
	WorkflowSlots *int              `json:"max_concurrent_workflow_tasks,omitempty" minimum:"0"`
	ActivitySlots *int              `json:"max_concurrent_activity_tasks,omitempty" minimum:"0"`
	MaxSessions   *int              `json:"max_concurrent_worker_sessions,omitempty" minimum:"0"`
	// Resources are the amounts that the worker has for sessions, as quantities: {"gpu_mem": "80GiB"}. A session that
	// needs a resource other than memory is acquired only by workers that have it; without memory it has no limit.
	Resources Resources `json:"resources,omitempty"`
	// SessionResources are the amounts that sessions with a definition use unless their options set them, by the name of
	// the definition; "*" applies to all sessions.
	SessionResources map[string]Resources `json:"session_resources,omitempty"`
	// MaxSetUps is the maximum number of session set-ups that the worker runs at once; 0 or absent: not declared.
	MaxSetUps    int              `json:"max_set_ups,omitempty" minimum:"0"`
	Session      *SessionSettings `json:"session_settings,omitempty"`
	AttemptLease int64            `json:"attempt_lease_seconds,omitempty" minimum:"0" maximum:"315360000"`
	Slots        json.RawMessage  `json:"task_slots,omitempty"`
	Process      json.RawMessage  `json:"process_metrics,omitempty"`
	// HeartbeatSecs is the worker's heartbeat interval. A worker that sends it, or process_metrics, counts as lost if
	// its heartbeats stop.
	HeartbeatSecs *int64          `json:"heartbeat_interval_seconds,omitempty" minimum:"1" maximum:"3600"`
	Isolation     json.RawMessage `json:"isolation,omitempty"` // the worker's report about its sandbox
	// Held are the keys (TaskKey) of the tasks that this process runs, sent on a new connection. The app requeues other
	// tasks leased to the process, as their deliveries were lost. Absent: nothing is requeued.
	Held *[]string `json:"held_tasks,omitempty"`
	// Settings is the revision of the operators' settings that this process applied; absent: it applies none.
	Settings *int64 `json:"settings_revision,omitempty" minimum:"0"`
	Gated    bool   `json:"-"` // set by transports whose workers the release gate binds
	Identity string `json:"-"`
}

// TaskKey identifies one delivery of a task: an activity's by the attempt ID, any other by task ID and delivery.
func TaskKey(kind TaskKind, task, attempt string, delivery int64) string {
	if kind == KindActivity || kind == "" {
		return attempt
	}
	return task + "/" + strconv.FormatInt(delivery, 10)
}

// SessionSettings are a worker's settings for its sessions of the origins implicit and worker, in milliseconds.
type SessionSettings struct {
	LeaseMS  int64 `json:"lease_ms" required:"true" minimum:"1"`
	BufferMS int64 `json:"buffer_ms"`
	IdleMS   int64 `json:"idle_ms" minimum:"0"`
	// MaxActivities is the maximum of concurrent activities in a session that sets none; 0: the worker's number of
	// slots.
	MaxActivities int `json:"max_concurrent_activities,omitempty" minimum:"0"`
	// Resumes declares that the worker suspends the state of a session whose lease expired, and that it returns tasks
	// under an epoch whose state it dropped. The app then lets the process resume the same epoch if no other process
	// has acquired the session since.
	Resumes bool `json:"resumes,omitempty"`
}

// RegisterResponse echoes the registration.
type RegisterResponse struct {
	WorkerID          string          `json:"worker_id"`
	Registered        bool            `json:"registered"`
	Namespace         string          `json:"namespace"`
	TaskQueue         string          `json:"task_queue"`
	Runtime           string          `json:"runtime"`
	BuildID           *string         `json:"build_id"`
	Capabilities      []string        `json:"capabilities"`
	Manifest          json.RawMessage `json:"capability_manifest"`
	Status            string          `json:"status"`
	Incarnation       string          `json:"incarnation"`
	HeartbeatInterval int64           `json:"heartbeat_interval_seconds"`
	// Redelivered counts the tasks that this app requeued for this registration: tasks of the superseded process, or
	// tasks that held_tasks does not list. Another app may have requeued further ones; no task is counted twice.
	Redelivered int `json:"redelivered_task_count"`
}

// PollRequest requests tasks. Empty Kinds or Queues mean all that the worker registered; the member Free is the maximum
// per kind, Max the maximum of all kinds together.
type PollRequest struct {
	WorkerID    string           `json:"worker_id"`
	Namespace   string           `json:"namespace,omitempty"`
	Incarnation string           `json:"incarnation,omitempty"`
	Release     string           `json:"release,omitempty"` // sent by Sojourn's workers; the release gate compares it
	Gated       bool             `json:"-"`                 // set by transports whose workers the gate binds
	TaskQueue   string           `json:"task_queue,omitempty"`
	Queues      []string         `json:"queues,omitempty"`
	Kinds       []TaskKind       `json:"kinds,omitempty"`
	Free        map[TaskKind]int `json:"free,omitempty"`
	Max         int              `json:"max,omitempty" minimum:"0" maximum:"1000"` // default 1
	BuildID     string           `json:"build_id,omitempty"`
	PollID      string           `json:"poll_request_id,omitempty" maxLength:"255"`
	// default 30; 0 returns at once; maximum 60, larger values are reduced to it
	Timeout  *int64 `json:"timeout_seconds,omitempty" minimum:"0"`
	PageSize int    `json:"history_page_size,omitempty" minimum:"0" maximum:"1000"`
	// PagedQueries: the worker fetches the further pages of the history of a query or a validation, as it does for a
	// workflow task. Other workers receive the whole history.
	PagedQueries bool `json:"paged_queries,omitempty"`
	// PagedSignals: the worker fetches signals that a run inherited when its code receives them, so a task may omit them;
	// see WorkflowTask.OmittedSignals.
	PagedSignals bool `json:"paged_signals,omitempty"`
	// EagerTasks: the worker sends an activity's result together with the eager workflow task that it causes. With the
	// activity the app sends the events that the worker's cached run has not seen.
	EagerTasks bool `json:"turns,omitempty"`
	// HandOver: the worker drains and requests only activities of its sessions that a successor prepares.
	HandOver bool `json:"hand_over,omitempty"`
}

// PollStatus is the outcome of a poll.
type PollStatus string

// The outcomes of a poll. Only leased has tasks; with throttled and unavailable the queue may have ready tasks.
const (
	PollLeased      PollStatus = "leased"
	PollEmpty       PollStatus = "empty"
	PollThrottled   PollStatus = "throttled"
	PollUnavailable PollStatus = "unavailable"
	// unavailable, in a refusal: a task may have been leased; a poll with the same poll_request_id returns it
	PollBackend  PollStatus = "backend_unavailable"
	PollDraining PollStatus = "draining"
	PollMismatch PollStatus = "version_mismatch"
	// the poll_request_id belongs to another poll, or to a task that has ended
	PollConflict   PollStatus = "conflict"
	PollNoWorkflow PollStatus = "no_workflow_capability" // the worker registered no workflow type, or no slot for one
	PollNoActivity PollStatus = "no_activity_capability" // the same for activities
	// the next poll of a completion was refused, with reason and error; the outcomes are not affected
	PollRefused PollStatus = "refused"
)

// PollResponse is the response to a poll.
type PollResponse struct {
	Status     PollStatus `json:"poll_status"`
	Tasks      []Task     `json:"tasks"`
	Reason     string     `json:"reason,omitempty"`
	WaitReason string     `json:"wait_reason,omitempty"` // throttled: the limit, for people
	Wait       *Wait      `json:"wait,omitempty"`        // throttled: the exceeded limit, for programs
	Drained    *string    `json:"build_id,omitempty"`    // draining: the build ID, drained on all queues of the poll
	RetryAfter int64      `json:"retry_after_ms,omitempty"`
	AppRelease string     `json:"app_release,omitempty"`
	// StoreTime is a lower bound of the store's clock when the app created the response. A worker that was paused
	// computes the age of the response from it.
	StoreTime history.Time `json:"store_time,omitzero"`
	Error     *ErrorBody   `json:"error,omitempty"` // refused: why
	// Undo returns the tasks because the response could not be delivered. It is never nil, and is called at most once,
	// instead of using the response.
	Undo func() `json:"-"`
}

// RefusedNext returns the response to a refused next poll of a completion. The outcomes have their own responses.
func RefusedNext(err error) *PollResponse {
	body := BodyOf(err)
	return &PollResponse{
		Status: PollRefused, Reason: string(body.Reason), Error: body, Tasks: []Task{}, RetryAfter: 1000, Undo: func() {},
	}
}

// HistoryRequest requests a further page of the history of a leased workflow task.
type HistoryRequest struct {
	Kind      TaskKind `json:"-"` // kind of the task: workflow (also when empty), query or validation; set by the route
	Namespace string   `json:"namespace,omitempty"`
	TaskID    string   `json:"task_id"`
	Owner     string   `json:"lease_owner"`
	Attempt   int64    `json:"workflow_task_attempt"`
	PageToken string   `json:"next_history_page_token"`
	After     int64    `json:"after_sequence,omitempty"` // instead of a token: the caller's last event
	PageSize  int      `json:"page_size,omitempty"`
	All       bool     `json:"all,omitempty"` // all remaining events in one response
}

// HistoryPage is one page of history.
type HistoryPage struct {
	TaskID        string          `json:"task_id,omitempty"`
	Attempt       int64           `json:"workflow_task_attempt,omitempty"`
	Events        []history.Event `json:"history_events"`
	TotalEvents   int64           `json:"total_history_events"`
	NextPageToken *string         `json:"next_history_page_token"`
	More          bool            `json:"has_more"`
	NextAfter     *int64          `json:"next_after_sequence"`
}

// CompleteItem is the outcome of one task: a workflow task with commands, an activity with result or failure.
type CompleteItem struct {
	// set by the transport from the caller's token; tasks of other namespaces are not found
	Namespace   string    `json:"namespace,omitempty"`
	Kind        TaskKind  `json:"kind"`
	TaskID      string    `json:"task_id" required:"true"`
	Owner       string    `json:"lease_owner" required:"true"`
	Incarnation string    `json:"incarnation,omitempty"`
	Attempt     int64     `json:"workflow_task_attempt,omitempty"`
	AttemptID   string    `json:"activity_attempt_id,omitempty"`
	Epoch       int64     `json:"session_epoch,omitempty"` // optional; must match if it is sent
	Commands    []Command `json:"commands,omitempty"`
	// RecordFrom, Sojourn only, is the command sequence of the first command. The app records the commands, and the
	// workflow task stays leased under the same delivery. The last command is record_local_activity, and none ends the
	// run. The same request again gets the first response. 0: the commands complete the task.
	RecordFrom int64 `json:"record_from,omitempty"`
	StreamWaits
	// Malformed is the error of an outcome that could not be decoded. The app rejects this item but not the other items
	// of the request. The commands of a malformed workflow task have at most their types and the members of unsupported
	// features.
	Malformed error `json:"-"`
	// the worker caches the run up to this event: later tasks contain only the events after it and no arguments
	Kept    int64           `json:"kept,omitempty"`
	Result  payload.Payload `json:"result,omitzero"`
	Failure *Failure        `json:"failure,omitempty"`
	// reason for returning the task; then there is neither result nor failure
	Returned  string `json:"returned,omitempty"`
	LostCount bool   `json:"lost,omitempty"` // with Returned: the delivery counts as lost, as if the worker had died
	// Began reports, with Returned, whether the activity's code began: only then does the delivery count as an attempt.
	// Absent: the code began if returned is draining, or if lost or executor is set.
	Began     *bool      `json:"began,omitempty"`
	Recovered *Recovered `json:"recovered,omitempty"` // the session's state was rebuilt inside this attempt
	// Executor reports that the attempt's executor ended. With returned, the task is repeated and counts towards no limit.
	Executor *ExecutorLoss `json:"executor,omitempty"`
	// CodeVersion identifies the activity's code, if the worker knows it; the app ignores values of more than 64 bytes.
	CodeVersion string `json:"code_version,omitempty"`
	// the eager workflow task that an activity's result causes; accepted only in a call with a next poll
	Eager *EagerTask `json:"then,omitempty"`
	// Lines are the activity's log lines that no response has confirmed. The app stores them with the outcome; invalid
	// lines never cause the outcome to be rejected.
	Lines []LogChunk `json:"lines,omitempty"`
}

// SetKind sets the kind of an item that has none: activity if it has an attempt ID, else workflow.
func (c *CompleteItem) SetKind() {
	if c.Kind == "" {
		c.Kind = KindWorkflow
		if c.AttemptID != "" {
			c.Kind = KindActivity
		}
	}
}

// AsReturn returns the item without result, failure and commands: it only returns the task.
func (c *CompleteItem) AsReturn() CompleteItem {
	return CompleteItem{
		Kind: c.Kind, TaskID: c.TaskID, Owner: c.Owner, Attempt: c.Attempt, AttemptID: c.AttemptID, Returned: c.Returned,
		LostCount: c.LostCount, Began: c.Began, Executor: c.Executor, Lines: c.Lines,
	}
}

// ReturnedExecutorEnded begins the reason of a task that is returned because its executor ended.
const ReturnedExecutorEnded = "executor_ended"

// ReturnedSetUpFailed begins the reason of a task that is returned because the set-up of its session failed and another
// worker is to try it. It is also the reason with which the worker releases the session.
const ReturnedSetUpFailed = "set_up_failed"

// ExecutorLoss is the end of an executor process with running calls, reported with the outcome of each of these calls.
type ExecutorLoss struct {
	Executor string `json:"executor_id,omitempty" maxLength:"255"` // unique within the worker process
	Calls    int    `json:"calls,omitempty" minimum:"0"`           // calls that ran in it
	// part of the task in the loss: suspect, blamed; absent: another call ended the executor
	Verdict string `json:"verdict,omitempty" enum:"suspect,blamed"`
	// reason why the state of the session is lost (see Recovered.reason): the session is given up as failed with this
	// outcome; absent: the session stays
	StateLost string `json:"state_lost,omitempty" maxLength:"64"`
}

// StreamWaits are the members of a completed workflow task for message streams, which Sojourn does not support. A run
// that waits for a stream would wait forever, so the app must detect these members whatever their JSON type. They are
// therefore not decoded.
type StreamWaits struct {
	Waits   json.RawMessage `json:"message_stream_waits,omitempty"`
	Cursors json.RawMessage `json:"message_stream_cursors,omitempty"`
}

// Recovered reports a rebuild of a session's state inside an attempt.
type Recovered struct {
	Rebuild string `json:"rebuild_activity"`
	Cause   string `json:"cause,omitempty"`
	Reason  string `json:"reason,omitempty"` // reason of the loss, such as crash, drained or moved
	Retries int    `json:"retries"`
	Waited  int    `json:"waited,omitempty"`  // rebuilds of another attempt that this attempt waited for
	Outcome string `json:"outcome,omitempty"` // one of the following; absent: rebuilt
	// SetUp is the set-up of the session by its definition that the attempt ran; absent: none. With it alone,
	// rebuild_activity is empty.
	SetUp *SetUp `json:"set_up,omitempty"`
}

// SetUp reports a set-up of a session by its definition, which a worker ran in an attempt.
type SetUp struct {
	Definition string  `json:"definition"`
	Outcome    string  `json:"outcome"` // rebuilt: completed; failed, cancelled, running
	Seconds    float64 `json:"seconds,omitempty"`
	// Waited: the attempt only waits for the set-up of another attempt, or waited for it. History has no event for it.
	Waited bool `json:"waited,omitempty"`
	// Timeout is the set-up's own timeout. While outcome is running, the timeouts of the attempt start_to_close and
	// heartbeat do not apply; afterwards they count from the end of the set-up.
	Timeout int64 `json:"timeout_seconds,omitempty" minimum:"0" maximum:"315360000"`
	// RestoreFailed is why the worker could not restore the snapshot of the session: the state is lost.
	RestoreFailed string `json:"restore_failed,omitempty"`
}

// The outcomes of a rebuild: the activity ran again, the rebuild failed, or the rebuild was cancelled. The last two end
// the attempt. A heartbeat may also report a rebuild that is running.
const (
	Rebuilt          = "rebuilt"
	RebuildFailed    = "failed"
	RebuildCancelled = "cancelled"
	RebuildRunning   = "running"
)

// LostReasons are the reasons why the state of a session can be missing: the code did not find it, its executor ended,
// or the previous epoch of the session ended.
var LostReasons = map[string]bool{
	"missing_state": true,
	"crash":         true, "out_of_memory": true, "quota": true, "deadline": true, "protocol_error": true,
	"evicted_idle": true, "evicted_ttl": true,
	"evicted_pressure": true, "drained": true, "closed": true, "worker_lost": true, "never_here": true, "declared": true,
	"evicted_cap": true, "worker_restarted": true, "moved": true, "given_up": true, "database_restored": true,
	"released": true, ReturnedSetUpFailed: true,
	ReasonSnapshotFailed: true, ReasonSnapshotLost: true, ReasonRestoreFailed: true,
}

// LostReason returns the entry of LostReasons for the reason with which a session's epoch ended, "" if there is none.
// The owner's own text may follow the reason behind a colon.
func LostReason(end string) string {
	word, _, _ := strings.Cut(end, ":")
	switch word {
	case EndedLeaseExpired, EndedHeartbeatStale:
		return "worker_lost"
	case "shutdown", ReasonWorkerShutdown:
		return "drained"
	case "ttl_expired":
		return "evicted_ttl"
	case "fallback", "other_queue":
		return "moved"
	}
	if LostReasons[word] {
		return word
	}
	return ""
}

// CompleteResponse is the response to one item.
type CompleteResponse struct {
	TaskID         string       `json:"task_id"`
	Attempt        int64        `json:"workflow_task_attempt,omitempty"`
	AttemptID      string       `json:"activity_attempt_id,omitempty"`
	RunID          string       `json:"run_id,omitempty"`
	Outcome        string       `json:"outcome"` // completed, failed, waiting_for_history, returned, rejected, unknown
	Recorded       bool         `json:"recorded"`
	RunStatus      string       `json:"run_status,omitempty"`
	CreatedTaskIDs []string     `json:"created_task_ids,omitempty"`
	NextTaskID     *string      `json:"next_task_id,omitempty"`
	Reason         *string      `json:"reason"`
	Eager          *EagerResult `json:"then,omitempty"` // the eager workflow task was accepted; absent: it was not
	// Warnings are about accepted commands that had no effect. The response to a repeated report has none.
	Warnings []Warning  `json:"warnings,omitempty"`
	Error    *ErrorBody `json:"error,omitempty"` // in a batch: refusal of this item, which does not affect the others
	Err      error      `json:"-"`
}

// Uncertain turns the refusal of an item into the outcome "unknown" if the store was unavailable: the outcome may have
// been recorded.
func (a *CompleteResponse) Uncertain() {
	if a.Error == nil || !a.Error.Reason.Away() {
		return
	}
	a.Outcome, a.Error.Reason = "unknown", ReasonBackendUnavailable
	a.Error.Details = map[string]any{"outcome": "unknown", "retryable": true, "retry_after_seconds": 1}
}

// ErrorBody is the refusal of an item of a batch, and the body of every HTTP error.
type ErrorBody struct {
	Reason  Reason              `json:"reason"`
	Message string              `json:"message"`
	Details map[string]any      `json:"details,omitempty"`
	Fields  map[string][]string `json:"errors,omitempty"`
}

// CompleteRequest completes many tasks and may contain the next poll. The poll is enqueued before the items are
// submitted, so the response can contain tasks that the items caused; the app does not hold this poll open.
type CompleteRequest struct {
	Items []CompleteItem `json:"items" minItems:"1" maxItems:"1000"`
	Next  *PollRequest   `json:"next,omitempty"`
}

// CompleteBatchResponse has the responses to the items in their order, and the response to the next poll.
type CompleteBatchResponse struct {
	Items []CompleteResponse `json:"items"`
	Next  *PollResponse      `json:"next,omitempty"`
}

// HeartbeatRequest renews the lease of one attempt.
type HeartbeatRequest struct {
	Namespace string          `json:"namespace,omitempty"`
	Kind      TaskKind        `json:"kind,omitempty"` // activity by default
	TaskID    string          `json:"task_id"`
	Owner     string          `json:"lease_owner"`
	AttemptID string          `json:"activity_attempt_id,omitempty"`
	Attempt   int64           `json:"workflow_task_attempt,omitempty"`
	Epoch     int64           `json:"session_epoch,omitempty"`
	Progress  json.RawMessage `json:"progress,omitempty"` // plain JSON {message?, current?, total?, unit?, details?}
	// progress of a rebuild of the session's state; recorded in history if the attempt ends without a report
	Rebuild *Recovered `json:"rebuild,omitempty"`
	// requested by the activity's code; false: an automatic renewal by the worker
	Beat bool `json:"-"`
	// Malformed is the error of a renewal in a worker's heartbeat that could not be decoded. The app rejects only this
	// renewal.
	Malformed error `json:"-"`
}

// HeartbeatResponse reports whether the attempt may continue. The lease expiry in it is never later than the stored
// one.
type HeartbeatResponse struct {
	TaskID          string           `json:"task_id"`
	AttemptID       string           `json:"activity_attempt_id,omitempty"`
	Attempt         int64            `json:"workflow_task_attempt,omitempty"`
	Owner           string           `json:"lease_owner"`
	Renewed         bool             `json:"heartbeat_recorded"`
	CancelRequested bool             `json:"cancel_requested"`
	CanContinue     bool             `json:"can_continue"`
	Reason          *string          `json:"reason"`
	LeaseExpiresAt  history.Time     `json:"lease_expires_at"`
	LastHeartbeatAt history.Time     `json:"last_heartbeat_at"`
	RunClosedReason *string          `json:"run_closed_reason"`
	RunClosedAt     history.Time     `json:"run_closed_at"`
	RunStatus       string           `json:"run_status,omitempty"`
	Session         *SessionAffinity `json:"worker_session,omitempty"`
}

// WorkerHeartbeat is a worker's heartbeat. It is independent of polls and jobs and renews all leases of the worker in
// one call.
type WorkerHeartbeat struct {
	WorkerID    string             `json:"worker_id"`
	Namespace   string             `json:"namespace,omitempty"`
	Incarnation string             `json:"incarnation,omitempty"`
	Leases      []HeartbeatRequest `json:"leases,omitempty"`
	Sessions    []SessionRenewal   `json:"sessions,omitempty"`
	Machine     json.RawMessage    `json:"machine,omitempty"`
	Slots       json.RawMessage    `json:"task_slots,omitempty"`
	Process     json.RawMessage    `json:"process_metrics,omitempty"`
	Draining    bool               `json:"draining,omitempty"`
	// runs in the worker's sticky cache, sent once to each app that has not received them; entries after the first 500
	// are ignored, since a refusal would also refuse the renewals
	CachedRuns []CachedRun `json:"kept_runs,omitempty"`
	// Preparations are the sessions of other workers that this worker sets up or has set up, in each heartbeat.
	Preparations []SessionPreparation `json:"session_preparations,omitempty"`
	// set for a heartbeat that the app derives from a settings request: it does not show that the worker sends
	// heartbeats
	FromSettings bool `json:"-"`
	// set by the channel: the worker renews in time even if a response takes up to a tenth of its leases
	Patient bool `json:"-"`
}

// CachedRun is a run in the worker's sticky cache, with the last event that its code has seen.
type CachedRun struct {
	RunID string `json:"run_id"`
	Seen  int64  `json:"seen"`
}

// MaxCachedRuns is the maximum of kept runs in one heartbeat.
const MaxCachedRuns = 500

// SessionRenewal renews the lease of a session that the worker holds. Workers do not renew idle sessions: their leases
// expire.
type SessionRenewal struct {
	SessionID string `json:"session_id"`
	Epoch     int64  `json:"epoch"`
	// Resume requests a new lease under the same epoch after the lease ran out by the worker's clock. The app grants it if
	// no process has acquired the session since.
	Resume bool `json:"resume,omitempty"`
	// GivenUp releases the session: the worker has dropped its state.
	GivenUp bool `json:"given_up,omitempty"`
	// FailFast requests that this renewal waits only shortly for the renewals of other workers.
	FailFast  bool  `json:"fail_fast,omitempty"`
	Malformed error `json:"-"` // decoding error; the app rejects only this renewal
}

// UnreadableRenewal returns the renewal of a lease that could not be decoded, with the members that identify the lease.
func UnreadableRenewal(raw json.RawMessage, why error) HeartbeatRequest {
	in := HeartbeatRequest{Malformed: why}
	ReadMembers(raw, map[string]any{
		"namespace": &in.Namespace, "kind": &in.Kind, "task_id": &in.TaskID, "activity_attempt_id": &in.AttemptID,
		"workflow_task_attempt": &in.Attempt,
	})
	return in
}

// UnreadableSession returns the renewal of a session that could not be decoded, with the members that identify it.
func UnreadableSession(raw json.RawMessage, why error) SessionRenewal {
	in := SessionRenewal{Malformed: why}
	ReadMembers(raw, map[string]any{"session_id": &in.SessionID, "epoch": &in.Epoch})
	return in
}

// WorkerHeartbeatResponse reports the renewals, and what the app or an operator requests of the worker.
type WorkerHeartbeatResponse struct {
	WorkerID          string              `json:"worker_id"`
	Acknowledged      bool                `json:"acknowledged"`
	HeartbeatInterval int64               `json:"heartbeat_interval_seconds"`
	StaleAfter        int64               `json:"stale_after_seconds"`
	Leases            []HeartbeatResponse `json:"leases,omitempty"`
	Sessions          []SessionState      `json:"sessions,omitempty"`
	Drain             bool                `json:"drain,omitempty"`
	// Intent is the operator's request to the worker; absent: none.
	Intent Intent `json:"intent,omitempty" enum:"pause,leave"`
	// Settings is the revision of the operators' settings. The worker fetches the settings if it has another revision.
	Settings   int64        `json:"settings_revision,omitempty"`
	AppRelease string       `json:"app_release,omitempty"`
	StoreTime  history.Time `json:"store_time,omitzero"` // lower bound of the store's clock at the response
	// EndedRuns are runs in the worker's sticky cache that ended: the worker evicts them.
	EndedRuns []string `json:"ended_runs,omitempty"`
	// Preparations has one entry for each preparation of the heartbeat, and one for each new one.
	Preparations []PreparationState `json:"session_preparations,omitempty"`
	// HandOvers is the number of sessions of a draining worker that a successor prepares: the worker waits for them.
	HandOvers int `json:"hand_overs,omitempty"`
}

// SessionPreparation reports a set-up for a session that another worker owns. The prepared state serves no attempt
// before the app reports that this worker has acquired the session.
type SessionPreparation struct {
	SessionID string  `json:"session_id"`
	Epoch     int64   `json:"epoch"` // the owner's epoch, for which the state is prepared
	Prepared  bool    `json:"prepared,omitempty"`
	Failed    string  `json:"failed,omitempty"` // why this worker ended the preparation
	Seconds   float64 `json:"set_up_seconds,omitempty"`
	Snapshot  string  `json:"snapshot,omitempty"` // checksum of the snapshot that the worker received
	Restored  bool    `json:"restored,omitempty"` // the worker has restored that snapshot
}

// The states of a preparation in the response to a heartbeat. With preparing the worker runs the set-up or keeps its
// state, with acquired it owns the session, with discarded it tears the state down. With
// snapshot the worker owns the session, and must store a snapshot and release the session with the reason snapshot.
const (
	PreparationPreparing = "preparing"
	PreparationAcquired  = "acquired"
	PreparationDiscarded = "discarded"
	PreparationSnapshot  = "snapshot"
)

// PreparationState is the state, in the store, of a session that the worker prepares.
type PreparationState struct {
	SessionID string `json:"session_id"`
	Epoch     int64  `json:"epoch"` // as in SessionPreparation
	State     string `json:"state" enum:"preparing,acquired,discarded,snapshot"`
	// Session has the definition and its arguments if the heartbeat did not report the preparation; with acquired it has
	// the epoch of this worker, and otherwise none.
	Session *SessionAffinity `json:"session,omitempty"`
	// Snapshot is the owner's snapshot, which the worker restores; absent if the heartbeat reported it.
	Snapshot *SessionSnapshot `json:"snapshot,omitempty"`
}

// SessionState is the state, in the store, of a session that the worker renews.
type SessionState struct {
	SessionID      string       `json:"session_id"`
	Epoch          int64        `json:"epoch"`
	Held           bool         `json:"held"` // false: lost, ended or superseded; drop its executor
	Reason         string       `json:"reason,omitempty"`
	LeaseExpiresAt history.Time `json:"lease_expires_at"`
	// The worker must store a snapshot and release the session with the reason snapshot.
	Snapshot bool `json:"snapshot_requested,omitempty"`
}

// DeregisterRequest deregisters a worker: its leases end and its sessions are released.
type DeregisterRequest struct {
	WorkerID    string `json:"worker_id"`
	Namespace   string `json:"namespace,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
}

// DeregisterResponse has exactly these members: clients of the contract check all of them.
type DeregisterResponse struct {
	WorkerID  string `json:"worker_id"`
	Outcome   string `json:"outcome"` // deregistered
	Recovered int    `json:"recovered_workflow_task_count"`
}
