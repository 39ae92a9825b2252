package protocol

// ServerCapabilities lists the features that a server has for workers. A flag is present and true only for a supported
// feature. Clients enable features by it, and refuse to start if a configured feature is missing.
type ServerCapabilities struct {
	LongPoll              int                `json:"long_poll_timeout"` // default duration of a poll, in seconds
	Commands              []CommandType      `json:"supported_workflow_task_commands"`
	PollStatus            bool               `json:"poll_status"`
	PollIdempotency       bool               `json:"workflow_task_poll_request_idempotency"`
	HistoryPage           int                `json:"history_page_size_default"`
	DefaultHistoryPage    int                `json:"default_history_page_size"` // equals HistoryPage, under the documented name
	MaxHistoryPage        int                `json:"history_page_size_max"`
	QueryTasks            bool               `json:"query_tasks"`
	QueryPollIdempotency  bool               `json:"query_task_poll_request_idempotency"`
	QueryTimeouts         QueryTimeouts      `json:"query_task_timeouts"`
	UpdateValidationTasks bool               `json:"update_validation_tasks"`
	UpdateValidation      UpdateValidation   `json:"synchronous_update_validation"`
	ConditionWaits        bool               `json:"condition_wait_occurrence_identity"`
	Memo                  MemoUpdates        `json:"workflow_memo_updates"`
	TypedAttributes       bool               `json:"typed_search_attributes"`
	Selection             bool               `json:"durable_selection"`
	ActivityRetryPolicy   bool               `json:"activity_retry_policy"`
	ActivityTimeouts      bool               `json:"activity_timeouts"`
	ChildRetryPolicy      bool               `json:"child_workflow_retry_policy"`
	ChildTimeouts         bool               `json:"child_workflow_timeouts"`
	ParentClosePolicy     bool               `json:"parent_close_policy"`
	NonRetryableFailures  bool               `json:"non_retryable_failures"`
	ResponseCompression   []string           `json:"response_compression"`
	HistoryCompression    HistoryCompression `json:"history_compression"`
	WorkerStatus          WorkerStatusTerms  `json:"worker_status"`
	Order                 TaskOrder          `json:"task_queue_priority_fairness"`
	SessionVerbs          []string           `json:"worker_session_verbs"`
	Sessions              SessionContract    `json:"worker_sessions"`
	Batch                 BatchRoutes        `json:"batch_tasks"`
	Traces                TraceTerms         `json:"observability_context"`
}

// TraceTerms are the schemas and limits of trace contexts. Published clients send trace contexts only to a server with
// exactly these values.
type TraceTerms struct {
	Supported       bool   `json:"supported"`
	Schema          string `json:"schema"`
	Version         int    `json:"version"`
	DispatchSchema  string `json:"dispatch_schema"`
	LinksSchema     string `json:"links_schema"`
	MaxContextBytes int    `json:"max_context_bytes"`
	MaxLinks        int    `json:"max_links"`
	MaxLinksBytes   int    `json:"max_links_bytes"`
}

// QueryTimeouts are the timeout of a query's caller, and the lease of a query task.
type QueryTimeouts struct {
	Caller int `json:"control_plane_timeout_seconds"`
	Lease  int `json:"lease_timeout_seconds"`
	Grace  int `json:"lease_grace_seconds"`
}

// UpdateValidation describes the validation of updates before they are accepted: by a worker whose poll requests
// workflow tasks and validation tasks.
type UpdateValidation struct {
	Supported  bool   `json:"supported"`
	Boundary   string `json:"acceptance_boundary"`
	Capability string `json:"worker_capability"`
	// member of a registration: the updates that have validators
	Field   string         `json:"workflow_contract_field"`
	Timeout int            `json:"decision_timeout_seconds"`
	Poll    ValidationPoll `json:"task_poll"`
}

// ValidationPoll describes how a worker polls for update validation tasks.
type ValidationPoll struct {
	Strategy      string     `json:"strategy"`
	Endpoint      string     `json:"endpoint"`
	Field         string     `json:"request_field"`
	Discriminator string     `json:"response_discriminator"`
	Kinds         []TaskKind `json:"task_kinds"`
}

// MemoUpdates are the limits of a workflow's memo.
type MemoUpdates struct {
	Supported  bool `json:"supported"`
	Entries    int  `json:"max_entries"`
	EntryBytes int  `json:"max_entry_bytes"`
	TotalBytes int  `json:"max_total_bytes"`
}

// HistoryCompression describes the compression of pages of history for clients that accept it.
type HistoryCompression struct {
	Encodings []string `json:"supported_encodings"`
	From      int      `json:"compression_threshold"` // minimum number of events on a compressed page
}

// WorkerStatusTerms describe what workers report about themselves, and the interval.
type WorkerStatusTerms struct {
	Supported  bool         `json:"supported"`
	Interval   int          `json:"heartbeat_interval_seconds"`
	StaleAfter int          `json:"stale_after_seconds"`
	Fields     StatusFields `json:"fields"`
}

// StatusFields are the members of a worker's heartbeat with its status.
type StatusFields struct {
	Slots   []string `json:"task_slots"`
	Process []string `json:"process_metrics"`
}

// TaskOrder describes the members that determine the order of a queue's tasks.
type TaskOrder struct {
	Priority PriorityTerms `json:"priority"`
	Key      KeyTerms      `json:"fairness_key"`
	Weight   WeightTerms   `json:"fairness_weight"`
}

// PriorityTerms are the valid values of a priority.
type PriorityTerms struct {
	Min        int  `json:"min"`
	Max        int  `json:"max"`
	Default    int  `json:"default"`
	LowerFirst bool `json:"lower_first"`
}

// KeyTerms are the valid values of a fairness key.
type KeyTerms struct {
	MaxLength    int    `json:"max_length"`
	Pattern      string `json:"pattern"`
	DefaultClass string `json:"default_class"` // class of tasks without a key
}

// WeightTerms are the valid values of a fairness key's weight.
type WeightTerms struct {
	Min     int `json:"min"`
	Max     int `json:"max"`
	Default int `json:"default"`
}

// BatchRoutes are the routes for many tasks per request.
type BatchRoutes struct {
	Poll     string `json:"poll"`
	Complete string `json:"complete"`
}

// SessionContract is the contract of worker sessions, in the form of clients' schemas:
// docs/schemas/worker-sessions-runtime.schema.json.
type SessionContract struct {
	Supported          bool            `json:"supported"`
	UnavailableReason  *string         `json:"unavailable_reason"`
	Feature            string          `json:"feature"`
	ContractVersion    string          `json:"contract_version"`
	MinimumVersion     string          `json:"minimum_protocol_version"`
	CommandField       string          `json:"command_field"`
	OptionsField       string          `json:"activity_options_field"`
	Verbs              []string        `json:"verbs"`
	Lifecycle          LifecycleTerms  `json:"lifecycle"`
	Ownership          string          `json:"ownership"`
	Lease              LeaseTerms      `json:"lease"`
	Admission          AdmissionTerms  `json:"admission"`
	Limits             CapTerms        `json:"limits"`
	DefaultActivities  int             `json:"default_max_concurrent_activities"`
	Renewal            RenewalTerms    `json:"renewal"`
	FailureDetection   []string        `json:"failure_detection"`
	HolderLoss         LossTerms       `json:"holder_loss"`
	Cancellation       CancelTerms     `json:"cancellation"`
	Routing            []string        `json:"routing"`
	Visibility         []SessionStatus `json:"visibility"`
	Statuses           []SessionStatus `json:"statuses"`
	TerminalStatuses   []SessionStatus `json:"terminal_statuses"`
	TerminalConditions []string        `json:"terminal_conditions"`
	Guidance           []string        `json:"authoring_guidance"`
}

// LifecycleTerms describe the causes of a session's status changes.
type LifecycleTerms struct {
	Creation    string `json:"creation"`
	Renewal     string `json:"renewal"`
	Close       string `json:"close"`
	LeaseExpiry string `json:"lease_expiry"`
	TTLExpiry   string `json:"ttl_expiry"`
}

// LeaseTerms describe the scope of a session's lease.
type LeaseTerms struct {
	Scope            string `json:"scope"`
	Owner            string `json:"owner"`
	AttemptsOwnLease bool   `json:"activity_attempt_leases_remain_independent"`
}

// AdmissionTerms are the requirements that a worker must meet to receive a session's tasks.
type AdmissionTerms struct {
	QueueFirst       bool `json:"queue_routing_first"`
	Registered       bool `json:"requires_registered_worker"`
	Capabilities     bool `json:"requires_capabilities"`
	CreateIfMissing  bool `json:"create_if_missing_default"`
	ReacquireDefault bool `json:"allow_reacquire_after_failure_default"`
}

// CapTerms name the settings for the maximum of sessions of a worker and of activities in a session.
type CapTerms struct {
	Sessions   string `json:"max_concurrent_worker_sessions"`
	Activities string `json:"max_concurrent_activities"`
}

// RenewalTerms describe what renews a session's lease.
type RenewalTerms struct {
	ByActivity bool `json:"activity_heartbeat_renews_session"`
	ByVerb     bool `json:"explicit_session_heartbeat"`
}

// LossTerms describe the consequences of the loss of an owner.
type LossTerms struct {
	AtLeastOnce bool `json:"in_flight_activities_keep_at_least_once_attempt_semantics"`
	Reacquire   bool `json:"replacement_worker_must_reacquire_session"`
	Rebuild     bool `json:"process_local_state_must_be_rebuilt_after_reacquire"`
}

// CancelTerms describe how cancellations affect sessions.
type CancelTerms struct {
	ByHeartbeat bool `json:"workflow_cancellation_observed_through_activity_heartbeat"`
	NoOverride  bool `json:"session_lease_does_not_override_activity_cancel_requested"`
	Close       bool `json:"planned_shutdown_should_close_sessions"`
}
