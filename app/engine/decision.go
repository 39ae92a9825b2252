package engine

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A decision is data. The store can therefore apply many decisions in one transaction, apply each completely or skip
// it, and discard one without undoing anything.

// Decision is everything that one step changes: one run, its tasks, and the sessions that its commands name. A store
// applies all of it in one transaction.
type Decision struct {
	After  int64           // sequence of the last event this was decided on: the fence
	Next   *Run            // a fork of the run with the step applied; its tables hold the changed rows
	Events []history.Event // appended events, in order
	// Inherits are events of inherited signals that follow the first event of a new run and are not in Events.
	Inherits *InheritedSignals
	// Unrecorded are events of abandoned activities after the close of their run: they changed the activities' rows, and
	// the history has ended.
	Unrecorded []history.Event
	Sessions   []SessionChange   // sessions that the step started, ended, touched or scheduled on
	Inherited  []InheritedChange // children that belong to the chain of runs of the workflow id
	// DropInherited: the chain ends, and all rows of its children go with it.
	DropInherited bool
	Continue      *Start    // the next run, if this one continued as new
	Spawn         []Start   // runs of children
	Outbox        []Message // signals to other workflows; other messages are part of the run
	Answer        Answer    // the response to the caller
}

// Answer is the response to the caller of a decision. It is part of the decision, because the app may send it only
// after the commit: an outcome that a caller knows must survive any crash.
type Answer struct {
	Outcome  string
	Recorded bool
	Created  []string // ids of the tasks this made
	NextTask string   // the task that will be tried again
	Update   string   // id of the update that was accepted
	Fused    bool     // the eager workflow task that came with the result was accepted
	Returned int      // how often in a row the released task was returned without having been started
	Blamed   []string // losses whose suspects are cleared, since this task ended its executor as their only suspect
	Refused  error    // the caller is refused, though something was written: a late result that sets its task free

	Warnings []protocol.Warning // about commands that had no effect
}

// SessionChange is the change of one session, with the new entries of its timeline.
type SessionChange struct {
	Session  Session // the row after
	Timeline []protocol.SessionEvent
	Delete   bool // cleaned up: the row is deleted, its epoch stays stored
	// Arguments are the arguments of the session's definition, to be stored; nil: unchanged.
	Arguments *string
}

// Start is a run that is to be made: by a caller, by a parent, or in the place of a run that continued as new.
// The last two are part of another run's decision, so that no crash can leave the one without the other.
type Start struct {
	RunID         string
	Number        int64
	Request       protocol.StartRequest
	Arguments     string // blob of the argument array, may be empty
	ContinuedFrom *Run
	Carry         []Signal // signals that the run before had not received, if they are copied
	Inbox         *Inbox   // these signals, if they are inherited by an inbox; nil: none
	Inherits      *InheritedSignals
	Updates       []Update       // updates the run before had not answered
	Inherited     InheritedCount // open children that earlier runs started
	Parent        *Parent
	BuildID       string         // build of the run; a run that continues another on the same queue inherits its build
	Held          protocol.Quota // holds back the first task; empty: none
	Deadline      history.Time   // of a child whose earlier runs took some of its time
	Reuses        bool           // the workflow ID of an earlier chain, whose newest run is closed
	StartKey      *StartKey      // Idempotency-Key of the request; nil: none
	OldNames      bool           // the workflow, its parent or its schedule began before the rules for names existed
}
