package httpapi

import (
	"net/http"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// This list is used to parse requests and to generate the API description. Tests fail for a route without an entry and
// for a response that differs from its entry.

// These are reasons of errors that many routes share.
var (
	noWorkflow = []protocol.Reason{protocol.ReasonInstanceNotFound, protocol.ReasonRunNotFound}
	onRun      = append(
		[]protocol.Reason{protocol.ReasonRunNotActive, protocol.ReasonHistoricalRun, protocol.ReasonRequestConflict},
		noWorkflow...,
	)
	onAwakeable = []protocol.Reason{
		protocol.ReasonAwakeableNotFound, protocol.ReasonAwakeableClosed, protocol.ReasonConflictingCompletion,
	}
	onAttempt = []protocol.Reason{
		protocol.ReasonTaskNotFound, protocol.ReasonStaleAttempt, protocol.ReasonConflictingCompletion,
		protocol.ReasonStaleSessionEpoch,
	}
	onSchedule = []protocol.Reason{protocol.ReasonScheduleNotFound}
	onBatchJob = []protocol.Reason{protocol.ReasonBatchJobNotFound}

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
	"up":      {Summary: "Check liveness", Responses: serve.OK(upResponse{})},
	"healthz": {Summary: "Check liveness", Responses: serve.OK(upResponse{})},
	"readyz":  {Summary: "Check readiness", Responses: map[int]any{200: probeResponse{}, 503: probeResponse{}}},
	"health":  {Summary: "Check health", Responses: map[int]any{200: probeResponse{}, 503: probeResponse{}}},
	"ready":   {Summary: "Check readiness", Responses: map[int]any{200: probeResponse{}, 503: probeResponse{}}},
	"metrics": {Summary: "Read metrics", Responses: serve.OK(serve.Media("text/plain"))},
	"openapi": {Summary: "Read the API description", Responses: serve.OK(map[string]any{})},
	"session_schema": {
		Summary: "Read the JSON Schema of worker sessions", Responses: serve.OK(map[string]any{}),
	},
	"cluster_info": {Summary: "Retrieve the server's versions", Responses: serve.OK(protocol.ClusterInfo{})},

	"list_workers": {
		Summary: "List workers", Query: workersQuery{}, Responses: serve.OK(workersResponse{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"describe_worker": {
		Summary:   "Retrieve a worker",
		Responses: serve.OK(protocol.WorkerView{}), Refuses: []protocol.Reason{protocol.ReasonWorkerNotFound},
	},
	"remove_worker": {
		Summary: "Deregister a worker", Responses: serve.OK(workerRemoved{}),
		Refuses: []protocol.Reason{protocol.ReasonWorkerNotFound},
	},
	"list_fleet_drains": {
		Summary:   "List drains",
		Responses: serve.OK(protocol.FleetDrains{}),
	},
	"fleet_settings": {
		Summary:   "Retrieve the settings for workers",
		Responses: serve.OK(protocol.FleetSettingsState{}),
	},
	"set_fleet_settings": {
		Summary: "Set the settings for workers", Body: protocol.FleetSettingsRequest{},
		Responses: serve.OK(protocol.FleetSettingsState{}), Refuses: []protocol.Reason{protocol.ReasonStaleRevision},
	},
	"drain_fleet": {
		Summary: "Drain workers", Body: protocol.FleetRequest{},
		Responses: serve.OK(protocol.FleetDrainState{}), Refuses: []protocol.Reason{protocol.ReasonWorkerNotFound},
	},
	"resume_fleet": {
		Summary: "Resume workers", Body: protocol.FleetRequest{}, Responses: serve.OK(protocol.FleetDrainState{}),
	},
	"evict_fleet": {
		Summary: "Evict workers", Body: protocol.FleetRequest{},
		Responses: serve.OK(protocol.FleetDrainState{}), Refuses: []protocol.Reason{protocol.ReasonWorkerNotFound},
	},
	"list_worker_sessions": {
		Summary: "List sessions", Query: sessionsQuery{},
		Responses: serve.OK(protocol.SessionPage{}),
		Refuses:   []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"describe_worker_session": {
		Summary: "Retrieve a session", Responses: serve.OK(sessionShown{}),
		Refuses: []protocol.Reason{protocol.ReasonWorkerSessionNotFound},
	},
	"list_session_pools": {Summary: "List pools of sessions", Responses: serve.OK(protocol.PoolList{})},
	"describe_session_pool": {
		Summary: "Retrieve a pool of sessions", Responses: serve.OK(protocol.PoolView{}),
		Refuses: []protocol.Reason{protocol.ReasonPoolNotFound},
	},
	"set_session_pool": {
		Summary: "Create or change a pool of sessions", Body: protocol.PoolRequest{},
		Responses: serve.OK(protocol.PoolView{}),
	},
	"delete_session_pool": {
		Summary: "Delete a pool of sessions", Responses: serve.OK(protocol.PoolDeleted{}),
		Refuses: []protocol.Reason{protocol.ReasonPoolNotFound},
	},
	"list_session_timeline": {
		Summary: "List the ownership timeline of a session", Query: timelineQuery{},
		Responses: serve.OK(protocol.SessionTimelinePage{}),
		Refuses:   []protocol.Reason{protocol.ReasonInvalidPageToken, protocol.ReasonWorkerSessionNotFound},
	},
	"list_session_attempts": {
		Summary: "List the attempts in a session", Query: attemptsQuery{},
		Responses: serve.OK(protocol.SessionAttemptPage{}),
		Refuses:   []protocol.Reason{protocol.ReasonInvalidPageToken, protocol.ReasonWorkerSessionNotFound},
	},
	"operator_close_session": {
		Summary: "Close a session", Body: protocol.SessionOperation{},
		Responses: serve.OK(sessionOperated{}),
		Refuses:   onSession,
	},
	"operator_forget_session": {
		Summary: "Forget an ended session", Body: protocol.SessionOperation{},
		Responses: serve.OK(sessionOperated{}),
		Refuses: []protocol.Reason{
			protocol.ReasonWorkerSessionNotFound, protocol.ReasonSessionNotEnded,
		},
	},
	"operator_migrate_session": {
		Summary: "Migrate a session", Body: protocol.SessionOperation{},
		Responses: serve.OK(sessionOperated{}),
		Refuses:   onSession,
	},
	"system_operator_metrics": {Summary: "Read the metrics of a namespace", Responses: serve.OK(metricsResponse{})},

	"workflow_result": {
		Summary: "Wait for the result of a workflow", Query: resultQuery{},
		Responses: serve.OK(protocol.RunView{}), Refuses: noWorkflow,
	},
	"run_result": {
		Summary: "Wait for the result of a run", Query: resultQuery{},
		Responses: serve.OK(protocol.RunView{}), Refuses: noWorkflow,
	},
	"describe_run_by_id": {
		Summary: "Retrieve a run by its run ID", Query: valuesQuery{},
		Responses: serve.OK(protocol.RunView{}), Refuses: noWorkflow,
	},
	"list_tokens": {Summary: "List tokens", Responses: serve.OK(tokensResponse{})},
	"create_token": {
		Summary: "Create a token",
		Body:    auth.TokenRequest{}, Needs: []string{"roles"},
		Responses: serve.Responses(201, auth.NewToken{}),
	},
	"set_token_roles": {
		Summary: "Set the roles of a token", Body: auth.RolesRequest{}, Needs: []string{"roles"},
		Responses: serve.OK(auth.TokenView{}), Refuses: []protocol.Reason{protocol.ReasonTokenNotFound},
	},
	"revoke_token": {
		Summary: "Revoke a token", Query: forgetQuery{}, Responses: serve.OK(auth.TokenView{}),
		Refuses: []protocol.Reason{protocol.ReasonTokenNotFound},
	},
	"list_audit": {Summary: "List the audit log", Query: auditQuery{}, Responses: serve.OK(auditResponse{})},
	"overview":   {Summary: "Retrieve an overview", Responses: serve.OK(protocol.Overview{})},
	"find":       {Summary: "Find by ID", Query: protocol.FindRequest{}, Responses: serve.OK(protocol.FindResponse{})},
	"run_counts": {Summary: "Count runs", Responses: serve.OK(protocol.RunCounts{})},
	"me":         {Summary: "Retrieve the caller", Responses: serve.OK(identity{})},
	"sign_in": {
		Summary: "Sign in",
		Body:    signInBody{}, Needs: []string{"token"}, Responses: serve.OK(identity{}), MaxBody: maxSignIn,
		Refuses: []protocol.Reason{protocol.ReasonUnauthorized, protocol.ReasonForbidden, protocol.ReasonThrottled},
	},
	"sign_out": {
		Summary: "Sign out", Responses: serve.OK(signedOut{}),
		Refuses: []protocol.Reason{protocol.ReasonUnauthorized, protocol.ReasonForbidden},
	},

	"list_namespaces": {Summary: "List namespaces", Responses: serve.OK(namespacesResponse{})},
	"create_namespace": {
		Summary: "Create a namespace",
		Body:    protocol.NamespaceRequest{}, Needs: []string{"name"},
		Responses: serve.Responses(201, protocol.NamespaceView{}),
		Refuses:   []protocol.Reason{protocol.ReasonNamespaceExists},
	},
	"describe_namespace": {
		Summary:   "Retrieve a namespace",
		Responses: serve.OK(protocol.NamespaceView{}), Refuses: onNamespace,
	},
	"update_namespace": {
		Summary: "Update a namespace", Body: protocol.NamespaceRequest{},
		Responses: serve.OK(protocol.NamespaceView{}),
		Refuses:   onNamespace,
	},
	"delete_namespace": {
		Summary: "Delete a namespace", Responses: serve.OK(protocol.NamespaceRemoval{}),
		Refuses: with(onNamespace, protocol.ReasonNamespaceBuiltIn),
	},

	"list_batch_jobs": {
		Summary: "List batch jobs", Query: protocol.BatchJobList{}, Responses: serve.OK(protocol.BatchJobPage{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"create_batch_job": {
		Summary: "Create a batch job",
		Body:    protocol.BatchJobRequest{}, Needs: []string{"query", "action"},
		Responses: serve.Responses(201, protocol.BatchJobView{}),
		Refuses: []protocol.Reason{
			protocol.ReasonForbidden, protocol.ReasonRequestConflict, protocol.ReasonBatchJobLimit,
			protocol.ReasonNamespaceNotFound,
		},
	},
	"preview_batch_job": {
		Summary: "Preview a batch job",
		Query:   protocol.BatchPreviewRequest{}, Responses: serve.OK(protocol.BatchPreview{}),
		Refuses: []protocol.Reason{protocol.ReasonThrottled},
	},
	"describe_batch_job": {
		Summary: "Retrieve a batch job", Responses: serve.OK(protocol.BatchJobView{}), Refuses: onBatchJob,
	},
	"list_batch_results": {
		Summary: "List the results of a batch job", Query: protocol.BatchResultList{},
		Responses: serve.OK(protocol.BatchResultPage{}), Refuses: with(onBatchJob, protocol.ReasonInvalidPageToken),
	},
	"stop_batch_job": {
		Summary: "Stop a batch job", Body: protocol.BatchStopRequest{},
		Responses: serve.OK(protocol.BatchJobView{}), Refuses: with(onBatchJob, protocol.ReasonBatchJobClosed),
	},
	"list_schedules": {
		Summary: "List schedules", Query: protocol.ScheduleListRequest{}, Responses: serve.OK(schedulesResponse{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"create_schedule": {
		Summary: "Create a schedule",
		Body:    protocol.ScheduleRequest{}, Needs: []string{"spec", "action"},
		Responses: serve.Responses(201, protocol.ScheduleReceipt{}),
		Refuses:   []protocol.Reason{protocol.ReasonScheduleExists, protocol.ReasonQuotaExceeded},
	},
	"describe_schedule": {
		Summary: "Retrieve a schedule", Query: valuesQuery{},
		Responses: serve.OK(protocol.ScheduleView{}), Refuses: onSchedule,
	},
	"update_schedule": {
		Summary: "Update a schedule", Body: protocol.ScheduleRequest{},
		Responses: serve.OK(protocol.ScheduleReceipt{}),
		Refuses:   onSchedule,
	},
	"delete_schedule": {
		Summary:   "Delete a schedule",
		Responses: serve.OK(protocol.ScheduleReceipt{}), Refuses: onSchedule,
	},
	"schedule_history": {
		Summary: "List the history of a schedule", Query: scheduleHistoryQuery{}, Responses: serve.OK(
			scheduleHistoryResponse{},
		),
		Refuses: onSchedule,
	},
	"schedule_times": {
		Summary: "Preview the times of a schedule", Query: scheduleTimesQuery{},
		Responses: serve.OK(scheduleTimesResponse{}),
	},
	"pause_schedule": {
		Summary: "Pause a schedule", Body: scheduleNote{},
		Responses: serve.OK(protocol.ScheduleReceipt{}), Refuses: onSchedule,
	},
	"resume_schedule": {
		Summary: "Resume a schedule", Body: scheduleNote{},
		Responses: serve.OK(protocol.ScheduleReceipt{}), Refuses: onSchedule,
	},
	"trigger_schedule": {
		Summary: "Trigger a schedule", Body: triggerBody{}, Responses: serve.OK(protocol.ScheduleReceipt{}),
		Refuses: with(onSchedule, protocol.ReasonQuotaExceeded),
	},
	"backfill_schedule": {
		Summary: "Backfill a schedule",
		Body:    backfillBody{}, Needs: []string{"start_time", "end_time"},
		Responses: serve.OK(protocol.ScheduleReceipt{}),
		Refuses:   with(onSchedule, protocol.ReasonQuotaExceeded),
	},

	"list_search_attributes": {
		Summary: "List search attributes", Responses: serve.OK(protocol.SearchAttributes{}),
	},
	"create_search_attribute": {
		Summary: "Register a search attribute",
		Body:    protocol.SearchAttribute{}, Needs: []string{"name", "type"},
		Responses: serve.Responses(201, protocol.SearchAttribute{}),
		Refuses: []protocol.Reason{
			protocol.ReasonAttributeExists, protocol.ReasonAttributeReserved, protocol.ReasonAttributeLimit,
		},
	},
	"delete_search_attribute": {
		Summary: "Deregister a search attribute", Responses: serve.OK(
			protocol.SearchAttribute{},
		),
		Refuses: []protocol.Reason{protocol.ReasonAttributeNotFound, protocol.ReasonAttributeSystem},
	},

	"list_task_queues": {
		Summary: "List task queues", Query: queuesQuery{}, Responses: serve.OK(protocol.QueuePage{}),
		Refuses: []protocol.Reason{protocol.ReasonInvalidPageToken},
	},
	"describe_task_queue": {
		Summary: "Retrieve a task queue", Responses: serve.OK(
			protocol.QueueState{},
		),
		Refuses: []protocol.Reason{protocol.ReasonQueueNotFound},
	},
	"list_task_queue_build_ids": {
		Summary:   "List the builds of a task queue",
		Responses: serve.OK(protocol.BuildRollout{}),
	},
	"drain_task_queue_build_id": {
		Summary: "Drain a build",
		Body:    buildBody{}, Needs: []string{"build_id"},
		Responses: serve.OK(protocol.BuildState{}),
	},
	"resume_task_queue_build_id": {
		Summary: "Resume a build",
		Body:    buildBody{}, Needs: []string{"build_id"}, Responses: serve.OK(protocol.BuildState{}),
	},
	"promote_task_queue_build_id": {
		Summary: "Promote a build",
		Body:    buildBody{}, Needs: []string{"build_id"}, Responses: serve.OK(protocol.BuildState{}),
	},
	"list_deployments": {
		Summary: "List deployments", Query: deploymentsQuery{},
		Responses: serve.OK(protocol.DeploymentList{}),
	},
	"describe_deployment": {
		Summary: "Retrieve a deployment", Responses: serve.OK(protocol.Deployment{}), Refuses: onDeployment,
	},
	"promote_deployment": {
		Summary: "Promote a deployment", Body: nothing{},
		Responses: serve.OK(protocol.DeploymentState{}), Refuses: onDeployment,
	},
	"drain_deployment": {
		Summary: "Drain a deployment", Body: nothing{}, Responses: serve.OK(protocol.DeploymentState{}),
		Refuses: onDeployment,
	},
	"resume_deployment": {
		Summary: "Resume a deployment", Body: nothing{},
		Responses: serve.OK(protocol.DeploymentState{}), Refuses: onDeployment,
	},
	"rollback_deployment": {
		Summary: "Roll back a deployment", Body: nothing{},
		Responses: serve.OK(protocol.DeploymentState{}),
		Refuses:   append([]protocol.Reason{protocol.ReasonNotPromoted, protocol.ReasonNoEarlier}, onDeployment...),
	},
	"task_queue_priority_fairness": {
		Summary: "Retrieve the order of a task queue", Responses: serve.OK(protocol.QueueOrder{}),
	},
	"task_queue_limits": {Summary: "Retrieve the limits of a task queue", Responses: serve.OK(protocol.LimitState{})},
	"set_task_queue_limits": {
		Summary: "Set the limits of a task queue",
		Body:    protocol.LimitRequest{}, Needs: []string{"workflow_tasks|activity_tasks"},
		Responses: serve.OK(protocol.LimitState{}),
	},
	"task_queue_route": {
		Summary: "Retrieve the route of a task queue", Responses: serve.OK(protocol.RouteState{}),
	},
	"set_task_queue_route": {
		Summary: "Route a task queue",
		Body:    protocol.RouteRequest{}, Responses: serve.OK(protocol.RouteState{}),
	},
	"namespace_route": {
		Summary:   "Retrieve the route of a namespace",
		Responses: serve.OK(protocol.RouteState{}), Refuses: onNamespace,
	},
	"set_namespace_route": {
		Summary: "Route a namespace",
		Body:    protocol.RouteRequest{}, Responses: serve.OK(protocol.RouteState{}), Refuses: onNamespace,
	},
	"namespace_limits": {
		Summary:   "Retrieve the limits of a namespace",
		Responses: serve.OK(protocol.LimitState{}), Refuses: onNamespace,
	},
	"set_namespace_limits": {
		Summary: "Set the limits of a namespace",
		Body:    protocol.LimitRequest{}, Needs: []string{"workflow_tasks|activity_tasks"},
		Responses: serve.OK(protocol.LimitState{}),
		Refuses:   onNamespace,
	},

	"system_health": {
		Summary: "Check health with a token", Responses: map[int]any{200: probeResponse{}, 503: probeResponse{}},
	},
	"system_metrics": {Summary: "Read the metrics of a namespace", Responses: serve.OK(metricsResponse{})},
	"read_system_metrics": {
		Summary: "Read the metrics of a namespace", Body: nothing{}, Responses: serve.OK(metricsResponse{}),
	},
	"system_prometheus_metrics": {
		Summary: "Read metrics", Responses: serve.OK(serve.Media("text/plain")),
	},
	"repair_status": {Summary: "List quarantined runs", Responses: serve.OK(protocol.RepairStatus{})},
	"repair_pass": {
		Summary: "Repair quarantined runs", Body: protocol.RepairRequest{},
		Responses: serve.OK(protocol.SystemPass{}),
	},
	"activity_timeouts": {Summary: "List expired activities", Responses: serve.OK(protocol.TimeoutStatus{})},
	"activity_timeout_pass": {
		Summary: "Enforce activity timeouts", Body: protocol.TimeoutRequest{},
		Responses: serve.OK(protocol.SystemPass{}),
	},
	"retention": {Summary: "List runs past their retention", Responses: serve.OK(protocol.RetentionStatus{})},
	"retention_pass": {
		Summary: "Delete runs past their retention", Body: protocol.RetentionRequest{},
		Responses: serve.OK(protocol.RetentionPass{}),
	},

	"history_export": {
		Summary: "Export a run", Responses: serve.OK(exported{}), Refuses: noWorkflow, Bare: true,
	},
	"list": {
		Summary: "List runs", Query: runsQuery{}, Responses: serve.OK(protocol.ListResponse{}),
		Refuses: []protocol.Reason{
			protocol.ReasonInvalidPageToken, protocol.ReasonQueryTooBroad, protocol.ReasonThrottled,
		},
	},
	"start": {
		Summary: "Start a workflow",
		Body:    startBody{}, Needs: []string{"workflow_type"}, IdempotencyKey: true,
		Refuses: []protocol.Reason{
			protocol.ReasonDuplicateStart, protocol.ReasonRequestConflict, protocol.ReasonScheduleExists,
			protocol.ReasonStructuralLimit,
			protocol.ReasonQuotaExceeded,
		},
		Responses: map[int]any{http.StatusCreated: startResponses, http.StatusOK: startResponses},
	},
	"run_activity": {
		Summary: "Start an activity run",
		Body:    activityBody{}, Needs: []string{"activity_type"}, IdempotencyKey: true,
		Refuses: []protocol.Reason{
			protocol.ReasonDuplicateStart, protocol.ReasonRequestConflict, protocol.ReasonQuotaExceeded,
		},
		Responses: map[int]any{http.StatusCreated: protocol.ActivityResponse{}, http.StatusOK: protocol.ActivityResponse{}},
	},
	"describe": {
		Summary: "Retrieve the current run of a workflow", Query: valuesQuery{}, Responses: serve.OK(protocol.RunView{}),
		Refuses: noWorkflow,
	},
	"list_runs": {Summary: "List the runs of a workflow", Responses: serve.OK(runsResponse{}), Refuses: noWorkflow},
	"describe_run": {
		Summary: "Retrieve a run of a workflow", Query: valuesQuery{},
		Responses: serve.OK(protocol.RunView{}), Refuses: noWorkflow,
	},
	"history": {
		Summary: "List the events of a run", Query: historyQuery{}, Responses: serve.OK(historyResponse{}),
		Refuses: with(noWorkflow, protocol.ReasonInvalidPageToken),
	},
	"signal": {
		Summary: "Signal a run", Body: protocol.SignalRequest{}, Responses: serve.Responses(http.StatusAccepted, receipt{}),
		Refuses: with(onRun, protocol.ReasonUnknownSignal, protocol.ReasonActivityRun, protocol.ReasonStructuralLimit,
			protocol.ReasonQuotaExceeded),
	},
	"complete_activity": {
		Summary: "Complete an attempt of an activity", Body: completionBody{},
		Responses: serve.OK(protocol.ActivityReceipt{}), Refuses: onAttempt,
	},
	"fail_activity": {
		Summary: "Fail an attempt of an activity", Body: failureBody{}, Needs: []string{"failure"},
		Responses: serve.OK(protocol.ActivityReceipt{}), Refuses: onAttempt,
	},
	"heartbeat_activity": {
		Summary: "Send a heartbeat of an attempt of an activity", Body: protocol.HeartbeatMembers{},
		Responses: serve.OK(protocol.ActivityHeartbeatReceipt{}), Refuses: onAttempt,
	},
	"complete_awakeable": {
		Summary: "Complete an awakeable", Body: completionBody{}, Responses: serve.OK(protocol.AwakeableReceipt{}),
		Refuses: onAwakeable,
	},
	"fail_awakeable": {
		Summary: "Fail an awakeable", Body: failureBody{}, Needs: []string{"failure"},
		Responses: serve.OK(protocol.AwakeableReceipt{}), Refuses: onAwakeable,
	},
	"signal_with_start": {
		Summary: "Start a workflow with a signal",
		Body:    signalWithStartBody{}, Needs: []string{"workflow_type", "signal_name"}, IdempotencyKey: true,
		Responses: map[int]any{http.StatusCreated: signalledWithStart{}, http.StatusAccepted: signalledWithStart{}},
		Refuses: []protocol.Reason{
			protocol.ReasonDuplicateStart, protocol.ReasonRequestConflict, protocol.ReasonUnknownSignal,
			protocol.ReasonActivityRun, protocol.ReasonStructuralLimit, protocol.ReasonQuotaExceeded,
		},
	},
	"update_with_start": {
		Summary: "Start a workflow with an update",
		Body:    updateWithStartBody{}, Needs: []string{"workflow_type", "update_name"}, IdempotencyKey: true,
		Responses: map[int]any{
			http.StatusOK: updatedWithStart{}, http.StatusAccepted: updatedWithStart{},
			http.StatusUnprocessableEntity: updatedWithStart{},
		},
		Refuses: with(onRun, protocol.ReasonDuplicateStart, protocol.ReasonUnknownUpdate, protocol.ReasonActivityRun,
			protocol.ReasonStructuralLimit, protocol.ReasonUpdateRejected, protocol.ReasonValidatorWorker,
			protocol.ReasonValidatorFailed, protocol.ReasonValidationUnclaimed, protocol.ReasonValidationTimeout,
			protocol.ReasonThrottled, protocol.ReasonQuotaExceeded),
	},
	"update": {
		Summary: "Update a run", Body: protocol.UpdateRequest{},
		Responses: map[int]any{
			http.StatusOK: updated{}, http.StatusAccepted: updated{}, http.StatusUnprocessableEntity: updated{},
		},
		Refuses: with(onRun, protocol.ReasonUnknownUpdate, protocol.ReasonActivityRun, protocol.ReasonStructuralLimit,
			protocol.ReasonUpdateRejected, protocol.ReasonValidatorWorker,
			protocol.ReasonValidatorFailed, protocol.ReasonValidationUnclaimed, protocol.ReasonValidationTimeout,
			protocol.ReasonThrottled, protocol.ReasonQuotaExceeded),
	},
	"query": {
		Summary: "Query a run", Body: protocol.QueryRequest{}, Responses: serve.OK(protocol.QueryResponse{}),
		Refuses: with(noWorkflow, protocol.ReasonUnknownQuery, protocol.ReasonActivityRun, protocol.ReasonQueryRejected,
			protocol.ReasonQueryArguments, protocol.ReasonQueryWorker,
			protocol.ReasonQueryTimeout, protocol.ReasonQueryQueueFull, protocol.ReasonQueryUnavailable),
	},
	"cancel": {
		Summary: "Cancel a run", Body: protocol.EndRequest{}, Responses: serve.OK(receipt{}), Refuses: onRun,
	},
	"terminate": {
		Summary: "Terminate a run", Body: protocol.EndRequest{}, Responses: serve.OK(receipt{}), Refuses: onRun,
	},
	"request_cancellation": {
		Summary: "Request the cancellation of a run", Body: protocol.EndRequest{}, Responses: serve.OK(receipt{}),
		Refuses: with(onRun, protocol.ReasonCancelNotSupported, protocol.ReasonActivityRun),
	},
	"repair": {
		Summary: "Repair a quarantined run", Body: protocol.EndRequest{}, Responses: serve.OK(receipt{}), Refuses: onRun,
	},
	"archive": {
		Summary: "Archive a run", Body: protocol.EndRequest{}, Responses: serve.OK(receipt{}),
		Refuses: with(onRun, protocol.ReasonRunNotClosed),
	},
	"redrive": {
		Summary: "Redrive a failed run", Body: protocol.RedriveRequest{},
		Responses: map[int]any{http.StatusAccepted: redriveReceipt{}, http.StatusOK: redriveReceipt{}},
		Refuses: with(onRun, protocol.ReasonRunNotFailed, protocol.ReasonFailureBoundary,
			protocol.ReasonUnsupportedHistory, protocol.ReasonActivityRun, protocol.ReasonSessionMissing,
			protocol.ReasonSessionClosed, protocol.ReasonInvalidSession, protocol.ReasonQuotaExceeded),
	},
	"reset": {
		Summary: "Reset a run to the end of a workflow task", Body: protocol.ResetRequest{},
		Responses: map[int]any{http.StatusAccepted: protocol.ResetReceipt{}, http.StatusOK: protocol.ResetReceipt{}},
		Refuses: with(onRun, protocol.ReasonResetPoint, protocol.ReasonUnsupportedHistory, protocol.ReasonStructuralLimit,
			protocol.ReasonActivityRun, protocol.ReasonSessionMissing, protocol.ReasonSessionClosed,
			protocol.ReasonInvalidSession, protocol.ReasonQuotaExceeded),
	},
	"delete_run": {
		Summary: "Delete a run", Query: deletionQuery{}, Responses: serve.OK(protocol.DeletedRun{}),
		Refuses: with(noWorkflow, protocol.ReasonRunNotClosed),
	},
	"debug_workflow": {Summary: "Diagnose a run", Responses: serve.OK(protocol.DebugView{}), Refuses: noWorkflow},
	"activity_logs": {
		Summary: "Read the log of an activity", Query: logsQuery{}, Responses: serve.OK(protocol.ActivityLogs{}),
		Refuses: []protocol.Reason{protocol.ReasonTaskNotFound},
	},
	"why_task": {
		Summary: "Explain why a task waits", Responses: serve.OK(protocol.TaskWhy{}),
		Refuses: []protocol.Reason{protocol.ReasonTaskNotFound},
	},
	"import": {
		Summary: "Import a run",
		Body:    importBody{}, Needs: []string{"schema", "schema_version", "history_events", "integrity"}, MaxBody: maxBundle,
		Responses: map[int]any{http.StatusCreated: protocol.ImportResponse{}, http.StatusOK: protocol.ImportResponse{}},
		Refuses: []protocol.Reason{
			protocol.ReasonInvalidBundle, protocol.ReasonBundleIntegrity, protocol.ReasonHistoryIncomplete,
			protocol.ReasonPastRetention, protocol.ReasonRunExists, protocol.ReasonAlreadyStarted,
			protocol.ReasonQuotaExceeded,
		},
	},
	"history_stream": {
		Summary: "Stream the events of a run", Query: streamQuery{},
		Responses: serve.OK(serve.Media("text/event-stream")), Refuses: noWorkflow, Bare: true,
	},
}

var (
	onSession = []protocol.Reason{
		protocol.ReasonWorkerSessionNotFound, protocol.ReasonSessionNotActive, protocol.ReasonSessionClosed,
		protocol.ReasonWorkerNotFound,
	}
	onNamespace = []protocol.Reason{protocol.ReasonNamespaceNotFound}
)
