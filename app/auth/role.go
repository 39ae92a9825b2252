// Package auth authenticates callers and authorises requests: principals, roles, tokens and the dashboard's cookie.
package auth

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Role is the set of permissions of a token. admin includes operator, operator includes writer, and writer includes
// viewer. worker and completer are separate from these roles.
type Role string

// These are the roles.
const (
	Viewer   Role = "viewer"   // reads
	Writer   Role = "writer"   // starts, signals and ends workflows
	Operator Role = "operator" // also operates sessions, queues and builds, and deletes closed runs
	Admin    Role = "admin"    // also tokens and other workers' registrations
	Worker   Role = "worker"   // polls and completes tasks
	// Completer completes and fails awakeables, in the namespaces of its token.
	Completer Role = "completer"
)

var ladder = []Role{Viewer, Writer, Operator, Admin}

// Roles returns all roles.
var Roles = []Role{Viewer, Writer, Operator, Admin, Worker, Completer}

// Contains reports whether role r includes the rights of another role.
func (r Role) Contains(other Role) bool {
	return r == other || slices.Contains(ladder, other) && slices.Index(ladder, r) > slices.Index(ladder, other)
}

// Holders returns the roles that include any of the given roles.
func Holders(any []Role) []Role {
	return slices.DeleteFunc(slices.Clone(Roles), func(r Role) bool {
		return !slices.ContainsFunc(any, r.Contains)
	})
}

// Method is the way in which a caller authenticated.
type Method string

// These are the methods.
const (
	ByToken   Method = "token"
	ByCookie  Method = "cookie"
	Unchecked Method = "none" // authentication is off, or the caller is part of this process
)

// Principal is a caller: its name in history and audit, and its rights. It is immutable.
type Principal struct {
	TokenID    string // empty if there is no stored token
	Name       string // the bootstrap token has a name and no id
	Roles      []Role
	Namespaces []string // empty: all namespaces
	Queues     []string // queues of a worker; empty: all
	Group      string   // group of a worker
	Method     Method

	signIn string // ID of a sign-in by cookie; see signedOut
}

// Local is the principal of this process, and of every caller when authentication is off.
func Local() *Principal { return &Principal{Name: "local", Roles: Roles, Method: Unchecked} }

// Key identifies the token of a principal: its ID, or its name for a principal without a stored token. It is empty for
// a nil principal.
func (p *Principal) Key() string {
	if p == nil {
		return ""
	}
	return cmp.Or(p.TokenID, p.Name)
}

// Owner returns the budget.Owner of the principal's requests in a namespace. Requests of a nil principal have no token.
func (p *Principal) Owner(namespace string) budget.Owner {
	return budget.Owner{Namespace: namespace, Token: p.Key()}
}

// Has reports whether the principal has one of the roles, or a role that contains it.
func (p *Principal) Has(roles ...Role) bool {
	return slices.ContainsFunc(p.Roles, func(have Role) bool { return slices.ContainsFunc(roles, have.Contains) })
}

// In reports whether the principal has access to a namespace.
func (p *Principal) In(namespace string) bool {
	return len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, namespace)
}

// Serves reports whether a worker's token may serve a task queue.
func (p *Principal) Serves(queue string) bool {
	return len(p.Queues) == 0 || slices.Contains(p.Queues, queue)
}

// Bound reports whether the principal is restricted to some workers of its namespaces: its token names queues or a
// group.
func (p *Principal) Bound() bool { return len(p.Queues) > 0 || p.Group != "" }

// BoundFrom returns the caller of a context if its token is restricted to queues or a group of workers. It is nil for
// all other callers, including this process; the methods of a nil principal allow everything.
func BoundFrom(ctx context.Context) *Principal {
	if principal := From(ctx); principal != nil && principal.Bound() {
		return principal
	}
	return nil
}

// SpeaksFor reports whether the principal may act for a worker: its token covers all queues and the group of the
// registration. It need not be the token of the registration, so that tokens can be replaced.
func (p *Principal) SpeaksFor(w *engine.Worker) bool {
	if p == nil {
		return true
	}
	for _, q := range w.Queues {
		if !p.Serves(q) {
			return false
		}
	}
	return p.Group == "" || p.Group == w.Group || !w.Scoped
}

// Sees reports whether the principal may learn that a session exists. The queue of the session must be in the token's
// scope. For a session without a queue, the caller checks the registration of its owner.
func (p *Principal) Sees(s *engine.Session) bool {
	return p == nil || s == nil || s.Queue == "" || p.Serves(s.Queue)
}

// Allows reports whether the principal has one of the roles in a namespace.
func (p *Principal) Allows(namespace string, roles ...Role) bool {
	return p.Has(roles...) && p.In(namespace)
}

// CheckQueues rejects queues outside the principal's token. A token that is restricted to queues must name the queues:
// a token without this restriction may have made the worker's registration.
func (p *Principal) CheckQueues(queues ...string) error {
	if len(p.Queues) == 0 {
		return nil
	}
	named := slices.DeleteFunc(slices.Clone(queues), func(q string) bool { return q == "" })
	if len(named) == 0 {
		return protocol.Refuse(protocol.ReasonForbidden, "this token is restricted to task queues; set task_queue").
			With("queues", p.Queues)
	}
	for _, q := range named {
		if !p.Serves(q) {
			return protocol.Refuse(protocol.ReasonForbidden, "this token has no access to queue %s", q).With("queues", p.Queues)
		}
	}
	return nil
}

// Forbidden returns the error for a caller without any of the roles of a route.
func (p *Principal) Forbidden(roles []Role) error {
	role := Role("none")
	if len(p.Roles) > 0 {
		role = p.Roles[0]
	}
	may := make([]string, 0, len(roles))
	for _, r := range Holders(roles) {
		may = append(may, string(r))
	}
	return protocol.Refuse(protocol.ReasonForbidden, "the role %s does not allow this request; it requires %s", role, strings.Join(may, ", ")).
		With("role", role).With("allowed_roles", Holders(roles))
}

type contextKey struct{}

// With returns a context that contains the caller.
func With(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns the caller in a context, or nil.
func From(ctx context.Context) *Principal {
	p, _ := ctx.Value(contextKey{}).(*Principal)
	return p
}
