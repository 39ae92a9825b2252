package httpapi

import (
	"net/http"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/history"
)

func overview(a *API, c *call) (answer, error) { return ok(a.opt.Broker.Overview(c.ctx, c.ns)) }

// identity is a caller as it is told about itself.
type identity struct {
	Identity   string      `json:"identity"`
	Roles      []auth.Role `json:"roles"`
	Namespaces []string    `json:"namespaces"` // empty: all
	Queues     []string    `json:"queues"`
	Group      string      `json:"group,omitempty"`
	Method     auth.Method `json:"method"` // token, cookie, none
	TokenID    string      `json:"token_id,omitempty"`
}

func self(p *auth.Principal) identity {
	return identity{p.Name, p.Roles, orEmpty(p.Namespaces), orEmpty(p.Queues), p.Group, p.Method, p.TokenID}
}

func me(_ *API, c *call) (answer, error) { return ok(self(c.who), nil) }

func signIn(a *API, c *call) (answer, error) {
	var in signInBody
	if err := c.read(&in); err != nil {
		return answer{}, err
	}
	p, err := a.opt.Auth.SignIn(c.w, c.Request, in.Token)
	if err != nil {
		return answer{}, err
	}
	return ok(self(p), nil)
}

func signOut(a *API, c *call) (answer, error) {
	return ok(signedOut{"signed_out"}, a.opt.Auth.SignOut(c.w, c.Request))
}

func listTokens(a *API, c *call) (answer, error) {
	tokens, err := a.opt.Auth.List(c.ctx, c.who)
	return ok(tokensAnswer{tokens}, err)
}

func createToken(a *API, c *call) (answer, error) {
	var in auth.TokenRequest
	if err := c.read(&in); err != nil {
		return answer{}, err
	}
	out, err := a.opt.Auth.Create(c.ctx, c.who, in)
	return answer{http.StatusCreated, out}, err
}

// revokeToken makes a token useless; with forget=true it also leaves the listing.
func revokeToken(a *API, c *call) (answer, error) {
	q := c.query()
	forget := q.flag("forget")
	if q.err != nil {
		return answer{}, q.err
	}
	return ok(a.opt.Auth.Revoke(c.ctx, c.who, c.PathValue("token"), forget))
}

func listAudit(a *API, c *call) (answer, error) {
	q := c.query()
	limit := q.number("limit", 1, 1000)
	if q.err != nil {
		return answer{}, q.err
	}
	list, err := a.opt.Broker.Audits(c.ctx, c.ns, limit)
	entries := make([]auditEntry, len(list))
	for i, e := range list {
		entries[i] = auditEntry(e)
	}
	return ok(auditAnswer{c.ns, entries}, err)
}

// unready is the refusal of an app that cannot serve now.
func unready(a *API, c *call) error {
	err := a.opt.Broker.Ready(c.ctx)
	if err != nil {
		a.opt.Log.Warn().Err(err).Msg("not ready")
	}
	return err
}

func probe(healthy, sick string, err error) (answer, error) {
	status, said, database := http.StatusOK, healthy, "ok"
	if err != nil {
		status, said, database = http.StatusServiceUnavailable, sick, "unavailable"
	}
	return answer{status, probeAnswer{said, history.At(time.Now()), map[string]string{"database": database}}}, nil
}

func health(a *API, c *call) (answer, error) { return probe("serving", "unavailable", unready(a, c)) }

func ready(a *API, c *call) (answer, error) { return probe("ready", "not_ready", unready(a, c)) }

// up says that the process answers, whatever else is wrong.
func up(*API, *call) (answer, error) {
	return ok(upAnswer{"up", history.At(time.Now())}, nil)
}
