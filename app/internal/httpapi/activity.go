package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An activity run is started like a workflow, by callers that know workflows. Options that only workflows support are
// rejected instead of ignored, since the caller would rely on them, for example on a deadline.

// activityBody is the request to start an activity run.
type activityBody struct {
	protocol.ActivityRequest
	// omitted or null: the app generates an ID; an empty ID is rejected
	WorkflowID       *string         `json:"workflow_id" pattern:"^[^\\x00-\\x1f\\x7f-\\x9f]{1,255}$"`
	Cron             json.RawMessage `json:"cron"`
	ExecutionTimeout json.RawMessage `json:"execution_timeout_seconds"`
	RunTimeout       json.RawMessage `json:"run_timeout_seconds"`
	Idempotency      json.RawMessage `json:"idempotency_key"`
	RequestID        json.RawMessage `json:"request_id"`
}

// check rejects options of a workflow start that an activity run does not support.
func (b activityBody) check() error {
	return unsupported([]member{
		{"cron", "schedule a workflow with one step", b.Cron},
		{"execution_timeout_seconds", "use schedule_to_close_timeout", b.ExecutionTimeout},
		{"run_timeout_seconds", "use schedule_to_close_timeout", b.RunTimeout},
		{"idempotency_key", "send the header Idempotency-Key", b.Idempotency},
		{"request_id", "send the header Idempotency-Key", b.RequestID},
	})
}

// activityRoutes returns the routes that start activity runs. The workflow routes describe and control the runs by
// workflow ID.
func activityRoutes(ours lineFunc) []route {
	return []route{ours(post, "/api/sojourn/activities", "run_activity", auth.Writer, runActivity)}
}

func runActivity(a *API, c *call) (response, error) {
	var in activityBody
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	if err := in.check(); err != nil {
		return response{}, err
	}
	if in.Namespace != "" && in.Namespace != c.NS {
		return response{}, protocol.Invalid(
			"namespace", "is not the namespace of the request (%s); set the header X-Namespace", c.NS,
		)
	}
	in.Namespace, in.Identity = c.NS, c.Principal.Name
	if id := in.WorkflowID; id != nil {
		if *id == "" {
			return response{}, protocol.Invalid("workflow_id", "must not be empty; omit it to generate one")
		}
		in.ActivityRequest.WorkflowID = *id
	}
	err := idempotent(c, &in.ActivityRequest.IdempotencyKey, &in.ActivityRequest.WorkflowID)
	if err != nil {
		return response{}, err
	}
	c.started = in.ActivityRequest.WorkflowID
	out, err := a.opt.Starts.StartActivity(c.Ctx, in.ActivityRequest)
	status := http.StatusOK
	if out.New {
		status = http.StatusCreated
	}
	return response{status, out}, err
}
