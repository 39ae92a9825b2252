package httpapi

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// completionBody is the body of a request that completes an awakeable or an attempt of an activity.
type completionBody struct {
	// any JSON value, or an envelope; absent: null
	Result json.RawMessage `json:"result"`
}

// failureBody is the body of a request that fails an awakeable or an attempt of an activity.
type failureBody struct {
	Failure protocol.Failure `json:"failure"`
}

// awakeableRoutes returns the routes by which callers outside of Sojourn resolve awakeables.
func awakeableRoutes(ours lineFunc) []route {
	const one = "/api/sojourn/awakeables/{awakeable}"
	list := []route{
		ours(post, one+"/complete", "complete_awakeable", auth.Writer, completeAwakeable),
		ours(post, one+"/fail", "fail_awakeable", auth.Writer, failAwakeable),
	}
	return forCompleters(list)
}

// forCompleters allows the routes to the role completer, too.
func forCompleters(list []route) []route {
	for i := range list {
		list[i].Roles = append(list[i].Roles, auth.Completer)
	}
	return list
}

func completeAwakeable(a *API, c *call) (response, error) {
	var body completionBody
	if err := c.Read(&body); err != nil {
		return response{}, err
	}
	return resolveAwakeable(a, c, protocol.AwakeableRequest{
		ExternalOutcome: protocol.ExternalOutcome{Result: body.Result},
	})
}

func failAwakeable(a *API, c *call) (response, error) {
	var body failureBody
	if err := c.Read(&body); err != nil {
		return response{}, err
	}
	return resolveAwakeable(a, c, protocol.AwakeableRequest{
		ExternalOutcome: protocol.ExternalOutcome{Failure: &body.Failure},
	})
}

func resolveAwakeable(a *API, c *call, in protocol.AwakeableRequest) (response, error) {
	in.Namespace, in.AwakeableID, in.Identity = c.NS, c.PathValue("awakeable"), c.Principal.Name
	return ok(a.opt.Outcomes.ResolveAwakeable(c.Ctx, in))
}
