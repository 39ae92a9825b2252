package httpapi

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/httpjson"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func metrics(a *API, c *call) (answer, error) {
	c.w.Header().Set(VersionHeader, Version)
	promhttp.HandlerFor(a.opt.Registry, promhttp.HandlerOpts{}).ServeHTTP(c.w, c.Request)
	return answer{status: http.StatusOK}, nil
}

// workerVersionHeader is echoed by cluster info alone, which workers ask too.
const workerVersionHeader = "X-Durable-Workflow-Protocol-Version"

func clusterInfo(a *API, c *call) (answer, error) {
	if a.opt.WorkerAPI != nil {
		version, _ := a.opt.WorkerAPI.Protocol()
		c.w.Header().Set(workerVersionHeader, version)
	}
	ns, err := httpjson.Encode(map[string]any{"name": c.ns})
	if err != nil {
		return answer{}, err
	}
	c.w.Header().Set(VersionHeader, Version)
	raw := httpjson.Append(a.info, httpjson.Member("namespace", ns))
	return answer{status: http.StatusOK}, httpjson.Write(c.w, c.Request, http.StatusOK, raw)
}

type object = map[string]any

// clusterInfo is what clients ask before anything else: which versions and features there are, in the words they check. A flag is there only for what
// works.
func (a *API) clusterInfo() []byte {
	info := object{
		"server_id": a.opt.App, "version": a.opt.Broker.Release(), "default_namespace": "default",
		"supported_sdk_versions": object{"php": ">=1.0", "python": ">=2.0.0rc1", "rust": ">=4.0", "cli": ">=0.1"},
		"capabilities": object{
			"workflow_tasks": true, "activity_tasks": true, "signals": true, "queries": true, "updates": true, "continue_as_new": true,
			"activity_timeouts": true, "activity_retry_policy": true, "non_retryable_failures": true, "child_workflows": true,
			"child_workflow_retry_policy": true, "child_workflow_timeouts": true, "parent_close_policy": true, "history_export": true,
			"history_retention": true, "search_attributes": true, "schedules": true,
			"payload_codec_envelope": true, "payload_codec_envelope_responses": true,
			"payload_codecs": []string{payload.Codec}, "response_compression": []string{"gzip"},
		},
		"client_compatibility": object{
			"schema": "durable-workflow.v2.client-compatibility", "version": 1, "authority": "protocol_manifests",
			"top_level_version_role": "informational", "fail_closed": true, "clients": object{},
		},
		"control_plane": object{
			"version": Version, "header": VersionHeader,
			"response_contract": object{"schema": "durable-workflow.v2.control-plane-response", "version": 1},
			"request_contract": object{
				"schema": "durable-workflow.v2.control-plane-request.contract", "version": 1, "operations": operations,
			},
		},
		"auth_composition_contract": composition,
		"limits": object{
			"max_payload_bytes": payload.MaxBytes, "max_memo_bytes": 256 << 10, "max_operation_name_length": 255,
			"max_pending_activities": engine.MaxPending, "max_pending_children": engine.MaxPending, "max_search_attributes": engine.MaxAttributes,
			"max_search_attribute_key_length": engine.MaxAttributeName, "max_search_attribute_value_bytes": engine.MaxAttributeBytes,
		},
		"structural_limits": object{
			"pending_activity_count": engine.MaxPending, "pending_timer_count": engine.MaxPending, "pending_child_count": engine.MaxPending,
			"pending_signal_count": engine.MaxSignals, "pending_update_count": engine.MaxUpdates, "command_batch_size": engine.MaxCommands,
			"payload_size_bytes": payload.MaxBytes, "memo_size_bytes": 256 << 10,
			"search_attribute_size_bytes": engine.MaxAttributesBytes,
		},
		"sojourn": object{
			"release": a.opt.Broker.Release(), "app_id": a.opt.App,
			"features": []string{
				"worker_sessions", "session_epochs", "batch_tasks", "cooperative_cancellation_requests", "socket", "why_waiting", "history_stream",
				"history_import", "run_filters", "queue_budgets", "build_rollouts", "start_delay", "start_cron",
			},
			"limits":   object{"max_body_bytes": httpjson.MaxBody, "max_batch_body_bytes": httpjson.MaxBatchBody},
			"sessions": sessions,
		},
	}
	if a.opt.WorkerAPI != nil {
		version, capabilities := a.opt.WorkerAPI.Protocol()
		info["worker_protocol"] = object{"version": version, "header": workerVersionHeader, "server_capabilities": capabilities}
	}
	raw, err := httpjson.Encode(info)
	if err != nil {
		panic("httpapi: cluster info: " + err.Error())
	}
	return raw
}

// sessions is what is ours in sessions, beside the contract that workers are told of: the three doors to one row and what each gives it.
var sessions = object{
	"doors": []string{"implicit", "worker", "workflow"}, "fencing_token": "session_epoch",
	"defaults": object{
		"implicit": object{"scope": "namespace", "lease": "worker", "idle": "worker", "ttl_seconds": nil, "max_concurrent_activities": "worker_slots", "ends": "never"},
		"worker": object{
			"scope": "namespace", "lease_seconds": engine.WorkerSessionLease, "idle": nil, "ttl_seconds": engine.WorkerSessionTTL,
			"max_concurrent_activities": 1, "ends": "close_or_ttl",
		},
		"workflow": object{"scope": "workflow", "lease": "worker", "idle": nil, "ttl_seconds": nil, "max_concurrent_activities": "worker_slots", "ends": "end_session_or_end_of_run_chain"},
	},
	"epoch": object{
		"members": object{
			"activity_tasks": "worker_session.epoch", "heartbeats": "session_epoch", "completions": "session_epoch", "session_verbs": "epoch",
		},
		"rises": "every_claim_over_the_life_of_the_id", "required_of_clients": false,
	},
	"verbs":            []string{"create", "heartbeat", "release", "close"},
	"operator_verbs":   []string{"close", "migrate"},
	"release_policies": []string{engine.PolicyMigrate, engine.PolicyFinish, engine.PolicyFail},
	"affinity":         []string{"hard"},
	"notice":           protocol.NoticeSession,
	"failures": object{
		"ended": []protocol.Reason{protocol.ReasonSessionClosed, protocol.ReasonSessionMissing}, "state_lost": "SessionLost",
	},
	"schema": "durable-workflow.v2.worker-sessions-runtime",
}

// operations says which values requests may carry.
var operations = object{
	"list": object{"fields": object{"status": object{
		"canonical_values": []string{"running", "completed", "failed"},
		"rejected_aliases": object{},
	}}},
	"update": object{
		"fields":         object{"wait_for": object{"canonical_values": []string{protocol.WaitAccepted, protocol.WaitCompleted}}},
		"removed_fields": object{"wait_policy": "Use wait_for."},
	},
	"start": object{"fields": object{
		"duplicate_policy": object{
			"canonical_values": []string{"fail", "use-existing"}, "rejected_aliases": object{"use_existing": "use-existing"},
		},
		"execution_timeout_seconds": object{"type": "integer", "min": 1},
		"run_timeout_seconds":       object{"type": "integer", "min": 1},
		"payload_codec":             object{"type": "string", "canonical_values": []string{payload.Codec}},
	}},
}

// composition says how clients put their connection settings together; workers refuse to start without exactly this.
var composition = object{
	"schema": "durable-workflow.v2.auth-composition.contract", "version": 1,
	"precedence": object{
		"connection_values": []string{"flag", "environment", "selected_profile", "default"},
		"profile_selection": []string{"flag_env", "DW_ENV", "current_profile", "default_profile"},
	},
	"canonical_environment": object{
		"server_url": "DURABLE_WORKFLOW_SERVER_URL", "namespace": "DURABLE_WORKFLOW_NAMESPACE", "auth_token": "DURABLE_WORKFLOW_AUTH_TOKEN",
		"tls_verify": "DURABLE_WORKFLOW_TLS_VERIFY", "profile": "DW_ENV",
	},
	"auth_material": object{
		"token":          object{"status": "supported", "effective_config_value": "redacted"},
		"mtls":           object{"status": "reserved"},
		"signed_headers": object{"status": "reserved"},
	},
	"effective_config": object{"required_fields": []string{"server_url", "namespace", "profile", "auth", "tls", "identity"}},
	"redaction":        object{"never_echo": []string{"bearer_tokens", "private_keys", "raw_authorization_headers"}},
}
