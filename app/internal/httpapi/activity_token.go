package httpapi

import (
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// activityTokenRoutes returns the routes by which callers outside of Sojourn report the outcomes and heartbeats of
// pending attempts.
func activityTokenRoutes(ours lineFunc) []route {
	const one = "/api/sojourn/activities/{token}"
	return forCompleters([]route{
		ours(post, one+"/complete", "complete_activity", auth.Writer, completeActivity),
		ours(post, one+"/fail", "fail_activity", auth.Writer, failActivity),
		ours(post, one+"/heartbeat", "heartbeat_activity", auth.Writer, heartbeatActivity),
	})
}

func completeActivity(a *API, c *call) (response, error) {
	var body completionBody
	if err := c.Read(&body); err != nil {
		return response{}, err
	}
	return resolveActivity(a, c, protocol.ExternalOutcome{Result: body.Result})
}

func failActivity(a *API, c *call) (response, error) {
	var body failureBody
	if err := c.Read(&body); err != nil {
		return response{}, err
	}
	return resolveActivity(a, c, protocol.ExternalOutcome{Failure: &body.Failure})
}

func resolveActivity(a *API, c *call, outcome protocol.ExternalOutcome) (response, error) {
	return ok(a.opt.Outcomes.ResolveActivity(c.Ctx, protocol.ActivityOutcomeRequest{
		Namespace: c.NS, Token: c.PathValue("token"), ExternalOutcome: outcome,
	}))
}

func heartbeatActivity(a *API, c *call) (response, error) {
	var body protocol.HeartbeatMembers
	if err := c.Read(&body); err != nil {
		return response{}, err
	}
	return ok(a.opt.Outcomes.HeartbeatActivity(c.Ctx, protocol.ActivityHeartbeatRequest{
		Namespace: c.NS, Token: c.PathValue("token"), HeartbeatMembers: body,
	}))
}
