package engine

import (
	"reflect"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These are the inputs of a schedule, from operators and from the clock. All of them check the same fence (Version): if
// an edit and a firing are concurrent, only one of them succeeds.

// CreateSchedule creates a schedule. The ID of a schedule whose runs are used up may be used again.
type CreateSchedule struct{ Request protocol.ScheduleRequest }

func (in CreateSchedule) decide(st *scheduleStep) error {
	if st.Status != "" && st.Status != ScheduleDeleted {
		return protocol.Refuse(protocol.ReasonScheduleExists, "schedule %s already exists", st.ID).
			With("schedule_id", st.ID)
	}
	switch {
	case in.Request.Spec == nil:
		return protocol.Invalid("spec", "is missing")
	case in.Request.Action == nil:
		return protocol.Invalid("action", "is missing")
	}
	// Version and Events continue from the old schedule with this ID: if they started again, a decision about the old
	// schedule could be stored for the new one.
	*st.Schedule = Schedule{
		Namespace: st.Namespace, ID: st.ID, Status: ScheduleActive, Version: st.Version, Events: st.Events, CreatedAt: st.now,
		Overlap: protocol.OverlapSkip, NameRules: protocol.NameRules,
	}
	what := map[string]any{"workflow_type": in.Request.Action.WorkflowType}
	if typ := in.Request.Action.ActivityType; typ != "" {
		what = map[string]any{"activity_type": typ}
	}
	st.appendEvent("ScheduleCreated", "", "", what)
	st.d.Outcome = "created"
	return st.applyRequest(in.Request)
}

// UpdateSchedule changes the fields in the request. The times of a new spec count from now, so that it does not fire
// for past times.
type UpdateSchedule struct{ Request protocol.ScheduleRequest }

func (in UpdateSchedule) decide(st *scheduleStep) error {
	if st.Status == ScheduleDeleted {
		return noSchedule(st.Key())
	}
	st.appendEvent("ScheduleUpdated", "", "", nil)
	st.d.Outcome = "updated"
	return st.applyRequest(in.Request)
}

// applyRequest applies the fields of a request.
func (st *scheduleStep) applyRequest(r protocol.ScheduleRequest) error {
	if r.Action != nil {
		if err := checkAction(*r.Action, st.Action); err != nil {
			return err
		}
	}
	status := st.Status
	retimed := r.Spec != nil && !reflect.DeepEqual(*r.Spec, st.Spec) || r.Jitter != nil && *r.Jitter != st.Jitter
	if r.Spec != nil {
		st.Spec = *r.Spec
	}
	if r.Action != nil {
		st.Action = *r.Action
	}
	if r.Overlap != nil {
		st.Overlap = *r.Overlap
	}
	if r.Jitter != nil {
		st.Jitter = *r.Jitter
	}
	if r.MaxRuns != nil {
		// Runs that were already started count; otherwise every edit would give the schedule all its runs again.
		st.MaxRuns, st.Remaining = *r.MaxRuns, *r.MaxRuns-st.Fires
	}
	if r.Note != nil {
		st.Note = *r.Note
	}
	if r.Memo != nil {
		st.Memo = r.Memo
	}
	if r.SearchAttributes != nil {
		st.SearchAttributes = r.SearchAttributes
	}
	if r.Paused != nil {
		st.Status = ScheduleActive
		if *r.Paused {
			st.Status = SchedulePaused
		}
	}
	// If the change does not affect the times, NextAt stays. Otherwise a due firing that is delayed by jitter or by
	// unavailable apps would be lost.
	if retimed || st.Status != status {
		if err := st.next(st.now.Time); err != nil {
			return err
		}
	}
	st.planNextCheck()
	if st.MaxRuns > 0 && st.Remaining <= 0 {
		st.finish("max_runs_exhausted")
	}
	return nil
}

// PauseSchedule stops a schedule from firing.
type PauseSchedule struct{ Note string }

func (in PauseSchedule) decide(st *scheduleStep) error {
	return st.setStatus(SchedulePaused, "SchedulePaused", "paused", in.Note)
}

// ResumeSchedule lets the schedule fire again from its next time on. Missed times need a backfill, since the operator
// may not want to start all of them at once.
type ResumeSchedule struct{ Note string }

func (in ResumeSchedule) decide(st *scheduleStep) error {
	return st.setStatus(ScheduleActive, "ScheduleResumed", "resumed", in.Note)
}

// setStatus pauses or resumes the schedule. If the status changes, it records an event and computes the next time from
// now.
func (st *scheduleStep) setStatus(status, kind, outcome, note string) error {
	if st.Status == ScheduleDeleted {
		return noSchedule(st.Key())
	}
	st.d.Outcome = outcome
	payload := map[string]any{}
	if note != "" {
		st.Note, payload["note"] = note, note
	}
	if st.Status == status {
		return nil
	}
	st.Status = status
	st.appendEvent(kind, "", "", payload)
	st.planNextCheck()
	return st.next(st.now.Time)
}

// FireSchedule fires a schedule for a time: the time of the request, or a past time in a backfill. An empty policy
// selects the schedule's policy.
type FireSchedule struct {
	At       time.Time
	Backfill bool
	Overlap  string
}

func (in FireSchedule) decide(st *scheduleStep) error {
	overlap := in.Overlap
	if overlap == "" {
		overlap = st.Schedule.Overlap
	}
	if !in.Backfill {
		st.fire(history.At(in.At), ByHand, overlap)
		return nil
	}
	if overlap == protocol.OverlapBufferOne || overlap == protocol.OverlapBufferAll {
		overlap = OverlapAll
	}
	st.fire(history.At(in.At), ByBackfill, overlap)
	return nil
}

// DueSchedule fires a buffered start and the next time of the spec if they have passed. If several times were missed,
// only the first one fires: after a night without an app, a schedule must not start a hundred runs at once.
type DueSchedule struct{}

func (DueSchedule) decide(st *scheduleStep) error {
	if due := st.DueAt(); due.IsZero() || due.After(st.now.Time) {
		return errNotDue
	}
	if len(st.Buffered) > 0 && !st.env.Running {
		b := st.Buffered[0]
		st.Buffered = st.Buffered[1:]
		st.fire(b.At, b.Trigger, OverlapAll)
	}
	if fire := st.NextFire(); !fire.IsZero() && !fire.After(st.now.Time) {
		at := st.NextAt
		st.fire(at, BySchedule, st.Schedule.Overlap)
		missed := st.now.Add(-seconds(st.Jitter))
		if missed.Before(at.Time) {
			missed = at.Time
		}
		if err := st.next(missed); err != nil {
			return err
		}
	}
	st.planNextCheck()
	return nil
}

// RecomputeSchedule computes the next time of a schedule again. An app does so when it starts, since its rules or its
// time zones may be newer than the ones that computed the stored time, and after a jump of the clock. A time that is
// due is kept. If the time is the same, nothing changes.
type RecomputeSchedule struct{}

func (RecomputeSchedule) decide(st *scheduleStep) error {
	if st.Status != ScheduleActive || st.NextAt.IsZero() || !st.NextAt.After(st.now.Time) {
		return errNotDue
	}
	from := st.NextAt
	if err := st.next(st.now.Time); err != nil {
		return err
	}
	if st.NextAt.Equal(from.Time) {
		return errNotDue
	}
	what := map[string]any{"from": from, "to": st.NextAt}
	if local := st.movedFrom(st.NextAt.Time); local != "" {
		what["note"] = "moved from " + local
	}
	st.appendEvent("ScheduleRetimed", "", "", what)
	st.d.Outcome = "retimed"
	return nil
}

// FailSchedule records a firing that could not start its workflow, and advances to the next time.
type FailSchedule struct{ Reason string }

func (in FailSchedule) decide(st *scheduleStep) error {
	if due := st.DueAt(); due.IsZero() || due.After(st.now.Time) {
		return errNotDue
	}
	st.Failures++
	st.appendEvent("ScheduleTriggerFailed", "", "", map[string]any{"reason": in.Reason, "fire_time": st.NextAt})
	if len(st.Buffered) > 0 {
		st.Buffered = st.Buffered[1:]
	}
	st.planNextCheck()
	return st.next(st.now.Time)
}

// DeleteSchedule removes a schedule. Its history stays readable until ForgetSchedule.
type DeleteSchedule struct{}

func (DeleteSchedule) decide(st *scheduleStep) error {
	st.RemovedAt, st.d.Outcome = st.now, "deleted"
	st.finish("deleted")
	return nil
}

// ForgetSchedule deletes a schedule, with its history, that was removed before a given time.
type ForgetSchedule struct{ Before time.Time }

func (in ForgetSchedule) decide(st *scheduleStep) error {
	if st.RemovedAt.IsZero() || !st.RemovedAt.Before(in.Before) {
		return errNotDue
	}
	st.d.Delete = true
	return nil
}
