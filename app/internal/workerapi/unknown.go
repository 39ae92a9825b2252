package workerapi

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// unknownOutcome is the error of a request with an unknown outcome: the database was unavailable or did not respond in
// time, and the change may have been committed. Clients of the contract know this form; they repeat the request with
// the same IDs and get the result of the first one.
type unknownOutcome struct {
	form  *protocol.Error
	cause error
}

func (u *unknownOutcome) Error() string { return u.cause.Error() }

// Unwrap returns the form for the caller; the cause is for the log only.
func (u *unknownOutcome) Unwrap() error { return u.form }

// contractOperations maps operations to their names in the contract, if these differ.
var contractOperations = map[string]string{
	"register": "register_worker", "deregister": "deregister_worker", "worker_heartbeat": "heartbeat_worker",
}

// named has the members by which a client recognizes its request.
type named struct {
	WorkerID string          `json:"worker_id"`
	Queue    string          `json:"task_queue"`
	Owner    string          `json:"lease_owner"`
	Attempt  json.RawMessage `json:"workflow_task_attempt"`
	ID       string          `json:"activity_attempt_id"`
	OldID    string          `json:"attempt_id"`
	Query    json.RawMessage `json:"query_task_attempt"`
	Poll     string          `json:"poll_request_id"`
}

// outcome converts an error with an unknown outcome into its form, and removes the members that the verb set for a
// rejection. It returns other errors unchanged.
func (c *call) outcome(rt route, err error) error {
	e := httpjson.Refusal(store.Refusal(err))
	// A request that was rejected for lack of memory was not read. A poll may simply be repeated; for all other
	// requests, published workers understand only this form.
	full := e.Reason == protocol.ReasonOverloaded && !strings.HasSuffix(rt.Pattern, "/poll")
	if e.Reason != protocol.ReasonStoreUnavailable && !full {
		return err
	}
	for name, v := range c.refused { // the members say that it was not recorded or renewed, but it may have been
		if _, flag := v.(bool); flag || name == "outcome" || name == "status" {
			delete(c.refused, name)
		}
	}
	refusal := protocol.Refuse(protocol.ReasonBackendUnavailable, "%s", e.Message).With("retryable", true).With(
		"retry_after_seconds", 1,
	)
	operation := rt.Operation
	if name := contractOperations[operation]; name != "" {
		operation = name
	}
	refusal = refusal.With("operation", operation)
	if rt.Method != http.MethodGet {
		c.identify(rt, refusal.With("outcome", "unknown"))
	}
	return &unknownOutcome{refusal, err}
}

// identify adds the members that identify the request, as the client sent them.
func (c *call) identify(rt route, e *protocol.Error) {
	in := c.requestNames()
	e.Details["worker_id"], e.Details["task_queue"] = orNull(in.WorkerID), orNull(in.Queue)
	if c.PathValue("worker") != "" {
		e.Details["worker_id"] = c.PathValue("worker")
	}
	if id := c.PathValue("task"); id != "" {
		e.Details["worker_id"], e.Details["task_queue"], e.Details["lease_owner"] = orNull(in.Owner), nil, orNull(in.Owner)
		switch {
		case strings.HasPrefix(rt.Pattern, "/api/worker/workflow-tasks/"):
			e.Details["task_id"], e.Details["workflow_task_attempt"] = id, in.Attempt
		case strings.HasPrefix(rt.Pattern, "/api/worker/activity-tasks/"):
			e.Details["task_id"], e.Details["activity_attempt_id"] = id, orNull(in.ID)
			if in.ID == "" {
				e.Details["activity_attempt_id"] = orNull(in.OldID)
			}
		case strings.HasPrefix(rt.Pattern, "/api/worker/query-tasks/"):
			e.Details["query_task_id"], e.Details["query_task_attempt"] = id, in.Query
		default:
			e.Details["task_id"] = id
		}
	}
	if strings.HasSuffix(rt.Pattern, "/poll") {
		e.Details["task"], e.Details["poll_status"] = nil, protocol.PollBackend
		e.Details["poll_request_id"], e.Details["retry_same_poll_request_id"] = orNull(in.Poll), true
	}
	if id := c.PathValue("session"); id != "" {
		e.Details["session_id"] = id
	}
}

// requestNames returns the names in the body, which may not have been read yet.
func (c *call) requestNames() (in named) {
	_ = json.Unmarshal(c.ReadSoFar(), &in) // without a body, or without these members, there are no names
	if in.WorkerID == "" {
		in.WorkerID = c.URL.Query().Get("worker_id")
	}
	return in
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
