package workflow

import (
	"cmp"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ContinueOptions select what the next run of the workflow ID changes. The zero value changes nothing.
type ContinueOptions struct {
	Workflow any    // name or registered function of another workflow; nil: the same workflow
	Queue    string // task queue; empty: the same queue
}

// ContinueAsNew returns an error that a workflow returns to continue as a new run of the same workflow ID with an empty
// history. Without args the new run gets the arguments of this run. The new run inherits unreceived signals, open
// updates, memo, search attributes and sessions. It does not inherit headers; see WithHeaders.
func ContinueAsNew(ctx Context, args ...any) error {
	return ContinueAsNewWith(ctx, ContinueOptions{}, args...)
}

// ContinueAsNewWith is like ContinueAsNew, but can continue as another workflow type or in another queue.
func ContinueAsNewWith(ctx Context, o ContinueOptions, args ...any) error {
	m := ctx.inner().m
	c := &protocol.Command{
		Type: protocol.ContinueAsNew, Queue: m.info.Queue, Arguments: m.arguments, Headers: ctx.inner().headers,
	}
	if o.Queue != "" {
		c.Queue = o.Queue
	}
	var err error
	if o.Workflow != nil {
		if c.WorkflowType, err = m.nameOf("workflow", o.Workflow, m.names.WorkflowName); err != nil {
			return fmt.Errorf("continue as new: %w", err)
		}
	}
	if len(args) > 0 {
		if c.Arguments, err = m.codecs.NewArgs(args...); err != nil {
			return fmt.Errorf("continue as new: %w", err)
		}
	}
	if err := m.check(c); err != nil {
		return fmt.Errorf("continue as new: %w", err)
	}
	ctx.inner().interceptCommand(OpContinueAsNew, cmp.Or(c.WorkflowType, m.info.WorkflowType), m.info.WorkflowID, args, c)
	return &continuation{c}
}

// continuation is the error that ContinueAsNew returns.
type continuation struct{ command *protocol.Command }

func (*continuation) Error() string { return "continue as new" }
