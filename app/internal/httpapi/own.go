package httpapi

import (
	"net/http"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/release"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These routes serve the dashboard only. The dashboard signs in with a token once and then has an HttpOnly cookie. A
// browser also sends the cookie with requests of other sites, so the cookie alone is never enough for a change.

func runCounts(a *API, c *call) (response, error) { return ok(a.opt.System.RunCounts(c.Ctx, c.NS)) }

func find(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.FindRequest{Namespace: c.NS, ID: q.text("id")}
	if q.err != nil {
		return response{}, q.err
	}
	return ok(a.opt.System.Find(c.Ctx, in))
}

func overview(a *API, c *call) (response, error) { return ok(a.opt.System.Overview(c.Ctx, c.NS)) }

// identity describes the caller.
type identity struct {
	Identity   string      `json:"identity"`
	Roles      []auth.Role `json:"roles"`
	Namespaces []string    `json:"namespaces"` // empty: all namespaces
	Queues     []string    `json:"queues"`
	Group      string      `json:"group,omitempty"`
	Method     auth.Method `json:"method"` // token, cookie, none
	TokenID    string      `json:"token_id,omitempty"`
}

func identityOf(p *auth.Principal) identity {
	return identity{
		p.Name, p.Roles, protocol.OrEmpty(p.Namespaces), protocol.OrEmpty(p.Queues), p.Group, p.Method, p.TokenID,
	}
}

func me(_ *API, c *call) (response, error) { return ok(identityOf(c.Principal), nil) }

func signOut(a *API, c *call) (response, error) {
	return ok(signedOut{"signed_out"}, a.opt.Auth.SignOut(c.W, c.Request))
}

func listTokens(a *API, c *call) (response, error) {
	tokens, err := a.opt.Auth.List(c.Ctx, c.Principal)
	return ok(tokensResponse{tokens}, err)
}

func createToken(a *API, c *call) (response, error) {
	var in auth.TokenRequest
	if err := c.ReadKnown(&in); err != nil { // a misspelled member could drop a restriction of the token
		return response{}, err
	}
	out, err := a.opt.Auth.Create(c.Ctx, c.Principal, in)
	return response{http.StatusCreated, out}, err
}

// revokeToken revokes a token; with forget=true it also removes the token from the listing.
func revokeToken(a *API, c *call) (response, error) {
	q := c.query()
	forget := q.flag("forget")
	if q.err != nil {
		return response{}, q.err
	}
	return ok(a.opt.Auth.Revoke(c.Ctx, c.Principal, c.PathValue("token"), forget))
}

// setTokenRoles changes the roles of a token; its secret stays.
func setTokenRoles(a *API, c *call) (response, error) {
	var in auth.RolesRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	return ok(a.opt.Auth.SetRoles(c.Ctx, c.Principal, c.PathValue("token"), in))
}

func listAudit(a *API, c *call) (response, error) {
	q := c.query()
	limit := q.number("limit", 1, 1000)
	if q.err != nil {
		return response{}, q.err
	}
	list, err := a.opt.System.Audits(c.Ctx, c.NS, len(c.Principal.Namespaces) == 0, limit)
	entries := make([]auditEntry, len(list))
	for i, e := range list {
		entries[i] = auditEntry(e)
	}
	return ok(auditResponse{c.NS, entries}, err)
}

// checkReady returns the error of an app that cannot serve requests now.
func checkReady(a *API, c *call) error {
	err := a.opt.Process.Ready(c.Ctx)
	if err != nil {
		store.Warn(&a.opt.Log, err).Msg("readiness check failed")
	}
	return err
}

func probe(c *call, healthy, sick string, err error) (response, error) {
	status, health, database := http.StatusOK, healthy, "ok"
	if err != nil {
		status, health, database = http.StatusServiceUnavailable, sick, "unavailable"
		c.W.Header().Set("Retry-After", "1") // like every 503 of this API
	}
	return response{status, probeResponse{health, history.At(time.Now()), map[string]string{"database": database}}}, nil
}

func health(a *API, c *call) (response, error) {
	return probe(c, "serving", "unavailable", checkReady(a, c))
}

// ready also reports whether the app's release could be read. Without a readable release, the app exchanges work with
// workers only because theirs is unreadable too.
func ready(a *API, c *call) (response, error) {
	out, err := probe(c, "ready", "not_ready", checkReady(a, c))
	if probe, isProbe := out.body.(probeResponse); isProbe {
		probe.Checks["release"] = "ok"
		if r := a.opt.Process.Release(); r == "" || r == release.Unreadable {
			probe.Checks["release"] = "unreadable"
		}
		select {
		case <-a.opt.Process.Drained(): // load balancers stop routing to a draining app
			probe.Status, probe.Checks["drain"] = "not_ready", "draining"
			c.W.Header().Set("Retry-After", "1")
			out = response{http.StatusServiceUnavailable, probe}
		default:
		}
	}
	return out, err
}

// up reports that the process responds, whatever else fails.
func up(*API, *call) (response, error) {
	return ok(upResponse{"up", history.At(time.Now())}, nil)
}
