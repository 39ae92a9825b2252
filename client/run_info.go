package client

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Status is the status of a run.
type Status string

// The statuses of a run. A run that timed out has the status failed and a Reason.
const (
	StatusPending    Status = "pending" // no worker has begun to run its code
	StatusRunning    Status = "running"
	StatusWaiting    Status = "waiting"
	StatusCompleted  Status = "completed"
	StatusFailed     Status = "failed"
	StatusCancelled  Status = "cancelled"
	StatusTerminated Status = "terminated"
)

// RunInfo describes a run. Lists leave out the values, the pending steps and most of the failure.
type RunInfo struct {
	WorkflowID   string `json:"workflow_id"`
	RunID        string `json:"run_id"`
	Namespace    string `json:"namespace"`
	Kind         string `json:"kind"`          // workflow, or activity: an activity run
	WorkflowType string `json:"workflow_type"` // of an activity run, the activity type
	Status       Status `json:"status"`
	Closed       bool   `json:"is_terminal"`
	Current      bool   `json:"is_current_run"` // no later run of the workflow ID exists
	RunNumber    int64  `json:"run_number"`     // 1 for the first run; continue-as-new increments it
	Queue        string `json:"task_queue"`
	BuildID      string `json:"compatibility"` // build ID that the run is pinned to; empty: none
	BusinessKey  string `json:"business_key"`

	StartedAt         time.Time `json:"started_at"`
	ClosedAt          time.Time `json:"closed_at"` // zero while the run is open
	LastProgressAt    time.Time `json:"last_progress_at"`
	ExecutionDeadline time.Time `json:"execution_deadline_at"` // limit of all runs of the workflow; zero: none
	RunDeadline       time.Time `json:"run_deadline_at"`       // limit of this run; zero: none
	ArchivedAt        time.Time `json:"archived_at"`           // zero unless archived

	Input            json.RawMessage            `json:"input"`  // JSON array of the arguments
	Output           json.RawMessage            `json:"output"` // JSON form of the result; see DecodeResult
	Memo             map[string]json.RawMessage `json:"memo"`
	SearchAttributes map[string]json.RawMessage `json:"search_attributes"`
	HistoryLength    int64                      `json:"history_length"` // number of events

	// Failure is the failure of the workflow's code; nil if the code did not fail.
	Failure *Failure `json:"-"`
	// Reason is run_timeout or execution_timeout for a run that timed out, and the timeout of its activity for an activity
	// run; otherwise empty.
	Reason string `json:"reason"`

	Wait    *Wait    `json:"wait"`    // what an open run waits for; nil in lists
	Stuck   *Stuck   `json:"stuck"`   // set while the run makes no progress and needs an operator
	Pending *Pending `json:"pending"` // the open steps; only in the result of Describe

	ParentWorkflowID string `json:"parent_workflow_id"` // empty: no parent
	ParentRunID      string `json:"parent_run_id"`

	input, output *payload.Payload
	undecoded     error // why a codec could not decode the output
}

// UnmarshalJSON decodes a run from a response of the API.
func (r *RunInfo) UnmarshalJSON(raw []byte) error {
	type plain RunInfo
	in := struct {
		*plain
		Input     *payload.Payload `json:"input_envelope"`
		Output    *payload.Payload `json:"output_envelope"`
		Failure   json.RawMessage  `json:"failure"`
		Error     *string          `json:"error"`
		ErrorType string           `json:"error_type"`
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	r.input, r.output = in.Input, in.Output
	v := protocol.RunView{Failure: in.Failure, Error: in.Error, ErrorType: in.ErrorType}
	r.Failure = failureOf(v.Failed())
	return nil
}

// DecodeResult decodes the result of a completed run into out; without a result out does not change.
func (r *RunInfo) DecodeResult(out any) error {
	if r.undecoded != nil {
		return r.undecoded
	}
	return decode(nil, r.output, out)
}

func (r *RunInfo) target() protocol.Target {
	return protocol.Target{WorkflowID: r.WorkflowID, RunID: r.RunID}
}

// runView is a RunInfo with the methods that package apiclient needs.
type runView struct{ RunInfo }

// IsClosed reports whether the run has closed.
func (v *runView) IsClosed() bool { return v.Closed }

// Target identifies the run.
func (v *runView) Target() protocol.Target { return v.target() }

// Failure is the error with which workflow code or an activity failed.
type Failure struct {
	Type         string // type of the error, as activity.Error names it, or the name of its Go type
	Message      string
	Category     string // application, activity, timeout, cancelled, poison, session_lost, …
	NonRetryable bool
	Stack        string // stack trace, for people
	details      payload.Payload
}

// Error returns the type, unless the message says the same, and the message.
func (f *Failure) Error() string {
	return history.Failure{ExceptionType: f.Type, Message: f.Message}.Text()
}

// DecodeDetails decodes the details that activity.Details attached to the error; without details out does not change.
func (f *Failure) DecodeDetails(out any) error {
	return decode(nil, &f.details, out)
}

// failureOf converts a failure; nil for an empty one.
func failureOf(f history.Failure) *Failure {
	if f.Message == "" && f.ExceptionType == "" {
		return nil
	}
	out := &Failure{
		Type: f.ExceptionType, Message: f.Message, Category: f.Category, NonRetryable: f.NonRetryable, Stack: f.Stack,
	}
	var exception struct {
		Details payload.Payload `json:"details"`
	}
	if len(f.Exception) > 0 && json.Unmarshal(f.Exception, &exception) == nil {
		out.details = exception.Details
	}
	return out
}

// Wait is the reason why a run, a task or a session does not continue.
type Wait struct {
	Kind           string    `json:"kind"`            // workflow_task, activity, timer, signal, condition, child, …
	Reason         string    `json:"reason"`          // from the list of wait reasons, for programs
	NeedsAttention bool      `json:"needs_attention"` // an operator must act, or the wait takes longer than expected
	Message        string    `json:"message"`         // the reason as a sentence for people; times in it are UTC
	Name           string    `json:"name"`            // of the workflow type, activity type, signal, condition or child
	Queue          string    `json:"task_queue"`
	WorkerID       string    `json:"worker_id"` // worker that runs the task, or the closest match
	SessionID      string    `json:"session_id"`
	WorkflowID     string    `json:"workflow_id"` // of the child, or of the quarantined run
	Missing        []string  `json:"missing"`     // capabilities that the worker lacks
	Since          time.Time `json:"since"`       // time since when the task is ready or running
	Until          time.Time `json:"until"`       // time when the wait ends or may end
	Detail         string    `json:"detail"`      // the failure, or why the session ended
	Suggestion     string    `json:"suggestion"`  // nearest type that live workers of the queue have registered
}

// Stuck is the reason why a run makes no progress: its workflow task is quarantined or failed three times in a row, or
// no live worker may lease one of its tasks.
type Stuck struct {
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason"` // from the list of wait reasons
	Message string    `json:"message"`
}

// Pending lists the open steps of a run.
type Pending struct {
	Activities   []PendingActivity    `json:"activities"`
	Timers       []PendingTimer       `json:"timers"`
	Waits        []PendingWait        `json:"waits"`
	Updates      []PendingUpdate      `json:"updates"`
	Children     []PendingChild       `json:"children"`
	SessionIDs   []string             `json:"sessions"`
	WorkflowTask *PendingTask         `json:"workflow_task"`
	Cancellation *PendingCancellation `json:"cancellation"` // the first request to cancel the run
}

// PendingActivity is an open activity.
type PendingActivity struct {
	Sequence      int64     `json:"sequence"` // of the command that scheduled it
	ExecutionID   string    `json:"activity_execution_id"`
	ActivityType  string    `json:"activity_type"`
	Queue         string    `json:"task_queue"`
	State         string    `json:"state"` // ready, delayed, leased or pending
	Attempt       int       `json:"attempt_number"`
	WorkerID      string    `json:"worker_id"`
	SessionID     string    `json:"session_id"`
	SessionEpoch  int64     `json:"session_epoch"`
	ScheduledAt   time.Time `json:"scheduled_at"`
	StartedAt     time.Time `json:"started_at"`        // of the current attempt
	NextAttemptAt time.Time `json:"next_attempt_at"`   // end of the backoff; zero: none
	PendingSince  time.Time `json:"pending_since"`     // when the code returned activity.ErrPending; zero: it did not
	Token         string    `json:"activity_token"`    // of a pending attempt, for CompleteActivity; empty: not pending
	HeartbeatAt   time.Time `json:"last_heartbeat_at"` // last heartbeat of the code
	LastFailure   string    `json:"last_failure"`
	Wait          *Wait     `json:"wait"`
}

// PendingTimer is an open timer.
type PendingTimer struct {
	Sequence int64     `json:"sequence"`
	TimerID  string    `json:"timer_id"`
	FireAt   time.Time `json:"fire_at"`
}

// PendingWait is a signal, a condition or an awakeable that the run waits for.
type PendingWait struct {
	Sequence    int64  `json:"sequence"`
	Kind        string `json:"kind"` // signal, condition or awakeable
	Signal      string `json:"signal_name"`
	Condition   string `json:"condition_key"`
	AwakeableID string `json:"awakeable_id"`
}

// PendingUpdate is an accepted update without a result.
type PendingUpdate struct {
	UpdateID string `json:"update_id"`
	Name     string `json:"update_name"`
	Applied  bool   `json:"applied"` // the handler has begun
}

// PendingChild is an open child workflow.
type PendingChild struct {
	Sequence    int64  `json:"sequence"`
	WorkflowID  string `json:"workflow_id"`
	RunID       string `json:"run_id"`
	Type        string `json:"workflow_type"`
	ParentClose string `json:"parent_close_policy"`
	Attempt     int    `json:"attempt_number"`
}

// PendingTask is the open workflow task.
type PendingTask struct {
	TaskID      string `json:"task_id"`
	State       string `json:"state"` // ready, delayed, leased or quarantined
	Attempt     int64  `json:"workflow_task_attempt"`
	WorkerID    string `json:"worker_id"`
	LastFailure string `json:"last_failure"` // of the workflow's code
	Stack       string `json:"stack_trace"`
	Wait        *Wait  `json:"wait"`
}

// PendingCancellation is a request to cancel a run that is still open.
type PendingCancellation struct {
	RequestedAt time.Time `json:"requested_at"`
	Seen        bool      `json:"seen"` // a live worker has received the request
	Message     string    `json:"message"`
}

// Event is one entry of a run's history.
type Event struct {
	Sequence int64     // 1, 2, 3 … without gaps
	Type     string    // for example ActivityScheduled; docs/guide/histories.md lists the types
	Time     time.Time // when the app recorded it
	// Attributes is a JSON object, whose members depend on the type. Arguments and results in it are encoded; see Decode.
	Attributes json.RawMessage
}

// Decode decodes an encoded member of Attributes into out, for example "output" of WorkflowCompleted, or "arguments" of
// WorkflowStarted into a slice or a struct with one element per argument. If the event has no such member, out does not
// change.
func (e Event) Decode(member string, out any) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(e.Attributes, &members); err != nil {
		return fmt.Errorf("attributes of event %d: %w", e.Sequence, err)
	}
	raw, ok := members[member]
	if !ok {
		return nil
	}
	var p payload.Payload
	err := json.Unmarshal(raw, &p.Blob)
	if err != nil { // an envelope with the codec
		err = json.Unmarshal(raw, &p)
	}
	if err == nil && payload.IsSealed(p.Blob) {
		_, err = codecs.Chain(nil).DecodeValue(p)
		if err == nil {
			_, err = codecs.Chain(nil).DecodeArgs(p)
		}
	}
	if err == nil && !p.IsZero() {
		err = payload.Decode(p, out)
	}
	if err != nil {
		return fmt.Errorf("%s of event %d: %w", member, e.Sequence, err)
	}
	return nil
}

// UnmarshalJSON decodes an event from a response of the API, or from an exported history.
func (e *Event) UnmarshalJSON(raw []byte) error {
	var in struct {
		Sequence int64           `json:"sequence"`
		Type     string          `json:"event_type"`
		Alias    string          `json:"type"`
		Time     time.Time       `json:"recorded_at"`
		Payload  json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	if in.Type == "" {
		in.Type = in.Alias
	}
	*e = Event{Sequence: in.Sequence, Type: in.Type, Time: in.Time, Attributes: in.Payload}
	return nil
}
