package client

import (
	"context"
	"net/http"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// StartActivity starts an activity run: an activity without a workflow, durable, retried by its retry policy, in a
// session if it names one. The handle waits for the result, describes, cancels and terminates the run; signals, updates
// and queries are refused with protocol.ReasonActivityRun. Workflow IDs follow the same rules as in Start.
func (c *Client) StartActivity(ctx context.Context, in protocol.ActivityRequest, args ...any) (*Workflow, error) {
	identify(&in.WorkflowID, &in.IdempotencyKey, &in.DuplicatePolicy, in.ConflictPolicy)
	var err error
	if in.Input, err = input(in.Input, args); err != nil {
		return nil, err
	}
	var out protocol.ActivityResponse
	if err := c.Call(ctx, http.MethodPost, "/api/sojourn/activities", in, &out); err != nil {
		return nil, err
	}
	return c.Run(out.WorkflowID, out.RunID), nil
}
