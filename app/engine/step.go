package engine

import (
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Every change of a run follows the same steps: fork the run, apply the input's decide method to the fork, create the
// next workflow task if one is due. A new input needs only a decide method.

// Input is something that happens to a run. The set is closed, since decide is not exported: every way in which
// a run can change is in this package, one type for each, in the file of its noun.
type Input interface {
	decide(*step) error
}

// Environment is the state besides the run itself that a decision on a run may read. The submitter of an input names
// the rows that the input needs; the functions below look them up among the loaded rows, so a decision does no I/O.
type Environment struct {
	Session func(id string) *Session // of the run's namespace; nil when there is no row
	Chain   []*Session               // the live workflow-scoped sessions of the run's workflow id

	// an open child that an earlier run of the workflow id started; nil when there is none
	Inherited func(workflowID string) *InheritedChild
	// children of earlier runs to which a close policy applies, for a step that may end the last run
	Bound    func() []*InheritedChild
	Workflow func(workflowID string) (current *Run, exists bool) // of the run's namespace, for ids that commands name
}

// DecideRun returns the effect of in on the run s at now. It only reads s. A refusal is a *protocol.Error and changes
// nothing. A result with an eager workflow task is first decided together with that task. If the task is rejected, the
// decision is repeated on a new fork without it, so that the rejected task leaves no trace.
func DecideRun(s *Run, w Environment, in Input, now time.Time) (Decision, error) {
	if w.Session == nil {
		w.Session = func(string) *Session { return nil }
	}
	begin := func() *step { return &step{Run: s.Fork(), env: w, now: history.At(now), d: Decision{After: s.LastSeq}} }
	st := begin()
	// If the eager workflow task is rejected, the result is decided like any other.
	if c, ok := in.(CompleteActivity); ok && c.Eager != nil {
		if c.fused(st) == nil {
			return st.finish(s), nil
		}
		st = begin()
	}
	if err := in.decide(st); err != nil {
		return Decision{}, err
	}
	return st.finish(s), nil
}

// finish completes the decision that began on s with its consequences: an activity run ends with its activity, a parent
// gets the message of its child's end, and an open run with unseen events gets a workflow task. All this is part of the
// same step, because a crash in between would leave a run that nothing wakes.
func (st *step) finish(s *Run) Decision {
	st.closeActivityRun()
	// Only the step that closes the run notifies its parent, so that the message is sent once.
	if s.Status.Open() && !st.Status.Open() && st.Parent != nil {
		st.notifyParent()
	}
	st.wakeUp()
	st.Task.recordStuck(st.now)
	st.d.Next = st.Run
	return st.d
}

// step is one decision in the making, on a fork of the run. Of its fields only the run and d outlive it.
type step struct {
	*Run
	env  Environment
	now  history.Time
	d    Decision
	task string // id of the workflow task being completed
	seen int64
	// lease of the workflow task whose commands are applied
	holder Lease

	knowsSessions bool                    // the worker that completes the workflow task declared CapSessions
	closing       bool                    // the run's steps end because it does
	code          Code                    // of the worker that completes the workflow task
	resumed       bool                    // the one command it sent is its whole answer to the end of a step
	settled       int64                   // the event that ended that step
	ends          map[string]Message      // by workflow id: how children ended that commands attach to
	carry         []Signal                // seen but not received by the code, if the run continues as new
	fresh         int64                   // last signal that the completed task was the first to show
	renewed       map[string]history.Time // deadlines of condition waits this step ended, by occurrence
}

// emit appends an event and applies it to the fork at once, so that the rest of the step sees its effect. State that a
// replay of the history must reproduce changes only through events; other state (leases, heartbeats, counts of a
// session) is set directly.
func (st *step) emit(d history.Data) history.Event { return st.emitAt(d, st.now) }

// emitAt appends an event with the time at, for a result whose eager workflow task ran with a time that the
// worker received before.
func (st *step) emitAt(d history.Data, at history.Time) history.Event {
	e := history.Event{Seq: st.LastSeq + 1, At: at, Data: d, TaskID: st.task, SeenThrough: st.seen}
	if !st.ClosedAt.IsZero() {
		st.emitUnrecorded(e)
		return e
	}
	st.Evolve(e)
	st.d.Events = append(st.d.Events, e)
	st.choose(e)
	return e
}

// usesSessions records that the history holds session events from now on. It binds the run only if the worker
// that wrote them can replay them (see NeedsSessions).
func (st *step) usesSessions() { st.NeedsSessions = st.NeedsSessions || st.knowsSessions }

// wakeUp creates a workflow task if the run has unseen events and no open task. If a task is open, its completion
// reports the last event that it saw and calls wakeUp again.
func (st *step) wakeUp() {
	if !st.Status.Open() || st.Task != nil {
		return
	}
	var cause Cause
	if st.Wake > st.Seen {
		cause = st.why()
	} else if u, k, ok := st.untaken(); ok {
		cause = Cause{Kind: UpdateTask, Event: k, Type: "UpdateAccepted", Name: u.Name, ID: u.ID}
	} else {
		return
	}
	st.Tasks++
	st.Task = &Task{Number: st.Tasks, State: Ready, ReadyAt: st.now, Cause: cause}
	st.d.Answer.Created = append(st.d.Answer.Created, TaskID(st.ID, st.Tasks))
}

// why returns the cause of the next task. A signal that resolves a wait takes precedence over all other causes, since
// some replayers learn only from the task that the wait has ended.
func (st *step) why() Cause {
	for k, w := range st.Waits.All() {
		if w.Kind == "" && w.Signal > 0 {
			return Cause{
				Kind: "workflow_signal", Sequence: k, Event: w.Signal, Type: "SignalReceived", Name: w.Name, ID: w.SignalID,
			}
		}
	}
	if st.WakeFor == nil {
		return Cause{}
	}
	return *st.WakeFor
}

// session returns the row of a session ID as changed by this step, and whether it exists. One step may change a session
// more than once (ten activities of one completion), so its changes take precedence over the stored row.
func (st *step) session(id string) (Session, bool) {
	for i := range st.d.Sessions {
		if s := &st.d.Sessions[i].Session; s.ID == id {
			return *s, true
		}
	}
	if s := st.env.Session(id); s != nil {
		return *s, true
	}
	return Session{}, false
}

// storeSession stores a changed session, with new entries of its timeline, in the decision. It replaces an earlier
// change of the same step: a decision holds one change per session.
func (st *step) storeSession(s Session, timeline ...protocol.SessionEvent) {
	s.watch(st.now)
	for i := range st.d.Sessions {
		if c := &st.d.Sessions[i]; c.Session.ID == s.ID {
			c.Session, c.Timeline = s, append(c.Timeline, timeline...)
			return
		}
	}
	st.d.Sessions = append(st.d.Sessions, SessionChange{Session: s, Timeline: timeline})
}

// mustHaveTasks refuses input that requires an open run or abandoned activities of a closed one.
func (st *step) mustHaveTasks() error {
	if st.Activities.Len() > 0 {
		return nil
	}
	return st.mustBeOpen()
}

// mustBeOpen refuses what needs an open run.
func (st *step) mustBeOpen() error {
	if st.Status.Open() {
		return nil
	}
	return runClosed(&st.Head)
}

// runClosed returns the refusal for a worker that reports after the run has closed. It contains the outcome in the
// terms of the contract, so that the worker can cancel its task (cancel_requested) without reading the run.
func runClosed(h *Head) *protocol.Error {
	reason := protocol.ReasonRunClosed
	_, _, closed := protocol.PublicRun(h.Status, true, false)
	stop := map[protocol.RunStatus]string{
		protocol.RunCancelled: "run_cancelled", protocol.RunTerminated: "run_terminated",
		protocol.RunCompleted: "run_completed",
		protocol.RunFailed:    "run_failed", protocol.RunTimedOut: "run_timed_out", protocol.RunContinued: "run_completed",
	}[h.Status]
	return protocol.Refuse(reason, "run %s is %s", h.ID, h.Status).
		With("run_id", h.ID).With("run_status", h.Status).With("can_continue", false).With("stop_reason", stop).
		With("cancel_requested", h.Status == protocol.RunCancelled || h.Status == protocol.RunTerminated).
		With("run_closed_reason", closed).With("run_closed_at", h.ClosedAt)
}

// failureID returns an ID derived from the event that will contain it, so that a repeated decision gives the same ID.
func (st *step) failureID() string { return fmt.Sprintf("%s-f%d", st.ID, st.LastSeq+1) }

// IsClosed reports whether a decision was refused because the run has closed.
func IsClosed(err error) bool { return protocol.ReasonOf(err) == protocol.ReasonRunClosed }
