package workerapi

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/app/engine"
)

type object = map[string]any

// capabilities is what the server says it can do: a flag is there, and true, only for what works. Clients switch features on
// by it, and refuse to start when they were asked for one that is missing.
func capabilities() json.RawMessage {
	raw, err := json.Marshal(object{
		"long_poll_timeout":                      defaultWait,
		"supported_workflow_task_commands":       engine.Supported,
		"workflow_task_poll_request_idempotency": true,
		"poll_status":                            true,
		"history_page_size_default":              defaultHistoryPage,
		"history_page_size_max":                  maxHistoryPage,
		"query_tasks":                            true,
		"query_task_poll_request_idempotency":    true,
		"query_task_timeouts":                    object{"control_plane_timeout_seconds": 30, "lease_timeout_seconds": 30, "lease_grace_seconds": 0},
		"update_validation_tasks":                true,
		"synchronous_update_validation":          updateValidation,
		"condition_wait_occurrence_identity":     true,
		"workflow_memo_updates": object{
			"supported": true, "max_entries": engine.MaxAttributes, "max_entry_bytes": engine.MaxMemoEntry, "max_total_bytes": engine.MaxMemo,
		},
		"typed_search_attributes":     true,
		"durable_selection":           true,
		"activity_retry_policy":       true,
		"activity_timeouts":           true,
		"child_workflow_retry_policy": true,
		"child_workflow_timeouts":     true,
		"parent_close_policy":         true,
		"non_retryable_failures":      true,
		"response_compression":        []string{"gzip"},
		"history_compression":         historyCompression,
		"worker_status":               workerStatus,
		"task_queue_priority_fairness": object{
			"priority":        object{"min": 0, "max": 9, "default": engine.DefaultPriority, "lower_first": true},
			"fairness_key":    object{"max_length": 64, "pattern": "^[A-Za-z0-9._:-]{1,64}$", "default_class": engine.DefaultClass},
			"fairness_weight": object{"min": 1, "max": engine.MaxWeight, "default": 1},
		},
		"worker_session_verbs": []string{"create", "heartbeat", "close"},
		"worker_sessions":      sessions,
		"batch_tasks":          object{"poll": "/worker/tasks/poll", "complete": "/worker/tasks/complete"},
	})
	if err != nil {
		panic("workerapi: capabilities: " + err.Error())
	}
	return raw
}

var historyCompression = object{"supported_encodings": []string{"gzip", "deflate"}, "compression_threshold": compressHistory}

// updateValidation is how updates are judged before they are accepted: by a worker that polls for both kinds of tasks at once.
var updateValidation = object{
	"supported": true, "acceptance_boundary": "validator_approved", "worker_capability": "update_validation_tasks",
	"workflow_contract_field": "update_validators", "decision_timeout_seconds": 10,
	"task_poll": object{
		"strategy": "multiplexed", "endpoint": "/worker/workflow-tasks/poll", "request_field": "task_kinds", "response_discriminator": "task.task_kind",
		"task_kinds": []string{"workflow", "update_validation"},
	},
}

var workerStatus = object{
	"supported": true, "heartbeat_interval_seconds": 15, "stale_after_seconds": 60,
	"fields": object{
		"task_slots":      []string{"workflow_available", "activity_available", "session_available"},
		"process_metrics": []string{"process_id", "process_uptime_seconds"},
	},
}

// sessions is the contract of worker sessions, as clients' schemas have it.
var sessions = object{
	"supported": true, "minimum_protocol_version": "1.0", "unavailable_reason": nil, "feature": "worker_sessions", "contract_version": "1.0",
	"command_field": "worker_session", "activity_options_field": "worker_session",
	"verbs": []string{"create", "heartbeat", "release", "close"},
	"lifecycle": object{
		"creation":     "lazy_create_on_first_admitted_activity_or_explicit_worker_create",
		"renewal":      "activity_heartbeat_or_explicit_session_heartbeat",
		"close":        "explicit_holder_close",
		"lease_expiry": "session_expires_when_lease_is_not_renewed",
		"ttl_expiry":   "absolute_session_ttl_is_terminal_for_that_session_id",
	},
	"ownership": "single_worker_lease_owner",
	"lease": object{
		"scope": "namespace_session_id", "owner": "registered_worker_id", "activity_attempt_leases_remain_independent": true,
	},
	"admission": object{
		"queue_routing_first": true, "requires_registered_worker": true, "requires_capabilities": true,
		"create_if_missing_default": true, "allow_reacquire_after_failure_default": true,
	},
	"limits":                            object{"max_concurrent_worker_sessions": "worker_registration", "max_concurrent_activities": "session"},
	"default_max_concurrent_activities": 1,
	"renewal":                           object{"activity_heartbeat_renews_session": true, "explicit_session_heartbeat": true},
	"failure_detection":                 []string{"lease_expiry", "registered_worker_heartbeat_staleness"},
	"holder_loss": object{
		"in_flight_activities_keep_at_least_once_attempt_semantics": true, "replacement_worker_must_reacquire_session": true,
		"process_local_state_must_be_rebuilt_after_reacquire": true,
	},
	"cancellation": object{
		"workflow_cancellation_observed_through_activity_heartbeat": true,
		"session_lease_does_not_override_activity_cancel_requested": true,
		"planned_shutdown_should_close_sessions":                    true,
	},
	"routing":             []string{"queue", "connection", "requirements"},
	"visibility":          []string{"active", "closed", "expired", "failed", "orphaned"},
	"statuses":            []string{"active", "closed", "expired", "failed", "orphaned"},
	"terminal_statuses":   []string{"closed"},
	"terminal_conditions": []string{"explicit_close", "ttl_expired", "allow_reacquire_after_failure_false"},
	"authoring_guidance": []string{
		"Prefer ordinary queued activities when each step is independent, and one larger activity when the whole operation is one atomic side effect.",
		"Use a session only when several steps must reuse what lives in one worker, and the workflow can do with rebuilding it.",
		"Keep nothing in process memory that cannot be rebuilt: another worker may take the session over.",
		"Close a session when its work is done; an abandoned one holds its slot until the lease ends.",
	},
}
