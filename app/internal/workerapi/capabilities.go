package workerapi

import (
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Workers decide by these members what they may send. The members are derived from the values that the code uses and
// not listed again: a capability that is announced but missing would break runs.

// capabilities returns the capabilities of the server, which every response contains.
func capabilities() protocol.ServerCapabilities {
	return protocol.ServerCapabilities{
		LongPoll: defaultWait, Commands: engine.Supported, PollStatus: true, PollIdempotency: true,
		HistoryPage: defaultHistoryPage, DefaultHistoryPage: defaultHistoryPage, MaxHistoryPage: maxHistoryPage,
		QueryTasks: true, QueryPollIdempotency: true, QueryTimeouts: protocol.QueryTimeouts{Caller: 30, Lease: 30},
		UpdateValidationTasks: true, UpdateValidation: protocol.UpdateValidation{
			Supported: true, Boundary: "validator_approved", Capability: "update_validation_tasks", Field: "update_validators",
			Timeout: 10,
			Poll: protocol.ValidationPoll{
				Strategy: "multiplexed", Endpoint: "/worker/workflow-tasks/poll", Field: "task_kinds",
				Discriminator: "task.task_kind",
				Kinds:         []protocol.TaskKind{protocol.KindWorkflow, protocol.KindValidation},
			},
		},
		ConditionWaits: true, Selection: true, TypedAttributes: true,
		Memo: protocol.MemoUpdates{
			Supported: true, Entries: protocol.MaxAttributes, EntryBytes: protocol.MaxMemoEntry, TotalBytes: protocol.MaxMemo,
		},
		ActivityRetryPolicy: true, ActivityTimeouts: true, ChildRetryPolicy: true, ChildTimeouts: true,
		ParentClosePolicy:    true,
		NonRetryableFailures: true,
		ResponseCompression:  []string{"gzip"}, HistoryCompression: historyCompression,
		WorkerStatus: protocol.WorkerStatusTerms{
			Supported: true, Interval: 15, StaleAfter: 60,
			Fields: protocol.StatusFields{
				Slots:   []string{"workflow_available", "activity_available", "session_available"},
				Process: []string{"process_id", "process_uptime_seconds"},
			},
		},
		Order: protocol.TaskOrder{
			Priority: protocol.PriorityTerms{Max: 9, Default: engine.DefaultPriority, LowerFirst: true},
			Key:      protocol.KeyTerms{MaxLength: 64, Pattern: "^[A-Za-z0-9._:-]{1,64}$", DefaultClass: engine.DefaultClass},
			Weight:   protocol.WeightTerms{Min: 1, Max: engine.MaxWeight, Default: 1},
		},
		SessionVerbs: []string{"create", "heartbeat", "close"}, Sessions: sessions,
		Traces: protocol.TraceTerms{
			Supported: true, Schema: history.TraceContextSchema, Version: 1, DispatchSchema: "durable-workflow.queue-trace",
			LinksSchema: protocol.TraceLinksSchema, MaxContextBytes: history.MaxTraceContext, MaxLinks: protocol.MaxTraceLinks,
			MaxLinksBytes: protocol.MaxTraceLinkBytes,
		},
		Batch: protocol.BatchRoutes{Poll: "/worker/tasks/poll", Complete: "/worker/tasks/complete"},
	}
}

var historyCompression = protocol.HistoryCompression{Encodings: []string{"gzip", "deflate"}, From: compressHistory}

var statuses = []protocol.SessionStatus{
	protocol.SessionActive, protocol.SessionClosed, protocol.SessionExpired, protocol.SessionFailed,
	protocol.SessionOrphaned,
}

var sessions = protocol.SessionContract{
	Supported: true, Feature: "worker_sessions", ContractVersion: "1.0", MinimumVersion: "1.0",
	CommandField: "worker_session", OptionsField: "worker_session",
	Verbs: []string{"create", "heartbeat", "release", "close"},
	Lifecycle: protocol.LifecycleTerms{
		Creation:    "lazy_create_on_first_admitted_activity_or_explicit_worker_create",
		Renewal:     "activity_heartbeat_or_explicit_session_heartbeat",
		Close:       "explicit_holder_close",
		LeaseExpiry: "session_expires_when_lease_is_not_renewed",
		TTLExpiry:   "absolute_session_ttl_is_terminal_for_that_session_id",
	},
	Ownership: "single_worker_lease_owner",
	Lease:     protocol.LeaseTerms{Scope: "namespace_session_id", Owner: "registered_worker_id", AttemptsOwnLease: true},
	Admission: protocol.AdmissionTerms{
		QueueFirst: true, Registered: true, Capabilities: true, CreateIfMissing: true, ReacquireDefault: true,
	},
	Limits:            protocol.CapTerms{Sessions: "worker_registration", Activities: "session"},
	DefaultActivities: 1,
	Renewal:           protocol.RenewalTerms{ByActivity: true, ByVerb: true},
	FailureDetection:  []string{"lease_expiry", "registered_worker_heartbeat_staleness"},
	HolderLoss:        protocol.LossTerms{AtLeastOnce: true, Reacquire: true, Rebuild: true},
	Cancellation:      protocol.CancelTerms{ByHeartbeat: true, NoOverride: true, Close: true},
	Routing:           []string{"queue", "connection", "requirements"},
	Visibility:        statuses, Statuses: statuses, TerminalStatuses: []protocol.SessionStatus{protocol.SessionClosed},
	TerminalConditions: []string{"explicit_close", "ttl_expired", "allow_reacquire_after_failure_false"},
	Guidance: []string{
		"Prefer ordinary queued activities when each step is independent, and one larger activity when the whole operation is one atomic side effect.",
		"Use a session only when several steps must reuse what lives in one worker, and the workflow can do with rebuilding it.",
		"Keep nothing in process memory that cannot be rebuilt: another worker may take the session over.",
		"Close a session when its work is done; an abandoned one holds its slot until the lease ends.",
	},
}
