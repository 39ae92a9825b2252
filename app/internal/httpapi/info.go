package httpapi

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Clients request the cluster info first and choose their requests by it. So the route serves callers of both
// protocols, and its members come from the same values that the checks use.

// metrics returns the metrics of this process, and of the namespaces that the caller has access to.
func metrics(a *API, c *call) (response, error) {
	return a.metrics(c, func(namespace string) bool { return c.Principal.In(namespace) })
}

// metrics writes the metrics without a namespace, and the metrics of the selected namespaces.
func (a *API) metrics(c *call, of func(namespace string) bool) (response, error) {
	c.W.Header().Set(VersionHeader, Version)
	// One registry serves all callers, and a scraper of one tenant must not see metrics of another: these are removed
	// from each response, and so are families without metrics.
	some := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := a.opt.Registry.Gather()
		for _, f := range families {
			f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool {
				return slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool {
					return l.GetName() == "namespace" && !of(l.GetValue())
				})
			})
		}
		return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 }), err
	})
	promhttp.HandlerFor(some, promhttp.HandlerOpts{}).ServeHTTP(c.W, c.Request)
	return response{status: http.StatusOK}, nil
}

// clusterInfo also serves workers, so it includes the version of the worker protocol.
func clusterInfo(a *API, c *call) (response, error) {
	info := a.info
	info.Namespace.Name = c.NS
	if info.Worker != nil {
		c.W.Header().Set(protocol.HeaderWorkerVersion, info.Worker.Version)
	}
	return ok(info, nil)
}

// clusterInfo returns the description of this app; each request adds its namespace.
func (a *API) clusterInfo() protocol.ClusterInfo {
	info := protocol.ClusterInfo{
		ServerID: a.opt.App, Version: a.opt.Process.Release(), DefaultNamespace: "default",
		SDKVersions: map[string]string{"php": ">=1.0", "python": ">=2.0.0rc1", "rust": ">=4.0", "cli": ">=0.1"},
		Capabilities: protocol.ControlCapabilities{
			WorkflowTasks: true, ActivityTasks: true, Signals: true, Queries: true, Updates: true, ContinueAsNew: true,
			ActivityTimeouts:    true,
			ActivityRetryPolicy: true, NonRetryableFailures: true, ChildWorkflows: true, ChildRetryPolicy: true,
			ChildTimeouts:     true,
			ParentClosePolicy: true, HistoryExport: true, HistoryRetention: true, SearchAttributes: true, Schedules: true,
			PayloadEnvelope: true, PayloadEnvelopeResponse: true, PayloadCodecs: []string{payload.Codec},
			ResponseCompression: []string{"gzip"},
		},
		Compatibility: protocol.ClientCompatibility{
			SchemaVersion:   protocol.SchemaVersion{Schema: "durable-workflow.v2.client-compatibility", Version: 1},
			Authority:       "protocol_manifests",
			TopLevelVersion: "informational", FailClosed: true,
		},
		ControlPlane: protocol.ControlPlaneTerms{
			Version: Version, Header: VersionHeader,
			Response: protocol.SchemaVersion{Schema: "durable-workflow.v2.control-plane-response", Version: 1},
			Request: protocol.RequestTerms{
				SchemaVersion: protocol.SchemaVersion{Schema: "durable-workflow.v2.control-plane-request.contract", Version: 1},
				Operations:    operations,
			},
		},
		Auth: composition,
		Limits: protocol.Limits{
			PayloadBytes: payload.MaxBytes, MemoBytes: engine.MaxStartMemo, OperationName: protocol.MaxName,
			PendingActivities: protocol.MaxPending, PendingChildren: protocol.MaxPending,
			SearchAttributes:    protocol.MaxAttributes,
			SearchAttributeName: protocol.MaxAttributeName, SearchAttributeSize: protocol.MaxAttributeBytes,
		},
		Structural: protocol.StructuralLimits{
			PendingActivities: protocol.MaxPending, PendingTimers: protocol.MaxPending, PendingChildren: protocol.MaxPending,
			PendingSignals: engine.MaxSignals, PendingUpdates: engine.MaxUpdates, Commands: protocol.MaxCommands,
			PayloadBytes: payload.MaxBytes, MemoBytes: engine.MaxStartMemo, SearchAttributeBytes: protocol.MaxAttributesBytes,
		},
		Sojourn: protocol.SojournInfo{
			Release: a.opt.Process.Release(), AppID: a.opt.App,
			Features: []string{
				"worker_sessions", "session_epochs", "batch_tasks", "cooperative_cancellation_requests", "socket", "why_waiting",
				"history_stream",
				"history_import", "run_filters", "session_pools", "queue_budgets", "build_rollouts", "start_delay", "start_cron",
			},
			Limits:   protocol.BodyLimits{One: httpjson.MaxBody, Batch: httpjson.MaxBatchBody},
			Sessions: sessions,
		},
	}
	if a.opt.WorkerAPI != nil {
		version, capabilities := a.opt.WorkerAPI.Protocol()
		info.Worker = &protocol.WorkerTerms{
			Version: version, Header: protocol.HeaderWorkerVersion, Capabilities: capabilities,
		}
	}
	return info
}

var (
	workersSetting = "worker" // the value comes from a setting of the worker that holds the session

	sessions = protocol.SessionsGiven{
		Schema:     "durable-workflow.v2.worker-sessions-runtime",
		SchemaPath: "/api/schemas/worker-sessions-runtime.schema.json", Origins: []string{"implicit", "worker", "workflow"},
		Defaults: protocol.SessionOrigins{
			Implicit: protocol.SessionOrigin{
				Scope: "namespace", Lease: workersSetting, Idle: &workersSetting, Activities: "worker_slots", Ends: "never",
			},
			Worker: protocol.WorkerSessionOrigin{
				Scope: "namespace", Lease: engine.WorkerSessionLease, TTL: engine.WorkerSessionTTL, Activities: 1,
				Ends: "close_or_ttl",
			},
			Workflow: protocol.SessionOrigin{
				Scope: "workflow", Lease: workersSetting, Activities: "worker_slots", Ends: "end_session_or_end_of_run_chain",
			},
		},
		FencingToken: "session_epoch",
		Epoch: protocol.EpochTerms{
			Members: protocol.EpochMembers{
				Tasks: "worker_session.epoch", Heartbeats: "session_epoch", Completions: "session_epoch", Verbs: "epoch",
			},
			Rises: "every_claim_over_the_life_of_the_id",
		},
		Verbs:           []string{"create", "heartbeat", "release", "close"},
		OperatorVerbs:   []string{"close", "migrate", "forget"},
		ReleasePolicies: []string{engine.PolicyMigrate, engine.PolicyFinish, engine.PolicyFail},
		Affinity:        []string{protocol.AffinityHard, protocol.AffinitySoft}, FallbackAfter: engine.FallbackAfter,
		Notice: protocol.NoticeSession,
		Failures: protocol.SessionFailures{
			Ended: []protocol.Reason{protocol.ReasonSessionClosed, protocol.ReasonSessionMissing}, StateLost: "SessionLost",
		},
	}
)

var operations = map[string]protocol.OperationTerms{
	"list": {Fields: map[string]protocol.FieldTerms{
		"status": {Values: []string{"running", "completed", "failed"}, Refused: map[string]string{}},
	}},
	"update": {
		Fields: map[string]protocol.FieldTerms{
			"wait_for": {Values: []string{protocol.WaitAccepted, protocol.WaitCompleted}},
		},
		Removed: map[string]string{"wait_policy": "Use wait_for."},
	},
	"start": {Fields: map[string]protocol.FieldTerms{
		"duplicate_policy": {
			Values: []string{"fail", "use-existing"}, Refused: map[string]string{"use_existing": "use-existing"},
		},
		"reuse_policy": {
			Values: []string{protocol.ReuseReject, protocol.ReuseAfterFailure, protocol.ReuseAllow},
		},
		"conflict_policy": {
			Values: []string{protocol.ConflictFail, protocol.ConflictUseExisting, protocol.ConflictTerminateExisting},
		},
		"execution_timeout_seconds": {Type: "integer", Min: 1},
		"run_timeout_seconds":       {Type: "integer", Min: 1},
		"payload_codec":             {Type: "string", Values: []string{payload.Codec}},
	}},
}

var composition = protocol.AuthComposition{
	SchemaVersion: protocol.SchemaVersion{Schema: "durable-workflow.v2.auth-composition.contract", Version: 1},
	Precedence: protocol.AuthPrecedence{
		Connection: []string{"flag", "environment", "selected_profile", "default"},
		Profile:    []string{"flag_env", "DW_ENV", "current_profile", "default_profile"},
	},
	Environment: protocol.AuthEnvironment{
		ServerURL: "DURABLE_WORKFLOW_SERVER_URL", Namespace: "DURABLE_WORKFLOW_NAMESPACE",
		Token:     "DURABLE_WORKFLOW_AUTH_TOKEN",
		TLSVerify: "DURABLE_WORKFLOW_TLS_VERIFY", Profile: "DW_ENV",
	},
	Material: protocol.AuthMaterials{
		Token: protocol.AuthMaterial{Status: "supported", Shown: "redacted"},
		MTLS:  protocol.AuthMaterial{Status: "reserved"}, SignedHeaders: protocol.AuthMaterial{Status: "reserved"},
	},
	Effective: protocol.AuthEffective{Required: []string{"server_url", "namespace", "profile", "auth", "tls", "identity"}},
	Redaction: protocol.AuthRedaction{NeverEcho: []string{"bearer_tokens", "private_keys", "raw_authorization_headers"}},
}
