package protocol

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// RustSDK begins what the published Rust SDK registers as its version. It ends the whole worker at refusals that others
// take for an answer.
const RustSDK = "durable-workflow-rust/"

// PythonSDK is the same of the published Python SDK. It counts an open poll for workflow tasks among the slots in use.
const PythonSDK = "durable-workflow-python/"

// RegisterRequest announces a worker process. Incarnation, queues and session settings are ours; a client of the HTTP
// contract sends none, and each of its registrations is a new incarnation.
type RegisterRequest struct {
	WorkerID    string   `json:"worker_id,omitempty" maxLength:"255"` // made when empty
	Namespace   string   `json:"namespace,omitempty"`
	Incarnation string   `json:"incarnation,omitempty"`
	TaskQueue   string   `json:"task_queue,omitempty" minLength:"1" maxLength:"255"`
	TaskQueues  []string `json:"task_queues,omitempty" maxItems:"10000" each:"255"`
	Runtime     string   `json:"runtime,omitempty"`
	SDKVersion  string   `json:"sdk_version,omitempty" maxLength:"255"`
	BuildID     string   `json:"build_id,omitempty" maxLength:"255"`
	Release     string   `json:"release,omitempty"`
	// WorkflowTypes are those it is given tasks of; it gets no others.
	WorkflowTypes []string `json:"supported_workflow_types,omitempty" maxItems:"10000" each:"255"`
	// ActivityTypes are those it is given tasks of; it gets no others.
	ActivityTypes []string `json:"supported_activity_types,omitempty" maxItems:"10000" each:"255"`
	AnyActivity   bool     `json:"any_activity_type,omitempty"` // takes activities of every type of its queues
	// Capabilities are query_tasks, worker_sessions and update_validation_tasks, and what the requirements of activities
	// are compared with.
	Capabilities []string `json:"capabilities,omitempty" maxItems:"10000" each:"255"`
	// Contracts name, by workflow type, what may be sent to it: {queries, signals, updates, update_validators}, lists of
	// names.
	Contracts json.RawMessage `json:"workflow_command_contracts,omitempty"`
	// Fingerprints are what the code of a workflow type was when the worker started, in whatever form its SDK has. Absent:
	// nothing is compared.
	Fingerprints map[string]string `json:"workflow_definition_fingerprints,omitempty"`
	// Versions are what the code of activity types is, in whatever form the worker has: workers of one release that have
	// different ones are pointed out to people. Absent: nothing is compared.
	Versions      map[string]string `json:"activity_versions,omitempty"`
	Manifest      json.RawMessage   `json:"capability_manifest,omitempty"`
	WorkflowSlots *int              `json:"max_concurrent_workflow_tasks,omitempty" minimum:"0"`
	ActivitySlots *int              `json:"max_concurrent_activity_tasks,omitempty" minimum:"0"`
	MaxSessions   *int              `json:"max_concurrent_worker_sessions,omitempty" minimum:"0"`
	Session       *SessionSettings  `json:"session_settings,omitempty"`
	AttemptLease  int64             `json:"attempt_lease_seconds,omitempty" minimum:"0" maximum:"315360000"`
	Slots         json.RawMessage   `json:"task_slots,omitempty"`
	Process       json.RawMessage   `json:"process_metrics,omitempty"`
	// HeartbeatSecs is how often the worker means to send heartbeats. One that says so, or sends process_metrics, is
	// missed when it is silent.
	HeartbeatSecs *int64          `json:"heartbeat_interval_seconds,omitempty" minimum:"1" maximum:"3600"`
	Isolation     json.RawMessage `json:"isolation,omitempty"` // the worker's own report of what its sandbox holds
	// Held are the keys (TaskKey) of the tasks this process has, said on a new connection: what else is leased to it never
	// reached it and is set free. Absent: nothing is said.
	Held *[]string `json:"held_tasks,omitempty"`
	// Settings is the revision of the operators' settings that this process runs with; absent: it takes none.
	Settings *int64 `json:"settings_revision,omitempty" minimum:"0"`
	Gated    bool   `json:"-"` // set by transports whose workers the release gate binds
	Identity string `json:"-"`
}

// TaskKey names one delivery of a task: of an activity by its attempt's id, else by the task's id and delivery.
func TaskKey(kind TaskKind, task, attempt string, delivery int64) string {
	if kind == KindActivity || kind == "" {
		return attempt
	}
	return task + "/" + strconv.FormatInt(delivery, 10)
}

// SessionSettings are a worker's own settings for sessions it holds through the implicit and explicit doors, in
// milliseconds.
type SessionSettings struct {
	LeaseMS  int64 `json:"lease_ms" required:"true" minimum:"1"`
	BufferMS int64 `json:"buffer_ms"`
	IdleMS   int64 `json:"idle_ms" minimum:"0"`
	// MaxActivities is how many activities run at once in a session that names no number; 0: as many as the worker has
	// slots.
	MaxActivities int `json:"max_concurrent_activities,omitempty" minimum:"0"`
	// Resumes declares that the worker suspends the state of a session whose lease ran out, and that it hands back a task
	// under an epoch whose state it dropped. The app then lets the process continue under the same epoch if no other
	// process has acquired the session since.
	Resumes bool `json:"resumes,omitempty"`
}

// RegisterAnswer echoes the registration.
type RegisterAnswer struct {
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
	// Redelivered is how many tasks this app set free for this registration: of the process that it superseded, or those
	// that held_tasks does not name. Others may be free because another app heard of it first; no task counts twice.
	Redelivered int `json:"redelivered_task_count"`
}

// PollRequest asks for work. Kinds and Queues empty mean all the worker registered. Free limits what is handed out per
// kind; Max over all.
type PollRequest struct {
	WorkerID    string           `json:"worker_id"`
	Namespace   string           `json:"namespace,omitempty"`
	Incarnation string           `json:"incarnation,omitempty"`
	Release     string           `json:"release,omitempty"` // workers of ours say theirs; the gate compares
	Gated       bool             `json:"-"`                 // set by transports whose workers the gate binds
	TaskQueue   string           `json:"task_queue,omitempty"`
	Queues      []string         `json:"queues,omitempty"`
	Kinds       []TaskKind       `json:"kinds,omitempty"`
	Free        map[TaskKind]int `json:"free,omitempty"`
	Max         int              `json:"max,omitempty" minimum:"0" maximum:"1000"` // default 1
	BuildID     string           `json:"build_id,omitempty"`
	PollID      string           `json:"poll_request_id,omitempty" maxLength:"255"`
	// default 30, 0 answers at once, more than 60 is taken for 60
	Timeout  *int64 `json:"timeout_seconds,omitempty" minimum:"0"`
	PageSize int    `json:"history_page_size,omitempty" minimum:"0" maximum:"1000"`
	// PagedQueries: the worker fetches what lies behind the first page of the history of a query or a validation, as of a
	// workflow task's. Others get it whole.
	PagedQueries bool `json:"paged_queries,omitempty"`
	// Turns: the worker sends the turn that an activity's result causes with the result, and is shown with the activity
	// what it has not seen of a run that it keeps.
	Turns bool `json:"turns,omitempty"`
}

// PollStatus says how a poll ended.
type PollStatus string

// The ways a poll ends. Only leased carries tasks; throttled and unavailable mean work may be there.
const (
	PollLeased      PollStatus = "leased"
	PollEmpty       PollStatus = "empty"
	PollThrottled   PollStatus = "throttled"
	PollUnavailable PollStatus = "unavailable"
	// the same in a refusal: whether a task was leased is not known, the same poll_request_id tells
	PollBackend  PollStatus = "backend_unavailable"
	PollDraining PollStatus = "draining"
	PollMismatch PollStatus = "version_mismatch"
	// the poll_request_id belongs to another poll, or to a task that has ended
	PollConflict   PollStatus = "conflict"
	PollNoWorkflow PollStatus = "no_workflow_capability" // the worker registered no workflow type, or no slot for one
	PollNoActivity PollStatus = "no_activity_capability" // the same of activities
	// the next poll of a completion was refused for its reason and error; the outcomes stand
	PollRefused PollStatus = "refused"
)

// PollAnswer is the response to a poll.
type PollAnswer struct {
	Status     PollStatus `json:"poll_status"`
	Tasks      []Task     `json:"tasks"`
	Reason     string     `json:"reason,omitempty"`
	WaitReason string     `json:"wait_reason,omitempty"` // throttled: what the budget is, for people
	Wait       *Wait      `json:"wait,omitempty"`        // throttled: the same for programs
	Drained    *string    `json:"build_id,omitempty"`    // draining: the build id that was drained on all queues asked for
	RetryAfter int64      `json:"retry_after_ms,omitempty"`
	AppRelease string     `json:"app_release,omitempty"`
	// StoreTime is a lower bound of the store's clock when the app created the response. A worker that was paused
	// computes the age of the response from it.
	StoreTime history.Time `json:"store_time,omitzero"`
	Error     *ErrorBody   `json:"error,omitempty"` // refused: why
	// Undo gives the tasks back because the answer could not be delivered; it is never nil and may be called once instead
	// of using the answer.
	Undo func() `json:"-"`
}

// RefusedNext answers the next poll of a completion that was refused: the outcomes next to it have their own answers.
func RefusedNext(err error) *PollAnswer {
	body := BodyOf(err)
	return &PollAnswer{
		Status: PollRefused, Reason: string(body.Reason), Error: body, Tasks: []Task{}, RetryAfter: 1000, Undo: func() {},
	}
}

// HistoryRequest asks for a further page of a leased workflow task's history.
type HistoryRequest struct {
	Kind      TaskKind `json:"-"` // of the task: a workflow's (also when empty), or a question; the routes know it
	Namespace string   `json:"namespace,omitempty"`
	TaskID    string   `json:"task_id"`
	Owner     string   `json:"lease_owner"`
	Attempt   int64    `json:"workflow_task_attempt"`
	PageToken string   `json:"next_history_page_token"`
	After     int64    `json:"after_sequence,omitempty"` // instead of a token: the last event the caller has
	PageSize  int      `json:"page_size,omitempty"`
	All       bool     `json:"all,omitempty"` // everything that is left in one answer
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
	// set by the transport from the caller; tasks of others do not exist for it
	Namespace   string    `json:"namespace,omitempty"`
	Kind        TaskKind  `json:"kind"`
	TaskID      string    `json:"task_id" required:"true"`
	Owner       string    `json:"lease_owner" required:"true"`
	Incarnation string    `json:"incarnation,omitempty"`
	Attempt     int64     `json:"workflow_task_attempt,omitempty"`
	AttemptID   string    `json:"activity_attempt_id,omitempty"`
	Epoch       int64     `json:"session_epoch,omitempty"` // optional; one that is sent must match
	Commands    []Command `json:"commands,omitempty"`
	StreamWaits
	// Malformed is the error of an outcome that could not be decoded. The app rejects this item but not the other items
	// of the request. The commands of a malformed workflow task have at most their types and the members of unsupported
	// features.
	Malformed error `json:"-"`
	// the worker caches the run up to this event: later tasks contain only the events after it and no arguments
	Kept    int64           `json:"kept,omitempty"`
	Result  payload.Payload `json:"result,omitzero"`
	Failure *Failure        `json:"failure,omitempty"`
	// hands the task back, for this reason; neither result nor failure
	Returned  string `json:"returned,omitempty"`
	LostCount bool   `json:"lost,omitempty"` // with Returned: counted as lost, like a worker that died
	// Began reports, with Returned, whether the activity's code began: only then does the delivery count as an attempt.
	// Absent: the code began if returned is draining, or if lost or executor is set.
	Began     *bool      `json:"began,omitempty"`
	Recovered *Recovered `json:"recovered,omitempty"` // the session's state was rebuilt inside this attempt
	// Executor reports that the attempt's executor ended. With returned, the task is repeated and counts towards no limit.
	Executor *ExecutorLoss `json:"executor,omitempty"`
	// CodeVersion is what the activity's code was, if the worker knows; at most 64 bytes, more are not kept.
	CodeVersion string `json:"code_version,omitempty"`
	// the turn that the result of an activity causes; it counts only in a call with a next poll
	Then *Then `json:"then,omitempty"`
	// Lines are what the code of an activity logged, as far as the app has not said that it is kept. They are stored with
	// the outcome, and never a reason to refuse it.
	Lines []LogChunk `json:"lines,omitempty"`
}

// SetKind fills in the kind of an item that names none: activity if it has an attempt ID, else workflow.
func (c *CompleteItem) SetKind() {
	if c.Kind == "" {
		c.Kind = KindWorkflow
		if c.AttemptID != "" {
			c.Kind = KindActivity
		}
	}
}

// HandedBack is an item that hands its task back and says nothing else. What came out until then counts for nothing.
func (c *CompleteItem) HandedBack() CompleteItem {
	return CompleteItem{
		Kind: c.Kind, TaskID: c.TaskID, Owner: c.Owner, Attempt: c.Attempt, AttemptID: c.AttemptID, Returned: c.Returned,
		LostCount: c.LostCount, Began: c.Began, Executor: c.Executor, Lines: c.Lines,
	}
}

// ReturnedExecutorEnded begins the reason of a task that is returned because its executor ended.
const ReturnedExecutorEnded = "executor_ended"

// ExecutorLoss is the end of an executor process while calls ran in it, as reported with the outcome of each of them.
type ExecutorLoss struct {
	Executor string `json:"executor_id,omitempty" maxLength:"255"` // unique within the worker process
	Calls    int    `json:"calls,omitempty" minimum:"0"`           // calls that ran in it
	// part of the task in the loss: suspect, blamed; absent: another call ended the executor
	Verdict string `json:"verdict,omitempty" enum:"suspect,blamed"`
	// why the state of the session is lost, one of LostReasons: the session is given up as failed with this outcome;
	// absent: the session stays
	StateLost string `json:"state_lost,omitempty" maxLength:"64"`
}

// StreamWaits are the members of a completed workflow task for message streams, which Sojourn does not support. A run
// that waits for a stream would wait forever, so the app must detect these members whatever their JSON type. They are
// therefore not decoded.
type StreamWaits struct {
	Waits   json.RawMessage `json:"message_stream_waits,omitempty"`
	Cursors json.RawMessage `json:"message_stream_cursors,omitempty"`
}

// Recovered tells of a rebuild that ran inside an attempt.
type Recovered struct {
	Rebuild string `json:"rebuild_activity"`
	Cause   string `json:"cause,omitempty"`
	Reason  string `json:"reason,omitempty"` // one of LostReasons
	Retries int    `json:"retries"`
	Waited  int    `json:"waited,omitempty"`  // of the rebuilds, those that another attempt ran and this one waited for
	Outcome string `json:"outcome,omitempty"` // one of the following; absent: rebuilt
}

// The outcomes of a rebuild: the activity was tried again, or the attempt ended with the rebuild, which failed or was
// told to stop. In a heartbeat it may also run still.
const (
	Rebuilt          = "rebuilt"
	RebuildFailed    = "failed"
	RebuildCancelled = "cancelled"
	RebuildRunning   = "running"
)

// LostReasons are the reasons why the state of a session can be missing: the code did not find it, its executor ended,
// or the previous holding ended, and the state with it.
var LostReasons = map[string]bool{
	"missing_state": true,
	"crash":         true, "out_of_memory": true, "quota": true, "deadline": true, "protocol_error": true,
	"evicted_idle": true, "evicted_ttl": true,
	"evicted_pressure": true, "drained": true, "closed": true, "worker_lost": true, "never_here": true, "declared": true,
	"evicted_cap": true, "worker_restarted": true, "moved": true, "given_up": true, "database_restored": true,
	"released": true,
}

// LostReason is the one of LostReasons for the end of a holding as its session has it: a word, and perhaps what the
// holder said behind a colon. "" where none fits.
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

// CompleteAnswer is the answer to one item.
type CompleteAnswer struct {
	TaskID         string   `json:"task_id"`
	Attempt        int64    `json:"workflow_task_attempt,omitempty"`
	AttemptID      string   `json:"activity_attempt_id,omitempty"`
	RunID          string   `json:"run_id,omitempty"`
	Outcome        string   `json:"outcome"` // completed, failed, waiting_for_history, returned, rejected, unknown
	Recorded       bool     `json:"recorded"`
	RunStatus      string   `json:"run_status,omitempty"`
	CreatedTaskIDs []string `json:"created_task_ids,omitempty"`
	NextTaskID     *string  `json:"next_task_id,omitempty"`
	Reason         *string  `json:"reason"`
	Then           *Taken   `json:"then,omitempty"` // the turn that came with the result counts; absent: it does not
	// Warnings are about accepted commands that had no effect. The response to a repeated report has none.
	Warnings []Warning  `json:"warnings,omitempty"`
	Error    *ErrorBody `json:"error,omitempty"` // in a batch: this item's refusal, the others stand
	Err      error      `json:"-"`
}

// Uncertain gives an answer that the store could not be asked for its words: what was reported may be recorded all the
// same.
func (a *CompleteAnswer) Uncertain() {
	if a.Error == nil || !a.Error.Reason.Away() {
		return
	}
	a.Outcome, a.Error.Reason = "unknown", ReasonBackendUnavailable
	a.Error.Details = map[string]any{"outcome": "unknown", "retryable": true, "retry_after_seconds": 1}
}

// ErrorBody is a refusal inside a batch answer and in every HTTP error.
type ErrorBody struct {
	Reason  Reason              `json:"reason"`
	Message string              `json:"message"`
	Details map[string]any      `json:"details,omitempty"`
	Fields  map[string][]string `json:"errors,omitempty"`
}

// CompleteRequest completes many tasks at once and may carry the next poll, which enters the lines before the items are
// submitted: the tasks they make can come back in the same answer, which is never held.
type CompleteRequest struct {
	Items []CompleteItem `json:"items" minItems:"1" maxItems:"1000"`
	Next  *PollRequest   `json:"next,omitempty"`
}

// CompleteBatchAnswer answers the items in order, and with what the next poll got.
type CompleteBatchAnswer struct {
	Items []CompleteAnswer `json:"items"`
	Next  *PollAnswer      `json:"next,omitempty"`
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
	// how far a rebuild of the session's state is; history has it if nothing more is heard
	Rebuild *Recovered `json:"rebuild,omitempty"`
	// requested by the activity's code; false: an automatic renewal by the worker
	Beat bool `json:"-"`
	// Malformed is the error of a renewal in a worker's heartbeat that could not be decoded. The app rejects only this
	// renewal.
	Malformed error `json:"-"`
}

// HeartbeatAnswer reports whether the attempt may continue. The lease expiry in it is never later than the stored one.
type HeartbeatAnswer struct {
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

// WorkerHeartbeat is a worker's heartbeat: independent of polls and jobs, it renews everything the worker holds in one
// call.
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
	// runs whose code the worker keeps in memory: said once to an app that it is new to. Those above the first 500 are
	// ignored: a hint is no reason to refuse what the heartbeat renews
	KeptRuns []KeptRun `json:"kept_runs,omitempty"`
	// the transport sends it for what it was told, and the worker may never send one
	Told bool `json:"-"`
	// the transport sends it of a worker that renews in time whatever its answers take, up to a tenth of its leases
	Patient bool `json:"-"`
}

// KeptRun is a run that a worker keeps in memory, with the last event that its code has seen.
type KeptRun struct {
	RunID string `json:"run_id"`
	Seen  int64  `json:"seen"`
}

// MostKeptRuns is how many of them one heartbeat names.
const MostKeptRuns = 500

// SessionRenewal names a session the worker holds and wants to keep. Idle sessions are left out: they expire by
// themselves.
type SessionRenewal struct {
	SessionID string `json:"session_id"`
	Epoch     int64  `json:"epoch"`
	// Resume requests a new lease under the same epoch after the lease ran out by the worker's clock. The app grants it if
	// no process has acquired the session since.
	Resume bool `json:"resume,omitempty"`
	// GivenUp releases the session: the worker has dropped its state.
	GivenUp   bool  `json:"given_up,omitempty"`
	Malformed error `json:"-"` // why the renewal could not be decoded; it alone is refused
}

// UnreadableRenewal identifies a lease of a heartbeat that cannot be decoded, so that it is answered in its place.
func UnreadableRenewal(raw json.RawMessage, why error) HeartbeatRequest {
	in := HeartbeatRequest{Malformed: why}
	ReadMembers(raw, map[string]any{
		"namespace": &in.Namespace, "kind": &in.Kind, "task_id": &in.TaskID, "activity_attempt_id": &in.AttemptID,
		"workflow_task_attempt": &in.Attempt,
	})
	return in
}

// UnreadableSession is that of a session.
func UnreadableSession(raw json.RawMessage, why error) SessionRenewal {
	in := SessionRenewal{Malformed: why}
	ReadMembers(raw, map[string]any{"session_id": &in.SessionID, "epoch": &in.Epoch})
	return in
}

// WorkerHeartbeatAnswer carries what was renewed and what the worker should do.
type WorkerHeartbeatAnswer struct {
	WorkerID          string            `json:"worker_id"`
	Acknowledged      bool              `json:"acknowledged"`
	HeartbeatInterval int64             `json:"heartbeat_interval_seconds"`
	StaleAfter        int64             `json:"stale_after_seconds"`
	Leases            []HeartbeatAnswer `json:"leases,omitempty"`
	Sessions          []SessionState    `json:"sessions,omitempty"`
	Drain             bool              `json:"drain,omitempty"`
	// Intent is what an operator wants of the worker; absent: that it works.
	Intent Intent `json:"intent,omitempty" enum:"pause,leave"`
	// Settings is the revision of the operators' settings: fetch them when it is not the one fetched last.
	Settings   int64        `json:"settings_revision,omitempty"`
	AppRelease string       `json:"app_release,omitempty"`
	StoreTime  history.Time `json:"store_time,omitzero"` // when the answer was made, perhaps a little less
	// EndedRuns have ended while the worker kept them in memory: it evicts them.
	EndedRuns []string `json:"ended_runs,omitempty"`
}

// SessionState is what the store says of a session a worker believes it holds.
type SessionState struct {
	SessionID      string       `json:"session_id"`
	Epoch          int64        `json:"epoch"`
	Held           bool         `json:"held"` // false: lost, ended or superseded; drop its executor
	Reason         string       `json:"reason,omitempty"`
	LeaseExpiresAt history.Time `json:"lease_expires_at"`
}

// DeregisterRequest takes a worker's registration away; its leases end and its sessions are released.
type DeregisterRequest struct {
	WorkerID    string `json:"worker_id"`
	Namespace   string `json:"namespace,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
}

// DeregisterAnswer has exactly these members: clients check them all.
type DeregisterAnswer struct {
	WorkerID  string `json:"worker_id"`
	Outcome   string `json:"outcome"` // deregistered
	Recovered int    `json:"recovered_workflow_task_count"`
}
