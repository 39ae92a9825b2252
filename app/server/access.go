package server

import (
	"context"
	"net/http"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// worker authenticates a worker on the channel.
func (p *Server) worker(ctx context.Context, token string, _ *http.Request) (any, error) {
	caller, err := p.auth.Authenticate(ctx, token)
	if err != nil {
		return nil, err
	}
	if !caller.Has(auth.Worker) {
		return nil, protocol.Refuse(protocol.ReasonForbidden, "the token does not have the role worker")
	}
	return caller, nil
}

// browser authenticates a dashboard by cookie or token. The dashboard receives only hints that a viewer may read.
func (p *Server) browser(ctx context.Context, token string, r *http.Request) (any, error) {
	var caller *auth.Principal
	var err error
	if token != "" || r == nil {
		caller, err = p.auth.Authenticate(ctx, token)
	} else {
		caller, err = p.auth.Request(r)
	}
	if err != nil {
		return nil, err
	}
	if !caller.Has(auth.Viewer) {
		return nil, caller.Forbidden([]auth.Role{auth.Viewer})
	}
	return caller, nil
}

// revalidate returns an error if a connected principal has lost rights since its admission.
func (p *Server) revalidate(ctx context.Context, principal any) error {
	return p.auth.Revalidate(ctx, principal.(*auth.Principal))
}

// allow checks that a connected worker has access to the namespace and queues of a call, and records the use of its
// token.
func (p *Server) allow(principal any, namespace string, queues []string) error {
	caller := principal.(*auth.Principal)
	p.auth.RecordUse(caller)
	if !caller.In(namespace) {
		return protocol.Refuse(protocol.ReasonForbidden, "the token has no access to namespace %s", namespace)
	}
	if len(queues) == 0 { // a worker that connects has not named queues yet; it does so when it registers and polls
		return nil
	}
	return caller.CheckQueues(queues...)
}

func inNamespace(principal any, namespace string) bool {
	return principal.(*auth.Principal).In(namespace)
}

func principalKey(principal any) string {
	caller, _ := principal.(*auth.Principal)
	if caller == nil || caller.Method == auth.Unchecked { // without tokens
		return ""
	}
	return caller.Key()
}

// owner returns the owner to whom the bytes of a connection are counted.
func owner(principal any) budget.Owner {
	caller, _ := principal.(*auth.Principal)
	return caller.Owner("")
}
