package workerapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A claim leases one task by its ID, for workers that received the ID elsewhere. It passes the same checks as a poll,
// and the status of an error shows whether a retry is useful.

// claimBody is the claim of one task by its ID.
type claimBody struct {
	WorkerID    string `json:"worker_id"`
	Owner       string `json:"lease_owner"` // alternative name of worker_id
	Incarnation string `json:"incarnation"`
	BuildID     string `json:"build_id"`
	PageSize    int    `json:"history_page_size" minimum:"0" maximum:"1000"`
	Encoding    string `json:"accept_history_encoding"`
}

func claimWorkflow(a *API, c *call) (response, error) { return leaseTask(a, c, protocol.KindWorkflow) }

func claimActivity(a *API, c *call) (response, error) { return leaseTask(a, c, protocol.KindActivity) }

// leaseTask leases a task by its ID. The reason and status of an error show why the task cannot be leased.
func leaseTask(a *API, c *call, kind protocol.TaskKind) (response, error) {
	var body claimBody
	c.addErrorMember("claimed", false)
	c.addErrorMember("task_id", c.PathValue("task"))
	c.addErrorMember("task", nil)
	if err := c.Need(&body); err != nil {
		return response{}, err
	}
	if body.WorkerID == "" {
		body.WorkerID = body.Owner
	}
	if body.WorkerID == "" {
		return response{}, protocol.Invalid("worker_id", "is missing")
	}
	in := c.claim(kind)
	in.WorkerID, in.Incarnation, in.BuildID, in.PageSize = body.WorkerID, body.Incarnation, body.BuildID, body.PageSize
	in.Release, in.Gated = release(c)
	out, err := a.opt.Claims.LeaseTask(c.Ctx, in)
	if err != nil {
		return response{}, err
	}
	c.undelivered = out.Undo
	resp := claimReply{claimResponse: claimResponse{Claimed: true, TaskID: in.TaskID}}
	for _, t := range out.Tasks { // exactly one
		if t.Workflow != nil {
			resp.Task, err = withHistory(t.Workflow, body.Encoding)
		} else {
			resp.Task = t.Activity
		}
	}
	return response{http.StatusOK, resp}, err
}

// claimReply is the response to a claim; shapes has one type for each kind of task.
type claimReply struct {
	claimResponse
	Task any `json:"task"`
}

func (c *call) claim(kind protocol.TaskKind) protocol.LeaseRequest {
	return protocol.LeaseRequest{TaskID: c.PathValue("task"), Kind: kind, Namespace: c.NS, Queues: c.Principal.Queues}
}

func workflowClaimStatus(a *API, c *call) (response, error) {
	return claimStatus(a, c, protocol.KindWorkflow)
}

func activityClaimStatus(a *API, c *call) (response, error) {
	return claimStatus(a, c, protocol.KindActivity)
}

// claimStatus returns whether a task is ready and which worker leased it; with worker_id also whether this worker may
// claim it.
func claimStatus(a *API, c *call, kind protocol.TaskKind) (response, error) {
	in := c.claim(kind)
	c.addErrorMember("claimed", false)
	c.addErrorMember("task_id", in.TaskID)
	in.WorkerID, in.Incarnation = c.URL.Query().Get("worker_id"), c.URL.Query().Get("incarnation")
	if in.WorkerID == "" {
		in.WorkerID = c.URL.Query().Get("lease_owner")
	}
	out, err := a.opt.Claims.LeaseStatus(c.Ctx, in)
	return response{http.StatusOK, out}, err
}

// attemptStatus returns the response that a heartbeat would get, without being one. A GET names its attempt in the
// query string.
func attemptStatus(a *API, c *call) (response, error) {
	var in holder
	if c.Method == http.MethodGet {
		q := c.URL.Query()
		in.AttemptID, in.AttemptOld, in.Owner = q.Get("activity_attempt_id"), q.Get("attempt_id"), q.Get("lease_owner")
	} else if err := c.Need(&in); err != nil {
		return response{}, err
	}
	id := c.PathValue("task")
	c.addErrorMember("task_id", id)
	c.addErrorMember("activity_attempt_id", in.attemptID())
	c.addErrorMember("can_continue", false)
	if err := httpjson.Missing(&in, leasedAttempt); err != nil {
		return response{}, err
	}
	out, err := a.opt.Claims.AttemptStatus(c.Ctx, protocol.HeartbeatRequest{
		Namespace: c.NS, Kind: protocol.KindActivity, TaskID: id, Owner: in.Owner, AttemptID: in.attemptID(), Epoch: in.Epoch,
	})
	return response{http.StatusOK, out}, err
}
