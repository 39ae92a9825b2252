package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A child is a run whose parent waits for its end. One decision never changes both parent and child: they send each
// other messages, and each message is stored in the step that sends it. So neither run waits for a step of the other
// one, and a crash loses no message.

// The parent-close policies say what happens to an open child when its parent closes.
const (
	Abandon         = "abandon"
	RequestCancel   = "request_cancel"
	Terminate       = "terminate"
	CancelByRequest = "request_cancellation"
)

// Child is an open child workflow: its latest run, and the request for its next run. The arguments are stored only if a
// retry policy may need them again, since they may be large.
type Child struct {
	WorkflowID  string `json:"workflow"`
	RunID       string `json:"run"`
	Number      int64  `json:"number"`
	Type        string `json:"type"`
	Queue       string `json:"queue"`
	ClosePolicy string `json:"close_policy"`
	// CancelPolicy is the cancellation policy of the command; empty: the command had none.
	CancelPolicy    string        `json:"cancel_policy,omitempty"`
	Arguments       string        `json:"arguments,omitempty"` // stored only with a retry policy
	Retry           *retry.Policy `json:"retry,omitempty"`
	Failures        int           `json:"failures,omitempty"`
	CancelRequested bool          `json:"asked,omitempty"` // the end of the child was requested, so it is not retried
	ExecutionTO     int64         `json:"execution_timeout,omitempty"`
	RunTimeout      int64         `json:"run_timeout,omitempty"`
	// StartedBy is the run that started the child, if this run has copied the event; empty: this run.
	StartedBy string       `json:"started_by,omitempty"`
	Deadline  history.Time `json:"deadline,omitzero"` // deadline of all its runs together

	Chain    string `json:"chain,omitempty"`     // of the child; see Head.Chain
	Shared   bool   `json:"shared,omitempty"`    // an earlier step started the child; its end also ends this step
	IsShared bool   `json:"is_shared,omitempty"` // the end of the child also ends a later step

	Memo             json.RawMessage      `json:"memo,omitempty"` // stored only with a retry policy, like Attributes
	SearchAttributes json.RawMessage      `json:"search_attributes,omitempty"`
	Headers          history.Headers      `json:"headers,omitempty"` // stored only with a retry policy, too
	Trace            history.TraceContext `json:"trace,omitzero"`    // stored only with a retry policy, too
	history.Parallel
}

// Parent identifies the run that started a child. It stays the same over all runs of the child, so a child that
// continued as new or was retried still reports to that parent.
type Parent struct {
	RunID      string `json:"run"`
	WorkflowID string `json:"workflow"`
	Seq        int64  `json:"seq"`
	Chain      string `json:"chain,omitempty"` // Head.Chain of the parent
}

// ChildOf reports whether a run of the parent's chain started this run as its child. Another chain of the same workflow
// ID is a different parent.
func (h *Head) ChildOf(parent *Head) bool {
	return h.Parent != nil && h.Parent.WorkflowID == parent.WorkflowID && h.Parent.Chain == parent.Chain
}

// childRef returns the reference to a child in events of the run that started it.
func (st *step) childRef(seq int64, c *Child) history.Child {
	return history.Child{
		Sequence: seq, CallID: StepID(c.startedBy(st.ID), seq), WorkflowID: c.WorkflowID, RunID: c.RunID, Type: c.Type,
		ClosePolicy: c.ClosePolicy, CancelPolicy: c.CancelPolicy,
	}
}

// startedBy returns the run that started a child of run.
func (c *Child) startedBy(run string) string { return cmp.Or(c.StartedBy, run) }

// startChild opens a child: the step also starts the child's run, under the workflow ID from the command or under a
// generated one. If the workflow ID is in use, the child fails in the same step, with an event that the code can
// handle. Rejecting the whole completion would block the run forever.
func (st *step) startChild(c protocol.Command, seq int64) error {
	memo, attributes, err := memoAndAttributes(c, func(f string) string { return f })
	if err != nil {
		return err
	}
	child := Child{
		WorkflowID: StepID(st.ID, seq), RunID: DerivedRunID(st.ID, seq, st.now.Time), Number: 1, Type: c.WorkflowType,
		Queue:       c.Queue,
		ClosePolicy: c.ParentClosePolicy, CancelPolicy: c.CancellationPolicy, Retry: c.RetryPolicy.Recorded(),
		ExecutionTO: int64(c.ExecutionTimeout), RunTimeout: int64(c.RunTimeout),
	}
	if child.Queue == "" {
		child.Queue = st.Queue
	}
	if child.ClosePolicy == "" {
		child.ClosePolicy = Abandon
	}
	if c.ExecutionTimeout > 0 {
		child.Deadline = plus(st.now, seconds(int64(c.ExecutionTimeout)))
	}
	var use childID
	if c.WorkflowID != "" {
		child.WorkflowID, use = c.WorkflowID, st.childID(c)
	}
	switch {
	case use.refusal != "":
		child.RunID = ""
	case use.existing != nil:
		// The close policy and the retry policy of the step that started the child apply.
		child.RunID, child.Number, child.Chain = use.existing.ID, use.existing.Number, use.existing.Chain
		child.Shared, child.ClosePolicy, child.Retry = true, Abandon, nil
	case use.reuses:
		child.Chain = child.RunID
	}
	st.emit(&history.ChildWorkflowScheduled{
		ChainRunID: child.Chain, UsedExisting: child.Shared,
		Child: st.childRef(seq, &child), TaskQueue: child.Queue, Arguments: c.Arguments.Blob,
		PayloadCodec: codecOf(c.Arguments.Blob), RetryPolicy: child.Retry,
		ExecutionTimeout: int64(c.ExecutionTimeout), RunTimeout: int64(c.RunTimeout), Deadline: child.Deadline, Memo: memo,
		SearchAttributes: attributes, Headers: c.Headers, Trace: c.Trace.Or(st.Trace),
		Parallel: c.Parallel,
	})
	if use.refusal != "" {
		st.emit(&history.ChildRunFailed{ChildEnded: history.ChildEnded{
			Child: st.childRef(seq, &child), Status: "failed", ClosedReason: "failed", ClosedAt: st.now, Parallel: c.Parallel,
			Failure: history.Failure{
				ID: st.failureID(), Category: "child_workflow", ExceptionType: history.TypeWorkflowIDTaken, NonRetryable: true,
				Message: use.refusal,
			},
		}})
		return nil
	}
	st.emit(&history.ChildRunStarted{
		Child: st.childRef(seq, &child), Number: child.Number, Attempt: 1, Parallel: c.Parallel,
	})
	if child.Shared {
		return nil
	}
	child.Memo, child.SearchAttributes, child.Headers, child.Trace = memo, attributes, c.Headers, c.Trace.Or(st.Trace)
	parent := Parent{RunID: st.ID, WorkflowID: st.WorkflowID, Seq: seq, Chain: st.Chain}
	st.startChildRun(parent, child, c.Arguments.Blob, 0)
	if use.replaces != nil {
		st.d.Spawn[len(st.d.Spawn)-1].Replaces = use.replaces.ID
		return st.endReplaced(use.replaces)
	}
	return nil
}

// endReplaced ends the step, the row and the attachments of a child that a new child with its workflow ID replaces. It
// does not wait for the report of the replaced child: later commands of the same completion refer to the new child, and
// the new child may need the row when this run continues as new.
func (st *step) endReplaced(run *Run) error {
	f := st.ended("terminated", ReasonReplaced)
	m := Message{
		Kind: ChildEnded, ToRun: run.Parent.RunID, ToSeq: run.Parent.Seq, Run: run.ID, Number: run.Number,
		Status: protocol.RunTerminated, At: st.now, Failure: &f,
	}
	var report Input = ChildReport{m}
	if m.ToRun != st.ID {
		report = InheritedReport{Message: m, Child: run.WorkflowID}
	}
	// A child whose step has ended by the cancellation policy try_cancel has neither a step nor a row.
	if err := report.decide(st); !errors.Is(err, errNotDue) {
		return err
	}
	return nil
}

// childID is the decision about the workflow ID that a command chose for a child.
type childID struct {
	refusal  string // the ID is in use, and the child fails with this message
	reuses   bool   // the child begins a new chain under the ID
	replaces *Run   // the open child of this workflow that ends when the child begins
	existing *Run   // the child of this workflow with whose end the step ends
}

// childID decides about the workflow ID of a child by the policies of the command. Without policies, the ID must be
// unused, also by children that the same completion starts. Open runs that are not children of this workflow are never
// affected: a worker's token for one queue must not end workflows of other queues.
func (st *step) childID(c protocol.Command) childID {
	run, exists := st.workflow(c.WorkflowID)
	switch {
	case !exists && c.WorkflowID != st.WorkflowID:
		return childID{}
	case c.ReusePolicy == "" && c.ConflictPolicy == "":
		return childID{refusal: "workflow id " + c.WorkflowID + " is taken"}
	case st.startsChildWithID(c.WorkflowID):
		return childID{refusal: "workflow id " + c.WorkflowID + " is used twice by one workflow task"}
	case c.WorkflowID == st.WorkflowID:
		return childID{refusal: "workflow id " + c.WorkflowID + " is that of the parent itself"}
	case run != nil && run.Status.Open() && !run.ChildOf(&st.Head):
		return childID{refusal: "workflow id " + c.WorkflowID + notThisParents}
	}
	if c.ConflictPolicy == protocol.ConflictUseExisting && run != nil && (run.Status.Open() || run.owesParentReport()) {
		_, own := st.ownChild(c.WorkflowID)
		if own || run.ChildOf(&st.Head) && st.inherited(c.WorkflowID) != nil {
			return childID{existing: run}
		}
		return childID{refusal: "workflow id " + c.WorkflowID + notThisParents}
	}
	flow := Workflow{ID: c.WorkflowID}
	if run != nil {
		flow.RunID = run.ID
	}
	effect, err := DecideExisting(
		&protocol.StartRequest{ReusePolicy: c.ReusePolicy, ConflictPolicy: c.ConflictPolicy}, &flow, run,
	)
	switch {
	case err != nil:
		var refusal *protocol.Error
		errors.As(err, &refusal)
		return childID{refusal: refusal.Message}
	case effect == TerminateRun:
		return childID{reuses: true, replaces: run}
	}
	return childID{reuses: true}
}

// notThisParents is the end of the refusal of a child whose workflow ID the open run of another workflow uses.
const notThisParents = " is used by an open run that is no child of this workflow; " +
	"conflict policies of a child affect only children of the same workflow"

// startChildRun starts a run of a child in this step. Its parent is the run that started the child, for all runs of the
// child. The child inherits priority and fairness key, so that a workflow stays in its class if it is split into
// children.
func (st *step) startChildRun(parent Parent, c Child, arguments string, delay time.Duration) {
	priority := st.Priority
	st.d.Spawn = append(st.d.Spawn, Start{
		RunID: c.RunID, Number: c.Number, Arguments: arguments, Parent: &parent, Deadline: c.Deadline, Chain: c.Chain,
		// the first run of a retried child may be older than the naming rules
		OldNames: c.Number > 1 && st.NameRules == 0,
		Request: protocol.StartRequest{
			Namespace: st.Namespace, WorkflowID: c.WorkflowID, WorkflowType: c.Type, TaskQueue: c.Queue,
			RunTimeout:       c.RunTimeout,
			ExecutionTimeout: c.ExecutionTO, Priority: &priority, FairnessKey: st.FairnessKey, FairnessWeight: st.FairnessWeight,
			StartDelay: int64(delay / time.Second), Memo: c.Memo, SearchAttributes: c.SearchAttributes,
			Headers: c.Headers, Trace: c.Trace,
		},
	})
}

// cancelChild applies a cancel_child_workflow command, by the child's cancellation policy. By default the step ends
// when the child ends: if the child has completed meanwhile, its result counts. With the policy try_cancel the step
// ends immediately. With the policy abandon the child is not cancelled.
func (st *step) cancelChild(target, seq int64) {
	c, ok := st.Children.Get(target)
	a, attached := st.Attached.Get(target)
	if attached {
		c, ok = st.attachedChild(a), true
	}
	d := &history.ChildCancelRequested{CommandSequence: seq, Target: target, Effect: cancelTooLate}
	if ok {
		d.Effect = c.cancelEffect()
	}
	st.emit(d)
	if !ok || d.Effect == cancelAbandoned {
		return
	}
	if row := st.inherited(c.WorkflowID); attached && row != nil {
		f := *row
		f.CancelRequested = true
		st.storeInherited(f, false)
	}
	how := RequestCancel
	// If the close policy asks the child's code to cancel, this cancellation does the same; with the other policies the
	// child is cancelled without running its code.
	if c.ClosePolicy == CancelByRequest {
		how = CancelByRequest
	}
	st.enqueueMessage(c.closeMessage(how, cancelledByParent))
	switch {
	case d.Effect != cancelDone:
	case attached:
		st.attachedEnded(target, a.WorkflowID, a.Type, st.childCancelled(c))
	default:
		st.endCancelledChild(target, c)
	}
}

// cancelledByParent is the reason of a cancellation that a parent requests of its child.
const cancelledByParent = "cancelled by the parent"

// cancelEffect returns what a cancellation does to the open child; see ChildCancelRequested.
func (c *Child) cancelEffect() string {
	switch c.CancelPolicy {
	case protocol.CancelTry:
		return cancelDone
	case protocol.CancelAbandon:
		return cancelAbandoned
	}
	return cancelRequested
}

// endCancelledChild ends the step of a child with the policy try_cancel. Later reports of the child are ignored.
func (st *step) endCancelledChild(seq int64, c Child) {
	m := st.childCancelled(c)
	m.ToSeq = seq
	st.emitChildEnded(c, ChildReport{m})
	if !c.Shared { // the end of the child ends the other steps
		st.endAttachments(c.WorkflowID, m)
	}
}

// childCancelled returns the end that a parent records for a child for which it no longer waits.
func (st *step) childCancelled(c Child) Message {
	f := st.ended("cancelled", cancelledByFlow)
	return Message{
		Kind: ChildEnded, Run: c.RunID, Number: c.Number, Status: protocol.RunCancelled, At: st.now, Failure: &f,
	}
}

// closeChildren applies the parent-close policies to the open children. It includes children of earlier runs, since
// this is the last run of the workflow ID.
func (st *step) closeChildren() {
	for _, f := range st.inheritedChildrenToClose() {
		st.closeChild(&f.Child)
	}
	for _, c := range st.Children.All() {
		if c.ClosePolicy != Abandon {
			st.closeChild(&c)
		}
	}
	st.d.DropInherited, st.Inherited = st.d.DropInherited || st.Inherited.Open > 0, InheritedCount{}
}

// closeChild sends a child the message that its parent-close policy requires, and records that.
func (st *step) closeChild(c *Child) { st.closeChildAs(c, c.ClosePolicy, "parent closed") }

func (st *step) closeChildAs(c *Child, how, why string) {
	st.emit(&history.ParentClosePolicyApplied{
		WorkflowID: c.WorkflowID, RunID: c.RunID, Policy: how, Reason: why,
	})
	st.enqueueMessage(c.closeMessage(how, why))
}

// closeMessage returns the message that closes the child. It names the chain of the child, so that it does not affect a
// later child with the same workflow ID.
func (c *Child) closeMessage(how, reason string) Message {
	return Message{
		Kind: CloseChild, WorkflowID: c.WorkflowID, Name: how, Reason: reason, Chain: c.Chain, ChainKnown: c.RunID != "",
	}
}

// Closes reports whether a CloseChild message of the parent concerns this run. The workflow ID may meanwhile refer to a
// run of another workflow, or to a later child of the parent.
func (m Message) Closes(run *Run, parent *Head) bool {
	return run.ChildOf(parent) && (!m.ChainKnown || run.Chain == m.Chain)
}

// closeInput returns the input by which the message applies the parent-close policy to a child.
func (m Message) closeInput() Input {
	from := "workflow run " + m.FromRun
	switch m.Name {
	case Terminate:
		return EndRun{Terminate: true, Reason: m.Reason, Identity: from}
	case CancelByRequest:
		return RequestCancellation{Reason: m.Reason, Identity: from}
	}
	return EndRun{Reason: m.Reason, Identity: from}
}

// notifyParent stores the message to the parent that its child's run closed. The message is stored with this run, also
// after its end, until it is delivered.
func (st *step) notifyParent() {
	m := ChildEnd(st.Run, st.d.Events[len(st.d.Events)-1].Data)
	m.ToRun, m.ToSeq = st.Parent.RunID, st.Parent.Seq
	st.enqueueMessage(m)
}

// ChildEnd returns the message that a child's run closed, with the result from its last event.
func ChildEnd(run *Run, last history.Data) Message {
	m := Message{Kind: ChildEnded, Run: run.ID, Number: run.Number, Status: run.Status, At: run.ClosedAt}
	switch d := last.(type) {
	case *history.WorkflowCompleted:
		m.Value = d.Output
	case *history.WorkflowFailed:
		m.Failure = &d.Failure
	case *history.WorkflowCancelled:
		m.Failure = &d.Failure
	case *history.WorkflowTerminated:
		m.Failure = &d.Failure
		if d.NewRunID != "" { // by a reset; the parent waits for the new run
			m.Run, m.Number, m.Status, m.Failure = d.NewRunID, run.Number+1, protocol.RunContinued, nil
		}
	case *history.WorkflowTimedOut:
		m.Failure = &d.Failure
	case *history.WorkflowContinuedAsNew:
		m.Run, m.Number = d.NewRunID, d.NewRunNumber
	}
	return m
}

// ChildReport is the message to a parent that a run of its child closed or continued as new.
type ChildReport struct{ Message }

// decide ignores a message that is older than the parent's state: messages of different runs of a child arrive in any
// order, and an old end must not close a child that was started again.
func (in ChildReport) decide(st *step) error {
	if err := st.mustBeOpen(); err != nil {
		return err
	}
	c, ok := st.Children.Get(in.ToSeq)
	if !ok || in.Number < c.Number {
		return errNotDue // the parent no longer waits for the child, or knows a later run of it
	}
	unreported := in.Number > c.Number
	c.RunID, c.Number = in.Run, in.Number
	// The message about the end of a run may arrive before the message about its start, which another run sends. The
	// start is then recorded first, because replayers expect it before the end.
	if unreported || in.Status == protocol.RunContinued {
		st.emit(&history.ChildRunStarted{
			Child: st.childRef(in.ToSeq, &c), Number: c.Number, Attempt: c.Failures + 1, Parallel: c.Parallel,
		})
	}
	if in.Status == protocol.RunContinued {
		return nil
	}
	// The parent decides about a retry, because the policy is part of the parent's command and counts all runs of the
	// child.
	if next, delay, retried := st.retried(c, in.Message); retried {
		d := &history.ChildRunStarted{
			Child: st.childRef(in.ToSeq, &next), Number: next.Number, Attempt: next.Failures + 1, Parallel: c.Parallel,
		}
		if delay > 0 {
			d.StartAt = plus(st.now, delay)
		}
		st.emit(d)
		parent := Parent{RunID: c.startedBy(st.ID), WorkflowID: st.WorkflowID, Seq: in.ToSeq, Chain: st.Chain}
		st.startChildRun(parent, next, c.Arguments, delay)
		return nil
	}
	st.emitChildEnded(c, in)
	if st.Attached.Len() > 0 || c.IsShared {
		st.endAttachments(c.WorkflowID, in.Message)
	}
	return nil
}

// emitChildEnded emits the end of a child.
func (st *step) emitChildEnded(c Child, in ChildReport) {
	var f history.Failure
	if in.Failure != nil {
		f = *in.Failure
	}
	f.Stack = "" // the stack is stored in the child's own history
	status, _, reason := protocol.PublicRun(in.Status, true, false)
	ended := history.ChildEnded{
		Child: st.childRef(in.ToSeq, &c), Number: c.Number, Status: status, ClosedReason: reason, ClosedAt: in.At, Failure: f,
		Parallel: c.Parallel,
	}
	switch in.Status {
	case protocol.RunCompleted:
		st.emit(&history.ChildRunCompleted{
			Child: ended.Child, Number: c.Number, Status: status, ClosedReason: reason, ClosedAt: in.At, Result: in.Value,
			PayloadCodec: codecOf(in.Value), Parallel: c.Parallel,
		})
	case protocol.RunCancelled:
		st.emit(&history.ChildRunCancelled{ChildEnded: ended})
	case protocol.RunTerminated:
		st.emit(&history.ChildRunTerminated{ChildEnded: ended})
	default:
		st.emit(&history.ChildRunFailed{ChildEnded: ended})
	}
}

// retried returns the child's next run, if the previous run failed or timed out and the child's policy and deadline
// allow another run. It returns false if the end of the child was requested.
func (st *step) retried(c Child, m Message) (next Child, delay time.Duration, ok bool) {
	if m.Status != protocol.RunFailed && m.Status != protocol.RunTimedOut {
		return c, 0, false
	}
	var f history.Failure
	if m.Failure != nil {
		f = *m.Failure
	}
	if c.CancelRequested {
		return c, 0, false
	}
	if delay, ok = c.Retry.Next(c.Failures+1, f.ExceptionType, f.NonRetryable); !ok ||
		!c.Deadline.IsZero() && !plus(st.now, delay).Before(c.Deadline.Time) {
		return c, 0, false
	}
	c.RunID, c.Number, c.Failures = DerivedRunID(m.Run, m.Number, st.now.Time), m.Number+1, c.Failures+1
	return c, delay, true
}

// childScheduled opens a child. Without a retry policy it does not store data that only a restart would need.
func (s *Run) childScheduled(d *history.ChildWorkflowScheduled) {
	c := Child{
		WorkflowID: d.WorkflowID, RunID: d.RunID, Number: 1, Type: d.Child.Type, Queue: d.TaskQueue,
		ClosePolicy: d.ClosePolicy, CancelPolicy: d.CancelPolicy, Retry: d.RetryPolicy,
		ExecutionTO: d.ExecutionTimeout, RunTimeout: d.RunTimeout, Deadline: d.Deadline, Parallel: d.Parallel,
	}
	c.Chain, c.Shared = d.ChainRunID, d.UsedExisting
	if run, _, ok := ParseStepID(d.CallID); ok && run != s.ID {
		c.StartedBy = run
	}
	if c.Shared {
		for seq, o := range s.Children.All() {
			if o.WorkflowID == c.WorkflowID && !o.Shared {
				o.IsShared = true
				s.Children.Put(seq, o)
			}
		}
	}
	if d.RetryPolicy != nil {
		c.Arguments, c.Memo, c.SearchAttributes, c.Headers = d.Arguments, d.Memo, d.SearchAttributes, d.Headers
		c.Trace = d.Trace
	}
	s.Children.Put(d.Sequence, c)
}

// childCancelRequested records that the end of a child was requested, so that the child is not retried. The event may
// refer to the step that started the child or to an attachment to it.
func (s *Run) childCancelRequested(d *history.ChildCancelRequested) {
	if d.Effect == cancelAbandoned {
		return
	}
	ask := func(seq int64, c Child) {
		c.CancelRequested = true
		s.Children.Put(seq, c)
	}
	if c, ok := s.Children.Get(d.Target); ok {
		ask(d.Target, c)
	}
	workflowID := ""
	if c, ok := s.Children.Get(d.Target); ok && c.Shared {
		workflowID = c.WorkflowID
	} else if a, attached := s.Attached.Get(d.Target); attached { // the child may be attached or a child of this run
		workflowID = a.WorkflowID
	}
	if workflowID == "" {
		return
	}
	for seq, c := range s.Children.All() {
		if c.WorkflowID == workflowID {
			ask(seq, c)
		}
	}
}

// childStarted records the child's latest run. From now on, messages about an earlier run are outdated.
func (s *Run) childStarted(d *history.ChildRunStarted) {
	if c, ok := s.Children.Get(d.Sequence); ok {
		c.RunID, c.Number, c.Failures = d.RunID, d.Number, d.Attempt-1
		s.Children.Put(d.Sequence, c)
	}
}

// childEnded closes a child and wakes the run.
func (s *Run) childEnded(c history.Child, e history.Event, group string) {
	s.Children.Delete(c.Sequence)
	s.wakeForEndedStep(e, group, Cause{Kind: "child_workflow_run", Sequence: c.Sequence, Name: c.Type, ID: c.RunID})
}
