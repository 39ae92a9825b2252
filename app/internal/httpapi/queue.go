package httpapi

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Decisions about a queue need the operator role, and about all queues of a namespace the admin role. The change of a
// decision contains its audit record, so these routes add none.

// queueRoutes returns the routes of task queues, and Sojourn's routes that set their limits. The broker writes the
// audit record in the change of a decision.
func queueRoutes(contract, ours lineFunc) []route {
	const one, builds = "/task-queues/{queue}", "/task-queues/{queue}/build-ids"
	return []route{
		contract(get, "/task-queues", "list_task_queues", auth.Viewer, listQueues),
		contract(get, one, "describe_task_queue", auth.Viewer, describeQueue),
		contract(get, builds, "list_task_queue_build_ids", auth.Viewer, listBuilds),
		contract(get, one+"/priority-fairness", "task_queue_priority_fairness", auth.Viewer, showOrder),
		contract(post, builds+"/drain", "drain_task_queue_build_id", auth.Operator, decideBuild(protocol.BuildDrain)),
		contract(post, builds+"/resume", "resume_task_queue_build_id", auth.Operator, decideBuild(protocol.BuildResume)),
		contract(post, builds+"/promote", "promote_task_queue_build_id", auth.Operator, decideBuild(protocol.BuildPromote)),
		ours(get, "/api/task-queues/{queue}/limits", "task_queue_limits", auth.Viewer, readLimits),
		ours(methodPut, "/api/task-queues/{queue}/limits", "set_task_queue_limits", auth.Operator, setLimits),
		ours(get, "/api/task-queues/{queue}/route", "task_queue_route", auth.Viewer, readRoute),
		ours(methodPut, "/api/task-queues/{queue}/route", "set_task_queue_route", auth.Operator, setRoute),
		anyNamespace(ours(get, "/api/namespaces/{namespace}/route", "namespace_route", auth.Viewer, readNamespaceRoute)),
		anyNamespace(ours(methodPut, "/api/namespaces/{namespace}/route", "set_namespace_route", auth.Admin, setNamespaceRoute)),
		anyNamespace(ours(get, "/api/namespaces/{namespace}/limits", "namespace_limits", auth.Viewer, readNamespaceLimits)),
		anyNamespace(ours(methodPut, "/api/namespaces/{namespace}/limits", "set_namespace_limits", auth.Admin, setNamespaceLimits)),
	}
}

func listQueues(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.QueueList{
		Namespace: c.NS, PageSize: q.number("page_size", 1, 1000), PageToken: q.text("next_page_token"),
	}
	if q.err != nil {
		return response{}, q.err
	}
	return ok(a.opt.Queues.Queues(c.Ctx, in))
}

func describeQueue(a *API, c *call) (response, error) {
	name := c.PathValue("queue")
	q, err := a.opt.Queues.Queue(c.Ctx, c.NS, name)
	if err == nil {
		q.Waiting, err = a.opt.Queues.QueueWaiting(c.Ctx, c.NS, name)
	}
	return ok(q, err)
}

func listBuilds(a *API, c *call) (response, error) {
	return ok(a.opt.Queues.BuildIDs(c.Ctx, c.NS, c.PathValue("queue")))
}

func showOrder(a *API, c *call) (response, error) {
	return ok(a.opt.Queues.Order(c.Ctx, c.NS, c.PathValue("queue")))
}

func decideBuild(verb string) func(*API, *call) (response, error) {
	return func(a *API, c *call) (response, error) {
		var body struct {
			BuildID json.RawMessage `json:"build_id"`
		}
		if err := c.Read(&body); err != nil {
			return response{}, err
		}
		in := protocol.BuildRequest{Namespace: c.NS, Queue: c.PathValue("queue"), Verb: verb, Identity: c.Principal.Name}
		if body.BuildID == nil || json.Unmarshal(body.BuildID, &in.BuildID) != nil {
			// if it is omitted by mistake, it must not mean all workers without a build ID
			return response{}, protocol.Invalid("build_id", "must be a build id, or null for the workers without one")
		}
		return ok(a.opt.Operations.DecideBuild(c.Ctx, in))
	}
}

func readLimits(a *API, c *call) (response, error) {
	return ok(a.opt.Queues.Limits(c.Ctx, c.NS, c.PathValue("queue")))
}

func setLimits(a *API, c *call) (response, error) {
	return writeLimits(a, c, c.NS, c.PathValue("queue"))
}

// namespaceInPath returns the namespace that a path names; it must exist.
func namespaceInPath(a *API, c *call) (string, error) {
	name, err := c.namespaceOf(c.PathValue("namespace"))
	if err == nil {
		err = a.opt.Namespaces.HasNamespace(c.Ctx, name)
	}
	return name, err
}

func readNamespaceLimits(a *API, c *call) (response, error) {
	name, err := namespaceInPath(a, c)
	if err != nil {
		return response{}, err
	}
	return ok(a.opt.Queues.Limits(c.Ctx, name, ""))
}

func setNamespaceLimits(a *API, c *call) (response, error) {
	name, err := namespaceInPath(a, c)
	if err != nil {
		return response{}, err
	}
	return writeLimits(a, c, name, "")
}

func writeLimits(a *API, c *call, namespace, queue string) (response, error) {
	in := protocol.LimitRequest{}
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Namespace, in.Queue, in.Identity = namespace, queue, c.Principal.Name
	return ok(a.opt.Operations.Limit(c.Ctx, in))
}

func readRoute(a *API, c *call) (response, error) {
	return ok(a.opt.Queues.Routed(c.Ctx, c.NS, c.PathValue("queue")))
}

func setRoute(a *API, c *call) (response, error) { return writeRoute(a, c, c.NS, c.PathValue("queue")) }

func readNamespaceRoute(a *API, c *call) (response, error) {
	name, err := namespaceInPath(a, c)
	if err != nil {
		return response{}, err
	}
	return ok(a.opt.Queues.Routed(c.Ctx, name, ""))
}

func setNamespaceRoute(a *API, c *call) (response, error) {
	name, err := namespaceInPath(a, c)
	if err != nil {
		return response{}, err
	}
	return writeRoute(a, c, name, "")
}

func writeRoute(a *API, c *call, namespace, queue string) (response, error) {
	in := protocol.RouteRequest{}
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Namespace, in.Queue, in.Identity = namespace, queue, c.Principal.Name
	return ok(a.opt.Operations.Route(c.Ctx, in))
}
