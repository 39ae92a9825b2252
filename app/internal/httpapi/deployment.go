package httpapi

import (
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The name of a deployment contains its namespace, whatever namespace the request has. So the route checks access after
// it has parsed the name; the check of the route table is not enough.

// deploymentRoutes returns the routes of deployments, whose names contain their namespace.
func deploymentRoutes(contract lineFunc) []route {
	const one = "/deployments/{deployment}"
	return []route{
		contract(get, "/deployments", "list_deployments", auth.Viewer, listDeployments),
		anyNamespace(contract(get, one, "describe_deployment", auth.Viewer, describeDeployment)),
		anyNamespace(contract(
			post, one+"/promote", "promote_deployment", auth.Operator, decideDeployment(protocol.BuildPromote),
		)),
		anyNamespace(contract(post, one+"/drain", "drain_deployment", auth.Operator, decideDeployment(protocol.BuildDrain))),
		anyNamespace(
			contract(post, one+"/resume", "resume_deployment", auth.Operator, decideDeployment(protocol.BuildResume)),
		),
		anyNamespace(contract(
			post, one+"/rollback", "rollback_deployment", auth.Operator, decideDeployment(protocol.BuildRollback),
		)),
	}
}

func listDeployments(a *API, c *call) (response, error) {
	return ok(a.opt.Queues.Deployments(c.Ctx, c.NS, c.URL.Query().Get("task_queue")))
}

// deployment returns the deployment that the path names, if the caller may access its namespace and the namespace
// exists.
func (c *call) deployment(a *API) (string, error) {
	name := c.PathValue("deployment")
	in, err := protocol.ParseDeployment(name)
	if err != nil {
		return name, err
	}
	if _, err := c.namespaceOf(in.Namespace); err != nil {
		return name, err
	}
	return name, a.opt.Namespaces.HasNamespace(c.Ctx, in.Namespace)
}

func describeDeployment(a *API, c *call) (response, error) {
	name, err := c.deployment(a)
	if err != nil {
		return response{}, err
	}
	return ok(a.opt.Queues.Deployment(c.Ctx, name))
}

func decideDeployment(verb string) func(*API, *call) (response, error) {
	return func(a *API, c *call) (response, error) {
		if err := c.Read(&struct{}{}); err != nil {
			return response{}, err
		}
		name, err := c.deployment(a)
		if err != nil {
			return response{}, err
		}
		return ok(a.opt.Operations.DecideDeployment(c.Ctx, name, verb, c.Principal.Name))
	}
}
