package client

import (
	"errors"
	"fmt"

	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/internal/mask"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Reason is the reason of an error response. Programs read the reason, people the message. The constants are the
// reasons that programs handle most often; docs/openapi.json lists all reasons of each route.
type Reason string

// Reasons of error responses.
const (
	ReasonInvalid             Reason = "validation_failed" // see ErrInvalidOptions
	ReasonUnauthorized        Reason = "unauthorized"      // the token is missing or unknown
	ReasonForbidden           Reason = "forbidden"         // the token's roles do not allow the request
	ReasonThrottled           Reason = "throttled"         // too many requests; repeat it later
	ReasonOverloaded          Reason = "overloaded"        // the request had no effect; repeat it later
	ReasonQuotaExceeded       Reason = "quota_exceeded"    // see ErrQuotaExceeded
	ReasonStoreUnavailable    Reason = "store_unavailable" // the request may have been executed
	ReasonPayloadTooLarge     Reason = "payload_too_large"
	ReasonNamespaceNotFound   Reason = "namespace_not_found"
	ReasonWorkflowNotFound    Reason = "instance_not_found" // no run has the workflow ID
	ReasonRunNotFound         Reason = "run_not_found"
	ReasonWorkflowIDInUse     Reason = "duplicate_not_allowed" // the policies of the start refuse the workflow ID
	ReasonRequestConflict     Reason = "request_id_conflict"   // the ID was used for a request with other content
	ReasonRunNotActive        Reason = "run_not_active"        // the run has closed
	ReasonRunNotClosed        Reason = "run_not_closed"
	ReasonRunNotFailed        Reason = "run_not_failed"
	ReasonResetPoint          Reason = "not_a_reset_point"
	ReasonNotCurrentRun       Reason = "historical_run_command_rejected" // the run is not the current one of its ID
	ReasonActivityRun         Reason = "activity_run"                    // an activity run has no workflow code
	ReasonCancelNotSupported  Reason = "cancellation_not_supported"      // see ErrCancelNotSupported
	ReasonUnknownQuery        Reason = "rejected_unknown_query"
	ReasonQueryRejected       Reason = "query_rejected"           // the query handler returned an error
	ReasonQueryWorker         Reason = "query_worker_unavailable" // no worker can answer the query
	ReasonUnknownUpdate       Reason = "unknown_update"
	ReasonUpdateRejected      Reason = "update_validator_rejected"
	ReasonUpdateFailed        Reason = "update_failed"          // the handler failed, or the run closed before it ended
	ReasonAttemptNotFound     Reason = "task_not_found"         // no attempt of an activity has the token
	ReasonAttemptEnded        Reason = "stale_attempt"          // the attempt of the token has ended otherwise
	ReasonAttemptResolved     Reason = "conflicting_completion" // another outcome was reported before
	ReasonAwakeableNotFound   Reason = "awakeable_not_found"
	ReasonAwakeableResolved   Reason = "conflicting_completion" // another result or failure was delivered before
	ReasonAwakeableClosed     Reason = "awakeable_closed"       // the awakeable ended without an outcome
	ReasonScheduleNotFound    Reason = "schedule_not_found"
	ReasonScheduleExists      Reason = "schedule_already_exists"
	ReasonBatchJobNotFound    Reason = "batch_job_not_found"
	ReasonBatchJobClosed      Reason = "batch_job_closed"
	ReasonBatchJobLimit       Reason = "batch_job_limit_reached" // the namespace has the maximum of open batch jobs
	ReasonSessionNotFound     Reason = "worker_session_not_found"
	ReasonPoolNotFound        Reason = "session_pool_not_found"
	ReasonQueueNotFound       Reason = "task_queue_not_found"
	ReasonDeploymentNotFound  Reason = "deployment_not_found"
	ReasonNotPromoted         Reason = "deployment_not_promoted" // new runs are not pinned to the build
	ReasonNoEarlierDeployment Reason = "no_earlier_deployment"
)

// Error is an error response of an app, or a request that the client did not send because the app would reject it.
type Error struct {
	Reason  Reason
	Message string              // for people
	Fields  map[string][]string // errors of members of the request, by the path of the member
}

// Error returns the reason and the message.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Reason, e.Message) }

// Is matches a target *Error of the same reason, so that errors.Is(err, &client.Error{Reason: r}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Reason == e.Reason
}

// ReasonOf returns the reason of an *Error in err's chain, or "".
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

// ErrInvalidOptions matches, with errors.Is, a request with a text or number outside the limits of the app, whether the
// client or the app found it. Nothing was done; the message names the member and its limit.
var ErrInvalidOptions error = &Error{Reason: ReasonInvalid, Message: "invalid options"}

// ErrQuotaExceeded matches, with errors.Is, refusals because of a quota of the namespace. The request had no effect;
// the message has the quota, its limit and the current value.
var ErrQuotaExceeded error = &Error{Reason: ReasonQuotaExceeded, Message: "a quota is exceeded"}

// ErrCancelNotSupported is the error of [Workflow.Cancel], by errors.Is, if no registered worker of the workflow type
// supports requests for cancellation. Workers of the published SDKs do not. The run is unchanged; [Workflow.CancelNow]
// ends it.
var ErrCancelNotSupported error = &Error{
	Reason: ReasonCancelNotSupported, Message: "no worker of the type supports requests for cancellation",
}

// Unreachable reports that no app responded: no app received the request. Calls that wait for a result return it after
// they have retried for a minute.
type Unreachable struct {
	URL  string // of the last app that was tried
	Err  error  // the cause, for example "connection refused"
	text string
}

// Error returns the URL and the cause. A password in the URL is masked.
func (e *Unreachable) Error() string {
	if e.text != "" {
		return e.text
	}
	return fmt.Sprintf("no app answers at %s: %v", mask.URL(e.URL), e.Err)
}

// Unwrap returns the cause.
func (e *Unreachable) Unwrap() error { return e.Err }

// NotCompleted is the error for a workflow without a result: it failed, timed out, or was cancelled or terminated.
type NotCompleted struct{ Run RunInfo }

// Error returns the run, its status and its failure.
func (e *NotCompleted) Error() string {
	why := e.Run.Reason
	if f := e.Run.Failure; f != nil && f.Message != "" {
		why = f.Error()
	}
	return apiclient.NotCompleted(e.Run.target(), string(e.Run.Status), why)
}

// Unwrap returns the failure of the run as a *Failure; nil if the run was cancelled, terminated, or timed out.
func (e *NotCompleted) Unwrap() error {
	if e.Run.Failure == nil {
		return nil
	}
	return e.Run.Failure
}

// public converts an error to the types of this package.
func public(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return &Error{Reason: Reason(e.Reason), Message: e.Message, Fields: e.Fields}
	}
	if e, ok := errors.AsType[*apiclient.Unreachable](err); ok {
		return &Unreachable{URL: e.URL, Err: e.Err, text: err.Error()}
	}
	return err
}
