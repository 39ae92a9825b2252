package workerapi

import (
	"context"
	"net/http"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Each error of a session verb has a receipt with "admitted": false, as the contract requires: a worker calls the verbs
// in a loop and reads this member only.

// markNotAdmitted sets the members of every refused session request; the status is added when it is known.
func markNotAdmitted(c *call) { c.addErrorMember("admitted", false) }

func createSession(a *API, c *call) (response, error) {
	markNotAdmitted(c)
	var in protocol.SessionCreate
	if err := c.Need(&in); err != nil {
		return response{}, in.Refused(err)
	}
	if in.WorkerID == "" {
		return response{}, protocol.Invalid("worker_id", "is missing")
	}
	if err := c.namespace(&in.Namespace); err != nil {
		return response{}, err
	}
	if in.Queue != "" {
		if err := c.Principal.CheckQueues(in.Queue); err != nil {
			return response{}, err
		}
	}
	c.addErrorMember("worker_id", in.WorkerID)
	out, err := a.opt.Verbs.CreateSession(c.Ctx, in)
	return receipt(out), err
}

func receipt(out protocol.SessionResponse) response {
	status := out.Status
	if status == 0 {
		status = http.StatusOK
	}
	return response{status, out}
}

func heartbeatSession(a *API, c *call) (response, error) {
	return sessionVerb(c, a.opt.Verbs.HeartbeatSession)
}

func releaseSession(a *API, c *call) (response, error) {
	return sessionVerb(c, a.opt.Verbs.ReleaseSession)
}

func closeSession(a *API, c *call) (response, error) { return sessionVerb(c, a.opt.Verbs.CloseSession) }

// sessionVerb applies a request to a session of the caller. A DELETE without a body names worker_id in the query
// string.
func sessionVerb(
	c *call, verb func(context.Context, protocol.SessionVerb) (protocol.SessionResponse, error),
) (response, error) {
	markNotAdmitted(c)
	var in protocol.SessionVerb
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	if err := c.namespace(&in.Namespace); err != nil {
		return response{}, err
	}
	in.SessionID = c.PathValue("session")
	if in.WorkerID == "" {
		in.WorkerID = c.URL.Query().Get("worker_id")
	}
	if in.WorkerID == "" {
		return response{}, protocol.Invalid("worker_id", "is missing")
	}
	out, err := verb(c.Ctx, in)
	return receipt(out), err
}
