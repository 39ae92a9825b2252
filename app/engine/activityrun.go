package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An activity run is a single activity without workflow code: its start schedules the activity, and the end of the
// activity closes the run in the same step. It never has a workflow task, and requests that only workflow code can
// answer are rejected. It is stored as an ordinary run, so listing, retention, history and cancellation need no second
// set of rules.

// DecideActivityRun creates an activity run. c is a schedule_activity command that CheckActivity has accepted. in is as
// for DecideStart, but without parent and continuation. It uses only the sessions of w.
func DecideActivityRun(in Start, c protocol.Command, w Environment, now time.Time) Decision {
	r := in.Request
	if w.Session == nil {
		w.Session = func(string) *Session { return nil }
	}
	run := &Run{Head: Head{Namespace: r.Namespace}}
	st := &step{Run: run, env: w, now: history.At(now)}
	started := &history.WorkflowStarted{
		Kind: history.KindActivity, WorkflowType: c.ActivityType, WorkflowID: r.WorkflowID, RunID: in.RunID,
		RunNumber: in.Number, TaskQueue: r.TaskQueue, Arguments: c.Arguments.Blob, BusinessKey: r.BusinessKey,
		Priority: DefaultPriority, FairnessKey: r.FairnessKey, FairnessWeight: r.FairnessWeight, Memo: r.Memo,
		SearchAttributes: r.SearchAttributes, Identity: r.Identity, Headers: r.Headers,
	}
	if in.Reuses {
		started.ChainRunID = in.RunID
	}
	if !in.OldNames {
		started.NameRules = protocol.NameRules
	}
	if started.Arguments != "" {
		started.PayloadCodec = payload.Codec
	}
	if r.Priority != nil {
		started.Priority = *r.Priority
	}
	if r.StartDelay > 0 {
		started.DelayUntil = plus(st.now, seconds(r.StartDelay))
	}
	st.emit(started)
	run.StartKey = in.StartKey
	st.scheduleActivity(c, 1)
	st.delayActivity(1, started.DelayUntil)
	st.closeActivityRun()
	st.d.Next = run
	return st.d
}

// delayActivity delays the start of a scheduled activity until a given time; zero means no delay. The timeouts of the
// activity count from then.
func (st *step) delayActivity(seq int64, until history.Time) {
	a, ok := st.Activities.Get(seq)
	if !ok || until.IsZero() {
		return
	}
	st.endActivity(a, false) // the activity does not count in its session until then
	a.State, a.ReadyAt, a.ScheduledAt = Delayed, until, until
	st.Activities.Put(seq, a)
}

// Public returns the status of the run as the control plane reports it; see protocol.PublicRun. An activity run has no
// code that could wait, so it is running until it closes.
func (h *Head) Public() (status, bucket, closedReason string) {
	busy := h.Task != nil && (h.Task.State == Ready || h.Task.State == LeasedState)
	return protocol.PublicRun(h.Status, h.LeasedEver || !h.HasCode(), busy || !h.HasCode())
}

// HasCode reports whether the run has workflow code, which receives signals, updates and queries.
func (h *Head) HasCode() bool { return h.Kind != history.KindActivity }

// CheckHasCode refuses a request that only workflow code can process if the run is an activity run. Otherwise, for
// example, a signal would be stored that no code reads. what describes the request in the error, like "signals".
func (h *Head) CheckHasCode(what string) error {
	if h.HasCode() {
		return nil
	}
	return protocol.Refuse(
		protocol.ReasonActivityRun, "run %s is a run of activity %s and accepts no %s", h.ID, h.Type, what,
	).With("run_id", h.ID).With("workflow_id", h.WorkflowID)
}

// closeActivityRun closes an activity run whose activity has ended in this step, with the same outcome. It reads the
// outcome from the events, since an activity may end by a report, a timeout, a lost worker or a cancellation.
func (st *step) closeActivityRun() {
	if st.HasCode() || !st.Status.Open() {
		return
	}
	for _, e := range st.d.Events {
		switch d := e.Data.(type) {
		case *history.ActivityCompleted:
			st.emit(&history.WorkflowCompleted{Output: d.Result, PayloadCodec: d.PayloadCodec})
		case *history.ActivityFailed:
			st.emit(&history.WorkflowFailed{
				SourceKind: "activity_execution", SourceID: d.ExecutionID, Failure: d.Failure,
			})
		case *history.ActivityTimedOut:
			st.emit(&history.WorkflowTimedOut{TimeoutKind: d.TimeoutKind, Failure: d.Failure})
		case *history.ActivityCancelled:
			st.emit(&history.WorkflowCancelled{
				Reason: d.Reason, ClosedReason: "cancelled", Failure: st.ended("cancelled", d.Reason),
			})
		default:
			continue
		}
		return
	}
}
