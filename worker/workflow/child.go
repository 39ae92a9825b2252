package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ParentClosePolicy says what becomes of a child that is open when its parent closes. A parent that continues as new does not
// close: its open children go on, and the run that goes on in its place neither hears how they end nor applies their policy.
type ParentClosePolicy string

// The parent-close policies.
const (
	Abandon       ParentClosePolicy = "abandon"              // it goes on; the default
	CancelAtOnce  ParentClosePolicy = "request_cancel"       // it is cancelled; its code does not run again
	AskToCancel   ParentClosePolicy = "request_cancellation" // its code is asked to come to an end, and may clean up
	TerminateHard ParentClosePolicy = "terminate"            // it is terminated
)

// ChildOptions say how child workflows are run. Durations count in whole seconds, rounded up; zero means none. A child has the priority
// of its parent.
type ChildOptions struct {
	Queue       string            // the parent's own when empty
	ParentClose ParentClosePolicy // Abandon when empty
	// Retry says how often the child is run again when it fails or times out; cancelled and terminated it stays.
	Retry *RetryPolicy

	ExecutionTimeout time.Duration // all its runs together
	RunTimeout       time.Duration // one run

	// Memo and SearchAttributes are those the child begins with, by the rules of UpsertMemo and UpsertSearchAttributes.
	Memo             map[string]any
	SearchAttributes map[string]any
}

// WithChild returns a context whose children are started with these options. Members left zero keep what ctx has.
func WithChild(ctx Context, o ChildOptions) Context {
	c := *ctx.inner()
	overlay(&c.children, o)
	return &c
}

// Child is a child workflow that was started, and the Future of its result. Get's error is a *ChildError when it has none.
type Child struct {
	*future
	// WorkflowID is the child's workflow id, made of the parent's run and the command that started it; it is known at once.
	WorkflowID string
}

var _ Future = (*Child)(nil)

// StartChild starts a workflow as a child of this one, by its registered name or the registered function; the name may be that of a
// workflow in another language, served by other workers. Cancelling ctx cancels the child: at once, or as AskToCancel says. One that
// shall go on is started under WithoutCancel.
func StartChild(ctx Context, nameOrFunc any, args ...any) *Child {
	c := ctx.inner()
	c.m.here()
	if c.scope.cancelled {
		return &Child{future: c.m.settled(ErrCancelled)}
	}
	name, err := c.m.nameOf("workflow", nameOrFunc, c.m.names.WorkflowName)
	if err != nil {
		return &Child{future: c.m.settled(err)}
	}
	cmd, err := c.children.command()
	if err == nil {
		cmd.Arguments, err = payload.EncodeArgs(args...)
	}
	if err != nil {
		return &Child{future: c.m.settled(fmt.Errorf("child workflow %q: %w", name, err))}
	}
	cmd.WorkflowType = name
	f := c.open(childStep, name, cmd)
	return &Child{f, c.m.stepID(f.seq)}
}

// ExecuteChild starts a child workflow and waits for its result.
func ExecuteChild[T any](ctx Context, nameOrFunc any, args ...any) (T, error) {
	return Await[T](ctx, StartChild(ctx, nameOrFunc, args...))
}

// Signal sends a signal to the child, once; it does not wait for it to be received.
func (c *Child) Signal(ctx Context, name string, args ...any) error {
	if c.WorkflowID == "" {
		return c.err
	}
	return SignalWorkflow(ctx, c.WorkflowID, name, args...)
}

func (o *ChildOptions) command() (*protocol.Command, error) {
	c := &protocol.Command{Type: protocol.StartChildWorkflow, Queue: o.Queue, ParentClosePolicy: string(o.ParentClose)}
	switch o.ParentClose {
	case "", Abandon, CancelAtOnce, AskToCancel, TerminateHard:
	default:
		return nil, fmt.Errorf("%w: unknown parent-close policy %q", ErrInvalidOptions, o.ParentClose)
	}
	var err error
	if c.ExecutionTimeout, err = wholeSeconds("ExecutionTimeout", o.ExecutionTimeout); err != nil {
		return nil, err
	}
	if c.RunTimeout, err = wholeSeconds("RunTimeout", o.RunTimeout); err != nil {
		return nil, err
	}
	if c.ExecutionTimeout > 0 && c.RunTimeout > c.ExecutionTimeout {
		return nil, fmt.Errorf("%w: RunTimeout %s is longer than ExecutionTimeout %s", ErrInvalidOptions, o.RunTimeout, o.ExecutionTimeout)
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

// ChildError is why a child workflow has no result.
type ChildError struct {
	WorkflowType string
	WorkflowID   string
	RunID        string // of its last run
	Sequence     int64  // of the command that started it
	Type         string // as the child's failure was typed
	Message      string
	Details      payload.Payload

	Cancelled    bool
	Terminated   bool
	TimedOut     bool
	NonRetryable bool
}

func (e *ChildError) Error() string {
	return explain("child workflow", e.WorkflowType, e.Type, e.Message)
}

// Is matches the Err values of this package.
func (e *ChildError) Is(target error) bool {
	switch target {
	case ErrCancelled:
		return e.Cancelled
	case ErrTerminated:
		return e.Terminated
	case ErrTimedOut:
		return e.TimedOut
	}
	return false
}

// DecodeDetails reads the details of the child's failure; out stays as it is when there are none.
func (e *ChildError) DecodeDetails(out any) error { return decodeDetails(e.Details, out) }

// ErrTerminated says that a child workflow was terminated.
var ErrTerminated = errors.New("terminated")

// childError reads how a child ended.
func childError(f *future, d *history.ChildEnded) *ChildError {
	e := &ChildError{
		WorkflowType: f.name, WorkflowID: d.WorkflowID, RunID: d.RunID, Sequence: f.seq, Type: d.ExceptionType, Message: d.Message,
		NonRetryable: d.NonRetryable, Cancelled: d.ClosedReason == "cancelled", Terminated: d.ClosedReason == "terminated",
		TimedOut: d.ClosedReason == "timed_out",
	}
	ex := readException(d.Exception)
	e.Type, e.Message, e.Details = cmp.Or(e.Type, ex.Type), cmp.Or(e.Message, d.ClosedReason), ex.Details
	return e
}

// childEnded gives a child its end.
func (m *Machine) childEnded(e *history.Event, d *history.ChildEnded) {
	m.resolve(d.Sequence, childStep, e, func(f *future) (payload.Payload, error) { return payload.Payload{}, childError(f, d) })
}
