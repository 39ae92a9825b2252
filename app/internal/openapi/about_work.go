package openapi

// aboutWork describes the operations of the worker protocol.
var aboutWork = map[string]about{
	"register": {
		text: "Register the workflow and activity types of a worker and the queues that it polls; the app dispatches " +
			"only these to it. A registration is valid for 60 seconds after the worker's last request. Registering " +
			"the same ID again creates a new incarnation, and the tasks of the old one are requeued.",
		body: `{"worker_id": "w1", "task_queue": "default", "runtime": "python", "supported_workflow_types": ["order"],
			"supported_activity_types": ["charge"], "capabilities": ["query_tasks", "worker_sessions"], "max_concurrent_worker_sessions": 10,
			"workflow_command_contracts": {"order": {"queries": ["state"], "signals": ["pay"], "updates": ["add"]}}}`,
		answer: `{"worker_id": "w1", "registered": true, "namespace": "default", "task_queue": "default", "runtime": "python", "build_id": null,
			"capabilities": ["query_tasks", "worker_sessions"], "capability_manifest": null, "status": "active",
			"incarnation": "01M7Z3C6PZP7GVQA5VJQDXG4QT", "heartbeat_interval_seconds": 15, "redelivered_task_count": 0}`,
	},
	"deregister": {
		text: "Delete the worker's registration. Its tasks are requeued at once and its sessions are released. The ID " +
			"can be registered again.",
	},
	"worker_heartbeat": {
		text: "Report that a worker is alive, independent of its polls. The app renews the leases and sessions in the " +
			"request; the response contains the lost leases and sessions, the cancelled attempts, and whether the " +
			"worker has to drain.",
		body: `{"worker_id": "w1"}`,
	},

	"poll_workflow_task": {
		text: "Poll for a workflow task. The app holds the request until a task is ready or `timeout_seconds` have " +
			"passed (default 30, maximum 60; 0 responds at once); `task` is then null and `poll_status` is the " +
			"reason. The lease lasts five minutes. Repeat a request whose response was lost with the same " +
			"`poll_request_id`: the app returns the same task while its lease is valid. A long history is split into " +
			"pages: while `next_history_page_token` is not null, read the next page with `workflow_task_history`.",
		body: `{"worker_id": "w1", "task_queue": "default", "timeout_seconds": 30, "poll_request_id": "w1-17"}`,
	},
	"workflow_task_history": {
		text: "Read a further page of the history of a leased workflow task. Only the owner of the lease may read it. " +
			"`all=true` returns the whole history in one response.",
		body: `{"lease_owner": "w1", "workflow_task_attempt": 1, "next_history_page_token": "500"}`,
	},
	"heartbeat_workflow_task": {
		text: "Renew the lease of a workflow task to five minutes from now, for example during a long replay.",
		body: `{"lease_owner": "w1", "workflow_task_attempt": 1}`,
	},
	"complete_workflow_task": {
		text: "Complete a workflow task with the commands of the workflow's code. The app applies all commands or " +
			"none: an invalid command rejects the request with the path of the wrong member, such as " +
			"`commands.3.activity_type`, and the lease stays valid. A command that closes the run must be the last " +
			"one. The list must not be empty; a worker without commands sends `fail_workflow_task` with the type " +
			"`WorkflowTaskWaitingForHistory`. A repeated request returns `recorded: false` with the reason " +
			"`already_completed`.",
		body: `{"lease_owner": "w1", "workflow_task_attempt": 1, "commands": [
			{"type": "schedule_activity", "activity_type": "charge", "start_to_close_timeout": 60,
			 "retry_policy": {"max_attempts": 3, "backoff_seconds": [1, 5]}, "arguments": {"codec": "avro", "blob": "wwHioz3/VYAiNwwCCgp3b3JsZAA="}},
			{"type": "start_timer", "delay_seconds": 3600}]}`,
		answer: `{"task_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-workflow", "workflow_task_attempt": 1, "outcome": "completed", "recorded": true, "reason": null,
			"run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB", "run_status": "waiting", "created_task_ids": [], "next_task_id": null}`,
	},
	"fail_workflow_task": {
		text: "Report that the workflow's code could not run. The run stays open and the app dispatches the task " +
			"again. A message that begins with \"nondeterministic workflow code\" quarantines the run until it is " +
			"repaired. The type `WorkflowTaskWaitingForHistory` is not a failure: the worker has no commands, the " +
			"app records nothing and counts no attempt.",
		body: `{"lease_owner": "w1", "workflow_task_attempt": 1, "failure": {"message": "nothing new", "type": "WorkflowTaskWaitingForHistory"}}`,
	},
	"claim_workflow_task": {
		text: "Lease a workflow task by its ID instead of polling. The conditions of a poll apply.",
		body: `{"worker_id": "w1"}`,
	},
	"workflow_task_claim_status": {
		text: "Check whether a workflow task can be leased, and if not, why. With `worker_id` the response also " +
			"reports whether this worker may lease it. Changes nothing.",
	},
	"claim_activity_task": {
		text: "Lease an activity task by its ID instead of polling. The conditions of a poll apply, including those of " +
			"the task's session.",
		body: `{"worker_id": "w1"}`,
	},
	"activity_task_claim_status": {
		text: "Check whether an activity task can be leased, and if not, why. With `worker_id` the response also " +
			"reports whether this worker, and the task's session, allow it. Changes nothing.",
	},

	"poll_activity_task": {
		text: "Poll for an activity task, as `poll_workflow_task`. The lease lasts five minutes, or " +
			"`attempt_lease_seconds` of the registration; heartbeats of the attempt renew it. `worker_session` is " +
			"set if the task belongs to a session: store state in memory under `session_id` and `epoch`.",
		body: `{"worker_id": "w1", "task_queue": "default", "timeout_seconds": 30}`,
		answer: `{"poll_status": "leased", "task": {"task_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1", "activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1",
			"activity_execution_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1", "attempt_number": 1, "activity_type": "charge",
			"idempotency_key": "01M7Z3C6QEMJX94H9XJ62VYFPB-1", "payload_codec": "avro", "arguments": {"codec": "avro", "blob": "wwHioz3/VYAiNwwCCgp3b3JsZAA="},
			"workflow_id": "order-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB", "task_queue": "default", "lease_owner": "w1",
			"lease_expires_at": "2026-11-21T13:10:21.217500Z",
			"deadlines": {"schedule_to_start": null, "start_to_close": "2026-11-21T13:06:21.217500Z", "schedule_to_close": null, "heartbeat": null}}}`,
	},
	"complete_activity_task": {
		text: "Complete an activity with its result: any JSON value, or an envelope. A repeated request returns " +
			"`recorded: false` with the reason `already_completed`. A different result, or that of an outdated " +
			"attempt, is rejected and changes nothing.",
		body: `{"lease_owner": "w1", "activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1", "result": {"receipt": 4711}}`,
	},
	"fail_activity_task": {
		text: "Report that an activity attempt failed. The retry policy of the activity and `non_retryable` determine " +
			"whether another attempt follows.",
		body: `{"lease_owner": "w1", "activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1",
			"failure": {"message": "no credit", "type": "card_declined", "non_retryable": true}}`,
	},
	"heartbeat_activity_task": {
		text: "Renew the lease of an activity attempt and of its session, and report progress. If the response has " +
			"`can_continue: false`, stop the activity without a report: the attempt was cancelled, its run has " +
			"closed, or another worker leased the task.",
		body: `{"lease_owner": "w1", "activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1", "message": "half way", "current": 1, "total": 2}`,
		answer: `{"task_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1", "activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1", "lease_owner": "w1",
			"lease_expires_at": "2026-11-21T13:10:21.264395Z", "last_heartbeat_at": "2026-11-21T13:05:21.264395Z", "heartbeat_recorded": true,
			"cancel_requested": false, "can_continue": true, "reason": null, "run_closed_reason": null, "run_closed_at": null}`,
	},
	"activity_task_status": {
		text: "Check whether an activity attempt may continue. The response equals that of a heartbeat, but the " +
			"request renews no lease.",
		body: `{"lease_owner": "w1", "activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1"}`,
	},
	"read_activity_task_status": {
		text: "Check whether an activity attempt may continue, as `activity_task_status`, with the lease in the query " +
			"parameters.",
	},

	"poll_query_task": {
		text: "Poll for a query. Only workers with the capability `query_tasks` receive queries. The task contains the " +
			"whole history. The app dispatches a query without retries, since its caller waits for the result.",
		body: `{"worker_id": "w1", "task_queue": "default", "timeout_seconds": 30}`,
	},
	"complete_query_task": {
		text: "Complete a query with its result, which the app returns to the caller. `result_envelope` is the encoded " +
			"result, for callers that use an SDK.",
		body: `{"lease_owner": "w1", "query_task_attempt": 1, "result": {"state": "packing"}}`,
	},
	"fail_query_task": {
		text: "Report that a query failed. The app returns `query_rejected` with the failure to the caller.",
		body: `{"lease_owner": "w1", "query_task_attempt": 1, "failure": {"message": "there is no such query", "type": "LookupError"}}`,
	},
	"poll_update_validation_task": {
		text: "Poll for an update to validate. Only workers with the capability `update_validation_tasks`, whose " +
			"registration names the update in `update_validators`, receive these tasks. The caller of the update " +
			"waits for the verdict.",
		body: `{"worker_id": "w1", "task_queue": "default", "timeout_seconds": 30}`,
	},
	"approve_update_validation_task": {
		text: "Approve an update. The app records it as accepted and delivers it with the next workflow task.",
		body: `{"lease_owner": "w1", "update_validation_attempt": 1}`,
	},
	"reject_update_validation_task": {
		text: "Reject an update. The app records nothing in the history and returns the failure to the caller.",
		body: `{"lease_owner": "w1", "update_validation_attempt": 1, "failure": {"message": "taken", "type": "ValueError", "reason": "update_validator_rejected"}}`,
	},

	"create_worker_session": {
		text: "Create a session that the worker owns, or acquire an existing one without an owner under a higher epoch " +
			"(outcome `reacquired`). Responds with 201 if the session is new. If `admitted` is false, the response " +
			"has the reason, such as the current owner or a missing capability.",
		body: `{"worker_id": "w1", "session_id": "printer-1", "lease_seconds": 60, "ttl_seconds": 600}`,
	},
	"heartbeat_worker_session": {
		text: "Renew the lease of a session from now on. Heartbeats of activities in the session do the same.",
		body: `{"worker_id": "w1"}`,
	},
	"release_worker_session": {
		text: "Release a session. It stays open: any worker may acquire it at once, under a higher epoch.",
		body: `{"worker_id": "w1"}`,
	},
	"close_worker_session": {
		text: "Close a session. Its running activities are cancelled, and activities that are scheduled in it later " +
			"fail. Name the worker in the query or in the body.",
		body: `{"worker_id": "w1"}`,
	},

	"poll_tasks": {
		text: "Poll for up to `max` tasks of several kinds and queues. The outcome of the poll is `poll_status`; " +
			"unlike other polls this one never responds with 409 or 503 for it.",
		body: `{"worker_id": "w1", "max": 10, "kinds": ["workflow", "activity"], "timeout_seconds": 30}`,
	},
	"complete_tasks": {
		text: "Complete several tasks, and optionally poll for more. The app handles each item separately: the " +
			"responses have the same order, and a rejected item has its own error. `next` is a poll that the app " +
			"never holds.",
		body: `{"items": [{"kind": "activity", "task_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1", "lease_owner": "w1",
			"activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1", "result": "done"}], "next": {"worker_id": "w1", "max": 10}}`,
	},
	"record_logs": {
		text: "Upload log lines of running attempts. Only the worker that leased an attempt may do so. The app handles " +
			"each item separately. Numbered parts can be repeated safely. The request renews no lease. Send the last " +
			"lines with the outcome, as `lines` of `complete_tasks`.",
		body: `{"items": [{"task_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1", "lease_owner": "w1",
			"activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1", "part": 1, "lines": [{"level": "info", "text": "page 1 of 12"}]}]}`,
	},
	"worker_settings": {
		text: "Retrieve the intervals, limits and release that the app requires of its workers. The response contains " +
			"no secrets.",
	},
	"describe_protocol": {
		text: "Retrieve the versions, routes, kinds of tasks and commands of the worker protocol, for people and for " +
			"code generators.",
	},
}
