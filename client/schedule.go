package client

import (
	"encoding/json"
	"time"
)

// ScheduleInfo describes a schedule.
type ScheduleInfo struct {
	ID           string                     `json:"schedule_id"`
	Namespace    string                     `json:"namespace"`
	Kind         string                     `json:"kind"`          // kind of the runs: workflow or activity
	WorkflowType string                     `json:"workflow_type"` // or the activity type
	Paused       bool                       `json:"paused"`
	Note         string                     `json:"note"`
	Spec         ScheduleSpec               `json:"spec"`
	Overlap      OverlapPolicy              `json:"overlap_policy"`
	Remaining    *int64                     `json:"remaining_actions"` // firings left; nil: no limit
	Fires        int64                      `json:"fires_count"`
	Failures     int64                      `json:"failures_count"` // firings that failed to start a run
	NextFireAt   time.Time                  `json:"next_fire_at"`   // zero: none
	LastFiredAt  time.Time                  `json:"last_fired_at"`  // zero: never
	Latest       string                     `json:"latest_workflow_instance_id"`
	CreatedAt    time.Time                  `json:"created_at"`
	UpdatedAt    time.Time                  `json:"updated_at"`
	Memo         map[string]json.RawMessage `json:"memo"`
}

// ScheduleSpec has the times of a schedule: it fires at every time of every expression and interval.
type ScheduleSpec struct {
	Cron      []string           `json:"cron_expressions,omitempty"` // five fields, or a macro such as @hourly
	Intervals []ScheduleInterval `json:"intervals,omitempty"`
	TimeZone  string             `json:"timezone,omitempty"` // time zone of the expressions; default UTC
}

// ScheduleInterval fires at a fixed interval, counted from 1970-01-01T00:00:00Z plus the offset. Both are ISO 8601
// durations such as PT30M.
type ScheduleInterval struct {
	Every  string `json:"every"`
	Offset string `json:"offset,omitempty"`
}

// OverlapPolicy decides what a schedule does at a firing while the workflow that it started last is open.
type OverlapPolicy string

// The overlap policies; the default is OverlapSkip.
const (
	OverlapSkip      OverlapPolicy = "skip"
	OverlapBufferOne OverlapPolicy = "buffer_one" // starts it when the open one has closed; at most one firing waits
	OverlapBufferAll OverlapPolicy = "buffer_all"
	OverlapAllowAll  OverlapPolicy = "allow_all"       // starts it at once
	OverlapCancel    OverlapPolicy = "cancel_other"    // cancels the open one first
	OverlapTerminate OverlapPolicy = "terminate_other" // terminates the open one first
)
