package httpapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/docs"
)

// This table defines roles, audit records and the form of responses. They are applied around every verb, because a
// check inside a verb would cover this verb only.

// route is one line of the table: the request, the roles of its callers, and its handler.
type route struct {
	serve.Route
	verb  func(*API, *call) (response, error)
	flow  bool   // the response contains the control_plane object, also an error
	named string // member with the name at the end of the path
	audit string // action of the audit record after success
}

const (
	get  = http.MethodGet
	post = http.MethodPost
	del  = http.MethodDelete
)

// routeTable returns every route of the control plane.
func routeTable() []route {
	line := func(plane serve.Plane, method, path, operation string, role auth.Role, verb func(
		*API, *call,
	) (response, error),
	) route {
		return route{
			Route: serve.Route{Method: method, Pattern: path, Operation: operation, Plane: plane, Roles: []auth.Role{role}},
			verb:  verb,
		}
	}
	contract := func(method, path, operation string, role auth.Role, verb func(*API, *call) (response, error)) route {
		return line(serve.Control, method, "/api"+path, operation, role, verb)
	}
	ours := func(method, path, operation string, role auth.Role, verb func(*API, *call) (response, error)) route {
		rt := line(serve.Own, method, path, operation, role, verb)
		rt.Sojourn = true
		return rt
	}
	// Routes without a token: health probes of load balancers, and data that the dashboard reads before sign-in.
	open := func(method, path, operation string, verb func(*API, *call) (response, error)) route {
		rt := ours(method, path, operation, "", verb)
		rt.Roles = nil
		return rt
	}
	probe := func(path, operation string, verb func(*API, *call) (response, error)) route {
		rt := open(get, path, operation, verb)
		rt.Probe = true
		return rt
	}
	routes := []route{
		probe("/up", "up", up),
		probe("/healthz", "healthz", up),
		probe("/readyz", "readyz", ready),
		probe("/api/health", "health", health),
		probe("/api/ready", "ready", ready),
		open(get, "/api/openapi.json", "openapi", document(docs.OpenAPI)),
		open(get, "/api/schemas/worker-sessions-runtime.schema.json", "session_schema", document(docs.SessionSchema)),
		anyNamespace(ours(get, "/metrics", "metrics", auth.Viewer, metrics)),
		info(ours(get, "/api/cluster/info", "cluster_info", "", clusterInfo)),

		contract(get, "/workers", "list_workers", auth.Viewer, listWorkers),
		contract(get, "/workers/{worker}", "describe_worker", auth.Viewer, describeWorker),
		audited("worker.deregister", contract(del, "/workers/{worker}", "remove_worker", auth.Admin, removeWorker)),
		contract(get, "/worker-sessions", "list_worker_sessions", auth.Viewer, listSessions),
		contract(get, "/worker-sessions/{session}", "describe_worker_session", auth.Viewer, describeSession),
		ours(get, "/api/worker-sessions/{session}/timeline", "list_session_timeline", auth.Viewer, sessionTimeline),
		ours(get, "/api/worker-sessions/{session}/attempts", "list_session_attempts", auth.Viewer, sessionAttempts),
		ours(post, "/api/worker-sessions/{session}/close", "operator_close_session", auth.Operator, closeSession),
		ours(post, "/api/worker-sessions/{session}/migrate", "operator_migrate_session", auth.Operator, migrateSession),
		ours(post, "/api/worker-sessions/{session}/forget", "operator_forget_session", auth.Operator, forgetSession),

		limitedSearch(contract(get, "/system/operator-metrics", "system_operator_metrics", auth.Viewer, operatorMetrics)),

		longHeld(ours(get, "/api/sojourn/workflows/{workflow}/result", "workflow_result", auth.Viewer, result)),
		longHeld(ours(get, "/api/sojourn/workflows/{workflow}/runs/{run}/result", "run_result", auth.Viewer, result)),
		// The path needs a run ID: a retry after a lost response must not reset the new run.
		audited("workflow.reset",
			ours(post, "/api/sojourn/workflows/{workflow}/runs/{run}/reset", "reset", auth.Writer, reset)),
		ours(get, "/api/runs/{run}", "describe_run_by_id", auth.Viewer, describeRun),
		anyNamespace(ours(get, "/api/tokens", "list_tokens", auth.Admin, listTokens)),
		anyNamespace(ours(post, "/api/tokens", "create_token", auth.Admin, createToken)),
		anyNamespace(ours(methodPut, "/api/tokens/{token}/roles", "set_token_roles", auth.Admin, setTokenRoles)),
		anyNamespace(ours(del, "/api/tokens/{token}", "revoke_token", auth.Admin, revokeToken)),
		ours(get, "/api/audit", "list_audit", auth.Operator, listAudit),
		ours(get, "/api/sojourn/overview", "overview", auth.Viewer, overview),
		ours(get, "/api/sojourn/find", "find", auth.Viewer, find),
		ours(get, "/api/sojourn/run-counts", "run_counts", auth.Viewer, runCounts),
		info(ours(get, "/api/sojourn/me", "me", "", me)),
		open(post, "/api/sojourn/login", "sign_in", signIn),
		open(del, "/api/sojourn/login", "sign_out", signOut),
	}
	routes = append(routes, fleetRoutes(ours)...)
	routes = append(routes, namespaceRoutes(contract)...)
	routes = append(routes, activityRoutes(ours)...)
	routes = append(routes, withStartRoutes(ours)...)
	routes = append(routes, awakeableRoutes(ours)...)
	routes = append(routes, poolRoutes(ours)...)
	routes = append(routes, activityTokenRoutes(ours)...)
	routes = append(routes, scheduleRoutes(contract, ours)...)
	routes = append(routes, batchRoutes(ours)...)
	routes = append(routes, retentionRoutes(contract)...)
	routes = append(routes, systemRoutes(contract)...)
	routes = append(routes, attributeRoutes(contract)...)
	routes = append(routes, debugRoutes(ours)...)
	routes = append(routes, queueRoutes(contract, ours)...)
	routes = append(routes, deploymentRoutes(contract)...)
	return append(routes, workflowRoutes(contract)...)
}

// info is for every authenticated caller, with any role and in any namespace.
func info(rt route) route {
	rt.Roles, rt.Anywhere = auth.Roles, true
	return rt
}

// longHeld marks a route whose requests wait for an event; they may take longer than other requests.
func longHeld(rt route) route {
	rt.Limit = serve.Held
	return rt
}

// audited adds an audit record after the verb has succeeded. Operations that add a history event, such as a start or a
// signal, have none: the audit covers operations that would leave no trace.
func audited(action string, rt route) route {
	rt.audit = action
	return rt
}

// lineFunc adds a route of one kind; a file for one subject gets its own function and cannot mix the kinds.
type lineFunc func(method, path, operation string, role auth.Role, verb func(*API, *call) (response, error)) route

// workflowRoutes are the routes below /api/workflows. Commands may name the workflow, or one run of it, which must be
// the current one.
func workflowRoutes(contract lineFunc) []route {
	const one, run = "/workflows/{workflow}", "/workflows/{workflow}/runs/{run}"
	export := contract(get, run+"/history/export", "history_export", auth.Viewer, exportHistory)
	export.Limit = serve.Held
	stream := contract(get, run+"/history/stream", "history_stream", auth.Viewer, streamHistory)
	stream.Limit, stream.Sojourn, stream.Plane = streamLimit, true, serve.Own
	// The path needs a run ID: a retry after a lost response must not delete another run of the workflow.
	removal := contract(del, run, "delete_run", auth.Operator, deleteRun)
	removal.Sojourn, removal.Plane, removal.Limit = true, serve.Own, serve.Held
	list := []route{
		export, stream, removal, importRoute(contract),
		contract(get, "/workflows", "list", auth.Viewer, listRuns),
		contract(post, "/workflows", "start", auth.Writer, start),
		contract(get, one, "describe", auth.Viewer, describeRun),
		contract(get, one+"/runs", "list_runs", auth.Viewer, runsOf),
		contract(get, run, "describe_run", auth.Viewer, describeRun),
		// The path needs a run ID: a retry after a lost response must not redrive the new run.
		audited("workflow.redrive", contract(post, run+"/redrive", "redrive", auth.Writer, redrive)),
		// longHeld: with wait_new_event, the request waits for a future event
		longHeld(contract(get, run+"/history", "history", auth.Viewer, readHistory)),
	}
	for _, at := range []string{one, run} {
		signalled := contract(post, at+"/signal/{name}", "signal", auth.Writer, signal)
		signalled.named = "signal_name"
		updated := contract(post, at+"/update/{name}", "update", auth.Writer, update)
		updated.named, updated.Limit = "update_name", serve.Held
		asked := contract(post, at+"/query/{name}", "query", auth.Viewer, queryWorkflow)
		asked.named, asked.Limit = "query_name", serve.Held
		list = append(list, signalled, updated, asked,
			audited("workflow.cancel", contract(post, at+"/cancel", "cancel", auth.Writer, cancel)),
			audited("workflow.terminate", contract(post, at+"/terminate", "terminate", auth.Writer, terminate)),
			contract(post, at+"/request-cancellation", "request_cancellation", auth.Writer, requestCancellation),
			audited("workflow.repair", contract(post, at+"/repair", "repair", auth.Writer, repair)),
			audited("workflow.archive", contract(post, at+"/archive", "archive", auth.Writer, archive)),
			contract(get, at+"/debug", "debug_workflow", auth.Viewer, debugRun),
		)
	}
	for i := range list {
		list[i].flow = true
	}
	return list
}

// Routes returns the routes of this package.
func Routes() []serve.Route {
	var list []serve.Route
	for _, rt := range routeTable() {
		rt.Shape = shapeOf(rt)
		list = append(list, rt.Route)
	}
	return list
}

func shapeOf(rt route) serve.Shape {
	if rt.Shape.Summary == "" {
		return shapes[rt.Operation]
	}
	return rt.Shape
}
