package protocol

// ClusterInfo has the versions and features of a server. Clients request it first and compare it.
type ClusterInfo struct {
	ServerID         string              `json:"server_id"`
	Version          string              `json:"version"`
	DefaultNamespace string              `json:"default_namespace"`
	Namespace        ClusterNamespace    `json:"namespace"`
	SDKVersions      map[string]string   `json:"supported_sdk_versions"` // supported range of each SDK
	Capabilities     ControlCapabilities `json:"capabilities"`
	Compatibility    ClientCompatibility `json:"client_compatibility"`
	ControlPlane     ControlPlaneTerms   `json:"control_plane"`
	Worker           *WorkerTerms        `json:"worker_protocol,omitempty"`
	Auth             AuthComposition     `json:"auth_composition_contract"`
	Limits           Limits              `json:"limits"`
	Structural       StructuralLimits    `json:"structural_limits"`
	Sojourn          SojournInfo         `json:"sojourn"`
}

// ClusterNamespace is the namespace of the request.
type ClusterNamespace struct {
	Name string `json:"name"`
}

// ControlCapabilities lists the features of the control plane. A flag is present and true only for a supported feature.
type ControlCapabilities struct {
	WorkflowTasks           bool     `json:"workflow_tasks"`
	ActivityTasks           bool     `json:"activity_tasks"`
	Signals                 bool     `json:"signals"`
	Queries                 bool     `json:"queries"`
	Updates                 bool     `json:"updates"`
	ContinueAsNew           bool     `json:"continue_as_new"`
	ActivityTimeouts        bool     `json:"activity_timeouts"`
	ActivityRetryPolicy     bool     `json:"activity_retry_policy"`
	NonRetryableFailures    bool     `json:"non_retryable_failures"`
	ChildWorkflows          bool     `json:"child_workflows"`
	ChildRetryPolicy        bool     `json:"child_workflow_retry_policy"`
	ChildTimeouts           bool     `json:"child_workflow_timeouts"`
	ParentClosePolicy       bool     `json:"parent_close_policy"`
	HistoryExport           bool     `json:"history_export"`
	HistoryRetention        bool     `json:"history_retention"`
	SearchAttributes        bool     `json:"search_attributes"`
	Schedules               bool     `json:"schedules"`
	PayloadEnvelope         bool     `json:"payload_codec_envelope"`           // requests may carry {codec, blob}
	PayloadEnvelopeResponse bool     `json:"payload_codec_envelope_responses"` // responses contain it
	PayloadCodecs           []string `json:"payload_codecs"`
	ResponseCompression     []string `json:"response_compression"`
}

// ClientCompatibility describes how clients determine compatibility: by the versions of the protocols, not by the
// server's version.
type ClientCompatibility struct {
	SchemaVersion
	Authority       string   `json:"authority"`
	TopLevelVersion string   `json:"top_level_version_role"` // purpose of the version in cluster info
	FailClosed      bool     `json:"fail_closed"`
	Clients         struct{} `json:"clients"` // no client has special rules
}

// ControlPlaneTerms are the control plane's version, the header for it, and the schemas of its requests and responses.
type ControlPlaneTerms struct {
	Version  string        `json:"version"`
	Header   string        `json:"header"`
	Response SchemaVersion `json:"response_contract"`
	Request  RequestTerms  `json:"request_contract"`
}

// SchemaVersion identifies a schema.
type SchemaVersion struct {
	Schema  string `json:"schema"`
	Version int    `json:"version"`
}

// RequestTerms are the valid values of request members.
type RequestTerms struct {
	SchemaVersion
	Operations map[string]OperationTerms `json:"operations"`
}

// OperationTerms are the valid members of the requests of one operation.
type OperationTerms struct {
	Fields  map[string]FieldTerms `json:"fields"`
	Removed map[string]string     `json:"removed_fields,omitempty"` // removed members, and their replacements
}

// FieldTerms are the valid values of one member.
type FieldTerms struct {
	Type   string   `json:"type,omitempty"`
	Min    int      `json:"min,omitempty"`
	Values []string `json:"canonical_values,omitempty"`
	// rejected values, and the right ones; may be empty
	Refused map[string]string `json:"rejected_aliases,omitzero"`
}

// WorkerTerms are the worker protocol's version, the header for it, and the features for workers.
type WorkerTerms struct {
	Version      string             `json:"version"`
	Header       string             `json:"header"`
	Capabilities ServerCapabilities `json:"server_capabilities"`
}

// AuthComposition describes how clients resolve their connection settings. Workers refuse to start if it differs.
type AuthComposition struct {
	SchemaVersion
	Precedence  AuthPrecedence  `json:"precedence"`
	Environment AuthEnvironment `json:"canonical_environment"`
	Material    AuthMaterials   `json:"auth_material"`
	Effective   AuthEffective   `json:"effective_config"`
	Redaction   AuthRedaction   `json:"redaction"`
}

// AuthPrecedence lists the sources of a client's settings, the first one wins.
type AuthPrecedence struct {
	Connection []string `json:"connection_values"`
	Profile    []string `json:"profile_selection"`
}

// AuthEnvironment names the environment variables of clients.
type AuthEnvironment struct {
	ServerURL string `json:"server_url"`
	Namespace string `json:"namespace"`
	Token     string `json:"auth_token"`
	TLSVerify string `json:"tls_verify"`
	Profile   string `json:"profile"`
}

// AuthMaterials are the authentication methods of clients.
type AuthMaterials struct {
	Token         AuthMaterial `json:"token"`
	MTLS          AuthMaterial `json:"mtls"`
	SignedHeaders AuthMaterial `json:"signed_headers"`
}

// AuthMaterial is an authentication method, and how a client uses it.
type AuthMaterial struct {
	Status string `json:"status" enum:"supported,reserved"`
	Shown  string `json:"effective_config_value,omitempty"`
}

// AuthEffective lists the settings that a client shows.
type AuthEffective struct {
	Required []string `json:"required_fields"`
}

// AuthRedaction lists the settings that a client never shows.
type AuthRedaction struct {
	NeverEcho []string `json:"never_echo"`
}

// Limits are the limits of requests, by their names in the first version of the contract. StructuralLimits has more.
type Limits struct {
	PayloadBytes        int `json:"max_payload_bytes"`
	MemoBytes           int `json:"max_memo_bytes"`
	OperationName       int `json:"max_operation_name_length"`
	PendingActivities   int `json:"max_pending_activities"`
	PendingChildren     int `json:"max_pending_children"`
	SearchAttributes    int `json:"max_search_attributes"`
	SearchAttributeName int `json:"max_search_attribute_key_length"`
	SearchAttributeSize int `json:"max_search_attribute_value_bytes"`
}

// StructuralLimits are the limits of one run.
type StructuralLimits struct {
	PendingActivities    int `json:"pending_activity_count"`
	PendingTimers        int `json:"pending_timer_count"`
	PendingChildren      int `json:"pending_child_count"`
	PendingSignals       int `json:"pending_signal_count"`
	PendingUpdates       int `json:"pending_update_count"`
	Commands             int `json:"command_batch_size"` // of one completion
	PayloadBytes         int `json:"payload_size_bytes"`
	MemoBytes            int `json:"memo_size_bytes"`
	SearchAttributeBytes int `json:"search_attribute_size_bytes"` // names and values together
}

// SojournInfo has the members that are not part of the contract.
type SojournInfo struct {
	Release  string        `json:"release"`
	AppID    string        `json:"app_id"`
	Features []string      `json:"features"`
	Limits   BodyLimits    `json:"limits"`
	Sessions SessionsGiven `json:"sessions"`
}

// BodyLimits are the maximum lengths of request bodies, in bytes.
type BodyLimits struct {
	One   int `json:"max_body_bytes"`
	Batch int `json:"max_batch_body_bytes"` // for the routes that accept many items at once
}

// SessionsGiven describes the session features of Sojourn beyond the worker contract: the origins of a session
// (implicit, worker, workflow) and the defaults of each.
type SessionsGiven struct {
	Schema          string          `json:"schema"`
	SchemaPath      string          `json:"schema_path"` // path of the JSON Schema on this server
	Origins         []string        `json:"doors"`
	Defaults        SessionOrigins  `json:"defaults"`
	FencingToken    string          `json:"fencing_token"`
	Epoch           EpochTerms      `json:"epoch"`
	Verbs           []string        `json:"verbs"`
	OperatorVerbs   []string        `json:"operator_verbs"`
	ReleasePolicies []string        `json:"release_policies"`
	Affinity        []string        `json:"affinity"`
	FallbackAfter   int64           `json:"fallback_after_seconds"` // default of soft sessions
	Notice          string          `json:"notice"`                 // notice to the owner at the end of the session
	Failures        SessionFailures `json:"failures"`
}

// SessionOrigins are the defaults of sessions, by origin.
type SessionOrigins struct {
	Implicit SessionOrigin       `json:"implicit"`
	Worker   WorkerSessionOrigin `json:"worker"`
	Workflow SessionOrigin       `json:"workflow"`
}

// SessionOrigin are the defaults of a session that an activity's session ID or the command start_session created.
type SessionOrigin struct {
	Scope      string  `json:"scope" enum:"namespace,workflow"`
	Lease      string  `json:"lease"` // where the lease is configured
	Idle       *string `json:"idle"`  // where the maximum idle time is configured; null: none
	TTL        *int64  `json:"ttl_seconds"`
	Activities string  `json:"max_concurrent_activities"` // where the maximum is configured
	Ends       string  `json:"ends"`
}

// WorkerSessionOrigin are the defaults of a session that a worker created.
type WorkerSessionOrigin struct {
	Scope      string  `json:"scope" enum:"namespace"`
	Lease      int64   `json:"lease_seconds"`
	Idle       *string `json:"idle"` // null: it has none
	TTL        int64   `json:"ttl_seconds"`
	Activities int     `json:"max_concurrent_activities"`
	Ends       string  `json:"ends"`
}

// EpochTerms describe where messages contain a session's epoch and when the epoch rises.
type EpochTerms struct {
	Members  EpochMembers `json:"members"`
	Rises    string       `json:"rises"`
	Required bool         `json:"required_of_clients"`
}

// EpochMembers are the names of the members with the epoch, by message.
type EpochMembers struct {
	Tasks       string `json:"activity_tasks"`
	Heartbeats  string `json:"heartbeats"`
	Completions string `json:"completions"`
	Verbs       string `json:"session_verbs"`
}

// SessionFailures are the failures of activities whose session ended or lost its state.
type SessionFailures struct {
	Ended     []Reason `json:"ended"`
	StateLost string   `json:"state_lost"`
}
