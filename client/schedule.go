package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/shared/protocol"
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

// Schedules lists the schedules of the namespace, sorted by ID.
func (c *Client) Schedules(ctx context.Context) iter.Seq2[ScheduleInfo, error] {
	return pages[ScheduleInfo](ctx, c, "/api/schedules", "schedules", 200, url.Values{})
}

// ScheduleOptions are the options of a schedule. The zero values of the fields other than Spec and Action are the
// defaults.
type ScheduleOptions struct {
	Spec    ScheduleSpec   // when it fires
	Action  ScheduleAction // what it starts
	Overlap OverlapPolicy  // empty: OverlapSkip
	Jitter  time.Duration  // random delay of each firing, at most a day; whole seconds, rounded up
	MaxRuns int64          // number of firings after which the schedule ends; 0: no limit
	Paused  bool           // the schedule does not fire until it is resumed
	Note    string         // for people, at most 1000 bytes
	Memo    map[string]any // values that are shown with the schedule
}

// ScheduleAction is what a schedule starts: a workflow, or an activity run. Durations are rounded up to whole seconds;
// 0 means none.
type ScheduleAction struct {
	WorkflowType string // required unless ActivityType is set
	ActivityType string
	Args         Args
	// WorkflowID is the first part of the workflow IDs, which end with the time of the firing: 1 to 100 letters, digits
	// and . _ : -. Empty: the ID of the schedule.
	WorkflowID       string
	Queue            string // empty: "default"
	BusinessKey      string
	Memo             map[string]any    // of the runs
	SearchAttributes map[string]any    // of the runs
	Headers          map[string]string // of the runs, as in [StartOptions]
	ExecutionTimeout time.Duration     // of a workflow
	RunTimeout       time.Duration     // of a workflow
	ReusePolicy      ReusePolicy       // of the workflow ID of a closed run, for a backfill; empty: RejectReuse
	ConflictPolicy   ConflictPolicy    // of a workflow ID whose run is open, for a backfill; empty: FailOnConflict

	// The fields below are options of an activity, as in [ActivityOptions].
	Retry           *RetryPolicy
	StartToClose    time.Duration
	ScheduleToClose time.Duration
	ScheduleToStart time.Duration
	Heartbeat       time.Duration
	MaxBlamedLosses int
	Requirements    []string
	SessionID       string // empty: no session
	SessionFallback time.Duration
	SessionFailFast bool
	Session         *SessionOptions
	Definition      *SessionDefinition
}

func (a ScheduleAction) wire(c *Client) (out *protocol.ScheduleAction, err error) {
	out = &protocol.ScheduleAction{
		WorkflowType: a.WorkflowType, ActivityType: a.ActivityType, TaskQueue: a.Queue, WorkflowID: a.WorkflowID,
		BusinessKey: a.BusinessKey, ExecutionTimeout: protocol.Timeout(seconds(a.ExecutionTimeout)),
		RunTimeout:  protocol.Timeout(seconds(a.RunTimeout)),
		ReusePolicy: string(a.ReusePolicy), ConflictPolicy: string(a.ConflictPolicy),
		Headers: a.Headers,
	}
	if out.ActivityOptions, err = (ActivityOptions{
		Retry: a.Retry, StartToClose: a.StartToClose, ScheduleToClose: a.ScheduleToClose,
		ScheduleToStart: a.ScheduleToStart, Heartbeat: a.Heartbeat, MaxBlamedLosses: a.MaxBlamedLosses,
		Requirements: a.Requirements, SessionID: a.SessionID, SessionFallback: a.SessionFallback,
		SessionFailFast: a.SessionFailFast, Session: a.Session, Definition: a.Definition,
	}).activity(c); err != nil {
		return nil, err
	}
	if out.Input, err = c.rawArgs(a.Args); err != nil {
		return nil, err
	}
	if out.Memo, err = rawValues("memo", a.Memo); err != nil {
		return nil, err
	}
	out.SearchAttributes, err = rawValues("search attributes", a.SearchAttributes)
	return out, err
}

// CreateSchedule creates a schedule. Without an ID it generates one. If the ID is in use, the reason of the error is
// ReasonScheduleExists.
func (c *Client) CreateSchedule(ctx context.Context, id string, o ScheduleOptions) (*Schedule, error) {
	in := protocol.ScheduleRequest{ID: id, Spec: new(o.Spec.wire()), Paused: &o.Paused}
	if id == "" {
		in.ID = ulid.Make().String()
	}
	var err error
	if in.Action, err = o.Action.wire(c); err != nil {
		return nil, err
	}
	if in.Memo, err = rawValues("memo", o.Memo); err != nil {
		return nil, err
	}
	if o.Overlap != "" {
		in.Overlap = new(string(o.Overlap))
	}
	if o.Jitter != 0 {
		in.Jitter = new(seconds(o.Jitter))
	}
	if o.MaxRuns != 0 {
		in.MaxRuns = &o.MaxRuns
	}
	if o.Note != "" {
		in.Note = &o.Note
	}
	if err := c.Call(ctx, http.MethodPost, "/api/schedules", in, nil); err != nil {
		return nil, err
	}
	return c.Schedule(in.ID), nil
}

// Schedule returns a handle of a schedule. It sends no request and does not check that the schedule exists.
func (c *Client) Schedule(id string) *Schedule { return &Schedule{client: c, ID: id} }

// Schedule is a handle of a schedule. If no schedule has the ID, the reason of the errors is ReasonScheduleNotFound.
type Schedule struct {
	client *Client
	ID     string
}

func (s *Schedule) call(ctx context.Context, method, verb string, in, out any) error {
	return s.client.Call(ctx, method, "/api/schedules/"+url.PathEscape(s.ID)+verb, in, out)
}

// Describe returns the state of the schedule.
func (s *Schedule) Describe(ctx context.Context) (v ScheduleInfo, err error) {
	return v, s.call(ctx, http.MethodGet, "", nil, &v)
}

// ScheduleChanges are changes of a schedule; nil leaves a property as it is.
type ScheduleChanges struct {
	Spec    *ScheduleSpec
	Action  *ScheduleAction // replaces the whole action
	Overlap *OverlapPolicy
	Jitter  *time.Duration // whole seconds, rounded up
	MaxRuns *int64
	Note    *string
}

// Update changes the schedule.
func (s *Schedule) Update(ctx context.Context, changes ScheduleChanges) error {
	in := protocol.ScheduleRequest{MaxRuns: changes.MaxRuns, Note: changes.Note}
	if changes.Spec != nil {
		in.Spec = new(changes.Spec.wire())
	}
	if changes.Action != nil {
		var err error
		if in.Action, err = changes.Action.wire(s.client); err != nil {
			return err
		}
	}
	if changes.Overlap != nil {
		in.Overlap = new(string(*changes.Overlap))
	}
	if changes.Jitter != nil {
		in.Jitter = new(seconds(*changes.Jitter))
	}
	return s.call(ctx, http.MethodPut, "", in, nil)
}

// Pause stops the firings until Resume. The note explains the reason to people; it has at most 1000 bytes.
func (s *Schedule) Pause(ctx context.Context, note string) error {
	return s.call(ctx, http.MethodPost, "/pause", map[string]string{"note": note}, nil)
}

// Resume continues the firings. It does not catch up on those in between; see Backfill.
func (s *Schedule) Resume(ctx context.Context, note string) error {
	return s.call(ctx, http.MethodPost, "/resume", map[string]string{"note": note}, nil)
}

// Firing is the outcome of one firing.
type Firing struct {
	At         time.Time `json:"fire_time"`   // zero for a trigger
	Outcome    string    `json:"outcome"`     // triggered, buffered, buffer_full, skipped
	Reason     string    `json:"reason"`      // why it started no run
	WorkflowID string    `json:"workflow_id"` // of the run that it started
}

// Trigger fires the schedule now; a paused schedule skips the firing. With an empty overlap policy, the schedule's own
// applies.
func (s *Schedule) Trigger(ctx context.Context, overlap OverlapPolicy) (f Firing, err error) {
	in := map[string]string{}
	if overlap != "" {
		in["overlap_policy"] = string(overlap)
	}
	return f, s.call(ctx, http.MethodPost, "/trigger", in, &f)
}

// Backfill fires the schedule for each of its times from start to end, oldest first. With an empty overlap policy, the
// schedule's own applies.
func (s *Schedule) Backfill(ctx context.Context, start, end time.Time, overlap OverlapPolicy) ([]Firing, error) {
	in := map[string]string{"start_time": start.Format(time.RFC3339), "end_time": end.Format(time.RFC3339)}
	if overlap != "" {
		in["overlap_policy"] = string(overlap)
	}
	var out struct {
		Results []Firing `json:"results"`
	}
	err := s.call(ctx, http.MethodPost, "/backfill", in, &out)
	return out.Results, err
}

// Delete deletes the schedule. Its runs continue.
func (s *Schedule) Delete(ctx context.Context) error {
	return s.call(ctx, http.MethodDelete, "", nil, nil)
}

func (s ScheduleSpec) wire() protocol.ScheduleSpec {
	out := protocol.ScheduleSpec{Cron: s.Cron, TimeZone: s.TimeZone}
	for _, i := range s.Intervals {
		out.Intervals = append(out.Intervals, protocol.ScheduleInterval(i))
	}
	return out
}
