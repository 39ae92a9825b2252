package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A schedule starts workflows at certain times. Apps crash, and several apps may process one schedule, so two errors
// must be prevented: a time that fires twice, and a time that is lost without a trace. The workflow ID of a firing is
// derived from its time, so it cannot be started twice. Every decision starts from NextAt, which only a decision
// advances, so no time is skipped.

// ScheduleKey is the key of a schedule.
type ScheduleKey struct{ Namespace, ID string }

// These are the statuses of a schedule. Deleted also means that its runs are used up.
const (
	ScheduleActive  = "active"
	SchedulePaused  = "paused"
	ScheduleDeleted = "deleted"
)

// These values say what triggered a start.
const (
	BySchedule = "schedule"
	ByHand     = "manual"
	ByBackfill = "backfill"
)

// maxBuffered is the maximum number of starts that a schedule buffers.
const maxBuffered = 1000

// Schedule starts workflows at certain times. Every decision increments Version, which is the fence: a decision that is
// based on another version is rejected.
type Schedule struct {
	Namespace string `json:"-"`
	ID        string `json:"-"`
	Status    string `json:"-"`

	Version   int64        `json:"version"`
	Events    int64        `json:"events"` // number of the last entry in the schedule's history
	CreatedAt history.Time `json:"created_at"`
	UpdatedAt history.Time `json:"updated_at"`
	// RemovedAt is the time of the deletion. Afterwards only the history can be read, for the retention time of a
	// closed run.
	RemovedAt history.Time `json:"removed_at,omitzero"`

	Spec             protocol.ScheduleSpec   `json:"spec"`
	Action           protocol.ScheduleAction `json:"action"`
	Overlap          string                  `json:"overlap"`
	Jitter           int64                   `json:"jitter,omitempty"` // in seconds
	MaxRuns          int64                   `json:"max_runs,omitempty"`
	Remaining        int64                   `json:"remaining,omitempty"` // runs that remain of MaxRuns
	Note             string                  `json:"note,omitempty"`
	Memo             json.RawMessage         `json:"memo,omitempty"`
	SearchAttributes json.RawMessage         `json:"search_attributes,omitempty"`

	// NameRules is the version of the naming rules when the schedule was created; see protocol.NameRules.
	NameRules int `json:"name_rules,omitempty"`

	NextAt   history.Time `json:"next_at,omitzero"`  // next time of the spec, without jitter
	CheckAt  history.Time `json:"check_at,omitzero"` // next time to check whether a buffered start is possible
	Buffered []Buffered   `json:"buffered,omitempty"`

	Latest      string       `json:"latest,omitempty"` // workflow ID of the last start
	LastFiredAt history.Time `json:"last_fired_at,omitzero"`
	Fires       int64        `json:"fires,omitempty"`
	Failures    int64        `json:"failures,omitempty"`
	Skipped     int64        `json:"skipped,omitempty"`
	LastSkip    string       `json:"last_skip,omitempty"`
}

// Buffered is a start that waits until the previous workflow has closed.
type Buffered struct {
	At      history.Time `json:"at"` // time of the firing
	Since   history.Time `json:"since"`
	Trigger string       `json:"trigger"`
}

// Key returns the key of the schedule.
func (s *Schedule) Key() ScheduleKey { return ScheduleKey{s.Namespace, s.ID} }

// NextFire returns the time of the next firing, with jitter; zero if there is none. The jitter is derived from the
// schedule and the time, so that every app computes the same.
func (s *Schedule) NextFire() history.Time {
	if s.NextAt.IsZero() || s.Status != ScheduleActive {
		return history.Time{}
	}
	return plus(s.NextAt, jitter(s.Key(), s.NextAt.Time, s.Jitter))
}

// DueAt returns the time at which the sweeper must visit the schedule.
func (s *Schedule) DueAt() history.Time {
	if s.Status != ScheduleActive {
		return history.Time{}
	}
	return earliest(s.NextFire(), s.CheckAt)
}

// FireID returns the workflow ID of a firing. It is derived from the time and used only once, so a schedule cannot fire
// twice for one time.
func (s *Schedule) FireID(at time.Time) string {
	name := s.ID
	if s.Action.WorkflowID != "" {
		name = s.Action.WorkflowID
	}
	return name + "." + at.UTC().Format("20060102T150405Z")
}

// StartID returns the workflow ID of a start. The ID of a manual start also contains a number, since an operator may
// trigger two starts within a second.
func (s *Schedule) StartID(at time.Time, trigger string) string {
	if trigger == ByHand {
		return fmt.Sprintf("%s-%d", s.FireID(at), s.Events+1)
	}
	return s.FireID(at)
}

// ScheduleEnvironment is what a decision on a schedule may read besides the schedule itself.
type ScheduleEnvironment struct {
	Running bool // true if the workflow that was started last is open
	// Existing returns the row of a workflow ID and its newest run; nil: the ID is free. The run is nil if it was removed.
	Existing func(workflowID string) (*Workflow, *Run)
	// Full returns the quota that one more run would exceed if the step has started others other runs before and ends
	// ended open runs; empty: none. nil: no quota applies.
	Full func(others, ended int64) protocol.Quota
}

// ScheduleDecision is everything that one step changes in a schedule, with the workflows that it starts and ends.
type ScheduleDecision struct {
	After  int64 // version on which the decision is based
	Next   *Schedule
	Starts []ScheduledStart
	End    string // what happens to the last started workflow: cancel, terminate, or empty (nothing)
	Events []protocol.ScheduleEvent
	Delete bool

	Outcome string
	Reason  string
}

// ScheduledStart is a workflow that a decision starts.
type ScheduledStart struct {
	WorkflowID, RunID string
	Reuses            bool   // the run begins a new chain under a workflow ID that is in use
	Replaces          string // the open run of the workflow ID, which ends; empty: none
}

// ScheduleInput is an input of a decision on a schedule.
type ScheduleInput interface {
	decide(*scheduleStep) error
}

// DecideSchedule applies in to s, which is nil if the schedule does not exist. It does not change s. A removed schedule
// still has a row for its history: it can be created again or forgotten, and no other input is allowed.
func DecideSchedule(
	s *Schedule, k ScheduleKey, w ScheduleEnvironment, in ScheduleInput, now time.Time,
) (ScheduleDecision, error) {
	st := &scheduleStep{env: w, now: history.At(now)}
	if s == nil {
		if _, creates := in.(CreateSchedule); !creates {
			return st.d, noSchedule(k)
		}
		st.Schedule = &Schedule{Namespace: k.Namespace, ID: k.ID}
	} else {
		switch in.(type) {
		case CreateSchedule, ForgetSchedule:
		default:
			if !s.RemovedAt.IsZero() {
				return st.d, noSchedule(k)
			}
		}
		next := *s
		next.Buffered = append([]Buffered(nil), s.Buffered...)
		st.Schedule, st.d.After = &next, s.Version
	}
	if err := in.decide(st); err != nil {
		return ScheduleDecision{}, err
	}
	st.Version++
	st.UpdatedAt = st.now
	st.d.Next = st.Schedule
	return st.d, nil
}

func noSchedule(k ScheduleKey) error {
	return protocol.Refuse(protocol.ReasonScheduleNotFound, "schedule %s not found", k.ID).With("schedule_id", k.ID)
}

// scheduleStep is a decision on a schedule in progress.
type scheduleStep struct {
	*Schedule
	env ScheduleEnvironment
	now history.Time
	d   ScheduleDecision

	// how the firing that is decided uses its workflow ID; see ScheduledStart
	reuses   bool
	replaces string
}

// appendEvent adds an entry to the schedule's own history, which shows users why a workflow was started or not.
func (st *scheduleStep) appendEvent(kind, workflow, run string, payload map[string]any) {
	st.Events++
	e := protocol.ScheduleEvent{Sequence: st.Events, Type: kind, At: st.now, Payload: payload}
	if e.Payload == nil {
		e.Payload = map[string]any{}
	}
	if workflow != "" {
		e.WorkflowID, e.RunID = &workflow, &run
	}
	st.d.Events = append(st.d.Events, e)
}

// fire applies a firing under an overlap policy. If no run starts, it records the reason, so that a missing run can be
// explained.
func (st *scheduleStep) fire(at history.Time, trigger, overlap string) {
	id := st.StartID(at.Time, trigger)
	switch {
	case st.Status != ScheduleActive:
		st.skip(at, trigger, "status_not_triggerable")
		return
	// Another app or a backfill has already fired this time.
	case !st.useWorkflowID(id, trigger):
		st.skip(at, trigger, "already_fired")
		return
	case !st.env.Running || st.replaces != "" && id == st.Latest: // the run that ends is the one that was started last
		st.start(id, at, trigger, "")
		return
	}
	switch overlap {
	case OverlapAll:
		st.start(id, at, trigger, "")
	case protocol.OverlapCancel, protocol.OverlapTerminate:
		// Only a workflow that was running before this decision can be ended, not one that this decision starts.
		end := ""
		if len(st.d.Starts) == 0 && st.d.End == "" {
			end = map[string]string{protocol.OverlapCancel: "cancel", protocol.OverlapTerminate: "terminate"}[overlap]
		}
		st.start(id, at, trigger, end)
	case protocol.OverlapBufferOne, protocol.OverlapBufferAll:
		most := 1
		if overlap == protocol.OverlapBufferAll {
			most = maxBuffered
		}
		if len(st.Buffered) >= most {
			st.skip(at, trigger, "buffer_full")
			st.d.Outcome = "buffer_full"
			return
		}
		st.Buffered = append(st.Buffered, Buffered{At: at, Since: st.now, Trigger: trigger})
		st.d.Outcome = "buffered"
		depth := map[string]any{"buffer_depth": len(st.Buffered)}
		st.appendEvent("ScheduleTriggerBuffered", "", "", st.about(at, trigger, depth))
		st.planNextCheck()
	default:
		st.skip(at, trigger, "overlap_policy_skip")
	}
}

// OverlapAll is the overlap policy under which runs start regardless of other runs.
const OverlapAll = protocol.OverlapAllowAll

// useWorkflowID decides whether a firing may use a workflow ID, and stores how it uses the ID. Only a backfill may use
// an ID again, by the policies of the action. For all other firings a used ID means that the time has fired, also after
// the clock went back.
func (st *scheduleStep) useWorkflowID(id, trigger string) bool {
	st.reuses, st.replaces = false, ""
	if st.env.Existing == nil {
		return true
	}
	flow, run := st.env.Existing(id)
	if flow == nil {
		return true
	}
	if trigger != ByBackfill {
		return false
	}
	effect, err := DecideExisting(&protocol.StartRequest{
		ReusePolicy: st.Action.ReusePolicy, ConflictPolicy: st.Action.ConflictPolicy,
	}, flow, run)
	if err != nil || effect == ReturnRun {
		return false
	}
	if st.reuses = true; effect == TerminateRun {
		st.replaces = run.ID
	}
	return true
}

func (st *scheduleStep) about(at history.Time, trigger string, more map[string]any) map[string]any {
	p := map[string]any{"fire_time": at, "trigger": trigger}
	for k, v := range more {
		p[k] = v
	}
	return p
}

// skip records a firing that started nothing.
func (st *scheduleStep) skip(at history.Time, trigger, reason string) {
	st.Skipped++
	st.LastSkip = reason
	st.d.Outcome, st.d.Reason = "skipped", reason
	st.appendEvent("ScheduleTriggerSkipped", "", "", st.about(at, trigger, map[string]any{"reason": reason}))
}

// ended returns the number of open runs that the step ends if it starts one more run, with which it does end to the
// running workflow.
func (st *scheduleStep) ended(end string) (n int64) {
	if end != "" || st.d.End != "" {
		n++
	}
	if st.replaces != "" {
		n++
	}
	for i := range st.d.Starts {
		if st.d.Starts[i].Replaces != "" {
			n++
		}
	}
	return n
}

// start starts a workflow. end says what happens to the running workflow: cancel, terminate, or empty (it continues).
// If a quota would be exceeded, the firing is skipped and the running workflow continues. The started workflow counts
// as running, so that the overlap policy applies to a second firing in the same decision.
func (st *scheduleStep) start(id string, at history.Time, trigger, end string) {
	if st.env.Full != nil {
		if q := st.env.Full(int64(len(st.d.Starts)), st.ended(end)); q != "" {
			st.skip(at, trigger, "quota_"+string(q))
			return
		}
	}
	if end != "" {
		st.d.End = end
	}
	run := DerivedRunID(st.Namespace+"/"+st.ID, st.Events+1, st.now.Time)
	st.d.Starts = append(st.d.Starts, ScheduledStart{id, run, st.reuses, st.replaces})
	st.d.Outcome = "triggered"
	st.Fires++
	st.Latest, st.LastFiredAt, st.env.Running = id, st.now, true
	var moved map[string]any
	if from := st.movedFrom(at.Time); from != "" && trigger != ByHand {
		moved = map[string]any{"note": "moved from " + from}
	}
	st.appendEvent("ScheduleTriggered", id, run, st.about(at, trigger, moved))
	if st.MaxRuns == 0 {
		return
	}
	if st.Remaining--; st.Remaining <= 0 {
		st.finish("max_runs_exhausted")
	}
}

// finish removes a schedule whose runs are used up or that was deleted.
func (st *scheduleStep) finish(reason string) {
	st.Status, st.Remaining, st.Buffered = ScheduleDeleted, 0, nil
	st.NextAt, st.CheckAt = history.Time{}, history.Time{}
	st.appendEvent("ScheduleDeleted", "", "", map[string]any{"reason": reason})
}

// planNextCheck sets the time of the next check of the buffered starts. The interval grows with the time that the first
// of them has waited, since a workflow that has run for an hour will hardly close within the next second.
func (st *scheduleStep) planNextCheck() {
	if len(st.Buffered) == 0 {
		st.CheckAt = history.Time{}
		return
	}
	wait := st.now.Sub(st.Buffered[0].Since.Time) / 8
	st.CheckAt = plus(st.now, min(max(wait, 250*time.Millisecond), 5*time.Second))
}

// movedFrom returns the local time that a clock change skipped, if the firing replaces one; otherwise "".
func (st *scheduleStep) movedFrom(at time.Time) string {
	c, err := ParseCalendar(st.Spec)
	if err != nil {
		return ""
	}
	return c.MovedFrom(at)
}

// next sets NextAt to the first time of the spec after t.
func (st *scheduleStep) next(t time.Time) error {
	c, err := ParseCalendar(st.Spec)
	if err != nil {
		return err
	}
	st.NextAt = history.Time{}
	if at := c.Next(t); !at.IsZero() && st.Status != ScheduleDeleted {
		st.NextAt = history.At(at)
	}
	return nil
}
