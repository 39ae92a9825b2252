package protocol

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// The kinds of a run.
const (
	RunOfWorkflow = "workflow"
	RunOfActivity = "activity" // a single activity without a workflow: an activity run
)

// ActivityOptions are the options of an activity run, as in the command schedule_activity.
type ActivityOptions struct {
	// absent or null: one attempt
	RetryPolicy     *retry.Policy `json:"retry_policy,omitempty"`
	StartToClose    Timeout       `json:"start_to_close_timeout,omitempty" minimum:"1" maximum:"315360000"`
	ScheduleToStart Timeout       `json:"schedule_to_start_timeout,omitempty" minimum:"1" maximum:"315360000"`
	ScheduleToClose Timeout       `json:"schedule_to_close_timeout,omitempty" minimum:"1" maximum:"315360000"`
	Heartbeat       Timeout       `json:"heartbeat_timeout,omitempty" minimum:"1" maximum:"315360000"`
	// number of blamed worker losses after which the activity fails; 0: the app's setting
	MaxBlamedLosses int `json:"max_blamed_losses,omitempty" minimum:"0" maximum:"1000"`

	SessionID     string          `json:"session_id,omitempty" maxLength:"255"`
	Affinity      string          `json:"affinity,omitempty" enum:"hard,soft"`
	FallbackAfter int64           `json:"fallback_after_seconds,omitempty" minimum:"0" maximum:"315360000"`
	FailFast      bool            `json:"fail_fast,omitempty"` // of the session of session_id
	WorkerSession *SessionOptions `json:"worker_session,omitempty"`
	Requirements  []string        `json:"requirements,omitempty"`

	SessionDefinition *ActivitySession `json:"session_definition,omitempty"`
}

// ActivitySession is session_definition of an activity run, as in the command schedule_activity, with arguments as in
// input.
type ActivitySession struct {
	Name      string          `json:"name" minLength:"1" maxLength:"200"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	OnLost    string          `json:"on_lost,omitempty" enum:"set_up,fail"`
}

// ActivityRequest starts an activity run. Members of the run are named as in StartRequest, members of the activity as
// in the command schedule_activity.
type ActivityRequest struct {
	Namespace string `json:"namespace,omitempty"`
	// ID of the run; generated if empty
	WorkflowID   string          `json:"workflow_id,omitempty" pattern:"^[^#?\\x00-\\x1f\\x7f-\\x9f]{1,255}$"`
	ActivityType string          `json:"activity_type" minLength:"1" maxLength:"255"`
	TaskQueue    string          `json:"task_queue,omitempty" maxLength:"255"` // that of worker_session, or "default"
	Input        json.RawMessage `json:"input,omitempty"`
	PayloadCodec string          `json:"payload_codec,omitempty" enum:"avro"`

	ActivityOptions

	// delay before the first attempt; the other timeouts begin after it
	StartDelay int64 `json:"start_delay_seconds,omitempty" minimum:"0" maximum:"315360000"`

	Priority       *int   `json:"priority,omitempty" minimum:"0" maximum:"9"` // 0 first … 9 last, default 5
	FairnessKey    string `json:"fairness_key,omitempty" pattern:"^[A-Za-z0-9._:-]{1,64}$"`
	FairnessWeight int    `json:"fairness_weight,omitempty" minimum:"0" maximum:"1000"`

	BusinessKey      string          `json:"business_key,omitempty" maxLength:"255"`
	Memo             json.RawMessage `json:"memo,omitempty"`
	SearchAttributes json.RawMessage `json:"search_attributes,omitempty"`
	// the activity task contains them
	Headers history.Headers `json:"headers,omitempty"`
	// fail (default), use-existing; not together with conflict_policy
	DuplicatePolicy string `json:"duplicate_policy,omitempty" enum:"fail,use-existing"`
	// as for a workflow
	ReusePolicy string `json:"reuse_policy,omitempty" enum:"reject,allow-after-failure,allow"`
	// as for a workflow
	ConflictPolicy string `json:"conflict_policy,omitempty" enum:"fail,use-existing,terminate-existing"`
	// IdempotencyKey is the header Idempotency-Key, as in StartRequest
	IdempotencyKey string `json:"-"`
	Identity       string `json:"-"`
}

// Start returns the part of the request that concerns the run.
func (r *ActivityRequest) Start() StartRequest {
	s := StartRequest{
		Namespace: r.Namespace, WorkflowID: r.WorkflowID, WorkflowType: r.ActivityType, TaskQueue: r.TaskQueue,
		Input: r.Input, PayloadCodec: r.PayloadCodec, BusinessKey: r.BusinessKey, Memo: r.Memo,
		SearchAttributes: r.SearchAttributes, DuplicatePolicy: r.DuplicatePolicy,
		ReusePolicy: r.ReusePolicy, ConflictPolicy: r.ConflictPolicy, Priority: r.Priority,
		FairnessKey: r.FairnessKey, FairnessWeight: r.FairnessWeight, StartDelay: r.StartDelay, Identity: r.Identity,
		IdempotencyKey: r.IdempotencyKey, Headers: r.Headers,
	}
	if s.TaskQueue == "" && r.WorkerSession != nil {
		s.TaskQueue = r.WorkerSession.Queue
	}
	return s
}

// Command returns the part of the request that concerns the activity, with its arguments as a blob.
func (r *ActivityRequest) Command(arguments string) Command {
	return Command{
		Type: ScheduleActivity, ActivityType: r.ActivityType, Arguments: payload.Payload{Blob: arguments},
		RetryPolicy: r.RetryPolicy, StartToClose: r.StartToClose, ScheduleToStart: r.ScheduleToStart,
		ScheduleToClose: r.ScheduleToClose, Heartbeat: r.Heartbeat, SessionID: r.SessionID, Affinity: r.Affinity,
		FallbackAfter: r.FallbackAfter, WorkerSession: r.WorkerSession, Requirements: r.Requirements,
		MaxBlamedLosses: r.MaxBlamedLosses, FailFast: r.FailFast, Headers: r.Headers,
	}
}

// ActivityResponse identifies the run that was started or that exists already.
type ActivityResponse struct {
	WorkflowID   string `json:"workflow_id"`
	RunID        string `json:"run_id"`
	ActivityType string `json:"activity_type"`
	Namespace    string `json:"namespace"`
	Status       string `json:"status"`
	Outcome      string `json:"outcome"` // started_new, returned_existing_active
	New          bool   `json:"-"`
}
