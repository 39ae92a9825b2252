package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A schedule starts workflows at times. Apps crash, and several apps may process one schedule, so two errors must be
// prevented: a firing that happens twice, and a firing that is lost without a trace. The workflow ID of a firing is
// derived from its time, so it cannot be started twice. Every decision starts from NextAt, which only a decision
// advances, so no firing is skipped.

// ScheduleKey names a schedule.
type ScheduleKey struct{ Namespace, ID string }

// The statuses of a schedule. Deleted is one whose runs are used up.
const (
	ScheduleActive  = "active"
	SchedulePaused  = "paused"
	ScheduleDeleted = "deleted"
)

// How a start came about.
const (
	BySchedule = "schedule"
	ByHand     = "manual"
	ByBackfill = "backfill"
)

// maxBuffered is the most starts a schedule keeps for later.
const maxBuffered = 1000

// Schedule starts workflows at times. Version moves with every decision and is the fence: what was decided on
// another version is refused.
type Schedule struct {
	Namespace string `json:"-"`
	ID        string `json:"-"`
	Status    string `json:"-"`

	Version   int64        `json:"version"`
	Events    int64        `json:"events"` // sequence of the last entry of its history
	CreatedAt history.Time `json:"created_at"`
	UpdatedAt history.Time `json:"updated_at"`
	// RemovedAt is the time of deletion. Afterwards only the history is shown, for the retention time of a closed run.
	RemovedAt history.Time `json:"removed_at,omitzero"`

	Spec             protocol.ScheduleSpec   `json:"spec"`
	Action           protocol.ScheduleAction `json:"action"`
	Overlap          string                  `json:"overlap"`
	Jitter           int64                   `json:"jitter,omitempty"` // seconds
	MaxRuns          int64                   `json:"max_runs,omitempty"`
	Remaining        int64                   `json:"remaining,omitempty"` // of MaxRuns
	Note             string                  `json:"note,omitempty"`
	Memo             json.RawMessage         `json:"memo,omitempty"`
	SearchAttributes json.RawMessage         `json:"search_attributes,omitempty"`

	// NameRules is the version of the rules for new names when it was created; see protocol.NameRules
	NameRules int `json:"name_rules,omitempty"`

	NextAt   history.Time `json:"next_at,omitzero"`  // the next time of the spec, without jitter
	CheckAt  history.Time `json:"check_at,omitzero"` // next check whether a buffered start is possible
	Buffered []Buffered   `json:"buffered,omitempty"`

	Latest      string       `json:"latest,omitempty"` // workflow id started last
	LastFiredAt history.Time `json:"last_fired_at,omitzero"`
	Fires       int64        `json:"fires,omitempty"`
	Failures    int64        `json:"failures,omitempty"`
	Skipped     int64        `json:"skipped,omitempty"`
	LastSkip    string       `json:"last_skip,omitempty"`
}

// Buffered is a start that waits for the one before it to close.
type Buffered struct {
	At      history.Time `json:"at"` // its fire time
	Since   history.Time `json:"since"`
	Trigger string       `json:"trigger"`
}

// Key names the schedule.
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

// FireID returns the workflow ID of a firing. It is derived from the time and used once, so a schedule cannot fire
// twice for one time.
func (s *Schedule) FireID(at time.Time) string {
	name := s.ID
	if s.Action.WorkflowID != "" {
		name = s.Action.WorkflowID
	}
	return name + "." + at.UTC().Format("20060102T150405Z")
}

// StartID returns the workflow ID of a start. A manual start also carries a number, since an operator may start it
// twice within a second.
func (s *Schedule) StartID(at time.Time, trigger string) string {
	if trigger == ByHand {
		return fmt.Sprintf("%s-%d", s.FireID(at), s.Events+1)
	}
	return s.FireID(at)
}

// ScheduleEnvironment is the state besides the schedule itself that a decision on a schedule may read.
type ScheduleEnvironment struct {
	Running bool                         // the workflow it started last is open
	Taken   func(workflowID string) bool // there is, or was, a workflow of this id
	// Full returns the quota that one more run would exceed after the given number of other starts of the step; empty:
	// none. A run that ends in the step reduces the number by one. A nil function means that no quota applies.
	Full func(others int64) protocol.Quota
}

// ScheduleDecision is everything that one step changes in a schedule, with the workflows that it starts and ends.
type ScheduleDecision struct {
	After  int64 // version this was decided on
	Next   *Schedule
	Starts []ScheduledStart
	End    string // action on the workflow started last: cancel, terminate, or empty
	Events []protocol.ScheduleEvent
	Delete bool

	Outcome string
	Reason  string
}

// ScheduledStart is a workflow to be started.
type ScheduledStart struct{ WorkflowID, RunID string }

// ScheduleInput is something that happens to a schedule.
type ScheduleInput interface {
	decide(*scheduleStep) error
}

// DecideSchedule returns the effect of in on s, which is nil if no schedule has that key. It only reads s. The row of a
// removed schedule only serves its history: the schedule can be created anew or forgotten, and no other input applies.
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

// scheduleStep is one decision on a schedule in the making.
type scheduleStep struct {
	*Schedule
	env ScheduleEnvironment
	now history.Time
	d   ScheduleDecision
}

// appendEvent adds an entry to the schedule's own history, which people read to see why something did or did not
// start.
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

// fire applies a firing at a time under an overlap policy. It records each run that does not start with the reason, so
// that a missing run can be explained.
func (st *scheduleStep) fire(at history.Time, trigger, overlap string) {
	id := st.StartID(at.Time, trigger)
	switch {
	case st.Status != ScheduleActive:
		st.skip(at, trigger, "status_not_triggerable")
		return
	// The time has fired already, by another app or by a backfill.
	case st.env.Taken != nil && st.env.Taken(id):
		st.skip(at, trigger, "already_fired")
		return
	case !st.env.Running:
		st.start(id, at, trigger, "")
		return
	}
	switch overlap {
	case OverlapAll:
		st.start(id, at, trigger, "")
	case protocol.OverlapCancel, protocol.OverlapTerminate:
		// Only the workflow that was running before this decision is ended; a start of this very decision has
		// nothing to end yet.
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
		st.plan()
	default:
		st.skip(at, trigger, "overlap_policy_skip")
	}
}

// OverlapAll is the policy under which nothing waits for anything.
const OverlapAll = protocol.OverlapAllowAll

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

// start ends the running workflow by end (cancel or terminate; empty: it continues) and starts another one. If a quota
// would be exceeded, the firing is skipped and the running workflow continues. The started workflow counts as running,
// so that the overlap policy applies to a second firing within one decision.
func (st *scheduleStep) start(id string, at history.Time, trigger, end string) {
	if st.env.Full != nil {
		others := int64(len(st.d.Starts))
		if end != "" {
			others-- // the running workflow ends in the same step
		}
		if q := st.env.Full(others); q != "" {
			st.skip(at, trigger, "quota_"+string(q))
			return
		}
	}
	if end != "" {
		st.d.End = end
	}
	run := DerivedRunID(st.Namespace+"/"+st.ID, st.Events+1, st.now.Time)
	st.d.Starts = append(st.d.Starts, ScheduledStart{id, run})
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

// finish ends a schedule: its runs are used up, or it was deleted.
func (st *scheduleStep) finish(reason string) {
	st.Status, st.Remaining, st.Buffered = ScheduleDeleted, 0, nil
	st.NextAt, st.CheckAt = history.Time{}, history.Time{}
	st.appendEvent("ScheduleDeleted", "", "", map[string]any{"reason": reason})
}

// plan sets the time of the next check of the buffered starts: soon at first, and less often the longer the first of
// them waits, since a workflow that has run for an hour will hardly end within the next second.
func (st *scheduleStep) plan() {
	if len(st.Buffered) == 0 {
		st.CheckAt = history.Time{}
		return
	}
	wait := st.now.Sub(st.Buffered[0].Since.Time) / 8
	st.CheckAt = plus(st.now, min(max(wait, 250*time.Millisecond), 5*time.Second))
}

// movedFrom returns the local time of a firing that a clock change skipped; empty otherwise.
func (st *scheduleStep) movedFrom(at time.Time) string {
	c, err := ParseCalendar(st.Spec)
	if err != nil {
		return ""
	}
	return c.MovedFrom(at)
}

// next moves to the first time of the spec after t.
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
