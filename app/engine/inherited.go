package engine

import (
	"errors"
	"slices"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// When a run continues as new, its open children continue to run and their close policy still applies, but no step of
// the next run waits for them. They are therefore transferred to the chain of runs of the workflow ID. Their rows do
// not change when the chain continues, so a run that continues a thousand times does not copy its children a thousand
// times.

// InheritedChild is an open child that an earlier run of a workflow ID started before that run continued as new. Its
// row belongs to the chain of runs, stays unchanged when the chain continues, and refers to the child's latest run.
// Only the current run of the chain changes it, under the lock of that run.
type InheritedChild struct {
	Chain WorkflowKey `json:"-"` // the parent's chain
	Child
	From string `json:"from"` // the run that started it
	Seq  int64  `json:"seq"`  // number of the command that started it
}

// Bound reports whether a close policy applies to the child when the chain closes.
func (f *InheritedChild) Bound() bool { return f.ClosePolicy != Abandon }

// Key returns the key of the row.
func (f *InheritedChild) Key() InheritedKey { return InheritedKey{f.Chain, f.Child.WorkflowID} }

// InheritedKey identifies a child by its parent's chain.
type InheritedKey struct {
	Chain WorkflowKey
	Child string // workflow ID of the child
}

// InheritedChange is the change of one row of a child that an earlier run started.
type InheritedChange struct {
	Child   InheritedChild
	Deleted bool
}

// InheritedCount contains the number of open children of earlier runs, and how many of them have a close policy. It is
// part of the run's row, so that a run without such children reads no other row.
type InheritedCount struct {
	Open  int `json:"open,omitempty"`
	Bound int `json:"bound,omitempty"`
}

// Attached is a child to which the run attached, so that the run waits for its end. This run or an earlier run of its
// workflow ID started the child.
type Attached struct {
	WorkflowID  string `json:"workflow"`
	Type        string `json:"type,omitempty"`
	ClosePolicy string `json:"close_policy,omitempty"`
}

// ErrChildEnded means that a child to which the run attaches has ended and that the child's result was not loaded. The
// caller loads it and decides again.
var ErrChildEnded = errors.New("a child has ended: look how, and decide again")

// storeInherited stores the row of a child of an earlier run; isNew is true if the row does not exist yet.
func (st *step) storeInherited(f InheritedChild, isNew bool) {
	f.Chain = WorkflowKey{Namespace: st.Namespace, ID: st.WorkflowID}
	st.d.Inherited = append(st.d.Inherited, InheritedChange{Child: f})
	if isNew {
		st.countInherited(&f, 1)
	}
}

// deleteInherited removes the row of a child that has ended.
func (st *step) deleteInherited(f InheritedChild) {
	st.d.Inherited = append(st.d.Inherited, InheritedChange{Child: f, Deleted: true})
	st.countInherited(&f, -1)
}

// countInherited changes the counts in the run's row by n children like f. The counts must not be too low: otherwise
// the end of the chain would miss a child.
func (st *step) countInherited(f *InheritedChild, n int) {
	st.Inherited.Open += n
	if f.Bound() {
		st.Inherited.Bound += n
	}
}

// transferChildren transfers the open children of the run to the chain, because no step of the next run waits for them.
func (st *step) transferChildren(next *Start) {
	for seq, c := range st.Children.All() {
		if c.Shared { // the step that started the child, or the chain, has it
			continue
		}
		c.IsShared = false
		// The group belongs to the run that ends.
		c.Parallel = history.Parallel{}
		from := c.startedBy(st.ID)
		c.StartedBy = ""
		st.storeInherited(InheritedChild{Child: c, From: from, Seq: seq}, true)
	}
	next.Inherited, st.Inherited = st.Inherited, InheritedCount{}
}

// InheritedReport is the message of a child that an earlier run of the workflow ID started. It adds no event, except
// for attachments to the child: no step of the run started the child, and a replayer could not process the child's end.
type InheritedReport struct {
	Message
	Child string // workflow ID of the child
}

func (in InheritedReport) decide(st *step) error {
	if err := st.mustBeOpen(); err != nil {
		return err
	}
	if c, ok := st.Children.Get(in.ToSeq); ok && c.WorkflowID == in.Child && c.StartedBy == in.ToRun {
		return ChildReport{in.Message}.decide(st) // a run that began by a reset has copied the step
	}
	// The message names the run that started the child and the number of the command. If the row differs, it belongs to
	// another child of the same ID.
	row := st.inherited(in.Child)
	if row == nil || row.From != in.ToRun || row.Seq != in.ToSeq || in.Number < row.Number {
		return errNotDue
	}
	f := *row
	f.RunID, f.Number = in.Run, in.Number
	continued := in.Status == protocol.RunContinued
	// The retry policy outlives the run that set it; the current run of the chain applies it.
	if c, delay, retried := st.retried(f.Child, in.Message); retried {
		f.Child, continued = c, true
		st.startChildRun(Parent{RunID: f.From, WorkflowID: st.WorkflowID, Seq: f.Seq, Chain: st.Chain}, c, c.Arguments, delay)
	}
	if continued {
		st.storeInherited(f, false)
		return nil
	}
	st.deleteInherited(f)
	st.endAttachments(in.Child, in.Message)
	return nil
}

// inherited returns the row of a child that an earlier run started, as this step leaves it so far, or nil.
func (st *step) inherited(workflowID string) *InheritedChild {
	for _, c := range slices.Backward(st.d.Inherited) {
		if c.Child.WorkflowID != workflowID {
			continue
		}
		if c.Deleted {
			return nil
		}
		return &c.Child
	}
	if st.env.Inherited == nil || st.Inherited.Open == 0 {
		return nil
	}
	return st.env.Inherited(workflowID)
}

// inheritedChildrenToClose returns the children of earlier runs that have a close policy, without those whose rows this
// step has deleted.
func (st *step) inheritedChildrenToClose() []*InheritedChild {
	if st.env.Bound == nil || st.Inherited.Bound == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(st.env.Bound()), func(f *InheritedChild) bool {
		return st.inherited(f.Child.WorkflowID) == nil
	})
}

// attachChild attaches the run to a child, so that the child's end is reported to the run. If the child has already
// ended, its result is loaded before the decision, since a run's row contains no result. If the child ends between
// loading and the decision, the result is loaded again.
func (st *step) attachChild(c protocol.Command, seq int64) error {
	d := &history.AttachedToChild{CommandSequence: seq, WorkflowID: c.WorkflowID, Effect: "attached"}
	if own, ok := st.ownChild(c.WorkflowID); ok {
		d.WorkflowType, d.ClosePolicy = own.Type, own.ClosePolicy
		st.emit(d)
		return nil
	}
	run, _ := st.workflow(c.WorkflowID)
	// Only children of this chain may be attached: a run must not read results of other workflows.
	if run == nil || !run.ChildOf(&st.Head) {
		d.Effect = "unknown"
		st.emit(d)
		st.attachedEnded(seq, c.WorkflowID, "", Message{Status: protocol.RunFailed, At: st.now, Failure: &history.Failure{
			ID: st.failureID(), Category: "child_workflow", ExceptionType: history.TypeChildNotFound, NonRetryable: true,
			Message: "workflow " + c.WorkflowID + " is no child of workflow " + st.WorkflowID,
		}})
		return nil
	}
	d.WorkflowType = run.Type
	row := st.inherited(c.WorkflowID)
	// This run started the child and ended its step with the policy try_cancel, so it ignores the child's reports.
	if run.Parent.RunID == st.ID && row == nil && (run.Status.Open() || run.owesParentReport()) {
		d.Effect = "ended"
		st.emit(d)
		st.attachedEnded(seq, c.WorkflowID, run.Type, st.childCancelled(Child{RunID: run.ID, Number: run.Number}))
		return nil
	}
	if run.Status.Open() || run.owesParentReport() {
		if row == nil { // a release that did not store children of a chain dropped it, or its end is being delivered
			row = &InheritedChild{From: run.Parent.RunID, Seq: run.Parent.Seq, Child: Child{
				WorkflowID: run.WorkflowID, RunID: run.ID, Number: run.Number, Type: run.Type, Queue: run.Queue,
				ClosePolicy: Abandon, Chain: run.Chain,
			}}
			st.storeInherited(*row, true)
		}
		d.ClosePolicy = row.ClosePolicy
		st.emit(d)
		return nil
	}
	end, ok := st.ends[c.WorkflowID]
	if !ok || end.Run != run.ID {
		return ErrChildEnded
	}
	if row != nil { // the chain has not received the end of the child
		st.deleteInherited(*row)
	}
	d.Effect = "ended"
	st.emit(d)
	st.attachedEnded(seq, c.WorkflowID, run.Type, end)
	return nil
}

// attachedChild returns the child of an attachment, with the fields that a cancellation needs.
func (st *step) attachedChild(a Attached) Child {
	c := Child{WorkflowID: a.WorkflowID, ClosePolicy: a.ClosePolicy}
	if own, ok := st.ownChild(a.WorkflowID); ok {
		c.RunID, c.CancelPolicy = own.RunID, own.CancelPolicy
	} else if row := st.inherited(a.WorkflowID); row != nil {
		c.RunID, c.CancelPolicy = row.RunID, row.CancelPolicy
	}
	return c
}

// ownChild returns the open child of this run with a workflow ID.
func (s *Run) ownChild(workflowID string) (Child, bool) {
	for _, c := range s.Children.All() {
		if c.WorkflowID == workflowID {
			return c, true
		}
	}
	return Child{}, false
}

// owesParentReport reports whether the run has closed and its parent has not received that message yet.
func (s *Run) owesParentReport() bool {
	return s.Undelivered.Any(func(m Message) bool { return m.Kind == ChildEnded })
}

// workflow returns the current run of a workflow ID if it is loaded, and whether the ID is in use. Children that this
// step starts count, too: one completion may contain the same ID twice.
func (st *step) workflow(id string) (run *Run, exists bool) {
	if st.startsChildWithID(id) {
		return nil, true
	}
	if st.env.Workflow == nil {
		return nil, id == st.WorkflowID
	}
	return st.env.Workflow(id)
}

// startsChildWithID reports whether this step starts a child with the workflow ID.
func (st *step) startsChildWithID(id string) bool {
	return slices.ContainsFunc(st.d.Spawn, func(s Start) bool { return s.Request.WorkflowID == id })
}

// endAttachments ends the steps of the run that wait for a child which another step or an earlier run started: a step
// that attached to the child, or that started it with the conflict policy use-existing.
func (st *step) endAttachments(workflowID string, m Message) {
	for seq, a := range st.Attached.All() {
		if a.WorkflowID == workflowID {
			st.attachedEnded(seq, workflowID, a.Type, m)
		}
	}
	for seq, c := range st.Children.All() {
		if c.Shared && c.WorkflowID == workflowID {
			c.RunID, c.Number, m.ToSeq = m.Run, m.Number, seq
			st.emitChildEnded(c, ChildReport{m})
		}
	}
}

// attachedEnded records that a child to which the code attached has ended.
func (st *step) attachedEnded(seq int64, workflowID, typ string, m Message) {
	_, _, reason := protocol.PublicRun(m.Status, true, false)
	d := &history.AttachedChildEnded{
		CommandSequence: seq, WorkflowID: workflowID, WorkflowType: typ, RunID: m.Run, ClosedReason: reason, ClosedAt: m.At,
		Result:       m.Value,
		PayloadCodec: codecOf(m.Value),
	}
	if m.Failure != nil {
		d.Failure = *m.Failure
	}
	st.emit(d)
}

// attached records that the code attached to a child.
func (s *Run) attached(d *history.AttachedToChild) {
	s.Attached.Put(d.CommandSequence, Attached{WorkflowID: d.WorkflowID, Type: d.WorkflowType, ClosePolicy: d.ClosePolicy})
}

func (s *Run) attachmentEnded(d *history.AttachedChildEnded, e history.Event) {
	s.Attached.Delete(d.CommandSequence)
	s.wake(e, Cause{Kind: "child_workflow_run", Sequence: d.CommandSequence, Name: d.WorkflowType, ID: d.RunID})
}
