package protocol

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Reason is the reason of a refusal, from this closed list. Programs read the reason, people the message.
type Reason string

// The reasons, with the HTTP status of each.
const (
	ReasonMalformedJSON         Reason = "malformed_json"
	ReasonMalformedPayload      Reason = "malformed_payload"
	ReasonValidation            Reason = "validation_failed"
	ReasonUnauthorized          Reason = "unauthorized"
	ReasonForbidden             Reason = "forbidden"
	ReasonNotFound              Reason = "not_found"
	ReasonMethodNotAllowed      Reason = "method_not_allowed"
	ReasonUnsupportedMediaType  Reason = "unsupported_media_type"
	ReasonPayloadTooLarge       Reason = "payload_too_large"
	ReasonUnsupportedCodec      Reason = "unsupported_payload_codec"
	ReasonUnknownMethod         Reason = "unknown_method"
	ReasonInternal              Reason = "internal"
	ReasonStoreUnavailable      Reason = "store_unavailable"
	ReasonBackendUnavailable    Reason = "backend_unavailable" // to workers: the outcome is unknown
	ReasonThrottled             Reason = "throttled"
	ReasonOverloaded            Reason = "overloaded"     // no effect: no bytes in flight are left in the budget
	ReasonQuotaExceeded         Reason = "quota_exceeded" // no effect: a quota of the namespace is exceeded
	ReasonPollCapacity          Reason = "long_poll_capacity_exhausted"
	ReasonMissingVersion        Reason = "missing_protocol_version"
	ReasonUnsupportedVersion    Reason = "unsupported_protocol_version"
	ReasonMissingControl        Reason = "missing_control_plane_version"
	ReasonUnsupportedControl    Reason = "unsupported_control_plane_version"
	ReasonNamespaceNotFound     Reason = "namespace_not_found"
	ReasonInstanceNotFound      Reason = "instance_not_found"
	ReasonRunNotFound           Reason = "run_not_found"
	ReasonRunNotActive          Reason = "run_not_active"
	ReasonRunExists             Reason = "run_already_exists"
	ReasonInvalidBundle         Reason = "invalid_history_bundle"
	ReasonBundleIntegrity       Reason = "history_bundle_integrity_failed"
	ReasonHistoryIncomplete     Reason = "history_incomplete"
	ReasonPastRetention         Reason = "past_retention"
	ReasonRunNotClosed          Reason = "run_not_closed"
	ReasonHistoricalRun         Reason = "historical_run_command_rejected"
	ReasonRunNotFailed          Reason = "run_not_failed"
	ReasonFailureBoundary       Reason = "unrecorded_failure_boundary"
	ReasonUnsupportedHistory    Reason = "unsupported_history"
	ReasonResetPoint            Reason = "not_a_reset_point"
	ReasonUnknownSignal         Reason = "unknown_signal"
	ReasonUnknownUpdate         Reason = "unknown_update"
	ReasonUnknownQuery          Reason = "rejected_unknown_query"
	ReasonQueryRejected         Reason = "query_rejected"
	ReasonQueryArguments        Reason = "invalid_query_arguments"
	ReasonQueryWorker           Reason = "query_worker_unavailable"
	ReasonQueryTimeout          Reason = "query_worker_timeout"
	ReasonQueryQueueFull        Reason = "query_task_queue_full"
	ReasonQueryUnavailable      Reason = "query_task_queue_unavailable"
	ReasonQueryTaskNotFound     Reason = "query_task_not_found"
	ReasonQueryNotLeased        Reason = "query_task_not_leased"
	ReasonQueryAttempt          Reason = "query_task_attempt_mismatch"
	ReasonUpdateRejected        Reason = "update_validator_rejected"
	ReasonValidatorWorker       Reason = "update_validator_worker_unavailable"
	ReasonValidatorFailed       Reason = "update_validation_worker_failed"
	ReasonValidationUnclaimed   Reason = "update_validation_task_not_claimed"
	ReasonValidationTimeout     Reason = "update_validation_execution_timeout"
	ReasonValidationNotFound    Reason = "update_validation_task_not_found"
	ReasonValidationNotLeased   Reason = "update_validation_task_not_leased"
	ReasonValidationStale       Reason = "stale_update_validation_completion"
	ReasonValidationDuplicate   Reason = "duplicate_update_validation_completion"
	ReasonValidationExpired     Reason = "update_validation_lease_expired"
	ReasonAlreadyStarted        Reason = "instance_already_started"
	ReasonDuplicateStart        Reason = "duplicate_not_allowed" // the workflow ID of a start is taken
	ReasonRequestConflict       Reason = "request_id_conflict"
	ReasonCancelNotSupported    Reason = "cancellation_not_supported"
	ReasonActivityRun           Reason = "activity_run" // request for workflow code, sent to an activity run
	ReasonTaskNotFound          Reason = "task_not_found"
	ReasonTaskNotLeased         Reason = "task_not_leased"
	ReasonNotClaimable          Reason = "task_not_claimable"
	ReasonLeaseOwnerMismatch    Reason = "lease_owner_mismatch"
	ReasonAttemptMismatch       Reason = "workflow_task_attempt_mismatch"
	ReasonLeaseExpired          Reason = "lease_expired"
	ReasonRunClosed             Reason = "run_closed"
	ReasonRunCancelled          Reason = "run_cancelled"
	ReasonRunTerminated         Reason = "run_terminated"
	ReasonRunTimedOut           Reason = "run_timed_out"
	ReasonStaleAttempt          Reason = "stale_attempt"
	ReasonStaleSessionEpoch     Reason = "stale_session_epoch"
	ReasonConflictingCompletion Reason = "conflicting_completion"
	ReasonAlreadyCompleted      Reason = "already_completed"
	ReasonAwakeableNotFound     Reason = "awakeable_not_found"
	ReasonAwakeableClosed       Reason = "awakeable_closed" // the awakeable ended without an outcome
	ReasonInvalidCommands       Reason = "invalid_commands"
	ReasonStructuralLimit       Reason = "structural_limit_exceeded"
	ReasonInvalidPageToken      Reason = "invalid_page_token"
	ReasonQueryTooBroad         Reason = "query_too_broad"
	ReasonWorkerNotRegistered   Reason = "worker_not_registered"
	ReasonWorkerNotFound        Reason = "worker_not_found"
	ReasonStaleRegistration     Reason = "stale_worker_registration"
	ReasonDefinitionChanged     Reason = "workflow_definition_changed"
	ReasonManifestMismatch      Reason = "worker_capability_manifest_mismatch"
	ReasonManifestFloor         Reason = "worker_capability_protocol_floor_mismatch"
	ReasonCapabilityVersion     Reason = "workflow_metadata_capability_protocol_mismatch"
	ReasonStreamsUnavailable    Reason = "message_streams_unavailable"
	ReasonPollExpired           Reason = "poll_cached_task_expired"
	ReasonPollKinds             Reason = "poll_request_task_kinds_conflict"
	ReasonWorkerDraining        Reason = "worker_draining"
	ReasonQueueMismatch         Reason = "task_queue_mismatch"
	ReasonBuildMismatch         Reason = "build_id_mismatch"
	ReasonVersionMismatch       Reason = "version_mismatch"
	ReasonInvalidSession        Reason = "invalid_worker_session"
	ReasonSessionNotFound       Reason = "session_not_found"
	ReasonWorkerSessionNotFound Reason = "worker_session_not_found"
	ReasonSessionMissing        Reason = "session_missing"
	ReasonSessionClosed         Reason = "session_closed"
	ReasonSessionNotActive      Reason = "session_not_active"
	ReasonSessionNotEnded       Reason = "session_not_ended"
	ReasonPoolNotFound          Reason = "session_pool_not_found"
	ReasonSessionOwner          Reason = "session_owner_mismatch"
	ReasonSessionOwned          Reason = "session_owned_by_another_worker"
	ReasonSessionRequirements   Reason = "session_requirements_not_met"
	ReasonSessionLimit          Reason = "worker_session_limit_exceeded"
	ReasonSessionActivityLimit  Reason = "session_activity_limit_exceeded"
	ReasonSessionReacquire      Reason = "session_reacquire_disallowed"
	ReasonSessionQueue          Reason = "session_queue_mismatch"
	// no live worker of the queue has, even without sessions, the resources that a session needs
	ReasonSessionResources   Reason = "session_resources_exceeded"
	ReasonTokenNotFound      Reason = "token_not_found"
	ReasonNamespaceExists    Reason = "namespace_already_exists"
	ReasonNamespaceBuiltIn   Reason = "namespace_built_in"
	ReasonScheduleNotFound   Reason = "schedule_not_found"
	ReasonScheduleExists     Reason = "schedule_already_exists"
	ReasonBatchJobNotFound   Reason = "batch_job_not_found"
	ReasonBatchJobClosed     Reason = "batch_job_closed"
	ReasonBatchJobLimit      Reason = "batch_job_limit_reached" // the namespace has the maximum of open batch jobs
	ReasonQueueNotFound      Reason = "task_queue_not_found"
	ReasonDeploymentNotFound Reason = "deployment_not_found"
	ReasonNotPromoted        Reason = "deployment_not_promoted"
	ReasonNoEarlier          Reason = "no_earlier_deployment"
	ReasonAttributeNotFound  Reason = "attribute_not_found"
	ReasonAttributeExists    Reason = "attribute_already_exists"
	ReasonAttributeReserved  Reason = "name_reserved"
	ReasonAttributeSystem    Reason = "system_attribute"
	ReasonAttributeLimit     Reason = "search_attribute_limit_reached"
	ReasonStaleRevision      Reason = "stale_revision" // another caller has changed it since
)

var statuses = map[Reason]int{
	ReasonMalformedJSON: 400, ReasonMalformedPayload: 400, ReasonMissingVersion: 400, ReasonUnsupportedVersion: 400,
	ReasonMissingControl: 400, ReasonUnsupportedControl: 400, ReasonInvalidPageToken: 400, ReasonUnknownMethod: 404,
	ReasonUnauthorized: 401, ReasonForbidden: 403, ReasonNotFound: 404, ReasonNamespaceNotFound: 404,
	ReasonInstanceNotFound: 404,
	ReasonRunNotFound:      404, ReasonTaskNotFound: 404, ReasonWorkerNotFound: 404, ReasonSessionNotFound: 404,
	ReasonPoolNotFound:          404,
	ReasonWorkerSessionNotFound: 404,
	ReasonInvalidBundle:         422, ReasonBundleIntegrity: 422,
	ReasonBatchJobNotFound: 404, ReasonBatchJobLimit: 429,
	ReasonScheduleNotFound: 404, ReasonQueueNotFound: 404, ReasonDeploymentNotFound: 404, ReasonAttributeNotFound: 404,
	ReasonAwakeableNotFound: 404,
	ReasonAttributeLimit:    422,
	ReasonTokenNotFound:     404, ReasonUnknownSignal: 404, ReasonUnknownUpdate: 404, ReasonUnknownQuery: 404,
	ReasonUpdateRejected: 422, ReasonValidationUnclaimed: 504, ReasonValidationTimeout: 504, ReasonValidationNotFound: 404,
	ReasonQueryTaskNotFound: 404, ReasonQueryArguments: 422, ReasonQueryQueueFull: 429, ReasonQueryUnavailable: 503,
	ReasonQueryTimeout: 504, ReasonMethodNotAllowed: 405, ReasonWorkerNotRegistered: 412, ReasonPayloadTooLarge: 413,
	ReasonUnsupportedMediaType: 415, ReasonValidation: 422, ReasonQueryTooBroad: 422,
	ReasonInvalidSession: 422, ReasonStructuralLimit: 422,
	ReasonUnsupportedCodec: 422,
	ReasonThrottled:        429, ReasonPollCapacity: 429, ReasonInternal: 500, ReasonStoreUnavailable: 503,
	ReasonBackendUnavailable: 503, ReasonOverloaded: 429, ReasonQuotaExceeded: 429,
}

// Away reports whether the store was unavailable: the request may have been executed.
func (r Reason) Away() bool { return r == ReasonStoreUnavailable || r == ReasonBackendUnavailable }

// Status returns the HTTP status of a refusal with this reason; default 409.
func (r Reason) Status() int {
	if s, ok := statuses[r]; ok {
		return s
	}
	return http.StatusConflict
}

// Error is a typed refusal. Details has further members of the response, by their wire names; Fields maps the path of a
// member to its error.
type Error struct {
	Reason  Reason
	Message string
	Details map[string]any
	Fields  map[string][]string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Reason, e.Message) }

// Is matches a target *Error of the same reason, so that errors.Is(err, &Error{Reason: r}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Reason == e.Reason
}

// Refuse returns a refusal with a message for people.
func Refuse(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}

// With adds a member to the response.
func (e *Error) With(name string, value any) *Error {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[name] = value
	return e
}

// Invalid returns the refusal of one member.
func Invalid(field, format string, args ...any) *Error {
	text := fmt.Sprintf(format, args...)
	return &Error{Reason: ReasonValidation, Message: field + ": " + text, Fields: map[string][]string{field: {text}}}
}

// Beneath prefixes the fields of an error with a member's name.
func Beneath(name string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	fields := map[string][]string{}
	for f, what := range e.Fields {
		if f == "body" {
			f = name
		} else {
			f = name + "." + f
		}
		fields[f] = what
	}
	return &Error{Reason: e.Reason, Message: name + ": " + e.Message, Details: e.Details, Fields: fields}
}

// Missing returns the refusal of a request without required members, with their names; nil if there are none.
func Missing(names []string) error {
	if len(names) == 0 {
		return nil
	}
	fields := make(map[string][]string, len(names))
	for _, n := range names {
		fields[n] = []string{"is missing"}
	}
	verb := "is"
	if len(names) > 1 {
		verb = "are"
	}
	return &Error{Reason: ReasonValidation, Message: strings.Join(names, ", ") + ": " + verb + " missing", Fields: fields}
}

// BodyOf returns a refusal as part of a response. An error without a reason does not expose its cause.
func BodyOf(err error) *ErrorBody {
	var e *Error
	if !errors.As(err, &e) {
		e = Refuse(ReasonInternal, "internal error")
	}
	return &ErrorBody{Reason: e.Reason, Message: e.Message, Details: e.Details, Fields: e.Fields}
}

// Err returns the body as an *Error.
func (b *ErrorBody) Err() error {
	return &Error{Reason: b.Reason, Message: b.Message, Details: b.Details, Fields: b.Fields}
}

// ReasonOf returns the reason of a refusal in err's chain, or "".
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}
