package httpapi

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// awakeableCompletion is the body of a request that completes an awakeable.
type awakeableCompletion struct {
	// any JSON value, or an envelope; absent: null
	Result json.RawMessage `json:"result"`
}

// awakeableFailure is the body of a request that fails an awakeable.
type awakeableFailure struct {
	Failure protocol.Failure `json:"failure"`
}

// awakeableRoutes returns the routes by which callers outside of Sojourn resolve awakeables.
func awakeableRoutes(ours lineFunc) []route {
	const one = "/api/sojourn/awakeables/{awakeable}"
	list := []route{
		ours(post, one+"/complete", "complete_awakeable", auth.Writer, completeAwakeable),
		ours(post, one+"/fail", "fail_awakeable", auth.Writer, failAwakeable),
	}
	for i := range list {
		list[i].Roles = append(list[i].Roles, auth.Completer)
	}
	return list
}

func completeAwakeable(a *API, c *call) (response, error) {
	var body awakeableCompletion
	if err := c.Read(&body); err != nil {
		return response{}, err
	}
	return resolveAwakeable(a, c, protocol.AwakeableRequest{Result: body.Result})
}

func failAwakeable(a *API, c *call) (response, error) {
	var body awakeableFailure
	if err := c.Read(&body); err != nil {
		return response{}, err
	}
	return resolveAwakeable(a, c, protocol.AwakeableRequest{Failure: &body.Failure})
}

func resolveAwakeable(a *API, c *call, in protocol.AwakeableRequest) (response, error) {
	in.Namespace, in.AwakeableID, in.Identity = c.NS, c.PathValue("awakeable"), c.Principal.Name
	return ok(a.opt.Runs.ResolveAwakeable(c.Ctx, in))
}
