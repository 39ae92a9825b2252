package engine

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A condition depends on the workflow's variables. Only the workflow's code can evaluate it, so the engine does not
// know whether it is true. When a signal or an update may have changed the condition, the engine wakes the code. If the
// code repeats the condition among its commands, it was false; otherwise it was true.

// These kinds of timers belong to a wait and share its command number.
const (
	ConditionTimeout = "condition_timeout"
	SignalTimeout    = "signal_timeout"
)

// ConditionWait is the kind of a wait for a condition over the workflow's variables.
const ConditionWait = "condition"

// openCondition opens a wait for a condition, with its timer.
func (st *step) openCondition(c protocol.Command, seq int64) {
	w := history.Condition{
		Sequence: seq, ConditionWaitID: StepID(st.ID, seq), Occurrence: c.ConditionOccurrence, Key: c.ConditionKey,
		Fingerprint: c.ConditionFingerprint,
	}
	limit, limited := c.Wait()
	d := &history.ConditionWaitOpened{Condition: w, Timeout: c.Timeout, Parallel: c.Parallel}
	if _, ok := selectionOf(&c.Parallel); ok {
		// A selection opens its condition without evaluating it. If a signal arrived with the task that opens it, the
		// code would wait for another signal; so the event names the signal, and the wait ends in this step.
		d.Signal = st.fresh
	}
	st.emit(d)
	if !limited {
		return
	}
	at := plus(st.now, seconds(limit))
	// The code evaluated the same condition again, and it was still false. Its timeout is not restarted; otherwise a
	// condition that is evaluated often would never time out.
	if before, renewed := st.renewed[c.ConditionOccurrence]; renewed && c.ConditionOccurrence != "" {
		at = latest(st.now, before)
	}
	st.emit(&history.TimerScheduled{
		Sequence: seq, TimerID: StepID(st.ID, seq), Delay: limit, FireAt: at, Kind: ConditionTimeout,
		ConditionWaitID: w.ConditionWaitID,
		Occurrence:      w.Occurrence, Parallel: c.Parallel,
	})
}

// condition returns the description of the wait in events.
func (w *Wait) condition(run string, seq int64) history.Condition {
	return history.Condition{
		Sequence: seq, ConditionWaitID: StepID(run, seq), Occurrence: w.Occurrence, Key: w.Key, Fingerprint: w.Fingerprint,
	}
}

// settleWaits ends the waits that the completed task has resolved: a signal wait whose signal the task contained, and a
// condition that the task evaluated to true. If a condition was false, the commands repeat it and open a new wait. A
// repeated member of an open group remains open.
//
// A condition also remains open if a signal arrived after its evaluation. A replayer assumes that a wait knows all
// events before its end. If the wait ended now, a replay would see the late signal before the end, find the condition
// true, and diverge from the original execution.
//
// fresh are the commands without repetitions by a replayer. settleWaits returns the commands that remain to be
// applied.
func (st *step) settleWaits(commands, fresh []protocol.Command) []protocol.Command {
	for k, w := range st.Waits.All() {
		woken := w.Signal > 0 && w.Signal <= st.seen
		switch {
		// a wait for a signal that the task contained
		case w.Kind == "" && woken:
			st.emit(st.applied(k, w))
		// not a condition, or a member of a group that is still open
		case w.Kind != ConditionWait || w.GroupID != "" && st.repeatsMember(commands, k):
		// evaluated without a signal that has arrived since: the wait stays, and its repeated command is removed
		case st.Signals.Len() > 0 && len(fresh) > 0 && w.evaluated(fresh[:1]):
			fresh = fresh[1:]
		// the task evaluated the condition; it is not among the commands, so it was true
		case woken || w.Opened <= st.seen && w.evaluated(commands):
			st.emit(&history.ConditionWaitSatisfied{Condition: w.condition(st.ID, k), Parallel: w.Parallel})
			if !w.evaluated(commands) {
				st.recordTrueCondition()
			}
			if t, ok := st.Timers.Get(k); ok {
				if st.renewed == nil {
					st.renewed = map[string]history.Time{}
				}
				st.renewed[w.Occurrence] = t.FireAt
				st.emit(&history.TimerCancelled{Sequence: k, TimerID: StepID(st.ID, k), Kind: t.Kind, Parallel: t.Parallel})
			}
		}
	}
	return fresh
}

// evaluated reports whether the commands repeat the wait: its condition was evaluated and was false.
func (w *Wait) evaluated(commands []protocol.Command) bool {
	for _, c := range commands {
		if c.Type == protocol.OpenConditionWait && c.GroupID == "" && w.Occurrence == c.ConditionOccurrence &&
			w.Key == c.ConditionKey &&
			w.Fingerprint == c.ConditionFingerprint {
			return true
		}
	}
	return false
}

// repeatsMember reports whether a command repeats the group member with this command number.
func (st *step) repeatsMember(commands []protocol.Command, seq int64) bool {
	for _, c := range commands {
		if c.GroupIndex != nil && c.GroupBase+int64(*c.GroupIndex) == seq {
			return true
		}
	}
	return false
}

// isRepeatedMember reports whether a command is a member of an open parallel group that the run has already recorded.
// Some replayers send the whole group again when they are woken inside it. Such a command changes nothing and uses no
// number; if it were recorded again, each member would run twice.
func (s *Run) isRepeatedMember(c protocol.Command) bool {
	if c.GroupID == "" || c.GroupIndex == nil || c.GroupBase < 1 || c.GroupBase+int64(*c.GroupIndex) > s.CommandSeq {
		return false
	}
	return s.Activities.Any(func(a Activity) bool { return a.GroupID != "" }) || s.Timers.Any(func(t Timer) bool {
		return t.GroupID != ""
	}) ||
		s.Waits.Any(func(w Wait) bool { return w.GroupID != "" }) || s.Children.Any(func(c Child) bool {
		return c.GroupID != ""
	})
}

// timeOutCondition ends a condition wait by its timer. It waits while a task evaluates the condition, or will evaluate
// it because an event may have made it true: history must not contain both outcomes of one wait.
func (st *step) timeOutCondition(seq int64, t Timer) error {
	w, ok := st.Waits.Get(seq)
	if task := st.Task; !ok || task != nil && (task.State == LeasedState || w.Signal > 0) {
		return errNotDue
	}
	st.emit(&history.TimerFired{
		Sequence: seq, TimerID: StepID(st.ID, seq), Delay: t.Delay, Kind: t.Kind, Parallel: t.Parallel,
	})
	st.emit(&history.ConditionWaitTimedOut{Condition: w.condition(st.ID, seq), Timeout: &t.Delay, Parallel: w.Parallel})
	return nil
}

// overdue ends conditions that timed out while a task was evaluating them, and waits of selections for which a signal
// or an update arrived meanwhile. timeOutCondition refused to end them at that time, so the completion does it. The
// task has not seen these events, so task and seen are cleared for them.
func (st *step) overdue() {
	task, seen := st.task, st.seen
	st.task, st.seen = "", 0
	st.endSelectionWaits()
	for k, t := range st.Timers.All() {
		if w, ok := st.Waits.Get(k); ok && t.Kind == ConditionTimeout && !t.FireAt.After(st.now.Time) &&
			st.Signals.Len() == 0 &&
			(w.Signal == 0 || w.Signal <= st.Seen) {
			_ = st.timeOutCondition(k, t)
		}
	}
	st.task, st.seen = task, seen
}

// wakeConditions wakes the run because e may have made one of its conditions true. The task names the first such
// condition.
func (s *Run) wakeConditions(e history.Event, c Cause) {
	woken := false
	for k, w := range s.Waits.All() {
		if w.Kind != ConditionWait {
			continue
		}
		if w.Signal == 0 {
			w.Signal = e.Seq
			s.Waits.Put(k, w)
		}
		if !woken {
			c.Wait = k
			s.wake(e, c)
		}
		woken = true
	}
}

// conditionOpened opens a wait. If signals have arrived that the opening task did not contain, the condition is
// evaluated again.
func (s *Run) conditionOpened(d *history.ConditionWaitOpened, e history.Event) {
	w := Wait{
		Kind: ConditionWait, Opened: e.Seq, Signal: d.Signal, Key: d.Key, Fingerprint: d.Fingerprint,
		Occurrence: d.Occurrence, Parallel: d.Parallel,
	}
	for k, sig := range s.Signals.All() {
		w.Signal = k
		s.Wake = max(s.Wake, k)
		s.WakeFor = &Cause{
			Kind: "workflow_signal", Wait: d.Sequence, Name: sig.Name, ID: sig.ID, Event: k, Type: "SignalReceived",
		}
	}
	s.Waits.Put(d.Sequence, w)
}

func (s *Run) conditionTimedOut(d *history.ConditionWaitTimedOut, e history.Event) {
	s.Waits.Delete(d.Sequence)
	s.wakeForEndedStep(e, d.GroupID,
		Cause{Kind: "timer", Sequence: d.Sequence, Wait: d.Sequence, ID: StepID(s.ID, d.Sequence)})
}
