package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A redrive continues a failed run as a new run of the same workflow ID. The history of the new run begins with a copy
// of the events that precede the failure, so its code replays them and gets the recorded results again. Two things are
// missing in the copy: the failures of activities that the last workflow task was the first to see, whose activities
// run again, and the commands of that task.

// MaxCopiedBytes is the maximum size of a history that is copied. The copy is one insert, and other changes of its
// commit wait for it.
const MaxCopiedBytes = 32 << 20

// Redrive continues a failed run. It is prepared outside of the transaction, since the history of a closed run does not
// change.
type Redrive struct {
	// Sessions are the workflow-scoped sessions that the copied events start and do not end, and the sessions of the
	// activities that run again.
	Sessions []string

	from     *Head
	runID    string          // ID of the new run
	copied   []history.Event // without the first one
	commands int64           // number of the last copied command
	started  *history.WorkflowStarted
	startAt  history.Time
	sessions []*history.SessionStarted
	failed   []int64 // activities whose failure is not copied
	resume   int64   // command number of a failed local step; 0: none
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
	r := &Redrive{from: from, runID: runID}
	if from.Bytes > MaxCopiedBytes {
		return nil, r.unsupported(fmt.Sprintf("its history has %d MiB, at most %d", from.Bytes>>20, MaxCopiedBytes>>20))
	}
	last := len(events) - 1
	if last < 1 || events[last].TaskID == "" {
		return nil, r.unsupported("no workflow task failed the run")
	}
	if started, ok := events[0].Data.(*history.WorkflowStarted); ok {
		r.started, r.startAt = started, events[0].At
	} else {
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
	r.findSessions(run)
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

// firstEvent returns the first event of the new run, which begins at now. The event has the time of the old one, since
// workflow code reads it.
func (r *Redrive) firstEvent(now history.Time, identity string) history.Event {
	d := *r.started
	d.RunID, d.RunNumber, d.ContinuedFrom, d.Identity = r.runID, r.from.Number+1, r.from.ID, identity
	d.DelayUntil = history.Time{}
	// The parent has received the failure and ignores the new run.
	d.ParentRunID, d.ParentWorkflowID, d.ParentSequence, d.ParentChainRunID = "", "", 0, ""
	d.RunDeadline, d.ExecutionDeadline = history.Time{}, history.Time{}
	if d.RunTimeout > 0 {
		d.RunDeadline = plus(now, seconds(d.RunTimeout))
	}
	if d.ExecutionTimeout > 0 {
		d.ExecutionDeadline = plus(now, seconds(d.ExecutionTimeout))
	}
	through := int64(len(r.copied)) + 1
	d.CopiedFrom = &history.CopiedFrom{
		CopiedRange: history.CopiedRange{RunID: r.from.ID, Event: through, Command: r.commands}, At: now,
	}
	for _, c := range r.started.CopiedFrom.Ranges() {
		d.CopiedFrom.Earlier = append(d.CopiedFrom.Earlier, history.CopiedRange{
			RunID: c.RunID, Event: min(c.Event, through), Command: min(c.Command, r.commands),
		})
	}
	return history.Event{Seq: 1, At: r.startAt, Data: &d}
}

// fold returns the run with the copied events.
func (r *Redrive) fold(first history.Event) *Run {
	run := &Run{Head: Head{Namespace: r.from.Namespace}}
	run.Evolve(first)
	for _, e := range r.copied {
		run.Evolve(e)
	}
	run.NeedsSessions, run.StartKey = r.from.NeedsSessions, r.from.StartKey
	// These are not part of history. They determine which signals count as handled when the run continues as new.
	run.Heeds, run.Heeded = r.from.Heeds, min(r.from.Heeded, run.LastSeq)
	if run.Seen > 0 { // a task before the failed one was the first
		run.FirstSeen = min(r.from.FirstSeen, run.LastSeq)
	}
	return run
}

// findSessions lists the sessions that the new run needs.
func (r *Redrive) findSessions(run *Run) {
	ended := map[string]bool{}
	for _, e := range r.copied {
		if d, ok := e.Data.(*history.SessionEnded); ok {
			ended[d.SessionID] = true
		}
	}
	for _, e := range r.copied {
		if d, ok := e.Data.(*history.SessionStarted); ok && !ended[d.SessionID] {
			r.sessions = append(r.sessions, d)
			r.Sessions = append(r.Sessions, d.SessionID)
		}
	}
	for _, a := range run.Activities.All() {
		if a.SessionID != "" && !a.Cancel && !slices.Contains(r.Sessions, a.SessionID) {
			r.Sessions = append(r.Sessions, a.SessionID)
		}
	}
}

// Decide returns the new run. resume is the number of the first command that the new run executes: of the first
// activity that runs again, or of the next command of the code.
func (r *Redrive) Decide(
	identity string, session func(id string) *Session, now time.Time,
) (d Decision, resume int64, err error) {
	st := &step{env: Environment{Session: session}, now: history.At(now)}
	first := r.firstEvent(st.now, identity)
	st.Run = r.fold(first)
	st.d.Events = append([]history.Event{first}, r.copied...)
	for _, s := range r.sessions {
		if err := st.reopenSession(s); err != nil {
			return Decision{}, 0, err
		}
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
		if err := st.redriveActivity(a); err != nil {
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

// reopenSession opens a workflow-scoped session that ended with the failed run. No worker holds it, so its state is set
// up again.
func (st *step) reopenSession(d *history.SessionStarted) error {
	was, exists := st.session(d.SessionID)
	if exists && !was.Terminal {
		return nil
	}
	if !exists && d.SessionDefinition != "" {
		return protocol.Refuse(
			protocol.ReasonSessionMissing, "session %s and the arguments of its definition %s were deleted; "+
				"start the workflow again", d.SessionID, d.SessionDefinition,
		).With("session_id", d.SessionID)
	}
	o, err := sessionOptions(d.Options)
	if err != nil {
		return err
	}
	s := st.newScopedSession(d.SessionID, o)
	if exists {
		s.Requirements, s.Definition, s.OnLost = was.Requirements, was.Definition, was.OnLost
		s.ArgumentsHash, s.Epoch = was.ArgumentsHash, was.Epoch
	}
	st.storeSession(s, protocol.SessionEvent{
		At: st.now, What: "started", By: "run " + st.ID, Why: "redrive of run " + st.ContinuedFrom,
	})
	return nil
}

// sessionOptions decodes the session options of an event; nil if it has none.
func sessionOptions(recorded json.RawMessage) (*protocol.SessionOptions, error) {
	if len(recorded) == 0 {
		return nil, nil
	}
	o := new(protocol.SessionOptions)
	return o, json.Unmarshal(recorded, o)
}

// redriveActivity schedules an activity of the copied history again, with its first attempt. An activity that its code
// has cancelled ends instead.
func (st *step) redriveActivity(a Activity) error {
	if a.Cancel {
		st.emit(&history.ActivityCancelled{ // no session counts it
			Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, Reason: cancelledByFlow,
			Attempt: a.endedAttempt(), Parallel: a.Parallel,
		})
		return nil
	}
	if a.SessionID != "" {
		o, err := sessionOptions(a.Options)
		if err != nil {
			return err
		}
		s, refused := st.sessionFor(a.SessionID, a.Queue, o)
		if refused != nil {
			return refused
		}
		s.queued(a.Queue, st.now)
		st.storeSession(s)
	}
	st.emit(&history.ActivityRetryScheduled{
		Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, AvailableAt: st.now, Redriven: true,
		Parallel: a.Parallel,
	})
	return nil
}
