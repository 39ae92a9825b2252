package openapi

const (
	laterSame = "The same request_id again gets the first receipt; with another content it is refused with request_id_conflict."
	runOrID   = "About the current run of the workflow id, or the run that the path names; one that has closed is refused."
)

// aboutControl describes all other operations.
var aboutControl = map[string]about{
	"start": {
		text: "201 when a run was started. A workflow id is used once while a run of it is kept: again it is refused with duplicate_not_allowed, or with " +
			"duplicate_policy use-existing answered 200 with the open run. input is the list of arguments. With cron a schedule is made instead of a run.",
		body: `{"workflow_type": "order", "workflow_id": "order-17", "task_queue": "default", "input": [{"items": ["tea"]}], "run_timeout_seconds": 3600,
			"memo": {"note": "urgent"}, "search_attributes": {"customer": "Ada"}}`,
		answer: `{"workflow_id": "order-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB", "workflow_type": "order", "namespace": "default", "status": "pending",
			"business_key": null, "payload_codec": "avro", "outcome": "started_new"}`,
	},
	"run_activity": {
		text: "A run that is one activity: the app decides it, so no workflow is needed. It survives crashes of app and worker, is retried by its policy and may " +
			"name a session. 201 when it was started. The routes of workflows show, follow, cancel and terminate it by its workflow id; its kind is activity. " +
			"Signals, updates and queries of it are refused with activity_run.",
		body: `{"activity_type": "resize", "workflow_id": "photo-17", "input": ["photo.jpg", 300], "start_to_close_timeout": 60,
			"retry_policy": {"max_attempts": 5}, "session_id": "gpu-1"}`,
		answer: `{"workflow_id": "photo-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB", "activity_type": "resize", "namespace": "default", "status": "running",
			"outcome": "started_new"}`,
	},
	"list": {
		text: "query takes a filter (WorkflowType = 'order' AND Amount > 100), or a part of a workflow id or business key. A filter that cannot be read is " +
			"refused with 422, the message and the position of the first wrong character.",
	},
	"describe": {
		text: "How it stands and what it waits for (wait_reason), what is open in it, its input and, once it has closed, its output or failure.",
	},
	"describe_run": {text: "As describe, for a run that may have closed long ago."},
	"list_runs":    {text: "All runs that are kept: continue-as-new and retries are further runs of the same id."},
	"history": {
		text: "Events in their order. With wait_new_event=true and the last next_page_token the request is held until there is more, or the run has closed. " +
			"decoded=true adds the values of payloads as JSON.",
	},
	"history_stream": {
		text: "Every event as a message whose id is its sequence; Last-Event-ID goes on behind it. The message named end says how the run closed.",
	},
	"history_export": {text: "The document has a checksum; import takes it back, and the replayers of SDKs read it."},
	"signal": {
		text: "202 once the signal is in the run's history; the code receives it when it asks for the name. " + laterSame,
		body: `{"input": ["approved", {"by": "Ada"}], "request_id": "approve-17"}`,
	},
	"query": {
		text: "Answered by a worker that has the workflow's code, from the history as it is; nothing is recorded. Runs that have closed can be asked.",
		body: `{"input": ["total"]}`,
		answer: `{"workflow_id": "order-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB", "workflow_type": "order", "target_scope": "instance",
			"query_name": "state", "result": {"state": "packing"}, "result_envelope": {"codec": "avro", "blob": "wwHioz3/VYAiNw4CCnN0YXRlCg5wYWNraW5nAA=="}}`,
	},
	"update": {
		text: "wait_for is accepted (202) or completed (200, with the result); an update that its handler refuses is 422 with its failure. Where the time is " +
			"over first, 202 with wait_timed_out: true; the update goes on. " + laterSame,
		body: `{"input": ["milk"], "wait_for": "completed", "wait_timeout_seconds": 10, "request_id": "add-1"}`,
	},
	"cancel": {
		text: "The run closes as cancelled, and what is open in it is given up; its code does not run again. To let the code clean up, use " +
			"request_cancellation. " + runOrID + " " + laterSame,
		body: `{"reason": "ordered twice"}`,
	},
	"terminate": {
		text: "As cancel, and closes the run as terminated. " + runOrID + " " + laterSame, body: `{"reason": "stuck"}`,
	},
	"request_cancellation": {
		text: "The workflow's code learns of it and ends by itself, in its own time. Workers that cannot hear it: cancellation_not_supported.",
		body: `{"reason": "shop closes"}`,
	},
	"repair": {
		text: "For a run that is quarantined: its next workflow task is given to workers again, with code that fits by now. " + runOrID,
		body: `{"reason": "v1.2.1 is out"}`,
	},
	"archive": {
		text: "describe shows when and by whom. History, listings and retention stay as they are.",
		body: `{"reason": "settled"}`,
	},
	"delete_run": {
		text: "Deletes history, logs, search attributes, and the ended sessions that the run's code started. It cannot be undone. Undelivered messages of the run are delivered first. An open run is refused. If the run is the current one of its workflow id, the latest of the other runs becomes the current run.",
	},
	"debug_workflow": {
		text: "A one-word diagnosis, findings in the order of their weight, all that is open, and how many live workers poll its queues.",
	},
	"import": {
		text: "Takes what history_export gave, here or elsewhere, unchanged, of a run that has closed. The same run once more is import_not_needed.",
	},
	"workflow_result": {
		text: "Held open until then, for wait_seconds at most. A run that is open still, is_terminal false, is no error: ask again.",
	},
	"run_result":         {text: "Of a certain run: it need not be the current one. Held open like workflow_result."},
	"describe_run_by_id": {text: "For links that know a run and not its workflow id."},
	"activity_logs": {
		text: "Of its last attempt unless another is named, for as long as lines are kept. While running says so, asking again with the last answer's next as after gives what came since.",
	},
	"why_task": {
		text: "A sentence with names and times: which worker holds it, which capability no worker offers, until when it backs off.",
	},

	"list_workers": {
		text: "Those that were not heard of for 60 seconds are stale: they get nothing, and what they hold goes to others.",
	},
	"describe_worker": {
		text: "Types, queues, slots, capabilities, sessions held, release, build and what its sandbox holds.",
	},
	"remove_worker": {text: "For a worker that will not come back. One that lives registers again with its next poll."},

	"list_fleet_drains": {
		text: "The oldest first. A drain stays until it is resumed, whichever apps and workers come and go; that of a worker that is registered no more " +
			"is forgotten a day later.",
	},
	"fleet_settings": {
		text: "The revision counts the changes. Workers register again with the one they run with, so applied_worker_count is what they said themselves, " +
			"whichever app hears them; the others are pending, and those that say nothing of settings are unaware.",
	},
	"set_fleet_settings": {
		text: "For the workers of the namespace, also those that register later: told at once over a socket, else with the answer of the next heartbeat. " +
			"What is left out is each worker's own again. The same again changes nothing. With revision, settings that somebody else has changed since " +
			"stay as they are. A worker whose executors are weaker than isolation_min_level offers nothing that needs them.",
		body: `{"log_level": "debug", "worker_concurrency": 16, "revision": 0}`,
	},
	"drain_fleet": {
		text: "Of one worker, or of those of a group, a build or a release, also of workers that register later. Their polls are answered with draining, " +
			"what runs ends, and each session is released when nothing runs in it, as its release policy wants. With deadline_seconds, who has " +
			"something left then is told to leave. Again it sets another deadline and reason.",
		body: `{"release": "1.4.0", "deadline_seconds": 600, "reason": "kernel update"}`,
	},
	"resume_fleet": {
		text: "Ends the drain that names the same workers. What was released stays released. Where there is no such drain nothing changes.",
		body: `{"release": "1.4.0"}`,
	},
	"evict_fleet": {
		text: "As a drain, and the workers leave: within their own drain timeout they end what they have, hand the rest back, deregister and end. One that " +
			"cannot be told, or does not leave within 40 seconds, is taken off the list; what it runs goes to nobody else while its lease lasts.",
		body: `{"worker_id": "w2", "reason": "disk is full"}`,
	},

	"list_worker_sessions": {
		text: "Filtered by status, holder, queue and more, with counts over all of the namespace.",
	},
	"describe_worker_session": {
		text: "Holder, lease, epoch, options, and the newest entries of its timeline: who claimed it, when, and why no longer.",
	},
	"list_session_timeline": {
		text: "The timeline outlives the session, for as long as the namespace keeps closed runs.",
	},
	"list_session_attempts": {
		text: "Read from the histories of the runs, for as long as these are kept. epoch narrows it to one holding.",
	},
	"operator_close_session": {
		text: "Running activities are cancelled, and later ones fail with session_closed.", body: `{"reason": "sold"}`,
	},
	"operator_forget_session": {
		text: "The id can be used again, with higher epochs than before. Refused while activities run in the session or its last lease is valid, unless force is set.",
		body: `{"reason": "closed by mistake"}`,
	},
	"operator_migrate_session": {
		text: "What runs in it ends first, unless force says otherwise; then the worker that is named, or the one with most room, may claim it.",
		body: `{"reason": "maintenance", "worker_id": "w2"}`,
	},

	"list_schedules":    {text: "By id."},
	"describe_schedule": {text: "When it fires next, what it did last, and what it was made of."},
	"create_schedule": {
		text: "Fires at each time of any cron expression (in a time zone) or interval, each firing a run of its own: ID.20260101T030000Z. overlap_policy " +
			"says what to do while the last one still runs. The action starts a workflow (workflow_type), or an activity by itself (activity_type) with " +
			"the options that run_activity takes.",
		body: `{"schedule_id": "nightly", "spec": {"cron_expressions": ["0 3 * * *"], "timezone": "Europe/Berlin"},
			"action": {"workflow_type": "report", "input": ["yesterday"]}, "overlap_policy": "skip"}`,
	},
	"update_schedule": {
		text: "Times that have passed are not caught up with; that is backfill_schedule.",
		body: `{"spec": {"cron_expressions": ["0 4 * * *"]}}`,
	},
	"delete_schedule": {text: "The workflows that it started go on."},
	"pause_schedule":  {text: "Times that pass while it is paused are skipped.", body: `{"note": "holidays"}`},
	"resume_schedule": {text: "It fires at its next time.", body: `{"note": "back"}`},
	"trigger_schedule": {
		text: "Beside its times, by its overlap policy or by the one that is given. One that is paused answers skipped.",
		body: `{}`,
	},
	"backfill_schedule": {
		text: "One firing for each time of the schedule between the two, by the overlap policy that is given.",
		body: `{"start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-03T00:00:00Z"}`,
	},
	"schedule_history": {text: "Made, changed, fired, skipped and why, newest last."},
	"schedule_times":   {text: "For a spec that is not stored yet: what it would do."},

	"list_namespaces": {text: "A token that is bound to namespaces sees those alone."},
	"create_namespace": {
		text: "A closed world of workflow ids, queues, sessions and tokens.",
		body: `{"name": "billing", "description": "invoices", "retention_days": 90}`,
	},
	"describe_namespace": {
		text: "How long it keeps closed runs, what it is for, and its quotas with what it uses of them.",
	},
	"update_namespace": {
		text: "A shorter retention counts from the next look at what is past it. A quota of -1 is removed, so that the setting " +
			"of the app applies again.",
		body: `{"retention_days": 30, "quotas": {"open_runs": 5000, "starts_per_second": 50}}`,
	},
	"delete_namespace": {text: "Open runs included; it cannot be undone. default cannot be removed."},
	"namespace_limits": {
		text: "Over all queues of the namespace: tasks leased at once, and leases begun in a minute, by kind of task.",
	},
	"set_namespace_limits": {
		text: "A kind that is named is replaced, one that is not stays; null is no bound. What is leased already stays leased.",
		body: `{"activity_tasks": {"max_active_leases": 100, "max_dispatches_per_minute": null}}`,
	},

	"list_search_attributes": {text: "Those of the system and those that were registered, with their types."},
	"create_search_attribute": {
		text: "From now on values and filters of another type are refused.", body: `{"name": "Amount", "type": "int"}`,
	},
	"delete_search_attribute": {text: "Runs keep their values."},

	"list_task_queues": {
		text: "A queue is there once a worker serves it, a task waits in it or something was decided about it.",
	},
	"describe_task_queue": {text: "Also the three tasks of each kind that wait for longest, each with why."},
	"list_task_queue_build_ids": {
		text: "Workers by the build they registered, and what was decided about each: promoted, drained.",
	},
	"drain_task_queue_build_id": {
		text: "Polls of the build are refused with worker_draining; what it has it may finish. Runs pinned to it wait.",
		body: `{"build_id": "v1"}`,
	},
	"resume_task_queue_build_id": {text: "Its polls are answered again.", body: `{"build_id": "v1"}`},
	"promote_task_queue_build_id": {
		text: "Starts, children and firings from now on go to this build alone; null pins them to none.",
		body: `{"build_id": "v2"}`,
	},
	"list_deployments": {text: "The builds of all queues, each under one name, NAMESPACE/QUEUE@BUILD, or @unversioned for workers without a build id. In a path " +
		"the name is one segment, its slash written %2F."},
	"describe_deployment": {
		text: "The same as among the build ids of its queue. The namespace is that of the name, whatever the request says.",
	},
	"promote_deployment": {
		text: "What promoting the build id of the queue does: starts, children and firings from now on go to it alone.",
	},
	"drain_deployment":  {text: "What draining the build id of the queue does: its workers are given nothing more."},
	"resume_deployment": {text: "Ends a drain."},
	"rollback_deployment": {
		text: "New runs go to the build they went to before this one was promoted, whose drain ends with that. Refused with deployment_not_promoted when " +
			"they do not go to this one, and with no_earlier_deployment when none was promoted before. Runs that were started meanwhile stay as they are.",
	},
	"task_queue_priority_fairness": {
		text: "By priority, within one by fairness class and its weight, within a class by age.",
	},
	"task_queue_limits": {
		text: "Tasks leased at once and leases begun in a minute, by kind of task; null is no bound.",
	},
	"set_task_queue_limits": {
		text: "Counted over all workers and apps. A kind that is named is replaced; null is no bound. What is leased already stays leased.",
		body: `{"activity_tasks": {"max_active_leases": 20, "max_dispatches_per_minute": 600}}`,
	},

	"task_queue_route": {
		text: "A group is the one in the tokens of its workers. An empty one: all that serve the queue. worker_count says how many of the group live, " +
			"serve it and are given work.",
	},
	"set_task_queue_route": {
		text: "From now on workers of other groups are given none of its tasks, also where no worker of the group is there: they wait for one, with the reason " +
			"group_offline. What is leased stays leased. An empty group undoes it, and what the namespace is routed to counts.",
		body: `{"group": "gpu"}`,
	},
	"namespace_route": {text: "It counts for every queue of the namespace that names no group itself."},
	"set_namespace_route": {
		text: "Makes workers dedicated to a tenant: its namespace is served by those of the group alone, but for queues that name another. An empty group undoes it.",
		body: `{"group": "tenant-a"}`,
	},

	"list_tokens": {text: "With roles, namespaces, queues, and when they end."},
	"create_token": {
		text: "Roles: viewer, writer, operator, admin, worker. It may be bound to namespaces, and a worker's to queues.",
		body: `{"name": "reports", "roles": ["viewer"], "namespaces": ["default"]}`,
	},
	"set_token_roles": {
		text: "All of its roles, at every app within a second. What is under way in its name, a poll or a socket, ends and is begun anew.",
		body: `{"roles": ["viewer"]}`,
	},
	"revoke_token": {text: "From the next request on. forget=true also takes it out of the listing."},
	"list_audit": {
		text: "Who, when, what, to what: decisions of operators, not the daily work of runs. A token that is bound to no " +
			"namespace also reads of what is about none alone, as a token for all.",
	},
	"overview": {text: "Release, database, counts of runs, sessions and workers, and queues."},
	"run_counts": {
		text: "Read at most once a second for all who look. One more than counted_up_to stands for any larger number; the " +
			"metrics count to the end.",
	},
	"me": {text: "Name, roles and namespaces of the token, or of the cookie."},
	"sign_in": {
		text: "For the dashboard: the cookie stands for the token in requests of the same site.", body: `{"token": "sjn_…"}`,
	},
	"sign_out": {text: "The token itself stays good."},

	"cluster_info": {
		text: "What clients ask before anything else: they refuse a server whose versions or features they cannot work with.",
	},
	"health":                    {text: "503 while the app starts, drains, or does not reach its database."},
	"ready":                     {text: "503 while it does not reach its database."},
	"readyz":                    {text: "As ready, under the name that orchestrators look for."},
	"healthz":                   {text: "Asks no database: for who restarts processes."},
	"up":                        {text: "As healthz."},
	"metrics":                   {text: "Text in the format of Prometheus; off with the setting metrics=false."},
	"openapi":                   {text: "Of this very build. Everything that is served is in it."},
	"session_schema":            {text: "JSON Schema 2020-12, the same for every caller."},
	"system_health":             {text: "As health, for who has a token and names a namespace."},
	"system_metrics":            {text: "Runs by status, tasks, sessions and workers of the namespace, counted now."},
	"read_system_metrics":       {text: "As system_metrics; some clients send a POST."},
	"system_operator_metrics":   {text: "As system_metrics, under the name that some clients ask for."},
	"system_prometheus_metrics": {text: "As metrics, under the name that some clients ask for."},
	"repair_status": {
		text: "Each with the reason: code that does not fit its history, or a task that took its worker down three times.",
	},
	"repair_pass":           {text: "As repair, for those that are named, or all of the namespace.", body: `{}`},
	"activity_timeouts":     {text: "Usually none: the app moves them on by itself, the moment their time is over."},
	"activity_timeout_pass": {text: "At once, instead of when the app comes to it.", body: `{}`},
	"retention": {
		text: "Closed runs that are past the namespace's retention_days. The app removes them by itself.",
	},
	"retention_pass": {text: "At once, instead of when the app comes to it; up to a hundred runs.", body: `{}`},
}
