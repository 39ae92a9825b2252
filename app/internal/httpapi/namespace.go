package httpapi

import (
	"context"
	"net/http"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A route of a namespace concerns the namespace in its path. This may differ from the namespace in the caller's header,
// and it may not exist yet. So these routes skip the check that all other routes begin with.

// Namespaces is the part of the broker for namespaces.
type Namespaces interface {
	HasNamespace(ctx context.Context, name string) error
	Namespace(ctx context.Context, name string) (protocol.NamespaceView, error)
	Namespaces(ctx context.Context, visible func(string) bool) ([]protocol.NamespaceView, error)
	CreateNamespace(context.Context, protocol.NamespaceRequest) (protocol.NamespaceView, error)
	UpdateNamespace(context.Context, protocol.NamespaceRequest) (protocol.NamespaceView, error)
	DeleteNamespace(ctx context.Context, name string) (protocol.NamespaceRemoval, error)
}

// methodPut is the method of the route that creates a namespace.
const methodPut = http.MethodPut

// namespaceRoutes returns the routes of namespaces. They concern the namespace in their path, not that of the
// request.
func namespaceRoutes(contract lineFunc) []route {
	const one = "/namespaces/{namespace}"
	removal := audited("namespace.delete", contract(del, one, "delete_namespace", auth.Admin, deleteNamespace))
	removal.Limit = serve.Held
	list := []route{
		contract(get, "/namespaces", "list_namespaces", auth.Viewer, listNamespaces),
		audited("namespace.create", contract(post, "/namespaces", "create_namespace", auth.Admin, createNamespace)),
		contract(get, one, "describe_namespace", auth.Viewer, describeNamespace),
		audited("namespace.update", contract(methodPut, one, "update_namespace", auth.Admin, updateNamespace)),
		removal,
	}
	for i := range list {
		list[i].Anywhere = true
	}
	return list
}

// anyNamespace marks routes that are served whether or not the request's namespace exists.
func anyNamespace(rt route) route {
	rt.Anywhere = true
	return rt
}

// namespaceOf returns a namespace named in path or body, if the caller may access it.
func (c *call) namespaceOf(name string) (string, error) {
	if !c.Principal.In(name) {
		return "", protocol.Refuse(protocol.ReasonForbidden, "this token has no access to namespace %s", name).
			With("namespace", name)
	}
	return name, nil
}

func listNamespaces(a *API, c *call) (response, error) {
	list, err := a.opt.Namespaces.Namespaces(c.Ctx, c.Principal.In)
	return ok(namespacesResponse{list}, err)
}

func describeNamespace(a *API, c *call) (response, error) {
	name, err := c.namespaceOf(c.PathValue("namespace"))
	if err != nil {
		return response{}, err
	}
	return ok(a.opt.Namespaces.Namespace(c.Ctx, name))
}

func createNamespace(a *API, c *call) (response, error) {
	var in protocol.NamespaceRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	if _, err := c.namespaceOf(in.Name); err != nil {
		return response{}, err
	}
	c.about = in.Name
	out, err := a.opt.Namespaces.CreateNamespace(c.Ctx, in)
	return response{http.StatusCreated, out}, err
}

func updateNamespace(a *API, c *call) (response, error) {
	var in protocol.NamespaceRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	var err error
	if in.Name, err = c.namespaceOf(c.PathValue("namespace")); err != nil {
		return response{}, err
	}
	c.about = in.Name
	return ok(a.opt.Namespaces.UpdateNamespace(c.Ctx, in))
}

func deleteNamespace(a *API, c *call) (response, error) {
	name, err := c.namespaceOf(c.PathValue("namespace"))
	if err != nil {
		return response{}, err
	}
	c.about = name
	return ok(a.opt.Namespaces.DeleteNamespace(c.Ctx, name))
}
