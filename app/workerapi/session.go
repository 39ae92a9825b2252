package workerapi

import (
	"context"
	"net/http"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// sessionRefused are the members of every refused session verb; the status is added when it is known.
func sessionRefused(c *call) { c.tell("admitted", false) }

// sessionBody asks for a session. A number that is said must be at least 1; one that is not, or null, is the default.
type sessionBody struct {
	protocol.SessionCreate
	Lease *int64 `json:"lease_seconds" minimum:"1" maximum:"315360000"`
	TTL   *int64 `json:"ttl_seconds" minimum:"1" maximum:"315360000"`
	Cap   *int64 `json:"max_concurrent_activities" minimum:"1"`
}

// create is the request with the numbers it says.
func (b sessionBody) create() (protocol.SessionCreate, error) {
	in := b.SessionCreate
	for _, n := range []struct {
		field string
		said  *int64
		take  func(int64)
	}{
		{"lease_seconds", b.Lease, func(n int64) { in.Lease = n }},
		{"ttl_seconds", b.TTL, func(n int64) { in.TTL = n }},
		{"max_concurrent_activities", b.Cap, func(n int64) { in.MaxActivities = int(n) }},
	} {
		switch {
		case n.said == nil:
		case *n.said < 1:
			return in, protocol.Invalid(n.field, "must be at least 1")
		default:
			n.take(*n.said)
		}
	}
	if in.WorkerID == "" {
		return in, protocol.Invalid("worker_id", "is missing")
	}
	return in, nil
}

func createSession(a *API, c *call) (answer, error) {
	sessionRefused(c)
	var body sessionBody
	if err := c.read(&body); err != nil {
		return answer{}, err
	}
	in, err := body.create()
	if err != nil {
		return answer{}, err
	}
	if err := c.namespace(&in.Namespace); err != nil {
		return answer{}, err
	}
	if in.Queue != "" {
		if err := c.who.CheckQueues(in.Queue); err != nil {
			return answer{}, err
		}
	}
	c.tell("worker_id", in.WorkerID)
	out, err := a.opt.Broker.CreateSession(c.ctx, in)
	return receipt(out), err
}

func receipt(out protocol.SessionAnswer) answer {
	status := out.Status
	if status == 0 {
		status = http.StatusOK
	}
	return answer{status, out}
}

func heartbeatSession(a *API, c *call) (answer, error) {
	return sessionVerb(c, a.opt.Broker.HeartbeatSession)
}

func releaseSession(a *API, c *call) (answer, error) {
	return sessionVerb(c, a.opt.Broker.ReleaseSession)
}

func closeSession(a *API, c *call) (answer, error) { return sessionVerb(c, a.opt.Broker.CloseSession) }

// sessionVerb runs a verb on a session its caller holds. A DELETE without a body says its worker_id in the query.
func sessionVerb(c *call, verb func(context.Context, protocol.SessionVerb) (protocol.SessionAnswer, error)) (answer, error) {
	sessionRefused(c)
	var in protocol.SessionVerb
	if err := c.read(&in); err != nil {
		return answer{}, err
	}
	if err := c.namespace(&in.Namespace); err != nil {
		return answer{}, err
	}
	in.SessionID = c.PathValue("session")
	if in.WorkerID == "" {
		in.WorkerID = c.URL.Query().Get("worker_id")
	}
	if in.WorkerID == "" {
		return answer{}, protocol.Invalid("worker_id", "is missing")
	}
	out, err := verb(c.ctx, in)
	return receipt(out), err
}
