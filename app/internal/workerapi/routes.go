package workerapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
)

// The routes of the worker protocol are one table, like those of the control plane, and use the same pipeline: a check
// that is added there applies to both.

// route is one line of the table: the request, the roles of its callers, and its handler.
type route struct {
	serve.Route
	verb func(*API, *call) (response, error)
}

// routeTable returns every route of the worker protocol.
func routeTable() []route {
	worker := []auth.Role{auth.Worker}
	line := func(method, path, operation string, verb func(*API, *call) (response, error)) route {
		return route{
			Route: serve.Route{
				Method: method, Pattern: "/api/worker" + path, Operation: operation, Plane: serve.Work, Roles: worker,
				Reserved: true,
			},
			verb: verb,
		}
	}
	ours := func(rt route) route { rt.Sojourn = true; return rt }
	long := func(rt route) route { rt.Limit, rt.Reserved, rt.Reads = serve.Held, false, 0; return rt }
	loads := func(rt route) route { rt.Reserved, rt.Reads = false, serve.ManyReads; return rt }
	also := func(rt route, roles ...auth.Role) route { rt.Roles = append(rt.Roles[:1:1], roles...); return rt }
	const post, get, del = http.MethodPost, http.MethodGet, http.MethodDelete
	return []route{
		also(line(post, "/register", "register", register), auth.Operator),
		line(del, "/registrations/{worker}", "deregister", deregister),
		line(post, "/heartbeat", "worker_heartbeat", workerHeartbeat),
		long(line(post, "/workflow-tasks/poll", "poll_workflow_task", pollWorkflow)),
		loads(line(post, "/workflow-tasks/{task}/claim", "claim_workflow_task", claimWorkflow)),
		line(get, "/workflow-tasks/{task}/claim", "workflow_task_claim_status", workflowClaimStatus),
		loads(line(post, "/workflow-tasks/{task}/history", "workflow_task_history", historyPage)),
		line(post, "/workflow-tasks/{task}/heartbeat", "heartbeat_workflow_task", heartbeatWorkflow),
		line(post, "/workflow-tasks/{task}/complete", "complete_workflow_task", completeWorkflow),
		line(post, "/workflow-tasks/{task}/fail", "fail_workflow_task", failWorkflow),
		long(line(post, "/activity-tasks/poll", "poll_activity_task", pollActivity)),
		loads(line(post, "/activity-tasks/{task}/claim", "claim_activity_task", claimActivity)),
		line(get, "/activity-tasks/{task}/claim", "activity_task_claim_status", activityClaimStatus),
		line(post, "/activity-tasks/{task}/status", "activity_task_status", attemptStatus),
		line(get, "/activity-tasks/{task}/status", "read_activity_task_status", attemptStatus),
		line(post, "/activity-tasks/{task}/complete", "complete_activity_task", completeActivity),
		line(post, "/activity-tasks/{task}/fail", "fail_activity_task", failActivity),
		line(post, "/activity-tasks/{task}/heartbeat", "heartbeat_activity_task", heartbeatActivity),
		long(line(post, "/query-tasks/poll", "poll_query_task", pollQuery)),
		line(post, "/query-tasks/{task}/complete", "complete_query_task", completeQuery),
		line(post, "/query-tasks/{task}/fail", "fail_query_task", failQuery),
		long(line(post, "/update-validation-tasks/poll", "poll_update_validation_task", pollValidation)),
		line(post, "/update-validation-tasks/{task}/approve", "approve_update_validation_task", approveUpdate),
		line(post, "/update-validation-tasks/{task}/reject", "reject_update_validation_task", rejectUpdate),
		line(post, "/sessions", "create_worker_session", createSession),
		line(post, "/sessions/{session}/heartbeat", "heartbeat_worker_session", heartbeatSession),
		ours(line(post, "/sessions/{session}/release", "release_worker_session", releaseSession)),
		line(del, "/sessions/{session}", "close_worker_session", closeSession),
		ours(long(line(post, "/tasks/poll", "poll_tasks", pollTasks))),
		ours(line(post, "/tasks/complete", "complete_tasks", completeTasks)),
		ours(line(post, "/tasks/logs", "record_logs", recordLogs)),
		ours(line(get, "/settings", "worker_settings", settings)),
		ours(also(line(get, "/protocol", "describe_protocol", describe), auth.Viewer)),
	}
}

// Routes returns the routes of this package.
func Routes() []serve.Route {
	var list []serve.Route
	for _, rt := range routeTable() {
		rt.Shape = shapes[rt.Operation]
		list = append(list, rt.Route)
	}
	return list
}
