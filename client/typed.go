package client

import (
	"context"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Handle is a handle of a run of a workflow whose result has type Out. It has the methods of [Workflow].
type Handle[Out any] struct{ *Workflow }

// Start starts a workflow by its typed name, with the rules of [Client.Start].
func Start[In, Out any](
	ctx context.Context, c *Client, name workflow.Name[In, Out], in In, o StartOptions,
) (*Handle[Out], error) {
	w, err := c.Start(ctx, string(name), Args{in}, o)
	if err != nil {
		return nil, err
	}
	return &Handle[Out]{w}, nil
}

// Run starts a workflow by its typed name and returns its result, with the rules of [Client.Execute]: in one request if
// the workflow ends within a minute. If the workflow did not complete, the error is a *NotCompleted.
func Run[In, Out any](
	ctx context.Context, c *Client, name workflow.Name[In, Out], in In, o StartOptions,
) (out Out, err error) {
	return out, c.Execute(ctx, string(name), Args{in}, &out, o)
}

// HandleOf returns a handle of a run of a workflow with a typed name; with an empty run ID, of the current run of the
// workflow ID. It sends no request and does not check that the run exists.
func HandleOf[In, Out any](c *Client, _ workflow.Name[In, Out], id, run string) *Handle[Out] {
	return &Handle[Out]{c.Handle(id, run)}
}

// Result waits for the end of the workflow, through runs that continue as new, and returns the result of the last one.
// If the workflow did not complete, the error is a *NotCompleted.
func (h *Handle[Out]) Result(ctx context.Context) (out Out, err error) {
	return out, h.Workflow.Result(ctx, &out)
}
