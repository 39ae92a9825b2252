package httpapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// This list is used to parse requests and to generate the API description. Tests fail for a route without an entry and
// for a response that differs from its entry.

// Reasons that many routes share.
var (
	noWorkflow = []protocol.Reason{protocol.ReasonInstanceNotFound, protocol.ReasonRunNotFound}
	onRun      = append(
		[]protocol.Reason{protocol.ReasonRunNotActive, protocol.ReasonHistoricalRun, protocol.ReasonRequestConflict},
		noWorkflow...,
	)
	onSchedule = []protocol.Reason{protocol.ReasonScheduleNotFound}

	onDeployment = []protocol.Reason{
		protocol.ReasonDeploymentNotFound, protocol.ReasonForbidden, protocol.ReasonNamespaceNotFound,
	}
)

// startResponses are the responses to a start without and with wait_seconds.
var startResponses = serve.AnyOf{protocol.StartResponse{}, protocol.StartResult{}}

func with(list []protocol.Reason, more ...protocol.Reason) []protocol.Reason {
	return append(list[:len(list):len(list)], more...)
}

// shapes maps every operation to its request and responses. Tests fail for a route without an entry.
var shapes = map[string]serve.Shape{
	"up":      {Does: "Check liveness", Says: serve.OK(upResponse{})},
	"healthz": {Does: "Check liveness", Says: serve.OK(upResponse{})},
	"readyz":  {Does: "Check readiness", Says: map[int]any{200: probeResponse{}, 503: probeResponse{}}},
	"health":  {Does: "Check health", Says: map[int]any{200: probeResponse{}, 503: probeResponse{}}},
	"ready":   {Does: "Check readiness", Says: map[int]any{200: probeResponse{}, 503: probeResponse{}}},
	"metrics": {Does: "Read metrics", Says: serve.OK(serve.Media("text/plain"))},
	"openapi": {Does: "Read the API description", Says: serve.OK(map[string]any{})},
	"session_schema": {
		Does: "Read the JSON Schema of worker sessions", Says: serve.OK(map[string]any{}),
	},
	"cluster_info": {Does: "Retrieve the server's versions", Says: serve.OK(protocol.ClusterInfo{})},

	"list_workers": {
		Does: "List workers", Query: workersQuery{}, Says: serve.OK(workersResponse{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"describe_worker": {
		Does: "Retrieve a worker",
		Says: serve.OK(protocol.WorkerView{}), Refuses: []protocol.Reason{protocol.ReasonWorkerNotFound},
	},
	"remove_worker": {
		Does: "Deregister a worker", Says: serve.OK(workerRemoved{}),
		Refuses: []protocol.Reason{protocol.ReasonWorkerNotFound},
	},
	"list_fleet_drains": {
		Does: "List drains",
		Says: serve.OK(protocol.FleetDrains{}),
	},
	"fleet_settings": {
		Does: "Retrieve the settings for workers",
		Says: serve.OK(protocol.FleetSettingsState{}),
	},
	"set_fleet_settings": {
		Does: "Set the settings for workers", Body: protocol.FleetSettingsRequest{},
		Says: serve.OK(protocol.FleetSettingsState{}), Refuses: []protocol.Reason{protocol.ReasonStaleRevision},
	},
	"drain_fleet": {
		Does: "Drain workers", Body: protocol.FleetRequest{},
		Says: serve.OK(protocol.FleetDrainState{}), Refuses: []protocol.Reason{protocol.ReasonWorkerNotFound},
	},
	"resume_fleet": {
		Does: "Resume workers", Body: protocol.FleetRequest{}, Says: serve.OK(protocol.FleetDrainState{}),
	},
	"evict_fleet": {
		Does: "Evict workers", Body: protocol.FleetRequest{},
		Says: serve.OK(protocol.FleetDrainState{}), Refuses: []protocol.Reason{protocol.ReasonWorkerNotFound},
	},
	"list_worker_sessions": {
		Does: "List sessions", Query: sessionsQuery{},
		Says:    serve.OK(protocol.SessionPage{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"describe_worker_session": {
		Does: "Retrieve a session", Says: serve.OK(sessionShown{}),
		Refuses: []protocol.Reason{protocol.ReasonWorkerSessionNotFound},
	},
	"list_session_timeline": {
		Does: "List the ownership timeline of a session", Query: timelineQuery{},
		Says:    serve.OK(protocol.SessionTimelinePage{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken, protocol.ReasonWorkerSessionNotFound},
	},
	"list_session_attempts": {
		Does: "List the attempts in a session", Query: attemptsQuery{},
		Says:    serve.OK(protocol.SessionAttemptPage{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken, protocol.ReasonWorkerSessionNotFound},
	},
	"operator_close_session": {
		Does: "Close a session", Body: protocol.SessionOperation{},
		Says:    serve.OK(sessionOperated{}),
		Refuses: onSession,
	},
	"operator_forget_session": {
		Does: "Forget an ended session", Body: protocol.SessionOperation{},
		Says: serve.OK(sessionOperated{}),
		Refuses: []protocol.Reason{
			protocol.ReasonWorkerSessionNotFound, protocol.ReasonSessionNotEnded,
		},
	},
	"operator_migrate_session": {
		Does: "Migrate a session", Body: protocol.SessionOperation{},
		Says:    serve.OK(sessionOperated{}),
		Refuses: onSession,
	},
	"system_operator_metrics": {Does: "Read the metrics of a namespace", Says: serve.OK(metricsResponse{})},

	"workflow_result": {
		Does: "Wait for the result of a workflow", Query: resultQuery{},
		Says: serve.OK(protocol.RunView{}), Refuses: noWorkflow,
	},
	"run_result": {
		Does: "Wait for the result of a run", Query: resultQuery{},
		Says: serve.OK(protocol.RunView{}), Refuses: noWorkflow,
	},
	"describe_run_by_id": {
		Does: "Retrieve a run by its run ID", Query: valuesQuery{}, Says: serve.OK(protocol.RunView{}), Refuses: noWorkflow,
	},
	"list_tokens": {Does: "List tokens", Says: serve.OK(tokensResponse{})},
	"create_token": {
		Does: "Create a token",
		Body: auth.TokenRequest{}, Needs: []string{"roles"},
		Says: serve.Responses(201, auth.NewToken{}),
	},
	"set_token_roles": {
		Does: "Set the roles of a token", Body: auth.RolesRequest{}, Needs: []string{"roles"},
		Says: serve.OK(auth.TokenView{}), Refuses: []protocol.Reason{protocol.ReasonTokenNotFound},
	},
	"revoke_token": {
		Does: "Revoke a token", Query: forgetQuery{}, Says: serve.OK(auth.TokenView{}),
		Refuses: []protocol.Reason{protocol.ReasonTokenNotFound},
	},
	"list_audit": {Does: "List the audit log", Query: auditQuery{}, Says: serve.OK(auditResponse{})},
	"overview":   {Does: "Retrieve an overview", Says: serve.OK(protocol.Overview{})},
	"run_counts": {Does: "Count runs", Says: serve.OK(protocol.RunCounts{})},
	"me":         {Does: "Retrieve the caller", Says: serve.OK(identity{})},
	"sign_in": {
		Does: "Sign in",
		Body: signInBody{}, Needs: []string{"token"}, Says: serve.OK(identity{}), MaxBody: maxSignIn,
		Refuses: []protocol.Reason{protocol.ReasonUnauthorized, protocol.ReasonForbidden, protocol.ReasonThrottled},
	},
	"sign_out": {
		Does: "Sign out", Says: serve.OK(signedOut{}),
		Refuses: []protocol.Reason{protocol.ReasonUnauthorized, protocol.ReasonForbidden},
	},

	"list_namespaces": {Does: "List namespaces", Says: serve.OK(namespacesResponse{})},
	"create_namespace": {
		Does: "Create a namespace",
		Body: protocol.NamespaceRequest{}, Needs: []string{"name"}, Says: serve.Responses(201, protocol.NamespaceView{}),
		Refuses: []protocol.Reason{protocol.ReasonNamespaceExists},
	},
	"describe_namespace": {Does: "Retrieve a namespace", Says: serve.OK(protocol.NamespaceView{}), Refuses: onNamespace},
	"update_namespace": {
		Does: "Update a namespace", Body: protocol.NamespaceRequest{},
		Says:    serve.OK(protocol.NamespaceView{}),
		Refuses: onNamespace,
	},
	"delete_namespace": {
		Does: "Delete a namespace", Says: serve.OK(protocol.NamespaceRemoval{}),
		Refuses: with(onNamespace, protocol.ReasonNamespaceBuiltIn),
	},

	"list_schedules": {
		Does: "List schedules", Query: protocol.ScheduleListRequest{}, Says: serve.OK(schedulesResponse{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"create_schedule": {
		Does: "Create a schedule",
		Body: protocol.ScheduleRequest{}, Needs: []string{"spec", "action"},
		Says:    serve.Responses(201, protocol.ScheduleReceipt{}),
		Refuses: []protocol.Reason{protocol.ReasonScheduleExists, protocol.ReasonQuotaExceeded},
	},
	"describe_schedule": {
		Does: "Retrieve a schedule", Query: valuesQuery{}, Says: serve.OK(protocol.ScheduleView{}), Refuses: onSchedule,
	},
	"update_schedule": {
		Does: "Update a schedule", Body: protocol.ScheduleRequest{},
		Says:    serve.OK(protocol.ScheduleReceipt{}),
		Refuses: onSchedule,
	},
	"delete_schedule": {Does: "Delete a schedule", Says: serve.OK(protocol.ScheduleReceipt{}), Refuses: onSchedule},
	"schedule_history": {
		Does: "List the history of a schedule", Query: scheduleHistoryQuery{}, Says: serve.OK(
			scheduleHistoryResponse{},
		),
		Refuses: onSchedule,
	},
	"schedule_times": {
		Does: "Preview the times of a schedule", Query: scheduleTimesQuery{},
		Says: serve.OK(scheduleTimesResponse{}),
	},
	"pause_schedule": {
		Does: "Pause a schedule", Body: scheduleNote{}, Says: serve.OK(protocol.ScheduleReceipt{}), Refuses: onSchedule,
	},
	"resume_schedule": {
		Does: "Resume a schedule", Body: scheduleNote{}, Says: serve.OK(protocol.ScheduleReceipt{}), Refuses: onSchedule,
	},
	"trigger_schedule": {
		Does: "Trigger a schedule", Body: triggerBody{}, Says: serve.OK(protocol.ScheduleReceipt{}),
		Refuses: with(onSchedule, protocol.ReasonQuotaExceeded),
	},
	"backfill_schedule": {
		Does: "Backfill a schedule",
		Body: backfillBody{}, Needs: []string{"start_time", "end_time"},
		Says:    serve.OK(protocol.ScheduleReceipt{}),
		Refuses: with(onSchedule, protocol.ReasonQuotaExceeded),
	},

	"list_search_attributes": {
		Does: "List search attributes", Says: serve.OK(protocol.SearchAttributes{}),
	},
	"create_search_attribute": {
		Does: "Register a search attribute",
		Body: protocol.SearchAttribute{}, Needs: []string{"name", "type"},
		Says: serve.Responses(201, protocol.SearchAttribute{}),
		Refuses: []protocol.Reason{
			protocol.ReasonAttributeExists, protocol.ReasonAttributeReserved, protocol.ReasonAttributeLimit,
		},
	},
	"delete_search_attribute": {
		Does: "Deregister a search attribute", Says: serve.OK(
			protocol.SearchAttribute{},
		),
		Refuses: []protocol.Reason{protocol.ReasonAttributeNotFound, protocol.ReasonAttributeSystem},
	},

	"list_task_queues": {
		Does: "List task queues", Query: queuesQuery{}, Says: serve.OK(protocol.QueuePage{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"describe_task_queue": {
		Does: "Retrieve a task queue", Says: serve.OK(
			protocol.QueueState{},
		),
		Refuses: []protocol.Reason{protocol.ReasonQueueNotFound},
	},
	"list_task_queue_build_ids": {Does: "List the builds of a task queue", Says: serve.OK(protocol.BuildRollout{})},
	"drain_task_queue_build_id": {
		Does: "Drain a build",
		Body: buildBody{}, Needs: []string{"build_id"},
		Says: serve.OK(protocol.BuildState{}),
	},
	"resume_task_queue_build_id": {
		Does: "Resume a build",
		Body: buildBody{}, Needs: []string{"build_id"}, Says: serve.OK(protocol.BuildState{}),
	},
	"promote_task_queue_build_id": {
		Does: "Promote a build",
		Body: buildBody{}, Needs: []string{"build_id"}, Says: serve.OK(protocol.BuildState{}),
	},
	"list_deployments": {
		Does: "List deployments", Query: deploymentsQuery{},
		Says: serve.OK(protocol.DeploymentList{}),
	},
	"describe_deployment": {
		Does: "Retrieve a deployment", Says: serve.OK(protocol.Deployment{}), Refuses: onDeployment,
	},
	"promote_deployment": {
		Does: "Promote a deployment", Body: nothing{}, Says: serve.OK(protocol.DeploymentState{}), Refuses: onDeployment,
	},
	"drain_deployment": {
		Does: "Drain a deployment", Body: nothing{}, Says: serve.OK(protocol.DeploymentState{}),
		Refuses: onDeployment,
	},
	"resume_deployment": {
		Does: "Resume a deployment", Body: nothing{}, Says: serve.OK(protocol.DeploymentState{}), Refuses: onDeployment,
	},
	"rollback_deployment": {
		Does: "Roll back a deployment", Body: nothing{},
		Says:    serve.OK(protocol.DeploymentState{}),
		Refuses: append([]protocol.Reason{protocol.ReasonNotPromoted, protocol.ReasonNoEarlier}, onDeployment...),
	},
	"task_queue_priority_fairness": {
		Does: "Retrieve the order of a task queue", Says: serve.OK(protocol.QueueOrder{}),
	},
	"task_queue_limits": {Does: "Retrieve the limits of a task queue", Says: serve.OK(protocol.LimitState{})},
	"set_task_queue_limits": {
		Does: "Set the limits of a task queue",
		Body: protocol.LimitRequest{}, Needs: []string{"workflow_tasks|activity_tasks"},
		Says: serve.OK(protocol.LimitState{}),
	},
	"task_queue_route": {
		Does: "Retrieve the route of a task queue", Says: serve.OK(protocol.RouteState{}),
	},
	"set_task_queue_route": {
		Does: "Route a task queue",
		Body: protocol.RouteRequest{}, Says: serve.OK(protocol.RouteState{}),
	},
	"namespace_route": {
		Does: "Retrieve the route of a namespace",
		Says: serve.OK(protocol.RouteState{}), Refuses: onNamespace,
	},
	"set_namespace_route": {
		Does: "Route a namespace",
		Body: protocol.RouteRequest{}, Says: serve.OK(protocol.RouteState{}), Refuses: onNamespace,
	},
	"namespace_limits": {
		Does: "Retrieve the limits of a namespace",
		Says: serve.OK(protocol.LimitState{}), Refuses: onNamespace,
	},
	"set_namespace_limits": {
		Does: "Set the limits of a namespace",
		Body: protocol.LimitRequest{}, Needs: []string{"workflow_tasks|activity_tasks"},
		Says:    serve.OK(protocol.LimitState{}),
		Refuses: onNamespace,
	},

	"system_health": {
		Does: "Check health with a token", Says: map[int]any{200: probeResponse{}, 503: probeResponse{}},
	},
	"system_metrics": {Does: "Read the metrics of a namespace", Says: serve.OK(metricsResponse{})},
	"read_system_metrics": {
		Does: "Read the metrics of a namespace", Body: nothing{}, Says: serve.OK(metricsResponse{}),
	},
	"system_prometheus_metrics": {
		Does: "Read metrics", Says: serve.OK(serve.Media("text/plain")),
	},
	"repair_status": {Does: "List quarantined runs", Says: serve.OK(protocol.RepairStatus{})},
	"repair_pass": {
		Does: "Repair quarantined runs", Body: protocol.RepairRequest{},
		Says: serve.OK(protocol.SystemPass{}),
	},
	"activity_timeouts": {Does: "List expired activities", Says: serve.OK(protocol.TimeoutStatus{})},
	"activity_timeout_pass": {
		Does: "Enforce activity timeouts", Body: protocol.TimeoutRequest{},
		Says: serve.OK(protocol.SystemPass{}),
	},
	"retention": {Does: "List runs past their retention", Says: serve.OK(protocol.RetentionStatus{})},
	"retention_pass": {
		Does: "Delete runs past their retention", Body: protocol.RetentionRequest{},
		Says: serve.OK(protocol.RetentionPass{}),
	},

	"history_export": {
		Does: "Export a run", Says: serve.OK(exported{}), Refuses: noWorkflow, Bare: true,
	},
	"list": {
		Does: "List runs", Query: runsQuery{}, Says: serve.OK(protocol.ListResponse{}),
		Refuses: []protocol.Reason{
			protocol.ReasonInvalidPageToken, protocol.ReasonQueryTooBroad, protocol.ReasonThrottled,
		},
	},
	"start": {
		Does: "Start a workflow",
		Body: startBody{}, Needs: []string{"workflow_type"},
		Refuses: []protocol.Reason{
			protocol.ReasonDuplicateStart, protocol.ReasonScheduleExists, protocol.ReasonStructuralLimit,
			protocol.ReasonQuotaExceeded,
		},
		Says: map[int]any{http.StatusCreated: startResponses, http.StatusOK: startResponses},
	},
	"run_activity": {
		Does: "Start an activity run",
		Body: activityBody{}, Needs: []string{"activity_type"},
		Refuses: []protocol.Reason{protocol.ReasonDuplicateStart, protocol.ReasonQuotaExceeded},
		Says:    map[int]any{http.StatusCreated: protocol.ActivityResponse{}, http.StatusOK: protocol.ActivityResponse{}},
	},
	"describe": {
		Does: "Retrieve the current run of a workflow", Query: valuesQuery{}, Says: serve.OK(protocol.RunView{}),
		Refuses: noWorkflow,
	},
	"list_runs": {Does: "List the runs of a workflow", Says: serve.OK(runsResponse{}), Refuses: noWorkflow},
	"describe_run": {
		Does: "Retrieve a run of a workflow", Query: valuesQuery{}, Says: serve.OK(protocol.RunView{}), Refuses: noWorkflow,
	},
	"history": {
		Does: "List the events of a run", Query: historyQuery{}, Says: serve.OK(historyResponse{}),
		Refuses: with(noWorkflow, protocol.ReasonInvalidPageToken),
	},
	"signal": {
		Does: "Signal a run", Body: protocol.SignalRequest{}, Says: serve.Responses(http.StatusAccepted, receipt{}),
		Refuses: with(onRun, protocol.ReasonUnknownSignal, protocol.ReasonActivityRun, protocol.ReasonStructuralLimit,
			protocol.ReasonQuotaExceeded),
	},
	"update": {
		Does: "Update a run", Body: protocol.UpdateRequest{},
		Says: map[int]any{
			http.StatusOK: updated{}, http.StatusAccepted: updated{}, http.StatusUnprocessableEntity: updated{},
		},
		Refuses: with(onRun, protocol.ReasonUnknownUpdate, protocol.ReasonActivityRun, protocol.ReasonStructuralLimit,
			protocol.ReasonUpdateRejected, protocol.ReasonValidatorWorker,
			protocol.ReasonValidatorFailed, protocol.ReasonValidationUnclaimed, protocol.ReasonValidationTimeout,
			protocol.ReasonThrottled, protocol.ReasonQuotaExceeded),
	},
	"query": {
		Does: "Query a run", Body: protocol.QueryRequest{}, Says: serve.OK(protocol.QueryResponse{}),
		Refuses: with(noWorkflow, protocol.ReasonUnknownQuery, protocol.ReasonActivityRun, protocol.ReasonQueryRejected,
			protocol.ReasonQueryArguments, protocol.ReasonQueryWorker,
			protocol.ReasonQueryTimeout, protocol.ReasonQueryQueueFull, protocol.ReasonQueryUnavailable),
	},
	"cancel": {
		Does: "Cancel a run", Body: protocol.EndRequest{}, Says: serve.OK(receipt{}), Refuses: onRun,
	},
	"terminate": {
		Does: "Terminate a run", Body: protocol.EndRequest{}, Says: serve.OK(receipt{}), Refuses: onRun,
	},
	"request_cancellation": {
		Does: "Request the cancellation of a run", Body: protocol.EndRequest{}, Says: serve.OK(receipt{}),
		Refuses: with(onRun, protocol.ReasonCancelNotSupported, protocol.ReasonActivityRun),
	},
	"repair": {
		Does: "Repair a quarantined run", Body: protocol.EndRequest{}, Says: serve.OK(receipt{}), Refuses: onRun,
	},
	"archive": {
		Does: "Archive a run", Body: protocol.EndRequest{}, Says: serve.OK(receipt{}),
		Refuses: with(onRun, protocol.ReasonRunNotClosed),
	},
	"delete_run": {
		Does: "Delete a run", Query: deletionQuery{}, Says: serve.OK(protocol.DeletedRun{}),
		Refuses: with(noWorkflow, protocol.ReasonRunNotClosed),
	},
	"debug_workflow": {Does: "Diagnose a run", Says: serve.OK(protocol.DebugView{}), Refuses: noWorkflow},
	"activity_logs": {
		Does: "Read the log of an activity", Query: logsQuery{}, Says: serve.OK(protocol.ActivityLogs{}),
		Refuses: []protocol.Reason{protocol.ReasonTaskNotFound},
	},
	"why_task": {
		Does: "Explain why a task waits", Says: serve.OK(protocol.TaskWhy{}),
		Refuses: []protocol.Reason{protocol.ReasonTaskNotFound},
	},
	"import": {
		Does: "Import a run",
		Body: importBody{}, Needs: []string{"schema", "schema_version", "history_events", "integrity"}, MaxBody: maxBundle,
		Says: map[int]any{http.StatusCreated: protocol.ImportResponse{}, http.StatusOK: protocol.ImportResponse{}},
		Refuses: []protocol.Reason{
			protocol.ReasonInvalidBundle, protocol.ReasonBundleIntegrity, protocol.ReasonHistoryIncomplete,
			protocol.ReasonPastRetention, protocol.ReasonRunExists, protocol.ReasonAlreadyStarted,
			protocol.ReasonQuotaExceeded,
		},
	},
	"history_stream": {
		Does: "Stream the events of a run", Query: streamQuery{},
		Says: serve.OK(serve.Media("text/event-stream")), Refuses: noWorkflow, Bare: true,
	},
}

var (
	onSession = []protocol.Reason{
		protocol.ReasonWorkerSessionNotFound, protocol.ReasonSessionNotActive, protocol.ReasonSessionClosed,
		protocol.ReasonWorkerNotFound,
	}
	onNamespace = []protocol.Reason{protocol.ReasonNamespaceNotFound}
)
