package engine

import (
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A run that continues as new must pass on every signal that its code has not handled, and no signal that it has
// handled: otherwise work would be lost or repeated. Only the code knows which signals it has handled, and the
// published SDKs do not report it. The engine therefore infers it from the events that the code has seen and from the
// way in which each SDK runs its signal handlers. The scripts continue_*.txt and signal_carried.txt contain the cases.

// These are the runtimes, as registered by workers, that differ in how their code receives signals.
const (
	runtimePython = "python" // by handlers, which run as soon as the code next yields
	runtimeGo     = "go"     // when the code asks for them
)

// Code describes the worker that completes a workflow task and the code that it ran, as the worker reports them. It is
// used only to decide which signals a run that continues as new has handled.
type Code struct {
	Runtime string              // "" if unknown
	Signals map[string][]string // declared signals by workflow type
}

// signalsForNextRun returns the signals that a run which continues as new passes on, in the order of their arrival:
// signals that the worker reports as not received by its code, signals that the worker has seen and the code has not
// handled, and signals that the worker has not seen. For signals that the run itself inherited, it returns the ranges
// of their events.
func (st *step) signalsForNextRun(c protocol.Command) (inherited []Range, list []Signal) {
	inherited, _ = st.Inbox.Unreceived(&c)
	list = slices.Clone(st.carry)
	// The code buffers its signals itself and names the signals that it did not receive, so the stored signals are not
	// passed on again.
	if !c.Buffers {
		for k, s := range st.inheritedSignals() {
			if !st.codeHandledSignal(k, s, c) {
				inherited = appendRange(inherited, Range{k, k})
			}
		}
		for k, s := range st.Unread.All() {
			if !st.codeHandledSignal(k, s, c) {
				list = append(list, s)
			}
		}
	}
	for _, s := range st.Signals.All() {
		list = append(list, s)
	}
	return inherited, list
}

// codeHandledSignal reports whether the code has handled a signal that it has seen and that resolved no wait.
//
// For Go code nothing is inferred: the worker reports which signals its code has not received, and the signals that are
// stored here are passed on. In Python, handlers have run for all signals, except for signals that arrived after the
// end of the last step while the code awaited no condition: code that continues as new as soon as it is resumed decided
// to do so before those handlers ran.
//
// Any other code that waits for signals has handled only the signals of its waits. If it opened no such wait and a
// condition became true, the condition was about signals, and the signals with which it was evaluated count as handled.
func (st *step) codeHandledSignal(k int64, s Signal, c protocol.Command) bool {
	switch strings.ToLower(st.code.Runtime) {
	case runtimeGo:
		return false
	case runtimePython:
		return !st.resumed || k <= st.settled || st.resolvedAtOnce(k, s, c)
	}
	return st.Waitless && k <= st.Heeded || st.resolvedAtOnce(k, s, c)
}

// resolvedAtOnce reports whether this signal may have satisfied a condition at the beginning of the run. A condition
// that is true immediately leaves no event. If the code is known to read the signal without a signal wait, all signals
// in the run's first task count as handled. Otherwise a run that a signal started would pass that signal on to the next
// run, which would pass it on again, forever.
func (st *step) resolvedAtOnce(k int64, s Signal, c protocol.Command) bool {
	same := c.WorkflowType == "" || c.WorkflowType == st.Type
	return same && st.Waitless && k <= st.FirstSeen && (st.Heeds || slices.Contains(st.code.Signals[st.Type], s.Name))
}

// recordShown records which events the worker has seen with a task, before the task's commands are applied.
func (st *step) recordShown(t *Task, in CompleteTask) {
	st.code = in.Code
	if t.Number == 1 && st.FirstSeen == 0 { // set in a redriven run: the first task of the failed run
		st.FirstSeen = t.Shown
	}
	awaited := st.Waits.Any(func(w Wait) bool { return w.Kind == ConditionWait && w.Opened <= t.Shown })
	st.resumed, st.settled = len(in.Commands) == 1 && !awaited, t.Settled
	if int64(st.Unread.Len())+st.inheritedUnread() < maxUnread || !strings.EqualFold(in.Code.Runtime, runtimePython) {
		return
	}
	for k := range st.inheritedSignals() { // remove handled signals, so that new ones can be stored
		if !st.resumed || k <= t.Settled {
			st.setInheritedUnread(removeFrom(st.Inbox.Unread, k))
		}
	}
	for k := range st.Unread.All() {
		if !st.resumed || k <= t.Settled {
			st.Unread.Delete(k)
		}
	}
}

// recordTrueCondition records that a condition was true for the events that the completed task contained.
func (st *step) recordTrueCondition() {
	if st.Waitless {
		st.Heeded, st.Heeds = st.seen, true
	}
}
