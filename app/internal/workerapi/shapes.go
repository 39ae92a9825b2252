package workerapi

import (
	"encoding/json"
	"net/http"

	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// This list is used to parse requests and to generate the API description. Tests fail for a route without an entry and
// for a response that differs from its entry.

// These are reasons of errors that many routes share.
var (
	unregistered = []protocol.Reason{protocol.ReasonWorkerNotRegistered, protocol.ReasonStaleRegistration}
	registering  = append([]protocol.Reason{
		protocol.ReasonDefinitionChanged, protocol.ReasonManifestMismatch, protocol.ReasonManifestFloor,
		protocol.ReasonCapabilityVersion,
		protocol.ReasonStreamsUnavailable, protocol.ReasonWorkerNotFound,
	}, unregistered...)
	polling = append([]protocol.Reason{
		protocol.ReasonWorkerDraining, protocol.ReasonQueueMismatch, protocol.ReasonVersionMismatch, protocol.ReasonThrottled,
		protocol.ReasonPollCapacity, protocol.ReasonBuildMismatch, protocol.ReasonPollExpired, protocol.ReasonPollKinds,
		protocol.ReasonWorkerNotFound,
	}, unregistered...)
	onWorkflowTask = []protocol.Reason{
		protocol.ReasonTaskNotFound, protocol.ReasonTaskNotLeased, protocol.ReasonLeaseOwnerMismatch,
		protocol.ReasonAttemptMismatch,
		protocol.ReasonLeaseExpired, protocol.ReasonRunClosed, protocol.ReasonRunTimedOut, protocol.ReasonStaleRegistration,
	}
	completingTask = append([]protocol.Reason{
		protocol.ReasonConflictingCompletion, protocol.ReasonInvalidCommands, protocol.ReasonStructuralLimit,
		protocol.ReasonSessionClosed,
		protocol.ReasonSessionMissing, protocol.ReasonInvalidSession,
	}, onWorkflowTask...)
	onActivityTask = []protocol.Reason{
		protocol.ReasonTaskNotFound, protocol.ReasonStaleAttempt, protocol.ReasonLeaseOwnerMismatch, protocol.ReasonRunClosed,
		protocol.ReasonRunCancelled,
		protocol.ReasonRunTerminated, protocol.ReasonRunTimedOut, protocol.ReasonStaleSessionEpoch,
		protocol.ReasonConflictingCompletion,
		protocol.ReasonStaleRegistration, protocol.ReasonLeaseExpired,
	}
	onQueryTask = []protocol.Reason{
		protocol.ReasonQueryTaskNotFound, protocol.ReasonQueryNotLeased, protocol.ReasonQueryAttempt,
		protocol.ReasonLeaseOwnerMismatch,
		protocol.ReasonLeaseExpired, protocol.ReasonStaleRegistration,
	}
	onValidation = []protocol.Reason{
		protocol.ReasonValidationNotFound, protocol.ReasonValidationNotLeased, protocol.ReasonValidationStale,
		protocol.ReasonValidationDuplicate,
		protocol.ReasonValidationExpired, protocol.ReasonLeaseOwnerMismatch, protocol.ReasonStaleRegistration,
	}
	onSession = append([]protocol.Reason{
		protocol.ReasonSessionNotFound, protocol.ReasonSessionNotActive, protocol.ReasonSessionOwner,
		protocol.ReasonSessionClosed,
		protocol.ReasonInvalidSession, protocol.ReasonStaleSessionEpoch, protocol.ReasonWorkerNotFound,
	}, unregistered...)
)

// These are members that the calls about a leased task require.
var (
	leasedTask    = []string{"lease_owner", "workflow_task_attempt"}
	leasedAttempt = []string{"lease_owner", "activity_attempt_id|attempt_id"}
	leasedQuery   = []string{"lease_owner", "query_task_attempt"}
	leasedVerdict = []string{"lease_owner", "update_validation_attempt"}
	eitherName    = []string{"worker_id|lease_owner"}
)

// why returns these members and those of a failure.
func why(members []string) []string {
	return append(members[:len(members):len(members)], "failure|message|error|type|exception_type")
}

// shapes maps every operation to its request and responses. Tests fail for a route without an entry.
var shapes = map[string]serve.Shape{
	"register": {
		Summary: "Register a worker", Body: protocol.RegisterRequest{}, Needs: []string{"task_queue|task_queues"},
		Responses: serve.Responses(201, protocol.RegisterResponse{}), Refuses: registering,
	},
	"deregister": {
		Summary: "Deregister a worker", Query: incarnationQuery{},
		Responses: serve.OK(protocol.DeregisterResponse{}), Refuses: onWorker,
	},
	"worker_heartbeat": {
		Summary: "Send a worker heartbeat",
		Body:    protocol.WorkerHeartbeat{}, Needs: []string{"worker_id"},
		Responses: serve.OK(protocol.WorkerHeartbeatResponse{}), Refuses: onWorker,
	},

	"poll_workflow_task": {
		Summary: "Poll for a workflow task",
		Body:    pollBody{}, Needs: []string{"worker_id"}, Responses: polled(workflowPolled{}), Refuses: polling,
	},
	"workflow_task_history": {
		Summary: "Read a page of a workflow task's history",
		Body:    historyBody{}, Needs: leasedTask, Query: allQuery{}, Responses: serve.OK(polledPage{}),
		Refuses: append([]protocol.Reason{protocol.ReasonInvalidPageToken}, onWorkflowTask...),
	},
	"heartbeat_workflow_task": {
		Summary: "Renew the lease of a workflow task", Body: holder{}, Needs: leasedTask,
		Responses: serve.OK(workflowBeat{}), Refuses: onWorkflowTask,
	},
	"complete_workflow_task": {
		Summary: "Complete a workflow task",
		Body:    commandsBody{}, Needs: []string{"lease_owner", "workflow_task_attempt", "commands"},
		Responses: serve.OK(workflowOutcome{}), Refuses: completingTask,
	},
	"fail_workflow_task": {
		Summary: "Fail a workflow task", Body: failing{}, Needs: why(leasedTask),
		Responses: serve.OK(workflowOutcome{}), Refuses: completingTask,
	},

	"claim_workflow_task": {
		Summary: "Lease a workflow task by ID", Body: claimBody{}, Needs: eitherName,
		Responses: serve.OK(workflowClaimed{}), Refuses: claiming,
	},
	"workflow_task_claim_status": {
		Summary: "Check whether a workflow task can be leased", Query: claimQuery{},
		Responses: serve.OK(protocol.LeaseStatus{}), Refuses: claiming,
	},
	"claim_activity_task": {
		Summary: "Lease an activity task by ID", Body: claimBody{}, Needs: eitherName,
		Responses: serve.OK(activityClaimed{}), Refuses: claiming,
	},
	"activity_task_claim_status": {
		Summary: "Check whether an activity task can be leased", Query: claimQuery{},
		Responses: serve.OK(protocol.LeaseStatus{}), Refuses: claiming,
	},
	"activity_task_status": {
		Summary: "Check an activity attempt", Body: holder{}, Needs: leasedAttempt,
		Responses: serve.OK(protocol.AttemptStatus{}), Refuses: onActivityTask,
	},
	"read_activity_task_status": {
		Summary: "Check an activity attempt", Query: attemptQuery{},
		Responses: serve.OK(protocol.AttemptStatus{}), Refuses: onActivityTask,
	},

	"poll_activity_task": {
		Summary: "Poll for an activity task",
		Body:    pollBody{}, Needs: []string{"worker_id"}, Responses: polled(activityPolled{}), Refuses: polling,
	},
	"complete_activity_task": {
		Summary: "Complete an activity", Body: completing{}, Needs: leasedAttempt,
		Responses: serve.OK(activityOutcome{}), Refuses: onActivityTask,
	},
	"fail_activity_task": {
		Summary: "Fail an activity attempt", Body: failing{}, Needs: why(leasedAttempt),
		Responses: serve.OK(activityOutcome{}), Refuses: onActivityTask,
	},
	"heartbeat_activity_task": {
		Summary: "Send an activity heartbeat",
		Body:    beat{}, Needs: leasedAttempt,
		Responses: serve.OK(protocol.HeartbeatResponse{}), Refuses: onActivityTask,
	},

	"poll_query_task": {
		Summary: "Poll for a query task",
		Body:    pollBody{}, Needs: []string{"worker_id"}, Responses: polled(queryPolled{}), Refuses: polling,
	},
	"complete_query_task": {
		Summary: "Complete a query",
		Body:    queryCompleting{}, Needs: leasedQuery, Responses: serve.OK(queryOutcome{}), Refuses: onQueryTask,
	},
	"fail_query_task": {
		Summary: "Fail a query",
		Body:    queryFailing{}, Needs: why(leasedQuery), Responses: serve.OK(queryOutcome{}), Refuses: onQueryTask,
	},

	"poll_update_validation_task": {
		Summary: "Poll for an update validation task",
		Body:    pollBody{}, Needs: []string{"worker_id"},
		Responses: polled(validationPolled{}), Refuses: polling,
	},
	"approve_update_validation_task": {
		Summary: "Approve an update",
		Body:    approving{}, Needs: leasedVerdict, Responses: serve.OK(verdictOutcome{}), Refuses: onValidation,
	},
	"reject_update_validation_task": {
		Summary: "Reject an update", Body: rejecting{}, Needs: why(leasedVerdict),
		Responses: serve.OK(verdictOutcome{}), Refuses: onValidation,
	},

	"create_worker_session": {
		Summary: "Create or acquire a session", Body: protocol.SessionCreate{}, Needs: []string{"worker_id", "session_id"},
		Responses: map[int]any{http.StatusCreated: protocol.SessionResponse{}, http.StatusOK: protocol.SessionResponse{}},
		Refuses: append([]protocol.Reason{
			protocol.ReasonSessionRequirements, protocol.ReasonSessionOwned, protocol.ReasonSessionLimit,
			protocol.ReasonSessionActivityLimit,
			protocol.ReasonSessionReacquire, protocol.ReasonSessionQueue, protocol.ReasonSessionMissing,
			protocol.ReasonWorkerDraining,
		}, onSession...),
	},
	"heartbeat_worker_session": {
		Summary: "Renew the lease of a session", Body: protocol.SessionVerb{}, Needs: []string{"worker_id"},
		Responses: serve.OK(protocol.SessionResponse{}), Refuses: onSession,
	},
	"release_worker_session": {
		Summary: "Release a session", Body: protocol.SessionVerb{}, Needs: []string{"worker_id"},
		Responses: serve.OK(protocol.SessionResponse{}), Refuses: onSession,
	},
	"close_worker_session": {
		Summary: "Close a session", Body: protocol.SessionVerb{}, Query: workerQuery{},
		Responses: serve.OK(protocol.SessionResponse{}), Refuses: onSession,
	},

	"poll_tasks": {
		Summary: "Poll for several tasks", Bare: true,
		Body: protocol.PollRequest{}, Needs: []string{"worker_id"},
		Responses: serve.OK(protocol.PollResponse{}), Refuses: polling,
	},
	"complete_tasks": {
		Summary: "Complete several tasks", Bare: true,
		Body: protocol.CompleteRequest{}, Needs: []string{"items"}, MaxBody: httpjson.MaxBatchBody,
		Responses: serve.OK(protocol.CompleteBatchResponse{}), Refuses: polling,
	},
	"record_logs": {
		Summary: "Upload activity logs", Bare: true,
		Body: protocol.LogsRequest{}, Needs: []string{"items"}, MaxBody: httpjson.MaxBatchBody,
		Responses: serve.OK(protocol.LogsResponse{}),
	},
	"worker_settings":   {Summary: "Retrieve the settings for a worker", Responses: serve.OK(protocol.WorkerSettings{})},
	"describe_protocol": {Summary: "Describe the worker protocol", Responses: serve.OK(described{})},
}

var claiming = append([]protocol.Reason{
	protocol.ReasonNotClaimable, protocol.ReasonThrottled, protocol.ReasonTaskNotFound, protocol.ReasonTaskNotLeased,
	protocol.ReasonRunClosed, protocol.ReasonWorkerDraining,
	protocol.ReasonVersionMismatch, protocol.ReasonQueueMismatch, protocol.ReasonStaleAttempt, protocol.ReasonRunCancelled,
	protocol.ReasonRunTerminated,
	protocol.ReasonSessionClosed, protocol.ReasonSessionOwned, protocol.ReasonSessionRequirements,
	protocol.ReasonSessionLimit,
	protocol.ReasonSessionActivityLimit, protocol.ReasonSessionReacquire, protocol.ReasonSessionQueue,
	protocol.ReasonBuildMismatch,
	protocol.ReasonWorkerNotFound,
}, unregistered...)

var onWorker = append([]protocol.Reason{protocol.ReasonWorkerNotFound}, unregistered...)

// polled returns the responses of a poll by status; the member poll_status contains the outcome.
func polled(body any) map[int]any {
	return map[int]any{http.StatusOK: body, http.StatusConflict: body, http.StatusServiceUnavailable: body}
}

// pollResponse has the members of every poll's response besides the task.
type pollResponse struct {
	Status     protocol.PollStatus `json:"poll_status"`
	Reason     string              `json:"reason,omitempty"`
	WaitReason string              `json:"wait_reason,omitempty"`  // throttled: the exceeded limit, for people
	Wait       *protocol.Wait      `json:"wait,omitempty"`         // throttled: the exceeded limit, for programs
	Intent     string              `json:"drain_intent,omitempty"` // draining: the worker's build is drained
	// draining: the build; null: workers without a build ID
	BuildID    **string              `json:"build_id,omitempty"`
	RetryAfter int64                 `json:"retry_after_ms,omitempty"`
	AppRelease string                `json:"app_release,omitempty"`
	WorkerID   string                `json:"worker_id,omitempty"`
	Worker     protocol.WorkerStatus `json:"worker_status,omitempty"`
	Error      string                `json:"error,omitempty"` // message for people; set if the status is not 200
	Message    string                `json:"message,omitempty"`
}

type workflowPolled struct {
	pollResponse
	Task *flowWork `json:"task"`
}

// flowWork is a workflow task or, for a poll for both kinds, an update validation task.
type flowWork struct{}

// JSONSchemaAnyOf names the two for the description of the API.
func (flowWork) JSONSchemaAnyOf() []any { return []any{polledTask{}, protocol.ValidationTask{}} }

// polledTask is a workflow task. If its page of history is compressed, history_events is empty.
type polledTask struct {
	protocol.WorkflowTask
	Compressed string `json:"history_events_compressed,omitempty"` // base64 of the compressed list of events
	Encoding   string `json:"history_events_encoding,omitempty" enum:"gzip,deflate"`
}

type activityPolled struct {
	pollResponse
	Task *protocol.ActivityTask `json:"task"`
}

type validationPolled struct {
	pollResponse
	Task *protocol.ValidationTask `json:"task"`
}

type approving struct {
	holder
	Try int64 `json:"update_validation_attempt"`
}

type rejecting struct {
	failing
	Try int64 `json:"update_validation_attempt"`
}

// verdictOutcome is the outcome of a verdict on an update.
type verdictOutcome struct {
	TaskID  string  `json:"update_validation_task_id"`
	Attempt int64   `json:"update_validation_attempt"`
	Outcome string  `json:"outcome" enum:"approved,rejected"`
	Reason  *string `json:"reason"`
}

type queryPolled struct {
	pollResponse
	Task *protocol.QueryTask `json:"task"`
}

// workflowBeat contains the new lease of a workflow task.
type workflowBeat struct {
	TaskID    string       `json:"task_id"`
	Attempt   int64        `json:"workflow_task_attempt"`
	Owner     string       `json:"lease_owner"`
	Renewed   bool         `json:"renewed"`
	Until     history.Time `json:"lease_expires_at"`
	RunStatus string       `json:"run_status"`
	Status    string       `json:"task_status"`
	Reason    *string      `json:"reason"`
}

// commandsBody completes a workflow task.
type commandsBody struct {
	holder
	Commands []protocol.Command `json:"commands"`
	protocol.StreamWaits
}

// historyBody is the request for a further page of history.
type historyBody struct {
	holder
	PageToken string `json:"next_history_page_token"`
	PageSize  int    `json:"page_size" minimum:"0" maximum:"1000"`
	Older     int    `json:"history_page_size" minimum:"0" maximum:"1000"` // an older name of page_size
	After     int64  `json:"after_sequence" minimum:"0"`
	All       bool   `json:"all"`                     // the whole history in one response
	Encoding  string `json:"accept_history_encoding"` // gzip, deflate
}

type queryCompleting struct {
	completing
	Try      int64           `json:"query_task_attempt"`
	Envelope json.RawMessage `json:"result_envelope"`
}

type queryFailing struct {
	failing
	Try int64 `json:"query_task_attempt"`
}

type queryOutcome struct {
	TaskID  string  `json:"query_task_id"`
	Attempt int64   `json:"query_task_attempt"`
	Outcome string  `json:"outcome"`
	Reason  *string `json:"reason"`
}

type polledPage struct {
	protocol.HistoryPage
	Compressed string `json:"history_events_compressed,omitempty"` // base64 of the compressed list of events
	Encoding   string `json:"history_events_encoding,omitempty" enum:"gzip,deflate"`
}

// claimResponse has the members of every claim's response.
type claimResponse struct {
	Claimed bool    `json:"claimed"`
	TaskID  string  `json:"task_id"`
	Reason  *string `json:"reason"`
	Detail  *string `json:"reason_detail"`
}

type workflowClaimed struct {
	claimResponse
	Task polledTask `json:"task"`
}

type activityClaimed struct {
	claimResponse
	Task protocol.ActivityTask `json:"task"`
}

type claimQuery struct {
	WorkerID    string `json:"worker_id"`   // also return whether this worker may claim the task
	Owner       string `json:"lease_owner"` // alternative name of worker_id
	Incarnation string `json:"incarnation"`
}

type attemptQuery struct {
	AttemptID string `json:"activity_attempt_id"`
	Old       string `json:"attempt_id"` // alternative name of activity_attempt_id
	Owner     string `json:"lease_owner"`
}

type allQuery struct {
	All bool `json:"all"` // the whole history in one response
}

type incarnationQuery struct {
	Incarnation string `json:"incarnation"` // deregister only this incarnation; absent: any
}

type workerQuery struct {
	WorkerID string `json:"worker_id"` // for clients whose DELETE has no body
}
