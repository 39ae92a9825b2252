package workerapi

import (
	"encoding/json"
	"net/http"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker learns from a rejected heartbeat that it lost its lease. So each response contains the state of the lease in
// addition to the HTTP status.

func heartbeatWorkflow(a *API, c *call) (response, error) {
	var in holder
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	id := c.PathValue("task")
	c.addErrorMember("task_id", id)
	c.addErrorMember("workflow_task_attempt", in.Attempt)
	c.addErrorMember("renewed", false)
	out, err := a.opt.Verbs.HeartbeatTask(c.Ctx, protocol.HeartbeatRequest{
		Namespace: c.NS, Kind: protocol.KindWorkflow, TaskID: id, Owner: in.Owner, Attempt: in.Attempt,
	})
	if err != nil {
		return response{}, err
	}
	return response{
		http.StatusOK,
		workflowBeat{id, in.Attempt, in.Owner, out.Renewed, out.LeaseExpiresAt, out.RunStatus, "leased", out.Reason},
	}, nil
}

// beat is the body of an activity's heartbeat. Progress is an extension of Sojourn: one object with the members that
// follow it.
type beat struct {
	holder
	Progress json.RawMessage `json:"progress"`
	protocol.HeartbeatMembers
	Rebuild *protocol.Recovered `json:"rebuild"` // Sojourn extension: sent by the worker, not by activity code
}

func (b beat) progress() (json.RawMessage, error) {
	if len(b.Progress) > 0 {
		return b.Progress, nil
	}
	return b.Join()
}

func heartbeatActivity(a *API, c *call) (response, error) {
	var in beat
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	progress, err := in.progress()
	if err != nil {
		return response{}, err
	}
	id := c.PathValue("task")
	c.addErrorMember("task_id", id)
	c.addErrorMember("activity_attempt_id", in.attemptID())
	c.addErrorMember("heartbeat_recorded", false)
	c.addErrorMember("can_continue", false)
	out, err := a.opt.Verbs.HeartbeatTask(c.Ctx, protocol.HeartbeatRequest{
		Namespace: c.NS, Kind: protocol.KindActivity, TaskID: id, Owner: in.Owner, AttemptID: in.attemptID(), Epoch: in.Epoch,
		Progress: progress,
		Rebuild:  in.Rebuild, Beat: in.Rebuild == nil,
	})
	return response{http.StatusOK, out}, err
}
