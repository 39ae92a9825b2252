package auth

import (
	"net/http"
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Admit authenticates a request and checks that the caller has one of the roles. Without roles Admit accepts every
// request without authentication.
func (a *Auth) Admit(r *http.Request, roles []Role) (*Principal, error) {
	if len(roles) == 0 {
		return nil, nil
	}
	p, err := a.Request(r)
	if err != nil {
		return nil, err
	}
	if !p.Has(roles...) {
		return nil, p.Forbidden(roles)
	}
	return p, nil
}

// NamespaceParameter is the query parameter that names the namespace of a request without the header.
const NamespaceParameter = "namespace"

// namedNamespace returns the namespace that a request names: header X-Namespace, else the query's namespace; "" if it
// names none.
func namedNamespace(r *http.Request) string {
	name := r.Header.Get(protocol.HeaderNamespace)
	if name == "" && r.URL.RawQuery != "" {
		name = r.URL.Query().Get(NamespaceParameter)
	}
	return strings.ToLower(strings.TrimSpace(name))
}

// StartNamespace returns the namespace of a request that need not have one: the one it names, else "default", else the
// first namespace of its caller's restriction.
func StartNamespace(r *http.Request, p *Principal) (string, error) {
	if p != nil && namedNamespace(r) == "" && !p.In(unnamed) {
		return p.Namespaces[0], nil
	}
	return Namespace(r, p)
}

// unnamed is the namespace of requests that name none.
const unnamed = "default"

// Namespace returns the namespace of a request if its caller may access it: header X-Namespace, else the query's
// namespace, else "default".
func Namespace(r *http.Request, p *Principal) (string, error) {
	name := namedNamespace(r)
	if name == "" {
		name = unnamed
	}
	if err := protocol.CheckNamespace("namespace", name); err != nil {
		return "", err
	}
	if p != nil && !p.In(name) {
		return "", protocol.Refuse(protocol.ReasonForbidden, "this token has no access to namespace %s", name).
			With("namespace", name)
	}
	return name, nil
}
