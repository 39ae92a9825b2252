package openapi

const (
	laterSame = "A repeated `request_id` returns the first receipt; with different content it is rejected " +
		"with `request_id_conflict`."
	runOrID = "Applies to the current run of the workflow ID, or to the run that the path names; a " +
		"closed run is rejected."
)

// aboutControl describes the operations of the control plane.
var aboutControl = map[string]about{
	"start": {
		text: "Start a run of a workflow, or create a schedule if `cron` is set. Responds with 201 if a run was " +
			"started. If the workflow ID is in use, `conflict_policy` (of an open run) or `reuse_policy` (of a closed " +
			"run) decides: by default the start is rejected with `duplicate_not_allowed`, and `allowed_by` has the " +
			"policies that allow it. An open run is returned with status 200. A start that is repeated with the same " +
			"header `Idempotency-Key` (1 to 255 bytes) returns the run that it started. `input` is the list of arguments. With `wait_seconds` the response waits until the run, or the run " +
			"that continues it, has closed, and also has the members of `workflow_result`. If `is_terminal` is not " +
			"true, the time ended first or the app drains: read the result by its own route.",
		body: `{"workflow_type": "order", "workflow_id": "order-17", "task_queue": "default", "input": [{"items": ["tea"]}], "run_timeout_seconds": 3600,
			"memo": {"note": "urgent"}, "search_attributes": {"customer": "Ada"}}`,
		answer: `{"workflow_id": "order-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB", "workflow_type": "order", "namespace": "default", "status": "pending",
			"business_key": null, "payload_codec": "avro", "outcome": "started_new"}`,
	},
	"run_activity": {
		text: "Start a run that consists of one activity and needs no workflow code. The app retries the activity by " +
			"its retry policy; the run survives crashes of app and worker. The activity can belong to a session. " +
			"Responds with 201 if a run was started. The workflow routes retrieve, follow, cancel and terminate the " +
			"run by its workflow ID; its `kind` is `activity`. Signals, updates and queries are rejected with " +
			"`activity_run`.",
		body: `{"activity_type": "resize", "workflow_id": "photo-17", "input": ["photo.jpg", 300], "start_to_close_timeout": 60,
			"retry_policy": {"max_attempts": 5}, "session_id": "gpu-1"}`,
		answer: `{"workflow_id": "photo-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB", "activity_type": "resize", "namespace": "default", "status": "running",
			"outcome": "started_new"}`,
	},
	"list": {
		text: "List runs, latest start first. `query` is a filter, such as `WorkflowType = 'order' AND Amount > 100`, " +
			"or a part of a workflow ID or business key. An invalid filter is rejected with 422; the response " +
			"contains the position of the first wrong character.",
	},
	"describe": {
		text: "Retrieve the current run of a workflow ID: its status, the reason why it waits (`wait_reason`), its " +
			"open steps, its input and, once it has closed, its output or failure.",
	},
	"describe_run": {
		text: "Retrieve the run that the path names, which may have closed. The response has the same members as that " +
			"of `describe`.",
	},
	"list_runs": {
		text: "List all stored runs of a workflow ID. Continue-as-new and retries create further runs of the same ID.",
	},
	"history": {
		text: "List the events of a run in order. With `wait_new_event=true` and the last `next_page_token` the app " +
			"holds the request until there is another event or the run has closed, for at most 30 seconds. " +
			"`decoded=true` adds the payloads' values as JSON.",
	},
	"history_stream": {
		text: "Stream the events of a run as server-sent events until the run has closed. The ID of each message is " +
			"the event's sequence number; `Last-Event-ID` continues after that event. The last message, named `end`, " +
			"contains the status of the closed run.",
	},
	"history_export": {
		text: "Export a run as one document with a checksum: its history, its commands and its links to other runs. " +
			"`import` and the replayers of the SDKs read the document.",
	},
	"signal": {
		text: "Send a signal to a run. The app responds with 202 after it recorded the signal in the run's history; " +
			"workflow code receives the signal by its name. " + laterSame,
		body: `{"input": ["approved", {"by": "Ada"}], "request_id": "approve-17"}`,
	},
	"query": {
		text: "Query the state of a run. A worker that has the workflow's code computes the result from the recorded " +
			"history; the query itself is not recorded. Closed runs can be queried.",
		body: `{"input": ["total"]}`,
		answer: `{"workflow_id": "order-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB", "workflow_type": "order", "target_scope": "instance",
			"query_name": "state", "result": {"state": "packing"}, "result_envelope": {"codec": "avro", "blob": "wwHioz3/VYAiNw4CCnN0YXRlCg5wYWNraW5nAA=="}}`,
	},
	"update": {
		text: "Send an update to a run and wait until it is accepted (202) or completed (200, with the result), as " +
			"`wait_for` selects. An update whose handler fails is returned as 422 with the failure. If " +
			"`wait_timeout_seconds` pass first, the app responds with 202 and `wait_timed_out: true`, and the update " +
			"continues. " + laterSame,
		body: `{"input": ["milk"], "wait_for": "completed", "wait_timeout_seconds": 10, "request_id": "add-1"}`,
	},
	"complete_activity": {
		text: "Complete an attempt of an activity whose code returned without an outcome, by the token that the code " +
			"received. A repetition with the same result gets the same response; once the attempt has ended, every " +
			"other request is rejected with 409. Each attempt has its own token.",
		body: `{"result": {"charged": 100}}`,
		answer: `{"activity_token": "01M7Z3C6QEMJX94H9XJ62VYFPB-4-1", "workflow_id": "order-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB",
			"activity_type": "charge", "outcome": "completed", "retry_scheduled": false}`,
	},
	"fail_activity": {
		text: "Fail an attempt of an activity by its token. The retry policy of the activity decides whether another " +
			"attempt follows (`retry_scheduled`), unless the failure has `non_retryable`. A failure with `cancelled` ends " +
			"an activity whose workflow asked it to stop. Repetitions and later requests are answered as for " +
			"`complete_activity`.",
		body: `{"failure": {"type": "Unavailable", "message": "the bank does not answer"}}`,
		answer: `{"activity_token": "01M7Z3C6QEMJX94H9XJ62VYFPB-4-1", "workflow_id": "order-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB",
			"activity_type": "charge", "outcome": "failed", "retry_scheduled": true}`,
	},
	"heartbeat_activity": {
		text: "Send a heartbeat of an attempt of an activity by its token. It restarts the heartbeat timeout, and the next " +
			"attempt receives its details. The response contains a request of the workflow to stop the attempt, if there is one.",
		body: `{"message": "half of the pages", "current": 50, "total": 100}`,
		answer: `{"activity_token": "01M7Z3C6QEMJX94H9XJ62VYFPB-4-1", "workflow_id": "order-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB",
			"activity_type": "charge", "last_heartbeat_at": "2026-11-21T13:06:21.217500Z", "cancel_requested": false}`,
	},
	"complete_awakeable": {
		text: "Complete an awakeable with a result, which its workflow receives. A repetition with the same result gets the " +
			"same response; once the awakeable has ended, every other request is rejected with 409. Open awakeables end " +
			"without an outcome when their run closes or continues as new.",
		body: `{"result": {"approved": true, "by": "Ada"}}`,
		answer: `{"awakeable_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-4", "workflow_id": "order-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB",
			"outcome": "completed"}`,
	},
	"fail_awakeable": {
		text: "Fail an awakeable. Its workflow receives the failure as an error, with `type`, `message` and `details`. " +
			"Repetitions and later requests are answered as for `complete_awakeable`.",
		body: `{"failure": {"type": "Rejected", "message": "the budget is used up"}}`,
		answer: `{"awakeable_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-4", "workflow_id": "order-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB",
			"outcome": "failed"}`,
	},
	"signal_with_start": {
		text: "Start a workflow and record a signal in one commit (201). If a run of the workflow ID is open, it receives " +
			"the signal (202), unless `conflict_policy` is `terminate-existing`. If the latest run has closed, " +
			"`reuse_policy` decides, as in a start. A request that is repeated with the same header `Idempotency-Key` " +
			"returns the first receipt: it starts no second run and sends no second signal.",
		body: `{"workflow_type": "cart", "signal_name": "add", "signal_input": ["tea"], "reuse_policy": "allow"}`,
	},
	"update_with_start": {
		text: "Start a workflow and accept an update in one commit, then wait as `update` does. If a run of the workflow " +
			"ID is open, it receives the update, unless `conflict_policy` is `terminate-existing`. If the latest run " +
			"has closed, `reuse_policy` decides, as in a start. If the workflow type has a validator for the update, " +
			"the start is committed first; the run remains if the validator rejects the update. A request that is " +
			"repeated with the same header `Idempotency-Key` returns the first update.",
		body: `{"workflow_type": "cart", "update_name": "add", "update_input": ["tea"], "wait_for": "completed"}`,
	},
	"cancel": {
		text: "Close a run as cancelled. Its open steps end and its code does not run again. To let the code clean up, " +
			"use `request_cancellation`. " + runOrID + " " + laterSame,
		body: `{"reason": "ordered twice"}`,
	},
	"terminate": {
		text: "Close a run as terminated. Its open steps end and its code does not run again. " + runOrID + " " + laterSame,
		body: `{"reason": "stuck"}`,
	},
	"request_cancellation": {
		text: "Cancel the root context of the workflow's code; the code decides when and how the run ends. Rejected " +
			"with `cancellation_not_supported` if the workers that run the workflow type cannot receive the request.",
		body: `{"reason": "shop closes"}`,
	},
	"repair": {
		text: "End the quarantine of a run: the app dispatches its workflow task again. Deploy code that fits the " +
			"history first. " + runOrID,
		body: `{"reason": "v1.2.1 is out"}`,
	},
	"archive": {
		text: "Mark a closed run as archived. `describe` returns when it was archived and by whom. The mark does not " +
			"affect history, lists or retention.",
		body: `{"reason": "settled"}`,
	},
	"redrive": {
		text: "Continue a failed run as a new run of the same workflow ID. The history of the new run begins with a copy " +
			"of the events before the failure: completed activities keep their results, and the activities whose " +
			"failure ended the run, or were open when it failed, run again with new attempts. If no activity failed, " +
			"the last workflow task is executed again. A request that is repeated with the same `request_id` returns " +
			"the first response, with status 200.",
		body: `{"request_id": "7d1c"}`,
	},
	"reset": {
		text: "Continue a run from the end of one of its workflow tasks as a new run of the same workflow ID, for example " +
			"after a defect in the code was corrected. The history of the new run begins with a copy of the events up to " +
			"`event`, which must be the last event that a workflow task recorded; `to` names the first or last such event. " +
			"An open run closes as terminated with the reason `reset`; a closed run stays as it is. Activities that were " +
			"open at that point run again with new attempts, and timers keep their time. Sessions, children and awakeables " +
			"that were open at that point belong to the new run. The new run receives the signals, the updates without a " +
			"result and the outcomes of awakeables that arrived afterwards, unless `reapply` is false. A refusal with " +
			"`not_a_reset_point` contains the nearest allowed events in `previous_event` and `next_event`. A request that " +
			"is repeated with the same `request_id` returns the first response, with status 200.",
		body: `{"event": 12, "reason": "wrong price", "request_id": "7d1c"}`,
	},
	"delete_run": {
		text: "Delete a closed run with its history, logs and search attributes, and the ended sessions that its code " +
			"started. This cannot be undone. The app first delivers undelivered messages of the run to other runs. " +
			"An open run is rejected with `run_not_closed`. If the run is the current one of its workflow ID, the " +
			"latest of the other runs becomes the current run.",
	},
	"debug_workflow": {
		text: "Explain why a run does not continue. The response has the diagnosis (`diagnostic_status`), findings in " +
			"order of severity, the open tasks and waits, and the number of live workers that poll the run's queues.",
	},
	"import": {
		text: "Import a closed run from the unchanged document of `history_export`, from this server or another one. " +
			"If the run exists already, the outcome is `import_not_needed`.",
	},
	"workflow_result": {
		text: "Wait until the current run of a workflow ID, and the runs that it continues as, have closed, and return " +
			"the last one. The app holds the request for at most `wait_seconds`. If the run is still open the " +
			"response has status 200 and `is_terminal: false`; repeat the request.",
	},
	"run_result": {
		text: "Wait until the run that the path names, and the runs that it continues as, have closed, and return the " +
			"last one. The run need not be the current one. The app holds the request for at most `wait_seconds`.",
	},
	"describe_run_by_id": {
		text: "Retrieve a run by its run ID alone, for links that do not contain the workflow ID.",
	},
	"activity_logs": {
		text: "Read the recorded log lines of an activity's attempt, by default of its latest attempt. The app stores " +
			"lines for `activity-log-age`, and at most until it deletes the run. While `running` is true, repeat the " +
			"request with `after` set to `next` to receive further lines.",
	},
	"why_task": {
		text: "Explain why an open task is not running or not complete, as a sentence with names and times: the worker " +
			"that leased it, a capability that no worker has, or the end of its backoff.",
	},

	"list_workers": {
		text: "List the registered workers. A worker without a request for 60 seconds is `stale`: the app does not " +
			"dispatch to it, and other workers can receive its tasks and sessions.",
	},
	"describe_worker": {
		text: "Retrieve a worker: its types, queues, slots, capabilities, sessions, release, build, and the report " +
			"about its sandbox.",
	},
	"remove_worker": {
		text: "Delete the registration of a worker that will not return. A worker that is still running registers " +
			"again with its next poll.",
	},

	"list_fleet_drains": {
		text: "List the drains of the namespace, oldest first, with their workers and the tasks and sessions that " +
			"these still have. A drain is stored until it is resumed, independent of restarts of apps and workers. " +
			"The drain of a single worker is deleted a day after the worker deregistered.",
	},
	"fleet_settings": {
		text: "Retrieve the operators' settings for the workers of the namespace. `revision` counts the changes. A " +
			"worker registers again with the revision that it applied: `applied_worker_count` counts these workers " +
			"at all apps, `pending` lists the others, and `unaware` counts workers that report no revision.",
	},
	"set_fleet_settings": {
		text: "Replace the operators' settings for the workers of the namespace, including workers that register " +
			"later. Workers on a socket receive the settings at once, others with the response to their next " +
			"heartbeat. For an absent member each worker's own setting applies. Equal settings change nothing. With " +
			"`revision` the request is rejected with `stale_revision` if the stored revision differs. A worker whose " +
			"executors are weaker than `isolation_min_level` does not accept tasks that need an executor. " +
			"With `rebalance` `off`, idle sessions with a hand-over do not move to new workers that hold fewer sessions.",
		body: `{"log_level": "debug", "worker_concurrency": 16, "revision": 0}`,
	},
	"drain_fleet": {
		text: "Drain one worker, or all workers of a group, build or release, including workers that register later: " +
			"the app ends their polls with `draining`, running tasks finish, and each session is released by its " +
			"release policy when no activity runs in it. Workers that still have tasks or sessions after " +
			"`deadline_seconds` are evicted. Repeat the request to change deadline and reason.",
		body: `{"release": "1.4.0", "deadline_seconds": 600, "reason": "kernel update"}`,
	},
	"resume_fleet": {
		text: "End the drain that names the same workers. Released sessions stay released. If there is no such drain, " +
			"nothing changes.",
		body: `{"release": "1.4.0"}`,
	},
	"evict_fleet": {
		text: "Drain workers and make them exit. They finish tasks within their drain timeout, return the others, " +
			"deregister and exit. A worker that does not exit within 40 seconds is deregistered by the app; its " +
			"tasks are not dispatched to other workers before their leases expire.",
		body: `{"worker_id": "w2", "reason": "disk is full"}`,
	},

	"list_worker_sessions": {
		text: "List sessions, last updated first. Filter them by status, owner, queue and other members. The counts in " +
			"the response cover the whole namespace.",
	},
	"describe_worker_session": {
		text: "Retrieve a session: its owner, lease, epoch and options, and the newest entries of its ownership " +
			"timeline.",
	},
	"list_session_timeline": {
		text: "List the ownership timeline of a session, newest page first: who acquired the session, when, and why " +
			"each epoch ended. The timeline is stored for the namespace's retention of closed runs, also after the " +
			"session was deleted.",
	},
	"list_session_attempts": {
		text: "List the activity attempts that ran in a session, newest first. The app reads them from the histories " +
			"of stored runs. `epoch` selects the attempts of one epoch.",
	},
	"operator_close_session": {
		text: "Close a session, whichever worker owns it. Its running activities are cancelled, and later ones fail " +
			"with `session_closed`.",
		body: `{"reason": "sold"}`,
	},
	"operator_forget_session": {
		text: "Delete an ended session, so that its ID can be used again under higher epochs. Rejected while " +
			"activities run in the session or its last lease is valid, unless `force` is set.",
		body: `{"reason": "closed by mistake"}`,
	},
	"operator_migrate_session": {
		text: "Move a session to another worker: the worker that `worker_id` names, or else the one with the most free " +
			"slots. The session moves when its running activities have ended, or at once if `force` is set.",
		body: `{"reason": "maintenance", "worker_id": "w2"}`,
	},

	"list_batch_jobs": {
		text: "List the batch jobs of the namespace, newest first.",
	},
	"create_batch_job": {
		text: "Create a batch job. The job stores the IDs of the runs that match the filter, at most `limit`, newest " +
			"start first, and then applies the action to each of them once, also if an app ends in between. The actions " +
			"`redrive` concerns failed runs, `archive` and `delete` closed runs, the others open runs. A run that refuses the action is a result " +
			"with the reason of the refusal. The role is that of the action for a single run: `delete` needs operator. " +
			"A namespace has at most 10 open jobs; further ones are rejected with `batch_job_limit_reached`.",
		body: `{"query": "WorkflowType = 'order' and StartTime < '2026-01-01T00:00:00Z'", "action": "cancel",
  "reason": "duplicates of a faulty import", "rate_per_second": 50}`,
	},
	"preview_batch_job": {
		text: "Count the runs that a batch job would concern, without creating it. It counts at most 10000 runs and for " +
			"at most two seconds; if `complete` is false, there may be more.",
	},
	"describe_batch_job": {
		text: "Retrieve a batch job with its progress.",
	},
	"list_batch_results": {
		text: "List the runs of a batch job with their results, in the order in which the job applies its action. " +
			"Results are deleted with the job, after the retention of the namespace.",
	},
	"stop_batch_job": {
		text: "Stop a batch job. Runs without a result do not change. A closed job is rejected with `batch_job_closed`, " +
			"a job that is stopped already is returned.",
		body: `{"reason": "wrong filter"}`,
	},
	"list_schedules": {
		text: "List the schedules of the namespace by ID.",
	},
	"describe_schedule": {
		text: "Retrieve a schedule: its next times, its latest firings, its spec and its action.",
	},
	"create_schedule": {
		text: "Create a schedule that starts a run at every time of any of its cron expressions, in a time zone, or " +
			"intervals. The workflow ID of a run is the schedule's ID and the time, such as `ID.20260101T030000Z`. " +
			"`overlap_policy` selects what happens if the previous run is still open. The action starts a workflow " +
			"(`workflow_type`), or an activity run (`activity_type`) with the options of `run_activity`.",
		body: `{"schedule_id": "nightly", "spec": {"cron_expressions": ["0 3 * * *"], "timezone": "Europe/Berlin"},
			"action": {"workflow_type": "report", "input": ["yesterday"]}, "overlap_policy": "skip"}`,
	},
	"update_schedule": {
		text: "Update a schedule; absent members do not change. The schedule does not fire for past times of the new " +
			"spec; use `backfill_schedule` for them.",
		body: `{"spec": {"cron_expressions": ["0 4 * * *"]}}`,
	},
	"delete_schedule": {
		text: "Delete a schedule. The runs that it started continue.",
	},
	"pause_schedule": {
		text: "Pause a schedule. Times that pass in the meantime are skipped.",
		body: `{"note": "holidays"}`,
	},
	"resume_schedule": {
		text: "Resume a paused schedule. It fires at its next time.",
		body: `{"note": "back"}`,
	},
	"trigger_schedule": {
		text: "Fire a schedule now, in addition to its times, by its overlap policy or by the one in the request. The " +
			"outcome for a paused schedule is `skipped`.",
		body: `{}`,
	},
	"backfill_schedule": {
		text: "Fire a schedule once for each of its times between `start_time` and `end_time`, by the overlap policy " +
			"in the request.",
		body: `{"start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-03T00:00:00Z"}`,
	},
	"schedule_history": {
		text: "List the history of a schedule, oldest entry first: changes, firings, and skipped times with the reason.",
	},
	"schedule_times": {
		text: "List the next times of a spec that is not stored yet.",
	},

	"list_namespaces": {
		text: "List the namespaces that the caller's token gives access to.",
	},
	"create_namespace": {
		text: "Create a namespace: a separate set of workflow IDs, queues, sessions and tokens.",
		body: `{"name": "billing", "description": "invoices", "retention_days": 90}`,
	},
	"describe_namespace": {
		text: "Retrieve a namespace: its description, its retention of closed runs in days, and its quotas with their " +
			"usage.",
	},
	"update_namespace": {
		text: "Update a namespace; absent members do not change. A shorter retention applies from the next retention " +
			"pass. A quota of -1 removes the namespace's own value, so that the app's setting applies again.",
		body: `{"retention_days": 30, "quotas": {"open_runs": 5000, "starts_per_second": 50}}`,
	},
	"delete_namespace": {
		text: "Delete a namespace with everything in it, including open runs. This cannot be undone. The namespace " +
			"`default` cannot be deleted.",
	},
	"namespace_limits": {
		text: "Retrieve the limits over all queues of a namespace: the maximum number of leased tasks and of leases " +
			"per minute, by kind of task.",
	},
	"set_namespace_limits": {
		text: "Set the limits over all queues of a namespace. The limits of a kind in the request are replaced, those " +
			"of an absent kind do not change; `null` means no limit. Existing leases are not affected.",
		body: `{"activity_tasks": {"max_active_leases": 100, "max_dispatches_per_minute": null}}`,
	},

	"list_search_attributes": {
		text: "List the search attributes of the namespace, built-in and registered, with their types.",
	},
	"create_search_attribute": {
		text: "Register the type of a search attribute. From then on, values and filters of another type are rejected.",
		body: `{"name": "Amount", "type": "int"}`,
	},
	"delete_search_attribute": {
		text: "Delete the registration of a search attribute. Runs keep their values.",
	},

	"list_task_queues": {
		text: "List the task queues of the namespace by name. A queue exists as soon as a worker polls it, a task " +
			"waits in it, or an operator set one of its options.",
	},
	"describe_task_queue": {
		text: "Retrieve a task queue: its tasks, leases, workers, limits and builds, and of each kind the three tasks " +
			"that have waited longest, with the reasons.",
	},
	"list_task_queue_build_ids": {
		text: "List the build IDs of a task queue, with the workers of each build and whether it is promoted or " +
			"drained.",
	},
	"drain_task_queue_build_id": {
		text: "Stop dispatching tasks of the queue to workers of a build: their polls are rejected with " +
			"`worker_draining`, and running tasks finish. Runs that are pinned to the build wait.",
		body: `{"build_id": "v1"}`,
	},
	"resume_task_queue_build_id": {
		text: "End the drain of a build: its workers receive tasks of the queue again.",
		body: `{"build_id": "v1"}`,
	},
	"promote_task_queue_build_id": {
		text: "Pin new runs of the queue to a build: runs that are started from now on, also as children and by " +
			"schedules. `null` pins them to no build.",
		body: `{"build_id": "v2"}`,
	},
	"list_deployments": {
		text: "List the builds of all task queues as deployments. The name of a deployment is `NAMESPACE/QUEUE@BUILD`, " +
			"or `NAMESPACE/QUEUE@unversioned` for workers without a build ID. In a path the name is one segment; " +
			"encode its slash as `%2F`.",
	},
	"describe_deployment": {
		text: "Retrieve a build of a task queue, with the same members as in `list_task_queue_build_ids`. The " +
			"namespace is that in the name; the request's namespace is ignored.",
	},
	"promote_deployment": {
		text: "Pin new runs of the queue to this build: runs that are started from now on, also as children and by " +
			"schedules. Equals `promote_task_queue_build_id`.",
	},
	"drain_deployment": {
		text: "Stop dispatching tasks of the queue to workers of this build. Equals `drain_task_queue_build_id`.",
	},
	"resume_deployment": {
		text: "End the drain of this build. Equals `resume_task_queue_build_id`.",
	},
	"rollback_deployment": {
		text: "Promote the build that was promoted before this one, and end its drain. Runs that were started in the " +
			"meantime stay pinned to this build. Rejected with `deployment_not_promoted` if new runs are not pinned " +
			"to this build, and with `no_earlier_deployment` if no build was promoted before it.",
	},
	"task_queue_priority_fairness": {
		text: "Retrieve the order in which the ready tasks of a queue are dispatched: by priority, within a priority " +
			"by fairness class and its weight, within a class by age.",
	},
	"task_queue_limits": {
		text: "Retrieve the limits of a queue: the maximum number of leased tasks and of leases per minute, by kind of " +
			"task; `null` means no limit.",
	},
	"set_task_queue_limits": {
		text: "Set the limits of a queue, which apply to all workers and apps together. The limits of a kind in the " +
			"request are replaced, those of an absent kind do not change; `null` means no limit. Existing leases are " +
			"not affected.",
		body: `{"activity_tasks": {"max_active_leases": 20, "max_dispatches_per_minute": 600}}`,
	},

	"task_queue_route": {
		text: "Retrieve the group of workers to which the tasks of a queue are routed. A worker's group is part of its " +
			"token. An empty group means no restriction. `worker_count` counts the live workers of the group that " +
			"poll the queue and are not drained.",
	},
	"set_task_queue_route": {
		text: "Route the tasks of a queue to the workers of one group. Other workers receive none of its tasks, even " +
			"while the group has no live worker: the tasks then wait with the reason `group_offline`. Existing " +
			"leases are not affected. An empty group removes the route, and that of the namespace applies.",
		body: `{"group": "gpu"}`,
	},
	"namespace_route": {
		text: "Retrieve the group of workers to which the tasks of a namespace are routed. It applies to every queue " +
			"of the namespace that has no route itself.",
	},
	"set_namespace_route": {
		text: "Route the tasks of a namespace to the workers of one group, except for queues that have a route " +
			"themselves. This dedicates workers to a tenant. An empty group removes the route.",
		body: `{"group": "tenant-a"}`,
	},

	"list_session_pools": {
		text: "List the pools of sessions of a namespace, sorted by name, with the counts of their members and of the " +
			"workflows that wait for one.",
	},
	"describe_session_pool": {
		text: "Retrieve a pool of sessions: its settings, its members, and the first 100 workflows that wait for a " +
			"member, in the order in which they are served.",
	},
	"set_session_pool": {
		text: "Create a pool of sessions or replace its settings. Workers of `task_queue` set the members up by the " +
			"session definition, which they must have registered with the hand-over `prepare`. Members that do not fit " +
			"new settings are replaced when no workflow has borrowed them.",
		body: `{"definition": "llama", "task_queue": "gpu", "size": 8, "warm": 4, "max_uses": 100}`,
	},
	"delete_session_pool": {
		text: "Delete a pool of sessions. Members that no workflow has borrowed end at once, the others when their " +
			"loans end. Workflows that ask for a member wait until a pool of the name exists.",
	},
	"list_tokens": {
		text: "List tokens with their roles, namespaces, queues and expiry, without their secrets.",
	},
	"create_token": {
		text: "Create a token with one or more of the roles `viewer`, `writer`, `operator`, `admin` and `worker`. Only " +
			"this response contains its secret. The token can be restricted to namespaces, and the token of a worker " +
			"to queues.",
		body: `{"name": "reports", "roles": ["viewer"], "namespaces": ["default"]}`,
	},
	"set_token_roles": {
		text: "Replace the roles of a token; its secret does not change. All apps apply the roles within a second. " +
			"Polls and socket connections that use the token are ended, and the client must start them again.",
		body: `{"roles": ["viewer"]}`,
	},
	"revoke_token": {
		text: "Revoke a token. It is rejected from the next request on. `forget=true` also removes it from the list of " +
			"tokens.",
	},
	"list_audit": {
		text: "List the actions of operators, newest first: who, when, what, and on which object. Commands on single " +
			"runs are not part of it. A token without a restriction to namespaces also receives entries that concern " +
			"no namespace.",
	},
	"overview": {
		text: "Retrieve the release and database of this app, the counts of runs, sessions and workers, and the queues.",
	},
	"find": {
		text: "Find objects of any kind by ID: workflow IDs, run IDs, business keys, sessions, workers, schedules, and " +
			"activities and other steps as RUN-SEQUENCE. Each exact match costs at most one index entry. `prefixes` lists " +
			"objects whose IDs begin with `id`, at most five of each kind.",
	},
	"run_counts": {
		text: "Count the runs of the namespace by status, up to 10,000 of each. The app counts at most once per second " +
			"for all callers. A value of `counted_up_to` plus one means more; the metrics are exact.",
	},
	"me": {
		text: "Retrieve the name, roles and namespaces of the caller's token or cookie.",
	},
	"sign_in": {
		text: "Sign in to the dashboard with a token. The response sets a cookie that replaces the token in requests " +
			"from the same site.",
		body: `{"token": "sjn_…"}`,
	},
	"sign_out": {
		text: "Delete the dashboard's cookie. The token stays valid.",
	},

	"cluster_info": {
		text: "Retrieve the versions, features and limits of the server. Clients send this request first, and stop if " +
			"they do not support them.",
	},
	"health": {
		text: "Check that the app serves requests. Responds with 503 while the app starts, and while it cannot reach " +
			"its database.",
	},
	"ready": {
		text: "Check that the app may receive traffic. Responds with 503 while the app starts or drains, and while it " +
			"cannot reach its database.",
	},
	"readyz": {
		text: "Check that the app may receive traffic, as `ready`, under the name that orchestrators use by convention.",
	},
	"healthz": {
		text: "Check that the process responds. The app does not access its database, so the response is suitable for " +
			"a liveness probe.",
	},
	"up": {
		text: "Check that the process responds, as `healthz`.",
	},
	"metrics": {
		text: "Read the metrics of this app in the text format of Prometheus. Disabled by the setting `metrics=false`.",
	},
	"openapi": {
		text: "Read this document. It is generated from the routes of the running build and describes all of them.",
	},
	"session_schema": {
		text: "Read the contract of worker sessions as JSON Schema 2020-12. The response is the same for every caller.",
	},
	"system_health": {
		text: "Check that the app serves requests, as `health`, for clients that send a token and a namespace.",
	},
	"system_metrics": {
		text: "Read the current number of runs by status, tasks, sessions and workers of the namespace.",
	},
	"read_system_metrics": {
		text: "Read the metrics of the namespace, as `system_metrics`, for clients that send a POST.",
	},
	"system_operator_metrics": {
		text: "Read the metrics of the namespace, as `system_metrics`, under the path that some clients use.",
	},
	"system_prometheus_metrics": {
		text: "Read the metrics of this app, as `metrics`, under the path that some clients use.",
	},
	"repair_status": {
		text: "List the quarantined runs of the namespace, each with the reason: its code does not fit its history, or " +
			"its task ended its worker process three times.",
	},
	"repair_pass": {
		text: "End the quarantine of the runs in the request, or of all runs of the namespace, as `repair` does for " +
			"one run.",
		body: `{}`,
	},
	"activity_timeouts": {
		text: "List the activities whose timeout has expired and is not enforced yet. Usually there are none, since " +
			"the app enforces timeouts when they expire.",
	},
	"activity_timeout_pass": {
		text: "Enforce the expired timeouts of activities now, without waiting for the app to do so.",
		body: `{}`,
	},
	"retention": {
		text: "List the closed runs that have exceeded the namespace's `retention_days`. The app deletes them in the " +
			"background.",
	},
	"retention_pass": {
		text: "Delete closed runs that have exceeded their retention now, without waiting for the app to do so: the " +
			"runs in `run_ids`, or all of the namespace up to `limit`.",
		body: `{}`,
	},
}
