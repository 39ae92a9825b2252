package client

import (
	"context"
	"net/http"

	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// SignalWithStart starts a workflow with args and sends it a signal with signalArgs, in one commit. If a run of the
// workflow ID is open, that run receives the signal instead, unless the conflict policy is TerminateExisting. If the
// latest run has closed, the reuse policy decides, as in [Client.Start]. FailOnConflict is refused.
//
// If the response is lost, SignalWithStart repeats the request with its Idempotency-Key, so it starts no second run and
// sends one signal.
func (c *Client) SignalWithStart(
	ctx context.Context, workflowType string, args []any, signal string, signalArgs []any, o StartOptions,
) (w *Workflow, err error) {
	err = c.interceptStart(ctx, workflow.OpSignalWithStart, workflowType, args, o, func(
		ctx context.Context, in protocol.StartRequest,
	) (err error) {
		apiclient.Identify(&in)
		request := protocol.SignalWithStartRequest{StartRequest: in, SignalName: signal}
		if request.SignalInput, err = c.rawArgs(signalArgs); err != nil {
			return err
		}
		target := c.Handle(in.WorkflowID, "")
		var out protocol.SignalWithStartResponse
		path := apiclient.RunPath("/api/sojourn", target.target()) + "/signal-with-start"
		if err := target.call(ctx, http.MethodPost, path, request, &out); err != nil {
			return err
		}
		w = c.Handle(out.WorkflowID, out.RunID)
		return nil
	})
	return ifNil(err, w)
}

// UpdateWithStart starts a workflow with args and sends it an update with updateArgs, in one commit. It waits for the
// result of the update and decodes it into out, unless nil. If a run of the workflow ID is open, that run receives the
// update instead, unless the conflict policy is TerminateExisting. If the latest run has closed, the reuse policy
// decides, as in [Client.Start]. FailOnConflict is refused.
//
// If the response is lost, UpdateWithStart repeats the request with its Idempotency-Key, so it starts no second run and
// sends one update. A validator of the update runs after the start: if it rejects the update, the started run remains.
func (c *Client) UpdateWithStart(
	ctx context.Context, workflowType string, args []any, update string, updateArgs []any, out any, o StartOptions,
) (w *Workflow, err error) {
	err = c.interceptStart(ctx, workflow.OpUpdateWithStart, workflowType, args, o, func(
		ctx context.Context, in protocol.StartRequest,
	) (err error) {
		apiclient.Identify(&in)
		wait := int64(60)
		request := protocol.UpdateWithStartRequest{
			StartRequest: in, UpdateName: update, WaitFor: protocol.WaitCompleted, WaitTimeout: &wait,
		}
		if request.UpdateInput, err = c.rawArgs(updateArgs); err != nil {
			return err
		}
		target := c.Handle(in.WorkflowID, "")
		path := apiclient.RunPath("/api/sojourn", target.target()) + "/update-with-start"
		for { // repeating the request with the same key waits for the same update
			var a protocol.UpdateWithStartResponse
			if err := target.call(ctx, http.MethodPost, path, request, &a); err != nil {
				return err
			}
			if a.UpdateStatus == protocol.WaitCompleted {
				w = c.Handle(a.WorkflowID, a.RunID)
				return decode(c.codecs, a.ResultEnvelope, out)
			}
		}
	})
	return w, err
}
