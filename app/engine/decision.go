package engine

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A decision is data. The store can therefore apply many decisions in one transaction, apply each completely or skip
// it, and discard one without undoing anything.

// Decision contains everything that one step changes: one run, its tasks, and the sessions that its commands name. A
// store applies all of it in one transaction.
type Decision struct {
	After  int64           // number of the last event on which the decision is based: the fence
	Next   *Run            // a fork of the run after the step; its tables hold the changed rows
	Events []history.Event // appended events, in order
	// Inherits are the events of inherited signals. They follow the first event of a new run and are not in Events.
	Inherits *InheritedSignals
	// Unrecorded are events of abandoned activities of a closed run: they changed the rows of the activities, but
	// history is closed.
	Unrecorded []history.Event
	Sessions   []SessionChange   // sessions that the step started, ended, used or scheduled activities in
	Inherited  []InheritedChange // changed children of earlier runs, which belong to the chain of the workflow ID
	// DropInherited deletes all rows of such children, because the chain has ended.
	DropInherited bool
	Continue      *Start    // the next run, if this run continued as new
	Spawn         []Start   // runs of children that the step starts
	Outbox        []Message // signals to other workflows; other messages are stored with the run
	Answer        Answer    // the response to the caller
}

// Answer is the response to the caller of a decision. It is part of the decision, because the app may send it only
// after the commit: an outcome that a caller knows must survive any crash.
type Answer struct {
	Outcome  string
	Recorded bool
	Created  []string // IDs of the tasks that the step created
	NextTask string   // ID of the workflow task that will be retried
	Update   string   // ID of the update that was accepted
	Fused    bool     // the eager workflow task that was sent with the result was accepted
	Returned int      // how many times in a row the released task was returned without having been started
	// IDs of losses whose suspects are cleared, because this task was their only suspect and ended its executor
	Blamed []string
	// refusal for the caller of a decision that still changes something, such as the release of a task after a late
	// result
	Refused error

	Warnings []protocol.Warning // warnings about commands that had no effect
}

// SessionChange is the change of one session, with the new entries of its timeline.
type SessionChange struct {
	Session  Session // the session after the change
	Timeline []protocol.SessionEvent
	Delete   bool // delete the row of the session; its epoch stays stored in the watermark
	// Arguments are the arguments of the session's definition, to be stored; nil: unchanged.
	Arguments *string
	// Freed is the worker whose resources became free without an event of the timeline; empty: none.
	Freed string
	// Snapshot is the payload of the session's snapshot, to be stored; nil: unchanged. The stored payload is removed when
	// the session has no snapshot, or one in a file.
	Snapshot *string
}

// Start is a run to be created: by a caller, by a parent, or as the next run of a run that continues as new. In the
// last two cases it is part of another run's decision, so that a crash cannot separate the two.
type Start struct {
	RunID         string
	Number        int64
	Request       protocol.StartRequest
	Arguments     string // encoded argument array; may be empty
	ContinuedFrom *Run
	Carry         []Signal // copies of the signals that the previous run had not received
	Inbox         *Inbox   // the same signals in an inbox; nil: none
	Inherits      *InheritedSignals
	Updates       []Update       // updates that the previous run had not completed
	Inherited     InheritedCount // number of open children that earlier runs started
	First         Input          // a signal or an update that is recorded with the start; nil: none
	Parent        *Parent
	// build to which the run is pinned; a run that continues another one on the same queue inherits it
	BuildID  string
	Held     protocol.Quota // the quota that delays the first task; empty: none
	Deadline history.Time   // deadline of a child whose earlier runs used some of its time
	Reuses   bool           // the workflow ID belongs to an earlier chain, whose newest run is closed
	Chain    string         // chain of a child that is retried; see Head.Chain
	Replaces string         // open run of the workflow ID that ends in the same commit; empty: none
	StartKey *StartKey      // Idempotency-Key of the request; nil: none
	OldNames bool           // the workflow, its parent or its schedule began before the naming rules existed
}
