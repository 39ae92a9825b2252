package workerapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A registration reports every problem of a worker at once: queues outside its scope, capabilities that its version
// does not have, a superseded process. So errors of polls need only a reason.

func register(a *API, c *call) (response, error) {
	var in protocol.RegisterRequest
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	if err := c.namespace(&in.Namespace); err != nil {
		return response{}, err
	}
	if err := c.Principal.CheckQueues(append([]string{in.TaskQueue}, in.TaskQueues...)...); err != nil {
		return response{}, err
	}
	c.addErrorMember("worker_id", in.WorkerID)
	c.addErrorMember("registered", false)
	if err := checkCapabilities(c.Header.Get(VersionHeader), in); err != nil {
		return response{}, err
	}
	in.Identity = c.Principal.Name
	_, in.Gated = c.Header[http.CanonicalHeaderKey(ReleaseHeader)]
	out, err := a.opt.Verbs.Register(c.Ctx, in)
	return response{http.StatusCreated, out}, err
}

func deregister(a *API, c *call) (response, error) {
	in := protocol.DeregisterRequest{
		WorkerID: c.PathValue("worker"), Namespace: c.NS, Incarnation: c.URL.Query().Get("incarnation"),
	}
	c.addErrorMember("worker_id", in.WorkerID)
	out, err := a.opt.Verbs.Deregister(c.Ctx, in)
	return response{http.StatusOK, out}, err
}

func workerHeartbeat(a *API, c *call) (response, error) {
	in, err := readHeartbeat(c)
	if err != nil {
		return response{}, err
	}
	if err := c.namespace(&in.Namespace); err != nil {
		return response{}, err
	}
	for i := range in.Leases {
		l := &in.Leases[i]
		if err := c.namespace(&l.Namespace); err != nil && l.Malformed == nil {
			l.Malformed = err
		}
		l.Namespace = c.NS
	}
	c.addErrorMember("worker_id", in.WorkerID)
	// Other routes respond with 412.
	c.statuses = map[protocol.Reason]int{protocol.ReasonWorkerNotRegistered: http.StatusNotFound}
	out, err := a.opt.Verbs.WorkerHeartbeat(c.Ctx, in)
	return response{http.StatusOK, out}, err
}

// readHeartbeat decodes a worker's heartbeat. A lease or session in it that cannot be decoded is answered in its place.
func readHeartbeat(c *call) (in protocol.WorkerHeartbeat, err error) {
	if err = c.Read(&in); err != nil {
		raw, _ := c.Body() // cannot fail: Read has read the body
		if in, err = httpjson.Heartbeat(raw, err); err != nil {
			return in, err
		}
	}
	return in, httpjson.Missing(&in, c.Route.Shape.Needs)
}

// settings returns the settings that a worker with its own connection fetches first, and later periodically.
func settings(a *API, c *call) (response, error) {
	if a.opt.Settings == nil {
		return response{}, protocol.Refuse(protocol.ReasonNotFound, "this app has no worker settings")
	}
	return response{http.StatusOK, a.opt.Settings(c.NS)}, nil
}
