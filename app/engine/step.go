package engine

import (
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Every change of a run follows the same steps: fork the run, apply the input's decide method to the fork, create the
// next workflow task if one is due. A new input needs only a decide method.

// Input is an input of a decision on a run. decide is not exported, so all implementations are in this package, in the
// files of their topics.
type Input interface {
	decide(*step) error
}

// Environment is what a decision on a run may read besides the run itself. The submitter of an input names the rows
// that the input needs; these functions look them up among the loaded rows, so a decision does no I/O.
type Environment struct {
	Session func(id string) *Session // sessions of the run's namespace; nil: no row
	Chain   []*Session               // the open workflow-scoped sessions of the run's workflow ID

	// Inherited returns an open child that an earlier run of the workflow ID started; nil: none.
	Inherited func(workflowID string) *InheritedChild
	// Bound returns the children of earlier runs that have a close policy, for a step that may close the last run.
	Bound func() []*InheritedChild
	// Workflow returns the current run of an ID that a command names, in the run's namespace.
	Workflow func(workflowID string) (current *Run, exists bool)
}

// DecideRun applies the input in to the run s at now. It does not change s. A refusal is a *protocol.Error and changes
// nothing. If the input has an eager workflow task, DecideRun first decides with that task. If the task is rejected, it
// decides again on a new fork without the task, so that the rejected task leaves no trace.
func DecideRun(s *Run, w Environment, in Input, now time.Time) (Decision, error) {
	if w.Session == nil {
		w.Session = func(string) *Session { return nil }
	}
	begin := func() *step { return &step{Run: s.Fork(), env: w, now: history.At(now), d: Decision{After: s.LastSeq}} }
	st := begin()
	// the eager workflow task is rejected, so apply only the result
	if c, ok := in.(CompleteActivity); ok && c.Eager != nil {
		if c.applyWithEagerTask(st) == nil {
			return st.finish(s), nil
		}
		st = begin()
	}
	if err := in.decide(st); err != nil {
		return Decision{}, err
	}
	return st.finish(s), nil
}

// finish adds the consequences of a decision on s: an activity run closes with its activity, a parent gets the message
// of its child's end, and an open run with unseen events gets a workflow task. They are part of the same step, because
// after a crash in between nothing would wake the run.
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

// step is a decision in progress, on a fork of the run. Only the run and d are used after the step.
type step struct {
	*Run
	env  Environment
	now  history.Time
	d    Decision
	task string // ID of the workflow task that the step completes
	seen int64
	// holder is the lease of the workflow task whose commands are applied.
	holder Lease

	knowsSessions bool               // the worker that completes the workflow task declared CapSessions
	closing       bool               // the steps of the run end because the run closes
	byToken       bool               // a caller of the API, not a worker, reports the outcome of an activity
	code          Code               // code of the worker that completes the workflow task
	resumed       bool               // the task's only command is the reaction to the end of a step
	settled       int64              // event that ended that step
	ends          map[string]Message // by workflow ID: how children ended to which commands attach
	workers       []*Worker          // live workers, if a command needs resources of workers
	carry         []Signal           // signals that were seen but not received, if the run continues as new
	fresh         int64              // last signal that the completed task was the first to contain
	// deadlines of condition waits that this step ended, by occurrence of the condition
	renewed map[string]history.Time
}

// emit appends an event and immediately applies it to the fork, so that the rest of the step sees its effect. State
// that a replay of the history must reproduce changes only through events; other state (leases, heartbeats, counts of a
// session) is set directly.
func (st *step) emit(d history.Data) history.Event { return st.emitAt(d, st.now) }

// emitAt appends an event with the time at, for a result whose eager workflow task already used this time.
func (st *step) emitAt(d history.Data, at history.Time) history.Event {
	e := history.Event{Seq: st.LastSeq + 1, At: at, Data: d, TaskID: st.task, SeenThrough: st.seen}
	if !st.ClosedAt.IsZero() {
		st.emitUnrecorded(e)
		return e
	}
	st.Evolve(e)
	st.d.Events = append(st.d.Events, e)
	st.recordWinner(e)
	return e
}

// usesSessions records that the history contains session events from now on. This restricts the run's workers only if
// the worker that wrote the events can replay them (see NeedsSessions).
func (st *step) usesSessions() { st.NeedsSessions = st.NeedsSessions || st.knowsSessions }

// wakeUp creates a workflow task if the run has unseen events and no open task. If a task is open, its completion
// reports the last event that it saw and calls wakeUp again.
func (st *step) wakeUp() {
	if !st.Status.Open() || st.Task != nil {
		return
	}
	var cause Cause
	if st.Wake > st.Seen {
		cause = st.nextTaskCause()
	} else if u, k, ok := st.firstUnhandledUpdate(); ok {
		cause = Cause{Kind: UpdateTask, Event: k, Type: "UpdateAccepted", Name: u.Name, ID: u.ID}
	} else {
		return
	}
	st.Tasks++
	st.Task = &Task{Number: st.Tasks, State: Ready, ReadyAt: st.now, Cause: cause}
	st.d.Answer.Created = append(st.d.Answer.Created, TaskID(st.ID, st.Tasks))
}

// nextTaskCause returns the cause of the next task. A signal that resolves a wait takes precedence over all other
// causes, since some replayers learn only from the task that the wait has ended.
func (st *step) nextTaskCause() Cause {
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

// session returns a session as changed by this step, and whether it exists. One step may change a session more than
// once (ten activities of one completion), so its changes take precedence over the stored row.
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

// storeSession adds a changed session, with new entries of its timeline, to the decision. It replaces an earlier change
// in the same step: a decision has one change per session.
func (st *step) storeSession(s Session, timeline ...protocol.SessionEvent) {
	timeline = append(timeline, s.checkPreparation(st.now)...)
	s.freeResources()
	s.recordWaiting(st.now)
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

// mustBeOpen refuses input that requires an open run.
func (st *step) mustBeOpen() error {
	if st.Status.Open() {
		return nil
	}
	return runClosed(&st.Head)
}

// runClosed returns the refusal for a worker that reports after the run has closed. It contains the run's outcome in
// the terms of the protocol, so that the worker can cancel its task (cancel_requested) without reading the run.
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

// failureID returns an ID that is derived from the event that will contain it, so that a repeated decision yields the
// same ID.
func (st *step) failureID() string { return fmt.Sprintf("%s-f%d", st.ID, st.LastSeq+1) }

// IsClosed reports whether a decision was refused because the run has closed.
func IsClosed(err error) bool { return protocol.ReasonOf(err) == protocol.ReasonRunClosed }
