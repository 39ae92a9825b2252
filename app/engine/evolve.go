package engine

import (
	"slices"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// History enters the state only through events. A run must have the same state after its steps as after folding its
// events, except for leases; TestAnythingInAnyOrder compares the two.

// Evolve folds one event into s, in place. An event is an accepted fact, so folding cannot fail and checks nothing:
// rules belong to decide. Leases are not part of history: after folding, every open task is ready or delayed.
func (s *Run) Evolve(e history.Event) {
	s.LastSeq, s.ProgressAt = e.Seq, e.At
	// A completed workflow task wrote the event, so the code has seen what that task contained.
	if e.SeenThrough > 0 {
		s.markSeen(e.SeenThrough)
	}
	switch d := e.Data.(type) {
	case *history.WorkflowStarted:
		s.started(d, e)
	case *history.ActivityScheduled:
		s.recordCommandNumber(d.Sequence)
		s.HasSessions = s.HasSessions || d.Borrow != nil // the loan ends with the last run
		// the outcome of a local step follows immediately, and its code knows it
		if d.ExecutionMode != history.ModeLocal {
			s.Activities.Put(d.Sequence, scheduled(s, d, e))
		}
	case *history.ActivityRetryScheduled:
		s.retrying(d, e)
	case *history.ActivityCompleted:
		s.activityEnded(d.Sequence, e, d.ActivityType, d.Attempt, d.GroupID)
	case *history.ActivityFailed:
		s.activityEnded(d.Sequence, e, d.ActivityType, d.Attempt, d.GroupID)
	case *history.ActivityTimedOut:
		s.activityEnded(d.Sequence, e, d.ActivityType, d.Attempt, d.GroupID)
	case *history.ActivityCancelled:
		s.activityEnded(d.Sequence, e, d.ActivityType, d.Attempt, d.GroupID)
	case *history.ActivityCancelRequested:
		s.recordCommandNumber(d.CommandSequence)
		s.activityCancelRequested(d)
	case *history.TimerScheduled:
		s.recordCommandNumber(d.Sequence)
		s.Timers.Put(d.Sequence, Timer{FireAt: d.FireAt, Delay: d.Delay, Kind: d.Kind, Parallel: d.Parallel})
	case *history.TimerFired:
		s.Timers.Delete(d.Sequence)
		s.timerFired(d, e)
	case *history.TimerCancelled:
		s.Timers.Delete(d.Sequence)
		if d.Kind == "" {
			s.wakeForEndedStep(e, d.GroupID, Cause{Kind: "timer", Sequence: d.Sequence, ID: d.TimerID})
		}
	case *history.TimerCancelRequested:
		s.recordCommandNumber(d.CommandSequence)
	case *history.SignalReceived:
		s.signalled(d, e)
	case *history.SignalWaitOpened:
		s.recordCommandNumber(d.Sequence)
		s.waiting(d, e)
	case *history.ConditionWaitOpened:
		s.recordCommandNumber(d.Sequence)
		s.conditionOpened(d, e)
	case *history.ConditionWaitSatisfied:
		s.Waits.Delete(d.Sequence)
	case *history.ConditionWaitTimedOut:
		s.conditionTimedOut(d, e)
	case *history.SignalApplied:
		s.Waits.Delete(d.Sequence)
	case *history.UpdateAccepted:
		s.Updates.Put(e.Seq, Update{
			ID: d.UpdateID, Name: d.UpdateName, Arguments: d.Arguments, Headers: d.Headers, Trace: d.Trace,
		})
	case *history.UpdateApplied:
		s.updateApplied(d)
	case *history.UpdateCompleted:
		s.updateAnswered(d, e)
	case *history.ChildWorkflowScheduled:
		s.recordCommandNumber(d.Sequence)
		s.childScheduled(d)
	case *history.ChildRunStarted:
		s.childStarted(d)
	case *history.ChildRunCompleted:
		s.childEnded(d.Child, e, d.GroupID)
	case *history.ChildRunFailed:
		s.childEnded(d.Child, e, d.GroupID)
	case *history.ChildRunCancelled:
		s.childEnded(d.Child, e, d.GroupID)
	case *history.ChildRunTerminated:
		s.childEnded(d.Child, e, d.GroupID)
	case *history.ChildCancelRequested:
		s.recordCommandNumber(d.CommandSequence)
		s.childCancelRequested(d)
	case *history.AttachedToChild:
		s.recordCommandNumber(d.CommandSequence)
		s.attached(d)
	case *history.AttachedChildEnded:
		s.attachmentEnded(d, e)
	case *history.AwakeableOpened:
		s.recordCommandNumber(d.Sequence)
		s.awakeableOpened(d)
	case *history.AwakeableCompleted:
		s.awakeableEnded(d.Sequence, e)
	case *history.AwakeableFailed:
		s.awakeableEnded(d.Sequence, e)
	case *history.AwakeableTimedOut:
		s.awakeableEnded(d.Sequence, e)
	case *history.AwakeableClosed: // the code cancelled it, or the run closes: no code waits for it
		s.Waits.Delete(d.Sequence)
	case *history.AwakeableCancelRequested:
		s.recordCommandNumber(d.CommandSequence)
	case *history.SelectionResolved:
		s.selected(d, e)
	case *history.SelectionOperationCancelled:
		s.memberCancelled(d)
	case *history.MemoUpserted:
		s.recordCommandNumber(d.Sequence)
		s.memoUpserted(d)
	case *history.SearchAttributesUpserted:
		s.recordCommandNumber(d.Sequence)
		s.SearchAttributes = d.Merged
	case *history.SideEffectRecorded:
		s.recordCommandNumber(d.Sequence)
	case *history.VersionMarkerRecorded:
		s.recordCommandNumber(d.Sequence)
	case *history.SignalSent:
		s.recordCommandNumber(d.CommandSequence)
	case *history.SessionStarted:
		s.recordCommandNumber(d.CommandSequence)
		s.HasSessions = true
	case *history.SessionEnded:
		s.recordCommandNumber(d.CommandSequence)
	case *history.WorkflowCancellationRequested:
		if !s.CancelRequested {
			s.CancelRequested, s.CancelRequestedSeq, s.CancelRequestedAt = true, e.Seq, e.At
		}
		s.wake(e, Cause{Kind: "cancellation"})
	case *history.WorkflowContinuedAsNew:
		s.recordCommandNumber(d.Sequence)
		s.ContinuedTo = d.NewRunID
		s.closed(protocol.RunContinued, e, history.Failure{})
	case *history.WorkflowCompleted:
		s.closed(protocol.RunCompleted, e, history.Failure{})
	case *history.WorkflowFailed:
		s.closed(protocol.RunFailed, e, d.Failure)
	case *history.WorkflowCancelled:
		s.closed(protocol.RunCancelled, e, d.Failure)
	case *history.WorkflowTerminated:
		s.ContinuedTo, s.ResetTo = d.NewRunID, d.NewRunID
		s.closed(protocol.RunTerminated, e, d.Failure)
	case *history.WorkflowTimedOut:
		s.closed(protocol.RunTimedOut, e, d.Failure)
	}
}

// recordCommandNumber records the number of a command. Numbers increase over the whole run and are never reused, since
// replayers match events to their own steps by them.
func (s *Run) recordCommandNumber(seq int64) { s.CommandSeq = max(s.CommandSeq, seq) }

// maxUnread limits the signals that are stored for later waits: a run whose code never waits for its signals must not
// grow without limit.
const maxUnread = 1000

// markSeen records that a completed workflow task contained the history up to this event. Its signals stay stored for
// later waits, unless the code buffers signals itself: a workflow that waits for "paid" after a long step must find a
// signal that arrived during the step.
func (s *Run) markSeen(through int64) {
	if through <= s.Seen {
		return
	}
	unseen := s.unseenInherited()
	s.Seen = through
	// The inherited signals are the first events of a run, so its first task contained all of them.
	if unseen > 0 && s.unseenInherited() == 0 {
		s.setInheritedUnread(firstElements(s.Inbox.Unread, maxUnread))
	}
	for k, sig := range s.Signals.All() {
		if k > through {
			continue
		}
		s.Signals.Delete(k)
		if !s.Buffers && int64(s.Unread.Len())+s.inheritedUnread() < maxUnread && !s.hasResolvedWait(k) {
			s.Unread.Put(k, sig)
		}
	}
}

// hasResolvedWait reports whether a signal has already resolved a wait. One signal resolves one wait.
func (s *Run) hasResolvedWait(signal int64) bool {
	return s.Waits.Any(func(w Wait) bool { return w.Kind == "" && w.Signal == signal })
}

// wake records that the code must run. It creates no task; wakeUp does that at the end of the step, so that ten events
// of one step create one task.
func (s *Run) wake(e history.Event, c Cause) {
	c.Event, c.Type = e.Seq, e.Type()
	s.Wake, s.WakeFor = e.Seq, &c
}

func (s *Run) started(d *history.WorkflowStarted, e history.Event) {
	s.ID, s.WorkflowID, s.Type, s.Number, s.Kind = d.RunID, d.WorkflowID, d.WorkflowType, d.RunNumber, d.Kind
	s.Status, s.Queue, s.StartedAt = protocol.RunRunning, d.TaskQueue, e.At
	s.BusinessKey, s.Priority, s.BuildID = d.BusinessKey, d.Priority, d.BuildID
	s.RunTimeout, s.ExecutionTimeout = d.RunTimeout, d.ExecutionTimeout
	s.RunDeadline, s.ExecutionDeadline = d.RunDeadline, d.ExecutionDeadline
	s.Memo, s.SearchAttributes, s.ContinuedFrom, s.Trace = d.Memo, d.SearchAttributes, d.ContinuedFrom, d.Trace
	s.FairnessKey, s.FairnessWeight = d.FairnessKey, d.FairnessWeight
	s.ArgumentBytes = int64(len(d.Arguments) + d.Headers.Size())
	s.NameRules, s.Chain = d.NameRules, d.ChainRunID
	if d.CopiedFrom != nil {
		s.StartedAt = d.CopiedFrom.At
	}
	if d.ParentRunID != "" {
		s.Parent = &Parent{
			RunID: d.ParentRunID, WorkflowID: d.ParentWorkflowID, Seq: d.ParentSequence, Chain: d.ParentChainRunID,
		}
	}
	// stays true until the code opens a wait for a signal; see Head.Waitless
	s.Waitless = true
	if s.HasCode() {
		s.wake(e, Cause{Kind: "start"})
	}
}

// closed ends the run in memory. It removes everything open, so that the run is no longer swept, claimed or matched.
// Undelivered messages to other runs remain, because the message about the run's end is sent afterwards. Abandoned
// activities remain, too.
func (s *Run) closed(status protocol.RunStatus, e history.Event, why history.Failure) {
	s.Status, s.ClosedAt, s.Failure, s.FailureType = status, e.At, why.Message, why.ExceptionType
	s.Task, s.Wake, s.WakeFor = nil, 0, nil
	for k, a := range s.Activities.All() {
		if !s.staysOpenAfterClose(a) {
			s.Activities.Delete(k)
		}
	}
	for k := range s.Timers.All() {
		s.Timers.Delete(k)
	}
	for k := range s.Waits.All() {
		s.Waits.Delete(k)
	}
	for k := range s.Signals.All() {
		s.Signals.Delete(k)
	}
	s.dropStoredSignals()
	for k := range s.Updates.All() {
		s.Updates.Delete(k)
	}
	for k := range s.Children.All() {
		s.Children.Delete(k)
	}
	for k := range s.Attached.All() {
		s.Attached.Delete(k)
	}
}

// wakeForEndedStep wakes the run for a step that ended, unless other members of its parallel group are still open: a
// replayer that is woken inside a group would issue the whole group again. The exception is a group whose selection has
// a winner, because the workflow code then continues without the other members.
func (s *Run) wakeForEndedStep(e history.Event, group string, c Cause) {
	s.Settled = e.Seq
	if group != "" && !slices.Contains(s.Selected, group) {
		if s.Activities.Any(func(a Activity) bool { return a.GroupID == group }) ||
			s.Timers.Any(func(t Timer) bool { return t.GroupID == group && t.Kind == "" }) ||
			s.Waits.Any(func(w Wait) bool { return w.GroupID == group && w.Signal == 0 }) ||
			s.Children.Any(func(c Child) bool { return c.GroupID == group }) {
			return
		}
	}
	s.wake(e, c)
}

// scheduled returns the activity that an event schedules. It is ready from the event's time on.
func scheduled(s *Run, d *history.ActivityScheduled, e history.Event) Activity {
	a := Activity{
		Seq: d.Sequence, RunID: s.ID, Namespace: s.Namespace, Type: d.ActivityType, Queue: s.Queue, Event: e.Seq,
		Priority:    d.Priority,
		FairnessKey: d.FairnessKey, FairnessWeight: d.FairnessWeight,
		Requirements: d.Requirements, SessionID: d.SessionID, Options: d.Session, StartToClose: d.StartToClose,
		SchedToStart: d.ScheduleToStart, SchedToClose: d.ScheduleToClose, HeartbeatTO: d.Heartbeat, ScheduledAt: e.At,
		MaxBlamed: d.MaxBlamed, Policy: d.CancellationPolicy, Parallel: d.Parallel, State: Ready, ReadyAt: e.At,
		Bytes: int64(len(d.Arguments) + d.Headers.Size() + s.Trace.Size()), Headers: d.Headers, Borrow: d.Borrow,
	}
	if d.Activity != nil {
		a.Queue, a.Retry = d.Activity.Queue, d.Activity.RetryPolicy
	}
	return a
}

// retrying prepares the next attempt. It drops all state of the ended attempt with its lease, since a heartbeat of the
// old attempt must not count for the new one; only the heartbeat details are passed on.
func (s *Run) retrying(d *history.ActivityRetryScheduled, e history.Event) {
	a, ok := s.Activities.Get(d.Sequence)
	if !ok {
		return
	}
	a.Failures++
	a.LastFailure, a.LastStack = d.Message, d.Stack
	if d.Redriven {
		a.Failures, a.ScheduledAt = 0, e.At
	}
	a.removeLease()
	a.Attempt = d.Number
	a.Lost = nil                 // the event contains the lost deliveries
	a.Suspect, a.Blamed = nil, 0 // an outcome clears the suspicion and its count
	a.startBackoff(e.At, d.AvailableAt)
	a.UnstartedReturns = 0
	a.FirstReady, a.Returned = history.Time{}, 0
	if !d.AvailableAt.After(e.At.Time) {
		a.State, a.ReadyAt, a.DelayedAt = Ready, e.At, history.Time{}
	}
	s.Activities.Put(d.Sequence, a)
}

func (s *Run) activityEnded(seq int64, e history.Event, typ string, a history.Attempt, group string) {
	// the code that ran the local step knows its outcome and is not woken for it
	if a.ExecutionMode == history.ModeLocal {
		return
	}
	s.Activities.Delete(seq)
	s.wakeForEndedStep(e, group, Cause{Kind: "activity", Sequence: seq, Name: typ, ID: a.AttemptID})
}

// timerFired wakes the run, except for the timer of a condition or an awakeable: there the event that follows,
// ConditionWaitTimedOut or AwakeableTimedOut, wakes it. The timer of a signal wait also removes the wait, so that a
// later signal does not resolve it.
func (s *Run) timerFired(d *history.TimerFired, e history.Event) {
	cause := Cause{Kind: "timer", Sequence: d.Sequence, ID: d.TimerID}
	switch d.Kind {
	case ConditionTimeout, AwakeableTimeout:
		return
	case SignalTimeout:
		w, _ := s.Waits.Get(d.Sequence)
		cause.Name = w.Name
		s.Waits.Delete(d.Sequence)
	}
	s.wakeForEndedStep(e, d.GroupID, cause)
}

// signalled resolves the oldest unresolved wait for the signal's name and wakes the conditions that may depend on the
// signal. A signal without a wait stays in Signals and wakes no code, since no code waits for it.
func (s *Run) signalled(d *history.SignalReceived, e history.Event) {
	sig := SignalOf(d)
	s.Signals.Put(e.Seq, sig)
	s.wakeConditions(e, Cause{Kind: "workflow_signal", Name: d.SignalName, ID: d.SignalID})
	for k, w := range s.Waits.All() {
		if w.Kind == "" && w.Name == d.SignalName && w.Signal == 0 {
			w.answered(e.Seq, sig)
			s.Waits.Put(k, w)
			s.wakeForEndedStep(e, w.GroupID, Cause{Kind: "workflow_signal", Sequence: k, Name: d.SignalName, ID: d.SignalID})
			return
		}
	}
}

// waiting opens a wait. The first signal of that name that has not resolved another wait resolves it immediately.
// Stored signals (Unread) come first, since they arrived first. For code that buffers signals itself, only a signal
// that arrived while the workflow task ran can resolve the wait, and these are in Signals.
func (s *Run) waiting(d *history.SignalWaitOpened, e history.Event) {
	w := Wait{Name: d.SignalName, Parallel: d.Parallel}
	s.Waitless = false
	// The code has received the older signals. If they were stored here as well, they would be delivered twice.
	if d.Buffers {
		s.Buffers = true
		s.dropStoredSignals()
	}
	oldest := func() (int64, Signal, bool) {
		if k, sig, ok := s.answerFromInbox(&w); ok {
			return k, sig, true
		}
		for k, sig := range s.Unread.All() {
			if sig.Name == d.SignalName {
				w.answered(k, sig)
				s.Unread.Delete(k)
				return k, sig, true
			}
		}
		return 0, Signal{}, false
	}
	if k, sig, ok := oldest(); ok {
		s.Waits.Put(d.Sequence, w)
		s.Wake = e.Seq
		s.WakeFor = &Cause{
			Kind: "workflow_signal", Sequence: d.Sequence, Name: sig.Name, ID: sig.ID, Event: k, Type: "SignalReceived",
		}
		return
	}
	for k, sig := range s.Signals.All() {
		if sig.Name == d.SignalName && !s.hasResolvedWait(k) {
			w.answered(k, sig)
			s.Wake = max(s.Wake, k)
			s.WakeFor = &Cause{
				Kind: "workflow_signal", Sequence: d.Sequence, Name: sig.Name, ID: sig.ID, Event: k, Type: "SignalReceived",
			}
			break
		}
	}
	s.Waits.Put(d.Sequence, w)
}

// dropStoredSignals drops the signals that are stored for later waits.
func (s *Run) dropStoredSignals() {
	for k := range s.Unread.All() {
		s.Unread.Delete(k)
	}
	s.setInheritedUnread(nil)
}
