package client

import (
	"context"
	"net/http"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// StartActivity starts an activity run: one activity without a workflow. The app stores it, retries it by its retry
// policy, and runs it in a session if the request names one. The returned handle can wait for the result, and can
// describe, cancel and terminate the run. The app refuses signals, updates and queries to it with
// protocol.ReasonActivityRun. Workflow IDs follow the same rules as in Start.
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
