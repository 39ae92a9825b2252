package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ParentClosePolicy decides what happens to an open child when its parent closes. A parent that continues as new does
// not close: its children belong to the workflow ID, and the policy applies when the last run of that ID closes.
type ParentClosePolicy string

// Parent-close policies.
const (
	Abandon ParentClosePolicy = "abandon" // the child continues; the default
	// the child is cancelled immediately; its code does not run again
	CancelAtOnce ParentClosePolicy = "request_cancel"
	// cancellation of the child is requested; its code may clean up and decides how it ends
	AskToCancel   ParentClosePolicy = "request_cancellation"
	TerminateHard ParentClosePolicy = "terminate" // the child is terminated
)

// ChildOptions are the options of child workflows. Durations are rounded up to whole seconds; zero means no limit. A
// child has the priority of its parent.
type ChildOptions struct {
	// WorkflowID is the child's workflow ID: 1 to 128 letters, digits and . _ : -. Empty: an ID is derived from the
	// parent's run and the command. If the ID is in use and the policies do not allow the start, the child fails with
	// ErrWorkflowIDTaken.
	WorkflowID  string
	ReuseID     IDReusePolicy     // whether WorkflowID of a closed run may be used again; empty: RejectReuse
	Conflict    IDConflictPolicy  // what happens if a run of WorkflowID is open; empty: FailOnConflict
	Queue       string            // task queue; empty: the parent's
	ParentClose ParentClosePolicy // empty: Abandon
	// Retry is the retry policy for a child that failed or timed out. A cancelled or terminated child is not retried.
	Retry *RetryPolicy

	ExecutionTimeout time.Duration // limit for all runs of the child together
	RunTimeout       time.Duration // limit for one run

	// WaitForCancellation makes Get and Join of a cancelled child wait until the child has closed, and return its
	// result. With AskToCancel the child's code can clean up and may even complete. The child is not retried. The
	// option also applies to AttachChild.
	WaitForCancellation bool

	Memo             map[string]any // initial memo, with the rules of UpsertMemo
	SearchAttributes map[string]any // initial search attributes, with the rules of UpsertSearchAttributes
}

// IDReusePolicy decides whether a child may use the workflow ID of a closed run. A reused ID begins a new chain of
// runs.
type IDReusePolicy string

// The values of IDReusePolicy.
const (
	RejectReuse            IDReusePolicy = "reject"
	AllowReuseAfterFailure IDReusePolicy = "allow-after-failure" // it failed, timed out, was cancelled or terminated
	AllowReuse             IDReusePolicy = "allow"
)

// IDConflictPolicy decides what happens if a run of the workflow ID of a child is open.
type IDConflictPolicy string

// The values of IDConflictPolicy.
const (
	FailOnConflict IDConflictPolicy = "fail" // the child fails with ErrWorkflowIDTaken
	// UseExisting waits for the open run instead, if it is a child of this workflow that its code started earlier, in
	// this run or a run that this run continues. The options of that start apply. Another run is a conflict.
	UseExisting IDConflictPolicy = "use-existing"
	// TerminateExisting terminates the open run and starts the child in one commit, if the run is a child of this
	// workflow. Another run is a conflict.
	TerminateExisting IDConflictPolicy = "terminate-existing"
)

// derivedChildID matches the workflow IDs that the app derives for children without a WorkflowID.
var derivedChildID = regexp.MustCompile(`^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}-[0-9]+$`)

// WithChild returns a context whose children start with these options. A zero field inherits the value from ctx.
func WithChild(ctx Context, o ChildOptions) Context {
	c := *ctx.inner()
	overlay(&c.children, o)
	return &c
}

// Child is a child workflow that this run started or attached to. It is also the Future of the child's result. If the
// child closes without a result, Get returns a *ChildError.
type Child struct {
	*future
	// WorkflowID is the child's workflow ID, from ChildOptions or derived from the parent's run and the command. It is
	// set as soon as StartChild returns.
	WorkflowID string
}

var _ Future = (*Child)(nil)

// StartChild starts a workflow as a child of this one, by its registered name or by the registered function. The name
// may belong to a workflow in another language that other workers run. Cancelling ctx cancels the child immediately, or
// requests its cancellation if ParentClose is AskToCancel. To start a child that cancellation of ctx does not affect,
// use a context from WithoutCancel.
func StartChild(ctx Context, nameOrFunc any, args ...any) *Child {
	c := ctx.inner()
	c.m.currentBranch()
	if c.scope.cancelled {
		return &Child{future: c.m.settled(ErrCancelled)}
	}
	name, err := c.m.nameOf("workflow", nameOrFunc, c.m.names.WorkflowName)
	if err != nil {
		return &Child{future: c.m.settled(err)}
	}
	cmd, err := c.children.command()
	if err == nil {
		cmd.Arguments, err = c.m.codecs.NewArgs(args...)
	}
	if err != nil {
		return &Child{future: c.m.settled(fmt.Errorf("child workflow %q: %w", name, err))}
	}
	cmd.WorkflowType, cmd.Headers = name, c.headers
	if err := c.m.check(cmd); err != nil {
		return &Child{future: c.m.settled(fmt.Errorf("child workflow %q: %w", name, err))}
	}
	c.interceptCommand(OpStartChild, name, cmd.WorkflowID, args, cmd)
	f := c.openStep(childStep, name, cmd)
	f.waitForEnd = c.children.WaitForCancellation
	if f.workflowID = cmd.WorkflowID; f.workflowID == "" {
		f.workflowID = c.m.openedID(f.seq)
	}
	return &Child{f, f.workflowID}
}

// AttachChild returns the child with this workflow ID that this run, or an earlier run of its workflow ID, has started.
// A run that continues as new can pass the IDs of its children to the next run, which attaches to them. Get waits for
// the child to close, or returns immediately if it has closed. Its error is ErrChildNotFound if no run of this workflow
// ID started such a child, or if the child's data was removed. Cancelling ctx cancels the child, as for StartChild; to
// only wait, attach under WithoutCancel.
func AttachChild(ctx Context, workflowID string) *Child {
	c := ctx.inner()
	c.m.currentBranch()
	switch {
	case c.scope.cancelled:
		return &Child{c.m.settled(ErrCancelled), workflowID}
	case workflowID == "" || len(workflowID) > protocol.MaxWorkflowID:
		return &Child{c.m.settled(fmt.Errorf("%w: %q is not a valid workflow ID", ErrInvalidOptions, workflowID)), workflowID}
	}
	cmd := &protocol.Command{Type: protocol.AttachChildWorkflow, WorkflowID: workflowID}
	if err := c.m.check(cmd); err != nil {
		return &Child{c.m.settled(fmt.Errorf("child workflow %q: %w", workflowID, err)), workflowID}
	}
	f := c.openStep(attachStep, workflowID, cmd)
	f.workflowID, f.waitForEnd = workflowID, c.children.WaitForCancellation
	return &Child{f, workflowID}
}

// ExecuteChild starts a child workflow and waits for its result.
func ExecuteChild[T any](ctx Context, nameOrFunc any, args ...any) (T, error) {
	return Await[T](ctx, StartChild(ctx, nameOrFunc, args...))
}

// Signal sends a signal to the child, exactly once. It does not wait until the child receives the signal.
func (c *Child) Signal(ctx Context, name string, args ...any) error {
	if c.WorkflowID == "" {
		return c.err
	}
	return SignalWorkflow(ctx, c.WorkflowID, name, args...)
}

func (o *ChildOptions) command() (*protocol.Command, error) {
	c := &protocol.Command{
		Type: protocol.StartChildWorkflow, Queue: o.Queue, ParentClosePolicy: string(o.ParentClose), WorkflowID: o.WorkflowID,
	}
	if o.WorkflowID != "" && !protocol.IsWorkflowID(o.WorkflowID) || derivedChildID.MatchString(o.WorkflowID) {
		return nil, fmt.Errorf("%w: %q is not a valid workflow ID for a child", ErrInvalidOptions, o.WorkflowID)
	}
	if o.WorkflowID != "" { // the policies may come from the options of several children
		c.ReusePolicy, c.ConflictPolicy = string(o.ReuseID), string(o.Conflict)
	}
	switch o.ParentClose {
	case "", Abandon, CancelAtOnce, AskToCancel, TerminateHard:
	default:
		return nil, fmt.Errorf("%w: unknown parent-close policy %q", ErrInvalidOptions, o.ParentClose)
	}
	execution, err := wholeSeconds("ExecutionTimeout", o.ExecutionTimeout)
	if err != nil {
		return nil, err
	}
	run, err := wholeSeconds("RunTimeout", o.RunTimeout)
	if err != nil {
		return nil, err
	}
	c.ExecutionTimeout, c.RunTimeout = protocol.Timeout(execution), protocol.Timeout(run)
	if c.ExecutionTimeout > 0 && c.RunTimeout > c.ExecutionTimeout {
		return nil, fmt.Errorf(
			"%w: RunTimeout %s is longer than ExecutionTimeout %s", ErrInvalidOptions, o.RunTimeout, o.ExecutionTimeout,
		)
	}
	if o.Retry != nil {
		if c.RetryPolicy, err = o.Retry.wire(); err != nil {
			return nil, err
		}
	}
	if len(o.Memo) > 0 {
		if c.Entries, err = encodeMemo(o.Memo); err != nil {
			return nil, err
		}
	}
	if len(o.SearchAttributes) > 0 {
		if c.Attributes, err = encodeAttributes(o.SearchAttributes); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// ChildError reports why a child workflow has no result.
type ChildError struct {
	WorkflowType string
	WorkflowID   string
	RunID        string // ID of the child's last run
	Sequence     int64  // number of the command that started the child
	Type         string // type of the child's failure
	Message      string
	details      payload.Payload

	Cancelled    bool
	Terminated   bool
	TimedOut     bool
	NonRetryable bool
}

// Error returns the child's workflow type, or its ID if the type is unknown, with the type and message of its failure.
func (e *ChildError) Error() string {
	return explain("child workflow", cmp.Or(e.WorkflowType, e.WorkflowID), e.Type, e.Message)
}

// Is implements errors.Is for the Err values of this package.
func (e *ChildError) Is(target error) bool {
	switch target {
	case ErrCancelled:
		return e.Cancelled
	case ErrTerminated:
		return e.Terminated
	case ErrTimedOut:
		return e.TimedOut
	case ErrWorkflowIDTaken:
		return e.Type == history.TypeWorkflowIDTaken
	case ErrChildNotFound:
		return e.Type == history.TypeChildNotFound
	}
	return false
}

// DecodeDetails decodes the details of the child's failure. It leaves out unchanged if there are none.
func (e *ChildError) DecodeDetails(out any) error { return decodeDetails(e.details, out) }

var (
	// ErrTerminated reports that a child workflow was terminated.
	ErrTerminated = errors.New("terminated")
	// ErrWorkflowIDTaken reports that a child was not started because its ID belongs to another workflow.
	ErrWorkflowIDTaken = errors.New("workflow id is taken")
	// ErrChildNotFound reports that no child has the workflow ID of AttachChild.
	ErrChildNotFound = errors.New("no such child")
)

// childError returns the error for a child that closed without a result.
func childError(f *future, d *history.ChildEnded) *ChildError {
	e := &ChildError{
		WorkflowType: f.name, WorkflowID: d.WorkflowID, RunID: d.RunID, Sequence: f.seq, Type: d.ExceptionType,
		Message:      d.Message,
		NonRetryable: d.NonRetryable, Cancelled: d.ClosedReason == "cancelled", Terminated: d.ClosedReason == "terminated",
		TimedOut: d.ClosedReason == "timed_out",
	}
	ex := readException(d.Exception)
	e.Type, e.Message, e.details = cmp.Or(e.Type, ex.Type), cmp.Or(e.Message, d.ClosedReason), ex.Details
	return e
}

// attachedEnded resolves the futures of all branches that attached to the child.
func (m *machine) attachedEnded(e *history.Event, d *history.AttachedChildEnded) {
	m.resolve(d.CommandSequence, attachStep, e, func(f *future) (payload.Payload, error) {
		if d.ClosedReason == "completed" {
			return payload.Payload{Blob: d.Result}, nil
		}
		err := childError(f, &history.ChildEnded{
			Child: history.Child{WorkflowID: d.WorkflowID, RunID: d.RunID}, ClosedReason: d.ClosedReason, Failure: d.Failure,
		})
		err.WorkflowType = cmp.Or(d.WorkflowType, err.WorkflowType)
		return payload.Payload{}, err
	})
}

// childEnded resolves the future of a child.
func (m *machine) childEnded(e *history.Event, d *history.ChildEnded) {
	m.resolve(d.Sequence, childStep, e, func(f *future) (payload.Payload, error) {
		return payload.Payload{}, childError(f, d)
	})
}
