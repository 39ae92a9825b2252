package engine

import (
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A redrive continues a failed run as a new run of the same workflow ID. The history of the new run begins with a copy
// of the events that precede the failure, so its code replays them and gets the recorded results again. Two things are
// missing in the copy: the failures of activities that the last workflow task was the first to see, whose activities
// run again, and the commands of that task.

// Redrive continues a failed run. It is prepared outside of the transaction, since the history of a closed run does not
// change.
type Redrive struct {
	// Sessions are the workflow-scoped sessions that the copied events start and do not end, and the sessions of the
	// activities that run again.
	Sessions []string

	runCopy
	failed []int64 // activities whose failure is not copied
	resume int64   // command number of a failed local step; 0: none
}

// PrepareRedrive returns the redrive of a failed run with this history as the run runID. The error is a refusal.
func PrepareRedrive(from *Head, events []history.Event, runID string) (*Redrive, error) {
	if from.Status != protocol.RunFailed {
		return nil, protocol.Refuse(
			protocol.ReasonRunNotFailed, "run %s is %s; only a failed run can be redriven", from.ID, from.Status,
		).With("run_id", from.ID).With("run_status", from.Status)
	}
	if !from.HasCode() {
		return nil, protocol.Refuse(protocol.ReasonActivityRun, "run %s runs one activity; start the activity again", from.ID).
			With("run_id", from.ID)
	}
	r := &Redrive{runCopy: runCopy{from: from, runID: runID}}
	if from.Bytes > MaxCopiedBytes {
		return nil, r.unsupported(fmt.Sprintf("its history has %d MiB, at most %d", from.Bytes>>20, MaxCopiedBytes>>20))
	}
	last := len(events) - 1
	if last < 1 || events[last].TaskID == "" {
		return nil, r.unsupported("no workflow task failed the run")
	}
	if !r.begin(events[0]) {
		return nil, r.unsupported("the history does not begin with WorkflowStarted")
	}
	if err := r.copy(events[1:last], events[last].TaskID); err != nil {
		return nil, err
	}
	run := r.fold(r.firstEvent(history.Time{}, ""))
	r.commands = run.CommandSeq
	for _, c := range run.Children.All() {
		return nil, r.unsupported("child workflow " + c.WorkflowID + " was open when the run failed")
	}
	for _, a := range run.Attached.All() {
		return nil, r.unsupported("the run was attached to child workflow " + a.WorkflowID + " when it failed")
	}
	// Its ID, which callers know, names the closed run.
	if n, _ := run.openAwakeables(); n > 0 {
		return nil, r.unsupported("an awakeable was open when the run failed")
	}
	r.Sessions = r.findSessions(run)
	return r, nil
}

// CheckRedrive refuses the redrive of a failed run while other rows depend on it.
func (s *Run) CheckRedrive() error {
	switch {
	case s.owesParentReport():
		return protocol.Refuse(
			protocol.ReasonRunNotActive, "the parent of run %s has not received its failure and may retry the child; "+
				"try again later", s.ID,
		).With("run_id", s.ID)
	case s.Activities.Len() > 0:
		return protocol.Refuse(
			protocol.ReasonRunNotActive, "run %s abandoned an activity that has not ended; try again later", s.ID,
		).With("run_id", s.ID)
	}
	return nil
}

func (r *Redrive) unsupported(why string) error {
	return protocol.Refuse(
		protocol.ReasonUnsupportedHistory, "run %s cannot be redriven: %s; start the workflow again", r.from.ID, why,
	).With("run_id", r.from.ID)
}

// copy copies the events between the first one and the failure of the run. task is the ID of the workflow task that
// failed the run.
func (r *Redrive) copy(events []history.Event, task string) error {
	seen := int64(0) // last event that an earlier task contained
	var local []history.Event
	sessions, ended := map[int64]string{}, map[string]bool{} // sessions by activity; those that the code ended
	for i := range events {
		e := &events[i]
		switch d := e.Data.(type) {
		case *history.ActivityScheduled:
			sessions[d.Sequence] = d.SessionID
		case *history.SessionEnded:
			ended[d.SessionID] = ended[d.SessionID] || e.TaskID != task
		}
		if e.TaskID != task {
			seen = max(seen, e.SeenThrough)
		} else if seq, a := history.EndedAttempt(e.Data); a.ExecutionMode == history.ModeLocal {
			local = append(local, history.Event{Seq: seq, Data: e.Data})
		}
	}
	retries := map[string]*history.ActivityRetryScheduled{} // by ID of the failure that a retry replaces
	for i := range events {
		e := &events[i]
		retry := retryOf(e)
		if retry == nil || e.Seq <= seen || e.TaskID == task || ended[sessions[retry.Sequence]] {
			continue // an activity cannot run again in a session that the code has ended
		}
		if len(local) > 0 {
			return protocol.Refuse(
				protocol.ReasonFailureBoundary,
				"the workflow task that failed run %s also ran a local activity (command %d) after activity %s had failed; "+
					"start the workflow again", r.from.ID, local[0].Seq, retry.ActivityType,
			).With("run_id", r.from.ID)
		}
		r.failed = append(r.failed, retry.Sequence)
		retries[e.ID()] = retry
	}
	kept := r.keptCommands(events, task, local)
	for i := range events {
		e := events[i]
		if d, ok := e.Data.(*history.SelectionResolved); ok && retries[d.EventID] != nil {
			return r.unsupported("the failure of activity " + retries[d.EventID].ActivityType + " ended a selection")
		}
		if e.TaskID == task {
			if kept == 0 {
				continue
			}
			kept--
		}
		if retry := retries[e.ID()]; retry != nil {
			e.Data = retry
		}
		e.Seq, e.Data = int64(len(r.copied))+2, copyEvent(e.Data, r.from.ID, r.runID)
		r.copied = append(r.copied, e)
	}
	return nil
}

// keptCommands returns how many events of the last workflow task are copied. If an activity runs again, none: the code
// issued the commands after it had received the failure. Otherwise the results of local activities and side effects are
// copied, because their code must not run again.
func (r *Redrive) keptCommands(events []history.Event, task string, local []history.Event) (kept int) {
	if len(r.failed) > 0 {
		return 0
	}
	ends := map[int64]history.Data{}
	for _, e := range local {
		ends[e.Seq] = e.Data
	}
	n := 0
	lastLocal := int64(0)
	if len(local) > 0 {
		lastLocal = local[len(local)-1].Seq
	}
	for i := range events {
		e := &events[i]
		if e.TaskID != task {
			continue
		}
		n++
		switch d := e.Data.(type) {
		case *history.ActivityScheduled:
			end, ok := ends[d.Sequence]
			if !ok || d.ExecutionMode != history.ModeLocal {
				return kept
			}
			if _, completed := end.(*history.ActivityCompleted); !completed && d.Sequence == lastLocal {
				r.resume = d.Sequence // it failed the run
				return kept
			}
		case *history.ActivityRetryScheduled, *history.SignalApplied, *history.ConditionWaitSatisfied:
		case *history.ActivityCompleted, *history.ActivityFailed, *history.ActivityTimedOut, *history.ActivityCancelled:
			if _, a := history.EndedAttempt(d); a.ExecutionMode != history.ModeLocal {
				return kept
			}
			kept = n
		case *history.SideEffectRecorded, *history.VersionMarkerRecorded, *history.MemoUpserted,
			*history.SearchAttributesUpserted:
			kept = n
		default:
			return kept
		}
	}
	return kept
}

// retryOf returns the retry that replaces the failure or timeout of an activity that runs again; nil for local
// activities and for other events.
func retryOf(e *history.Event) *history.ActivityRetryScheduled {
	if _, a := history.EndedAttempt(e.Data); a.ExecutionMode == history.ModeLocal {
		return nil
	}
	switch d := e.Data.(type) {
	case *history.ActivityFailed:
		return &history.ActivityRetryScheduled{
			Sequence: d.Sequence, ExecutionID: d.ExecutionID, ActivityType: d.ActivityType, AvailableAt: e.At,
			Attempt: d.Attempt, Failure: d.Failure, Parallel: d.Parallel,
		}
	case *history.ActivityTimedOut:
		return &history.ActivityRetryScheduled{
			Sequence: d.Sequence, ExecutionID: d.ExecutionID, ActivityType: d.ActivityType, AvailableAt: e.At,
			TimeoutKind: d.TimeoutKind, Attempt: d.Attempt, Failure: d.Failure, Parallel: d.Parallel,
		}
	}
	return nil
}

// Decide returns the new run. resume is the number of the first command that the new run executes: of the first
// activity that runs again, or of the next command of the code.
func (r *Redrive) Decide(
	identity string, session func(id string) *Session, now time.Time,
) (d Decision, resume int64, err error) {
	st, err := r.newRun(identity, Environment{Session: session}, history.At(now))
	if err != nil {
		return Decision{}, 0, err
	}
	resume = r.resume
	if resume == 0 {
		resume = st.CommandSeq + 1
	}
	for i, seq := range r.failed {
		if i == 0 || seq < resume {
			resume = seq
		}
	}
	for _, a := range st.Activities.All() {
		if err := st.restartActivity(a); err != nil {
			return Decision{}, 0, err
		}
	}
	// No activity runs again, so the last workflow task does.
	if len(r.failed) == 0 && st.Wake <= st.Seen {
		st.Wake, st.WakeFor = st.LastSeq, &Cause{Kind: "start"}
	}
	st.wakeUp()
	st.d.Next = st.Run
	return st.d, resume, nil
}
