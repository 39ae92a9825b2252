package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Found is an object of the namespace that was found by its ID.
type Found struct {
	// Kind is workflow, run, business_key, session, worker, schedule or step.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	// WorkflowID and RunID name the run to which the object leads: the current run of a workflow ID, the newest run with
	// a business key, the run of a step. They are empty for sessions, workers and schedules.
	WorkflowID   string    `json:"workflow_id"`
	RunID        string    `json:"run_id"`
	RunKind      string    `json:"run_kind"` // workflow or activity
	WorkflowType string    `json:"workflow_type"`
	Status       string    `json:"status"`   // status of the run
	Sequence     int64     `json:"sequence"` // number of a step in its run
	At           time.Time `json:"at"`       // start of the run, or last change of the session or worker
}

// Finding is the result of Find.
type Finding struct {
	Matches  []Found `json:"matches"`  // objects with the ID, at most one of each kind
	Prefixes []Found `json:"prefixes"` // objects whose IDs begin with it, at most five of each kind; not the matches
}

// Find returns the objects of the namespace that have an ID, whatever their kind, and some whose IDs begin with it. An
// ID without an object is no error. The cost is independent of the number of objects.
func (c *Client) Find(ctx context.Context, id string) (v Finding, err error) {
	if err := protocol.CheckRequest(protocol.FindRequest{ID: id}); err != nil {
		return v, public(err)
	}
	return v, c.Call(ctx, http.MethodGet, "/api/sojourn/find?"+url.Values{"id": {id}}.Encode(), nil, &v)
}
