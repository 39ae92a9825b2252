package workerapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Registering is where a worker learns all that is wrong with it at once: queues it may not serve, capabilities its
// version does not have, a process that was replaced. Polls can then be refused by a reason alone.

func register(a *API, c *call) (answer, error) {
	var in protocol.RegisterRequest
	if err := c.Need(&in); err != nil {
		return answer{}, err
	}
	if err := c.namespace(&in.Namespace); err != nil {
		return answer{}, err
	}
	if err := c.Who.CheckQueues(append([]string{in.TaskQueue}, in.TaskQueues...)...); err != nil {
		return answer{}, err
	}
	c.tell("worker_id", in.WorkerID)
	c.tell("registered", false)
	if err := checkCapabilities(c.Header.Get(VersionHeader), in); err != nil {
		return answer{}, err
	}
	in.Identity = c.Who.Name
	_, in.Gated = c.Header[http.CanonicalHeaderKey(ReleaseHeader)]
	out, err := a.opt.Verbs.Register(c.Ctx, in)
	return answer{http.StatusCreated, out}, err
}

func deregister(a *API, c *call) (answer, error) {
	in := protocol.DeregisterRequest{
		WorkerID: c.PathValue("worker"), Namespace: c.NS, Incarnation: c.URL.Query().Get("incarnation"),
	}
	c.tell("worker_id", in.WorkerID)
	out, err := a.opt.Verbs.Deregister(c.Ctx, in)
	return answer{http.StatusOK, out}, err
}

func workerHeartbeat(a *API, c *call) (answer, error) {
	var in protocol.WorkerHeartbeat
	if err := c.Need(&in); err != nil {
		return answer{}, err
	}
	if err := c.namespace(&in.Namespace); err != nil {
		return answer{}, err
	}
	for i := range in.Leases {
		if err := c.namespace(&in.Leases[i].Namespace); err != nil {
			return answer{}, err
		}
	}
	c.tell("worker_id", in.WorkerID)
	c.statuses = map[protocol.Reason]int{protocol.ReasonWorkerNotRegistered: http.StatusNotFound} // elsewhere 412
	out, err := a.opt.Verbs.WorkerHeartbeat(c.Ctx, in)
	return answer{http.StatusOK, out}, err
}

// settings is what a worker that keeps its own connection fetches first, and again from time to time.
func settings(a *API, c *call) (answer, error) {
	if a.opt.Settings == nil {
		return answer{}, protocol.Refuse(protocol.ReasonNotFound, "this app hands out no settings")
	}
	return answer{http.StatusOK, a.opt.Settings(c.NS)}, nil
}
