package auth

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Plane is the family a route belongs to, which decides about version headers and the shape of errors.
type Plane string

// The planes.
const (
	Control Plane = "control" // the contract's control plane
	Work    Plane = "worker"  // the contract's worker protocol
	Own     Plane = "sojourn" // routes of ours, beside the contract
)

// Route is one line of a transport's table: which request it is, and who may make it.
type Route struct {
	Method    string
	Pattern   string // as net/http has it, with {name} for a part of the path
	Operation string
	Plane     Plane
	Roles     []Role // any of them, or one that contains it; empty: everybody, without a token
	Sojourn   bool   // not of the contract, whatever plane it is on: no version header is asked for
	Anywhere  bool   // served whether the request's namespace is there or not
	Shape     Shape  // what it reads and answers
}

// Shape is what a route reads and answers, as values of the Go types that do it. The published description is made of it, and tests hold every answer
// against that.
type Shape struct {
	Does    string            // one line for people
	Body    any               // of the type the body is decoded into, whose tags say its limits; nil: it reads none
	Needs   []string          // members of the body it refuses to be without; "a|b": either
	Query   any               // of a struct whose members are the parameters of the query; nil: it has none
	Says    map[int]any       // the answers that are no refusals, by status: a value of the type that is encoded, or a Media
	Refuses []protocol.Reason // beside the reasons that every route of its kind has
	MaxBody int64             // bytes, where a body may be longer than elsewhere
	Bare    bool              // its answer is a document of its own, without the members that its plane's answers carry beside theirs
}

// Media is an answer that is no JSON, by its media type.
type Media string

// OK is what most routes say: this, with status 200.
func OK(body any) map[int]any { return map[int]any{http.StatusOK: body} }

// Says is one answer with another status.
func Says(status int, body any) map[int]any { return map[int]any{status: body} }

// Open says that no token is asked for.
func (t Route) Open() bool { return len(t.Roles) == 0 }

// Admit says who makes a request, when a caller of that kind may make it.
func (a *Auth) Admit(r *http.Request, t Route) (*Principal, error) {
	if t.Open() {
		return nil, nil
	}
	p, err := a.Request(r)
	if err != nil {
		return nil, err
	}
	if !p.Has(t.Roles...) {
		return nil, p.Forbidden(t.Roles)
	}
	return p, nil
}

var namespaceName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)

// named is the namespace a request names: header X-Namespace, else the query's namespace; "" when it names none.
func named(r *http.Request) string {
	name := r.Header.Get("X-Namespace")
	if name == "" {
		name = r.URL.Query().Get("namespace")
	}
	return strings.ToLower(strings.TrimSpace(name))
}

// Begins is the namespace of a request that need not be about one: the one it names, else "default", else the first its caller is bound to.
func Begins(r *http.Request, p *Principal) (string, error) {
	if p != nil && named(r) == "" && !p.In(unnamed) {
		return p.Namespaces[0], nil
	}
	return Namespace(r, p)
}

// unnamed is the namespace of requests that name none.
const unnamed = "default"

// Namespace is the namespace a request is about, when its caller may touch it: header X-Namespace, else the query's namespace, else "default".
func Namespace(r *http.Request, p *Principal) (string, error) {
	name := named(r)
	if name == "" {
		name = unnamed
	}
	if !namespaceName.MatchString(name) {
		return "", protocol.Invalid("namespace", "must be 1 to 128 of lower-case letters, digits and . _ -")
	}
	if p != nil && !p.In(name) {
		return "", protocol.Refuse(protocol.ReasonForbidden, "this token is not good for namespace %s", name).With("namespace", name)
	}
	return name, nil
}
