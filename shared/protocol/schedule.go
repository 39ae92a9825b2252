package protocol

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/shared/history"
)

// The overlap policies: what a schedule does at a firing while the workflow that it started last is open.
const (
	OverlapSkip      = "skip"
	OverlapBufferOne = "buffer_one"
	OverlapBufferAll = "buffer_all"
	OverlapAllowAll  = "allow_all"
	OverlapCancel    = "cancel_other"
	OverlapTerminate = "terminate_other"
)

// ScheduleSpec has the times of a schedule: it fires at every time of every expression and interval.
type ScheduleSpec struct {
	Cron      []string           `json:"cron_expressions,omitempty"` // five fields, or a macro such as @hourly
	Intervals []ScheduleInterval `json:"intervals,omitempty"`
	TimeZone  string             `json:"timezone,omitempty"` // time zone of the expressions; default UTC
}

// ScheduleInterval fires at a fixed interval, counted from 1970-01-01T00:00:00Z plus the offset. Both are ISO 8601
// durations such as PT30M.
type ScheduleInterval struct {
	Every  string `json:"every" required:"true"`
	Offset string `json:"offset,omitempty"`
}

// ScheduleAction is what a schedule starts: a workflow or an activity run. Its workflow ID is WorkflowID, by default
// the schedule's ID, followed by the time of the firing.
type ScheduleAction struct {
	WorkflowType     string          `json:"workflow_type,omitempty" minLength:"1" maxLength:"255"` // required unless activity_type is set
	ActivityType     string          `json:"activity_type,omitempty" minLength:"1" maxLength:"255"`
	TaskQueue        string          `json:"task_queue,omitempty" maxLength:"255"`
	Input            json.RawMessage `json:"input,omitempty"`
	WorkflowID       string          `json:"workflow_id,omitempty" pattern:"^[a-zA-Z0-9._:-]{1,100}$"`
	BusinessKey      string          `json:"business_key,omitempty" maxLength:"255"`
	Memo             json.RawMessage `json:"memo,omitempty"`
	SearchAttributes json.RawMessage `json:"search_attributes,omitempty"`
	Headers          history.Headers `json:"headers,omitempty"` // of the runs
	ExecutionTimeout Timeout         `json:"execution_timeout_seconds,omitempty" minimum:"1" maximum:"315360000"`
	RunTimeout       Timeout         `json:"run_timeout_seconds,omitempty" minimum:"1" maximum:"315360000"`
	// whether a backfill fires again for a time whose run has closed: reject (default), allow-after-failure, allow; other
	// firings never use a workflow ID again
	ReusePolicy string `json:"reuse_policy,omitempty" enum:"reject,allow-after-failure,allow"`
	// what a backfill does for a time whose run is open: fail (default) and use-existing skip the time,
	// terminate-existing ends the run and starts a new one
	ConflictPolicy  string `json:"conflict_policy,omitempty" enum:"fail,use-existing,terminate-existing"`
	ActivityOptions        // options of an activity
}

// Activity returns the request for the activity run that the action starts.
func (a *ScheduleAction) Activity(namespace, id string) ActivityRequest {
	return ActivityRequest{
		Namespace: namespace, WorkflowID: id, ActivityType: a.ActivityType, TaskQueue: a.TaskQueue, Input: a.Input,
		ActivityOptions: a.ActivityOptions, BusinessKey: a.BusinessKey, Memo: a.Memo, SearchAttributes: a.SearchAttributes,
		ReusePolicy: a.ReusePolicy, ConflictPolicy: a.ConflictPolicy, Identity: "schedule",
		Headers: a.Headers,
	}
}

// ScheduleRequest creates or changes a schedule. Absent members keep their values.
type ScheduleRequest struct {
	Namespace string `json:"-"`
	// default a new ULID
	ID     string          `json:"schedule_id,omitempty" pattern:"^[a-zA-Z0-9._:-]{1,100}$"`
	Spec   *ScheduleSpec   `json:"spec,omitempty"`
	Action *ScheduleAction `json:"action,omitempty"`
	// default skip
	Overlap          *string         `json:"overlap_policy,omitempty" enum:"skip,buffer_one,buffer_all,allow_all,cancel_other,terminate_other"`
	Jitter           *int64          `json:"jitter_seconds,omitempty" minimum:"0" maximum:"86400"`
	MaxRuns          *int64          `json:"max_runs,omitempty" minimum:"1"`
	Paused           *bool           `json:"paused,omitempty"`
	Note             *string         `json:"note,omitempty" maxLength:"1000"`
	Memo             json.RawMessage `json:"memo,omitempty"`
	SearchAttributes json.RawMessage `json:"search_attributes,omitempty"`
}

// ScheduleView is a schedule in responses.
type ScheduleView struct {
	ScheduleID       string          `json:"schedule_id"`
	Namespace        string          `json:"namespace"`
	Kind             string          `json:"kind" enum:"workflow,activity"` // kind of the runs
	WorkflowType     string          `json:"workflow_type"`                 // or the activity type
	Status           string          `json:"status" enum:"active,paused,deleted"`
	Paused           bool            `json:"paused"`
	Spec             ScheduleSpec    `json:"spec"`
	Action           ScheduleAction  `json:"action"`
	Overlap          string          `json:"overlap_policy" enum:"skip,buffer_one,buffer_all,allow_all,cancel_other,terminate_other"`
	Jitter           int64           `json:"jitter_seconds"`
	MaxRuns          *int64          `json:"max_runs"`
	Remaining        *int64          `json:"remaining_actions"`
	Note             *string         `json:"note"`
	Memo             json.RawMessage `json:"memo"`
	SearchAttributes json.RawMessage `json:"search_attributes"`
	Fires            int64           `json:"fires_count"`
	Failures         int64           `json:"failures_count"`
	NextFire         *history.Time   `json:"next_fire"`
	LastFire         *history.Time   `json:"last_fire"`
	NextFireAt       *history.Time   `json:"next_fire_at"`
	LastFiredAt      *history.Time   `json:"last_fired_at"`
	Latest           *string         `json:"latest_workflow_instance_id"`
	CreatedAt        history.Time    `json:"created_at"`
	UpdatedAt        history.Time    `json:"updated_at"`
	Info             ScheduleInfo    `json:"info"`
	// with values=preview or none: values that the response does not contain whole, by the path of the member
	Truncated Truncated `json:"truncated,omitempty"`
}

// ScheduleInfo counts the firings that started no run at once.
type ScheduleInfo struct {
	Buffered int     `json:"buffered_actions"`
	Skipped  int64   `json:"skipped_trigger_count"`
	LastSkip *string `json:"last_skip_reason"`
}

// ScheduleReceipt is the response to a command on a schedule.
type ScheduleReceipt struct {
	ScheduleID string `json:"schedule_id"`
	Namespace  string `json:"namespace"`
	// created, updated, paused, resumed, triggered, buffered, buffer_full, skipped, backfilled, deleted
	Outcome     string         `json:"outcome"`
	Status      string         `json:"status,omitempty"`
	Reason      string         `json:"reason,omitempty"`
	WorkflowID  string         `json:"workflow_id,omitempty"`
	RunID       string         `json:"run_id,omitempty"`
	BufferDepth int            `json:"buffer_depth,omitempty"`
	Attempted   *int           `json:"fires_attempted,omitempty"`
	Results     []ScheduleFire `json:"results,omitempty"`
	CreatedAt   *history.Time  `json:"created_at,omitempty"`
}

// ScheduleFire is one firing of a backfill.
type ScheduleFire struct {
	At          history.Time `json:"fire_time"`
	Outcome     string       `json:"outcome"`
	Reason      string       `json:"reason,omitempty"`
	WorkflowID  string       `json:"workflow_id,omitempty"`
	BufferDepth int          `json:"buffer_depth,omitempty"`
}

// ScheduleEvent is an entry of a schedule's history.
type ScheduleEvent struct {
	ID         int64          `json:"id"`
	Sequence   int64          `json:"sequence"`
	Type       string         `json:"event_type"`
	At         history.Time   `json:"recorded_at"`
	WorkflowID *string        `json:"workflow_instance_id"`
	RunID      *string        `json:"workflow_run_id"`
	Payload    map[string]any `json:"payload"`
}

// ScheduleListRequest requests a page of the schedules of a namespace, sorted by ID.
type ScheduleListRequest struct {
	Namespace    string `json:"-"`
	Status       string `json:"status,omitempty" enum:"active,paused,deleted"`
	WorkflowType string `json:"workflow_type,omitempty"`
	Query        string `json:"query,omitempty"` // substring of the ID or of the type
	PageSize     int    `json:"page_size,omitempty" minimum:"1" maximum:"200"`
	PageToken    string `json:"next_page_token,omitempty"` // token of the previous page
	// full, if absent: with input and memo; preview: without values above 4096 bytes; none: without values
	Values Values `json:"values,omitempty" enum:"full,preview,none"`
}
