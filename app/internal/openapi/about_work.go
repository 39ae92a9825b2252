package openapi

// aboutWork describes the operations of the worker protocol.
var aboutWork = map[string]about{
	"register": {
		text: "Says which workflow and activity types a worker has and which queues it serves; it gets nothing else. A registration lives for 60 seconds " +
			"behind the last poll or heartbeat. Registering again under the same id is a new incarnation: what the old one held is given out again.",
		body: `{"worker_id": "w1", "task_queue": "default", "runtime": "python", "supported_workflow_types": ["order"],
			"supported_activity_types": ["charge"], "capabilities": ["query_tasks", "worker_sessions"], "max_concurrent_worker_sessions": 10,
			"workflow_command_contracts": {"order": {"queries": ["state"], "signals": ["pay"], "updates": ["add"]}}}`,
		answer: `{"worker_id": "w1", "registered": true, "namespace": "default", "task_queue": "default", "runtime": "python", "build_id": null,
			"capabilities": ["query_tasks", "worker_sessions"], "capability_manifest": null, "status": "active",
			"incarnation": "01M7Z3C6PZP7GVQA5VJQDXG4QT", "heartbeat_interval_seconds": 15, "redelivered_task_count": 0}`,
	},
	"deregister": {
		text: "What the worker still holds is given out again at once, and its sessions are released. The id may register again.",
	},
	"worker_heartbeat": {
		text: "A sign of life for workers that do not poll just now. Leases and sessions that it names are renewed; the answer says which of them are " +
			"lost, which attempts are cancelled, and whether to drain.",
		body: `{"worker_id": "w1"}`,
	},

	"poll_workflow_task": {
		text: "Held until there is a task or timeout_seconds are over (30 when absent, at most 60; 0 answers at once); then task is null and poll_status says " +
			"why. The task is leased for five minutes. A poll_request_id that was seen before gets the same task again while it is leased, so that a lost " +
			"answer loses no time. Long histories come in pages: while next_history_page_token is not null, the rest is at workflow_task_history.",
		body: `{"worker_id": "w1", "task_queue": "default", "timeout_seconds": 30, "poll_request_id": "w1-17"}`,
	},
	"workflow_task_history": {
		text: "Only for who holds the task. all=true gives everything in one answer.",
		body: `{"lease_owner": "w1", "workflow_task_attempt": 1, "next_history_page_token": "500"}`,
	},
	"heartbeat_workflow_task": {
		text: "For replays that take long: the lease counts five minutes from now.",
		body: `{"lease_owner": "w1", "workflow_task_attempt": 1}`,
	},
	"complete_workflow_task": {
		text: "All commands are taken, or none: one that is wrong refuses the completion with the path of what is wrong (commands.3.activity_type), and the " +
			"task stays leased. At most one command ends the run, and stands last. There must be a command; a worker that has nothing to add answers " +
			"fail_workflow_task with the type WorkflowTaskWaitingForHistory. The same completion again is answered recorded: false, already_completed.",
		body: `{"lease_owner": "w1", "workflow_task_attempt": 1, "commands": [
			{"type": "schedule_activity", "activity_type": "charge", "start_to_close_timeout": 60,
			 "retry_policy": {"max_attempts": 3, "backoff_seconds": [1, 5]}, "arguments": {"codec": "avro", "blob": "wwHioz3/VYAiNwwCCgp3b3JsZAA="}},
			{"type": "start_timer", "delay_seconds": 3600}]}`,
		answer: `{"task_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-workflow", "workflow_task_attempt": 1, "outcome": "completed", "recorded": true, "reason": null,
			"run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB", "run_status": "waiting", "created_task_ids": [], "next_task_id": null}`,
	},
	"fail_workflow_task": {
		text: "Says that the workflow's code could not be run; the run itself goes on, with another attempt. A message that begins " +
			"\"nondeterministic workflow code\" quarantines the run until it is repaired. The type WorkflowTaskWaitingForHistory is no failure: the worker " +
			"has nothing to add, nothing is recorded and no attempt is counted.",
		body: `{"lease_owner": "w1", "workflow_task_attempt": 1, "failure": {"message": "nothing new", "type": "WorkflowTaskWaitingForHistory"}}`,
	},
	"claim_workflow_task": {
		text: "Instead of a poll, for a task that is known. The same conditions hold.", body: `{"worker_id": "w1"}`,
	},
	"workflow_task_claim_status": {text: "Leases nothing. With worker_id it also says whether that worker may have it."},
	"claim_activity_task": {
		text: "Instead of a poll, for a task that is known. The same conditions hold, those of its session too.",
		body: `{"worker_id": "w1"}`,
	},
	"activity_task_claim_status": {
		text: "Leases nothing. With worker_id it also says whether that worker may have it, and whether its session lets it.",
	},

	"poll_activity_task": {
		text: "As poll_workflow_task, for activities. The lease lasts five minutes, or attempt_lease_seconds of the registration; heartbeats renew it. " +
			"worker_session is there for an attempt in a session: what the worker keeps in memory belongs to session_id and epoch together.",
		body: `{"worker_id": "w1", "task_queue": "default", "timeout_seconds": 30}`,
		answer: `{"poll_status": "leased", "task": {"task_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1", "activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1",
			"activity_execution_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1", "attempt_number": 1, "activity_type": "charge",
			"idempotency_key": "01M7Z3C6QEMJX94H9XJ62VYFPB-1", "payload_codec": "avro", "arguments": {"codec": "avro", "blob": "wwHioz3/VYAiNwwCCgp3b3JsZAA="},
			"workflow_id": "order-17", "run_id": "01M7Z3C6QEMJX94H9XJ62VYFPB", "task_queue": "default", "lease_owner": "w1",
			"lease_expires_at": "2026-11-21T13:10:21.217500Z",
			"deadlines": {"schedule_to_start": null, "start_to_close": "2026-11-21T13:06:21.217500Z", "schedule_to_close": null, "heartbeat": null}}}`,
	},
	"complete_activity_task": {
		text: "The result is any JSON, or an envelope. The same report again is answered recorded: false, already_completed; another one, or one of an attempt " +
			"that is over, is refused and changes nothing.",
		body: `{"lease_owner": "w1", "activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1", "result": {"receipt": 4711}}`,
	},
	"fail_activity_task": {
		text: "Whether another attempt follows is up to the activity's retry policy, and to non_retryable.",
		body: `{"lease_owner": "w1", "activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1",
			"failure": {"message": "no credit", "type": "card_declined", "non_retryable": true}}`,
	},
	"heartbeat_activity_task": {
		text: "Renews the attempt's lease and that of its session, and shows people how far it is. With can_continue: false the worker stops: the attempt was " +
			"cancelled, its run has closed or somebody else has it, and nothing more need be reported.",
		body: `{"lease_owner": "w1", "activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1", "message": "half way", "current": 1, "total": 2}`,
		answer: `{"task_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1", "activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1", "lease_owner": "w1",
			"lease_expires_at": "2026-11-21T13:10:21.264395Z", "last_heartbeat_at": "2026-11-21T13:05:21.264395Z", "heartbeat_recorded": true,
			"cancel_requested": false, "can_continue": true, "reason": null, "run_closed_reason": null, "run_closed_at": null}`,
	},
	"activity_task_status": {
		text: "Renews nothing and needs no answer: for who wants to know between two heartbeats.",
		body: `{"lease_owner": "w1", "activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1"}`,
	},
	"read_activity_task_status": {text: "As activity_task_status, with the lease in the query."},

	"poll_query_task": {
		text: "Given to workers with the capability query_tasks. A query has the whole history; whoever asked waits for the answer, so it is given out " +
			"once.",
		body: `{"worker_id": "w1", "task_queue": "default", "timeout_seconds": 30}`,
	},
	"complete_query_task": {
		text: "The caller of the query gets the result at once. result_envelope says the same encoded, for callers with an SDK.",
		body: `{"lease_owner": "w1", "query_task_attempt": 1, "result": {"state": "packing"}}`,
	},
	"fail_query_task": {
		text: "The caller of the query is told, with query_rejected.",
		body: `{"lease_owner": "w1", "query_task_attempt": 1, "failure": {"message": "there is no such query", "type": "LookupError"}}`,
	},
	"poll_update_validation_task": {
		text: "Given to workers with the capability update_validation_tasks whose registration names the update in update_validators. Whoever sent the update " +
			"waits for the verdict.",
		body: `{"worker_id": "w1", "task_queue": "default", "timeout_seconds": 30}`,
	},
	"approve_update_validation_task": {
		text: "The update is accepted, and comes with the next workflow task.",
		body: `{"lease_owner": "w1", "update_validation_attempt": 1}`,
	},
	"reject_update_validation_task": {
		text: "The update leaves no trace in the history, and its caller is told why.",
		body: `{"lease_owner": "w1", "update_validation_attempt": 1, "failure": {"message": "taken", "type": "ValueError", "reason": "update_validator_rejected"}}`,
	},

	"create_worker_session": {
		text: "Makes a session that the worker holds, or takes over one that nobody holds (outcome reacquired): the epoch rises. 201 when it is new. " +
			"admitted: false comes with the reason: who holds it, or what is missing.",
		body: `{"worker_id": "w1", "session_id": "printer-1", "lease_seconds": 60, "ttl_seconds": 600}`,
	},
	"heartbeat_worker_session": {
		text: "The lease counts anew from now. The heartbeats of activities in the session do the same.",
		body: `{"worker_id": "w1"}`,
	},
	"release_worker_session": {
		text: "The session goes on: another worker, or this one, may claim it at once, with a greater epoch.",
		body: `{"worker_id": "w1"}`,
	},
	"close_worker_session": {
		text: "What runs in it is cancelled, and what is scheduled in it later fails. The worker may be named in the query or the body.",
		body: `{"worker_id": "w1"}`,
	},

	"poll_tasks": {
		text: "One poll for tasks of many kinds and queues, up to max of them. How it ended is a value, poll_status; it never answers 409 or 503 for that.",
		body: `{"worker_id": "w1", "max": 10, "kinds": ["workflow", "activity"], "timeout_seconds": 30}`,
	},
	"complete_tasks": {
		text: "The items are independent: each is answered in its place, with an error of its own if it is refused. next is a poll that is answered at once.",
		body: `{"items": [{"kind": "activity", "task_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1", "lease_owner": "w1",
			"activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1", "result": "done"}], "next": {"worker_id": "w1", "max": 10}}`,
	},
	"record_logs": {
		text: "Only of attempts that run, from the worker that holds them; the items are independent. Numbered parts may be sent again. Nothing is renewed by it. What comes last may go with the outcome, as lines of complete_tasks.",
		body: `{"items": [{"task_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1", "lease_owner": "w1",
			"activity_attempt_id": "01M7Z3C6QEMJX94H9XJ62VYFPB-1-1", "part": 1, "lines": [{"level": "info", "text": "page 1 of 12"}]}]}`,
	},
	"worker_settings": {text: "Times, limits and the release that a worker should have. There are no secrets in it."},
	"describe_protocol": {
		text: "Versions, routes, kinds of tasks and commands, for people and for programs that generate clients.",
	},
}
