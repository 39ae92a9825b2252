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

func with(list []protocol.Reason, more ...protocol.Reason) []protocol.Reason {
	return append(list[:len(list):len(list)], more...)
}

// shapes maps every operation to its request and responses. Tests fail for a route without an entry.
var shapes = map[string]serve.Shape{
	"up":      {Does: "say that the process answers", Says: serve.OK(upResponse{})},
	"healthz": {Does: "say that the process answers", Says: serve.OK(upResponse{})},
	"readyz":  {Does: "say whether the app can serve", Says: map[int]any{200: probeResponse{}, 503: probeResponse{}}},
	"health":  {Does: "say whether the app serves", Says: map[int]any{200: probeResponse{}, 503: probeResponse{}}},
	"ready":   {Does: "say whether the app can serve", Says: map[int]any{200: probeResponse{}, 503: probeResponse{}}},
	"metrics": {Does: "read the metrics, as Prometheus scrapes them", Says: serve.OK(serve.Media("text/plain"))},
	"openapi": {Does: "read this document", Says: serve.OK(map[string]any{})},
	"session_schema": {
		Does: "read the JSON Schema of the worker-session contract", Says: serve.OK(map[string]any{}),
	},
	"cluster_info": {Does: "tell versions, features and limits", Says: serve.OK(protocol.ClusterInfo{})},

	"list_workers": {
		Does: "list the registered workers", Query: workersQuery{}, Says: serve.OK(workersResponse{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"describe_worker": {
		Does: "show a worker",
		Says: serve.OK(protocol.WorkerView{}), Refuses: []protocol.Reason{protocol.ReasonWorkerNotFound},
	},
	"remove_worker": {
		Does: "take a worker's registration away", Says: serve.OK(workerRemoved{}),
		Refuses: []protocol.Reason{protocol.ReasonWorkerNotFound},
	},
	"list_fleet_drains": {
		Does: "list which workers are given nothing at an operator's word, and what they have left",
		Says: serve.OK(protocol.FleetDrains{}),
	},
	"fleet_settings": {
		Does: "show what all workers run with, and which do",
		Says: serve.OK(protocol.FleetSettingsState{}),
	},
	"set_fleet_settings": {
		Does: "set what all workers run with, while they run", Body: protocol.FleetSettingsRequest{},
		Says: serve.OK(protocol.FleetSettingsState{}), Refuses: []protocol.Reason{protocol.ReasonStaleRevision},
	},
	"drain_fleet": {
		Does: "give workers nothing more; what they have they end", Body: protocol.FleetRequest{},
		Says: serve.OK(protocol.FleetDrainState{}), Refuses: []protocol.Reason{protocol.ReasonWorkerNotFound},
	},
	"resume_fleet": {
		Does: "give workers work again", Body: protocol.FleetRequest{}, Says: serve.OK(protocol.FleetDrainState{}),
	},
	"evict_fleet": {
		Does: "give workers nothing more, and tell them to leave", Body: protocol.FleetRequest{},
		Says: serve.OK(protocol.FleetDrainState{}), Refuses: []protocol.Reason{protocol.ReasonWorkerNotFound},
	},
	"list_worker_sessions": {
		Does: "list worker sessions, last updated first", Query: sessionsQuery{},
		Says:    serve.OK(protocol.SessionPage{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"describe_worker_session": {
		Does: "show a worker session and its timeline", Says: serve.OK(sessionShown{}),
		Refuses: []protocol.Reason{protocol.ReasonWorkerSessionNotFound},
	},
	"list_session_timeline": {
		Does: "page through a session's timeline, newest page first", Query: timelineQuery{},
		Says:    serve.OK(protocol.SessionTimelinePage{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken, protocol.ReasonWorkerSessionNotFound},
	},
	"list_session_attempts": {
		Does: "list what ran in a session, newest first", Query: attemptsQuery{},
		Says:    serve.OK(protocol.SessionAttemptPage{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken, protocol.ReasonWorkerSessionNotFound},
	},
	"operator_close_session": {
		Does: "close a session, whoever holds it", Body: protocol.SessionOperation{},
		Says:    serve.OK(sessionOperated{}),
		Refuses: onSession,
	},
	"operator_forget_session": {
		Does: "make the id of an ended session usable again", Body: protocol.SessionOperation{},
		Says: serve.OK(sessionOperated{}),
		Refuses: []protocol.Reason{
			protocol.ReasonWorkerSessionNotFound, protocol.ReasonSessionNotEnded,
		},
	},
	"operator_migrate_session": {
		Does: "move a session to another worker", Body: protocol.SessionOperation{},
		Says:    serve.OK(sessionOperated{}),
		Refuses: onSession,
	},
	"system_operator_metrics": {Does: "count what there is in a namespace", Says: serve.OK(metricsResponse{})},

	"workflow_result": {
		Does: "wait until the current run has closed, and those it continues as, and show the last", Query: resultQuery{},
		Says: serve.OK(protocol.RunView{}), Refuses: noWorkflow,
	},
	"run_result": {
		Does: "wait until a run has closed, and those it continues as, and show the last", Query: resultQuery{},
		Says: serve.OK(protocol.RunView{}), Refuses: noWorkflow,
	},
	"describe_run_by_id": {Does: "show a run by its own id", Says: serve.OK(protocol.RunView{}), Refuses: noWorkflow},
	"list_tokens":        {Does: "list tokens, never their secrets", Says: serve.OK(tokensResponse{})},
	"create_token": {
		Does: "make a token; its secret is shown this once",
		Body: auth.TokenRequest{}, Needs: []string{"roles"},
		Says: serve.Responses(201, auth.NewToken{}),
	},
	"set_token_roles": {
		Does: "change what a token is good for; its secret stays", Body: auth.RolesRequest{}, Needs: []string{"roles"},
		Says: serve.OK(auth.TokenView{}), Refuses: []protocol.Reason{protocol.ReasonTokenNotFound},
	},
	"revoke_token": {
		Does: "make a token useless", Query: forgetQuery{}, Says: serve.OK(auth.TokenView{}),
		Refuses: []protocol.Reason{protocol.ReasonTokenNotFound},
	},
	"list_audit": {Does: "list what operators did, newest first", Query: auditQuery{}, Says: serve.OK(auditResponse{})},
	"overview":   {Does: "show the state of this app and what it sees", Says: serve.OK(protocol.Overview{})},
	"run_counts": {Does: "count the runs by status, up to 10,000 of each", Says: serve.OK(protocol.RunCounts{})},
	"me":         {Does: "say who calls", Says: serve.OK(identity{})},
	"sign_in": {
		Does: "take a token and set the dashboard's cookie",
		Body: signInBody{}, Needs: []string{"token"}, Says: serve.OK(identity{}), MaxBody: maxSignIn,
		Refuses: []protocol.Reason{protocol.ReasonUnauthorized, protocol.ReasonForbidden, protocol.ReasonThrottled},
	},
	"sign_out": {
		Does: "take the dashboard's cookie back", Says: serve.OK(signedOut{}),
		Refuses: []protocol.Reason{protocol.ReasonUnauthorized, protocol.ReasonForbidden},
	},

	"list_namespaces": {Does: "list the namespaces the caller may touch", Says: serve.OK(namespacesResponse{})},
	"create_namespace": {
		Does: "make a namespace",
		Body: protocol.NamespaceRequest{}, Needs: []string{"name"}, Says: serve.Responses(201, protocol.NamespaceView{}),
		Refuses: []protocol.Reason{protocol.ReasonNamespaceExists},
	},
	"describe_namespace": {Does: "show a namespace", Says: serve.OK(protocol.NamespaceView{}), Refuses: onNamespace},
	"update_namespace": {
		Does: "change a namespace; what is absent stays", Body: protocol.NamespaceRequest{},
		Says:    serve.OK(protocol.NamespaceView{}),
		Refuses: onNamespace,
	},
	"delete_namespace": {
		Does: "remove a namespace with everything in it", Says: serve.OK(protocol.NamespaceRemoval{}),
		Refuses: with(onNamespace, protocol.ReasonNamespaceBuiltIn),
	},

	"list_schedules": {
		Does: "list schedules", Query: protocol.ScheduleListRequest{}, Says: serve.OK(schedulesResponse{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"create_schedule": {
		Does: "make a schedule",
		Body: protocol.ScheduleRequest{}, Needs: []string{"spec", "action"},
		Says:    serve.Responses(201, protocol.ScheduleReceipt{}),
		Refuses: []protocol.Reason{protocol.ReasonScheduleExists, protocol.ReasonQuotaExceeded},
	},
	"describe_schedule": {Does: "show a schedule", Says: serve.OK(protocol.ScheduleView{}), Refuses: onSchedule},
	"update_schedule": {
		Does: "change a schedule; what is absent stays", Body: protocol.ScheduleRequest{},
		Says:    serve.OK(protocol.ScheduleReceipt{}),
		Refuses: onSchedule,
	},
	"delete_schedule": {Does: "remove a schedule", Says: serve.OK(protocol.ScheduleReceipt{}), Refuses: onSchedule},
	"schedule_history": {
		Does: "read what a schedule did", Query: scheduleHistoryQuery{}, Says: serve.OK(
			scheduleHistoryResponse{},
		),
		Refuses: onSchedule,
	},
	"schedule_times": {
		Does: "list the next times at which a schedule would fire", Query: scheduleTimesQuery{},
		Says: serve.OK(scheduleTimesResponse{}),
	},
	"pause_schedule": {
		Does: "pause a schedule", Body: note{}, Says: serve.OK(protocol.ScheduleReceipt{}), Refuses: onSchedule,
	},
	"resume_schedule": {
		Does: "resume a schedule", Body: note{}, Says: serve.OK(protocol.ScheduleReceipt{}), Refuses: onSchedule,
	},
	"trigger_schedule": {
		Does: "fire a schedule now", Body: triggerBody{}, Says: serve.OK(protocol.ScheduleReceipt{}),
		Refuses: with(onSchedule, protocol.ReasonQuotaExceeded),
	},
	"backfill_schedule": {
		Does: "fire a schedule for times that have passed",
		Body: backfillBody{}, Needs: []string{"start_time", "end_time"},
		Says:    serve.OK(protocol.ScheduleReceipt{}),
		Refuses: with(onSchedule, protocol.ReasonQuotaExceeded),
	},

	"list_search_attributes": {
		Does: "list the search attributes that runs may have", Says: serve.OK(protocol.SearchAttributes{}),
	},
	"create_search_attribute": {
		Does: "register a search attribute",
		Body: protocol.SearchAttribute{}, Needs: []string{"name", "type"},
		Says: serve.Responses(201, protocol.SearchAttribute{}),
		Refuses: []protocol.Reason{
			protocol.ReasonAttributeExists, protocol.ReasonAttributeReserved, protocol.ReasonAttributeLimit,
		},
	},
	"delete_search_attribute": {
		Does: "take a search attribute out of the register", Says: serve.OK(
			protocol.SearchAttribute{},
		),
		Refuses: []protocol.Reason{protocol.ReasonAttributeNotFound, protocol.ReasonAttributeSystem},
	},

	"list_task_queues": {
		Does: "list the task queues by name", Query: queuesQuery{}, Says: serve.OK(protocol.QueuePage{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"describe_task_queue": {
		Does: "show a task queue: tasks, leases, workers, budgets and builds", Says: serve.OK(
			protocol.QueueState{},
		),
		Refuses: []protocol.Reason{protocol.ReasonQueueNotFound},
	},
	"list_task_queue_build_ids": {Does: "list the build ids of a task queue", Says: serve.OK(protocol.BuildRollout{})},
	"drain_task_queue_build_id": {
		Does: "give the workers of a build id nothing more",
		Body: buildBody{}, Needs: []string{"build_id"},
		Says: serve.OK(protocol.BuildState{}),
	},
	"resume_task_queue_build_id": {
		Does: "end the drain of a build id",
		Body: buildBody{}, Needs: []string{"build_id"}, Says: serve.OK(protocol.BuildState{}),
	},
	"promote_task_queue_build_id": {
		Does: "pin new runs to a build id",
		Body: buildBody{}, Needs: []string{"build_id"}, Says: serve.OK(protocol.BuildState{}),
	},
	"list_deployments": {
		Does: "list the builds of the task queues, each under one name", Query: deploymentsQuery{},
		Says: serve.OK(protocol.DeploymentList{}),
	},
	"describe_deployment": {
		Does: "show a build of a task queue", Says: serve.OK(protocol.Deployment{}), Refuses: onDeployment,
	},
	"promote_deployment": {
		Does: "pin new runs to a build", Body: nothing{}, Says: serve.OK(protocol.DeploymentState{}), Refuses: onDeployment,
	},
	"drain_deployment": {
		Does: "give the workers of a build nothing more", Body: nothing{}, Says: serve.OK(protocol.DeploymentState{}),
		Refuses: onDeployment,
	},
	"resume_deployment": {
		Does: "end the drain of a build", Body: nothing{}, Says: serve.OK(protocol.DeploymentState{}), Refuses: onDeployment,
	},
	"rollback_deployment": {
		Does: "pin new runs to what they were pinned to before this build", Body: nothing{},
		Says:    serve.OK(protocol.DeploymentState{}),
		Refuses: append([]protocol.Reason{protocol.ReasonNotPromoted, protocol.ReasonNoEarlier}, onDeployment...),
	},
	"task_queue_priority_fairness": {
		Does: "show in which order the ready tasks of a queue go", Says: serve.OK(protocol.QueueOrder{}),
	},
	"task_queue_limits": {Does: "show the budgets of a task queue", Says: serve.OK(protocol.LimitState{})},
	"set_task_queue_limits": {
		Does: "set the budgets of a task queue; a kind that is absent stays",
		Body: protocol.LimitRequest{}, Needs: []string{"workflow_tasks|activity_tasks"},
		Says: serve.OK(protocol.LimitState{}),
	},
	"task_queue_route": {
		Does: "show which group's workers get the tasks of a task queue", Says: serve.OK(protocol.RouteState{}),
	},
	"set_task_queue_route": {
		Does: "have the workers of a group alone get the tasks of a task queue",
		Body: protocol.RouteRequest{}, Says: serve.OK(protocol.RouteState{}),
	},
	"namespace_route": {
		Does: "show which group's workers get the tasks of a namespace",
		Says: serve.OK(protocol.RouteState{}), Refuses: onNamespace,
	},
	"set_namespace_route": {
		Does: "have the workers of a group alone get the tasks of a namespace",
		Body: protocol.RouteRequest{}, Says: serve.OK(protocol.RouteState{}), Refuses: onNamespace,
	},
	"namespace_limits": {
		Does: "show the budgets of all task queues together",
		Says: serve.OK(protocol.LimitState{}), Refuses: onNamespace,
	},
	"set_namespace_limits": {
		Does: "set the budgets of all task queues together",
		Body: protocol.LimitRequest{}, Needs: []string{"workflow_tasks|activity_tasks"},
		Says:    serve.OK(protocol.LimitState{}),
		Refuses: onNamespace,
	},

	"system_health": {
		Does: "say whether the app serves", Says: map[int]any{200: probeResponse{}, 503: probeResponse{}},
	},
	"system_metrics": {Does: "count what there is in a namespace", Says: serve.OK(metricsResponse{})},
	"read_system_metrics": {
		Does: "count what there is in a namespace", Body: nothing{}, Says: serve.OK(metricsResponse{}),
	},
	"system_prometheus_metrics": {
		Does: "read the metrics, as Prometheus scrapes them", Says: serve.OK(serve.Media("text/plain")),
	},
	"repair_status": {Does: "list the runs that wait for a repair", Says: serve.OK(protocol.RepairStatus{})},
	"repair_pass": {
		Does: "take runs out of quarantine", Body: protocol.RepairRequest{},
		Says: serve.OK(protocol.SystemPass{}),
	},
	"activity_timeouts": {Does: "list the activities whose time is over", Says: serve.OK(protocol.TimeoutStatus{})},
	"activity_timeout_pass": {
		Does: "move activities on whose time is over", Body: protocol.TimeoutRequest{},
		Says: serve.OK(protocol.SystemPass{}),
	},
	"retention": {Does: "show what retention would remove now", Says: serve.OK(protocol.RetentionStatus{})},
	"retention_pass": {
		Does: "remove closed runs that are past their retention", Body: protocol.RetentionRequest{},
		Says: serve.OK(protocol.RetentionPass{}),
	},

	"history_export": {
		Does: "read all that is known of a run in one document", Says: serve.OK(exported{}), Refuses: noWorkflow, Bare: true,
	},
	"list": {
		Does: "list runs, newest start first", Query: runsQuery{}, Says: serve.OK(protocol.ListResponse{}),
		Refuses: []protocol.Reason{
			protocol.ReasonInvalidPageToken, protocol.ReasonQueryTooBroad, protocol.ReasonThrottled,
		},
	},
	"start": {
		Does: "start a workflow",
		Body: startBody{}, Needs: []string{"workflow_type"},
		Refuses: []protocol.Reason{
			protocol.ReasonDuplicateStart, protocol.ReasonScheduleExists, protocol.ReasonStructuralLimit,
			protocol.ReasonQuotaExceeded,
		},
		Says: map[int]any{http.StatusCreated: protocol.StartResponse{}, http.StatusOK: protocol.StartResponse{}},
	},
	"run_activity": {
		Does: "run an activity by itself, without a workflow",
		Body: activityBody{}, Needs: []string{"activity_type"},
		Refuses: []protocol.Reason{protocol.ReasonDuplicateStart, protocol.ReasonQuotaExceeded},
		Says:    map[int]any{http.StatusCreated: protocol.ActivityResponse{}, http.StatusOK: protocol.ActivityResponse{}},
	},
	"describe":     {Does: "show a workflow's current run", Says: serve.OK(protocol.RunView{}), Refuses: noWorkflow},
	"list_runs":    {Does: "list the runs of a workflow", Says: serve.OK(runsResponse{}), Refuses: noWorkflow},
	"describe_run": {Does: "show a run", Says: serve.OK(protocol.RunView{}), Refuses: noWorkflow},
	"history": {
		Does: "read a run's history, and wait for more", Query: historyQuery{}, Says: serve.OK(historyResponse{}),
		Refuses: with(noWorkflow, protocol.ReasonInvalidPageToken),
	},
	"signal": {
		Does: "send a signal", Body: protocol.SignalRequest{}, Says: serve.Responses(http.StatusAccepted, receipt{}),
		Refuses: with(onRun, protocol.ReasonUnknownSignal, protocol.ReasonActivityRun, protocol.ReasonStructuralLimit,
			protocol.ReasonQuotaExceeded),
	},
	"update": {
		Does: "send an update and wait until it is accepted or answered", Body: protocol.UpdateRequest{},
		Says: map[int]any{
			http.StatusOK: updated{}, http.StatusAccepted: updated{}, http.StatusUnprocessableEntity: updated{},
		},
		Refuses: with(onRun, protocol.ReasonUnknownUpdate, protocol.ReasonActivityRun, protocol.ReasonStructuralLimit,
			protocol.ReasonUpdateRejected, protocol.ReasonValidatorWorker,
			protocol.ReasonValidatorFailed, protocol.ReasonValidationUnclaimed, protocol.ReasonValidationTimeout,
			protocol.ReasonThrottled, protocol.ReasonQuotaExceeded),
	},
	"query": {
		Does: "ask a workflow's code about its state", Body: protocol.QueryRequest{}, Says: serve.OK(protocol.QueryResponse{}),
		Refuses: with(noWorkflow, protocol.ReasonUnknownQuery, protocol.ReasonActivityRun, protocol.ReasonQueryRejected,
			protocol.ReasonQueryArguments, protocol.ReasonQueryWorker,
			protocol.ReasonQueryTimeout, protocol.ReasonQueryQueueFull, protocol.ReasonQueryUnavailable),
	},
	"cancel": {
		Does: "cancel a run: it ends at once", Body: protocol.EndRequest{}, Says: serve.OK(receipt{}), Refuses: onRun,
	},
	"terminate": {
		Does: "terminate a run: it ends at once", Body: protocol.EndRequest{}, Says: serve.OK(receipt{}), Refuses: onRun,
	},
	"request_cancellation": {
		Does: "ask a workflow's code to end", Body: protocol.EndRequest{}, Says: serve.OK(receipt{}),
		Refuses: with(onRun, protocol.ReasonCancelNotSupported, protocol.ReasonActivityRun),
	},
	"repair": {
		Does: "set a quarantined workflow task free", Body: protocol.EndRequest{}, Says: serve.OK(receipt{}), Refuses: onRun,
	},
	"archive": {
		Does: "mark a closed run as dealt with", Body: protocol.EndRequest{}, Says: serve.OK(receipt{}),
		Refuses: with(onRun, protocol.ReasonRunNotClosed),
	},
	"delete_run": {
		Does: "delete a closed run with all its data", Query: deletionQuery{}, Says: serve.OK(protocol.DeletedRun{}),
		Refuses: with(noWorkflow, protocol.ReasonRunNotClosed),
	},
	"debug_workflow": {Does: "say why a run is where it is", Says: serve.OK(protocol.DebugView{}), Refuses: noWorkflow},
	"activity_logs": {
		Does: "read what the code of an activity logged", Query: logsQuery{}, Says: serve.OK(protocol.ActivityLogs{}),
		Refuses: []protocol.Reason{protocol.ReasonTaskNotFound},
	},
	"why_task": {
		Does: "say why an open task is where it is", Says: serve.OK(protocol.TaskWhy{}),
		Refuses: []protocol.Reason{protocol.ReasonTaskNotFound},
	},
	"import": {
		Does: "take a closed run back in from its exported history",
		Body: importBody{}, Needs: []string{"schema", "schema_version", "history_events", "integrity"}, MaxBody: maxBundle,
		Says: map[int]any{http.StatusCreated: protocol.ImportResponse{}, http.StatusOK: protocol.ImportResponse{}},
		Refuses: []protocol.Reason{
			protocol.ReasonInvalidBundle, protocol.ReasonBundleIntegrity, protocol.ReasonHistoryIncomplete,
			protocol.ReasonPastRetention, protocol.ReasonRunExists, protocol.ReasonAlreadyStarted,
			protocol.ReasonQuotaExceeded,
		},
	},
	"history_stream": {
		Does: "follow a run's history as server-sent events, until it has closed", Query: streamQuery{},
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
