package httpapi

import (
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The responses of routes whose broker methods return less, or only a list.

type runsResponse struct {
	WorkflowID string    `json:"workflow_id"`
	Count      int       `json:"run_count"`
	Runs       []runItem `json:"runs"`
}

// runItem is a run in the list of a workflow's runs.
type runItem struct {
	RunID        string       `json:"run_id"`
	RunNumber    int64        `json:"run_number"`
	ChainRunID   *string      `json:"chain_run_id"` // first run of the chain; null in the first chain of the workflow ID
	WorkflowType string       `json:"workflow_type"`
	BusinessKey  *string      `json:"business_key"`
	Status       string       `json:"status" enum:"pending,running,waiting,completed,failed,cancelled,terminated"`
	StatusBucket string       `json:"status_bucket" enum:"running,completed,failed"`
	ClosedReason *string      `json:"closed_reason"`
	Current      bool         `json:"is_current_run"`
	TaskQueue    string       `json:"task_queue"`
	StartedAt    history.Time `json:"started_at"`
	ClosedAt     history.Time `json:"closed_at"`
	Error        *string      `json:"error,omitempty"`
	ErrorType    string       `json:"error_type,omitempty"`
}

type workersResponse struct {
	Namespace string                `json:"namespace"`
	Workers   []protocol.WorkerView `json:"workers"`
	// set in paged responses if there is another page
	NextPageToken *string `json:"next_page_token,omitempty"`
}

type workerRemoved struct {
	WorkerID string `json:"worker_id"`
	Outcome  string `json:"outcome" enum:"deregistered"`
}

type sessionShown struct {
	Namespace string               `json:"namespace"`
	Session   protocol.SessionView `json:"session"`
}

type sessionOperated struct {
	Namespace string `json:"namespace"`
	// draining: the session moves when its running activities have ended
	Outcome string               `json:"outcome" enum:"closed,migrated,draining,forgotten"`
	Session protocol.SessionView `json:"session"`
}

type namespacesResponse struct {
	Namespaces []protocol.NamespaceView `json:"namespaces"`
}

type schedulesResponse struct {
	Namespace     string                  `json:"namespace"`
	Schedules     []protocol.ScheduleView `json:"schedules"`
	NextPageToken *string                 `json:"next_page_token"`
}

type scheduleHistoryResponse struct {
	ScheduleID string                   `json:"schedule_id"`
	Namespace  string                   `json:"namespace"`
	Events     []protocol.ScheduleEvent `json:"events"`
	More       bool                     `json:"has_more"`
	// the after_sequence of the next page; with newest_first its before_sequence
	NextCursor *string `json:"next_cursor"`
}

type scheduleTimesResponse struct {
	Times []history.Time `json:"times"`
}

type tokensResponse struct {
	Tokens []auth.TokenView `json:"tokens"`
}

type auditResponse struct {
	Namespace string       `json:"namespace"`
	Entries   []auditEntry `json:"entries"`
}

// auditEntry is one action of an operator.
type auditEntry struct {
	At        history.Time `json:"at"`
	Identity  string       `json:"identity"`
	Action    string       `json:"action"`
	Namespace string       `json:"namespace"`
	Target    string       `json:"target"`
	Detail    string       `json:"detail"`
}

type signedOut struct {
	Outcome string `json:"outcome" enum:"signed_out"`
}

type upResponse struct {
	Status    string       `json:"status" enum:"up"`
	Timestamp history.Time `json:"timestamp"`
}

type probeResponse struct {
	Status    string       `json:"status" enum:"serving,ready,unavailable,not_ready"`
	Timestamp history.Time `json:"timestamp"`
	// status of the database: ok, unavailable; in readiness also of the release: ok, unreadable; of the drain:
	// draining, otherwise absent
	Checks map[string]string `json:"checks"`
}

type metricsResponse struct {
	Namespace string               `json:"namespace"`
	Sessions  map[string]int       `json:"worker_sessions"` // total and one per status
	Workers   map[string]int       `json:"workers"`         // numbers by status
	Runs      map[string]int       `json:"runs"`            // numbers by status
	Queues    []protocol.QueueView `json:"task_queues"`
}

// integrity describes how to verify that an export is complete.
type integrity struct {
	Canonical string  `json:"canonicalization"`
	Algorithm string  `json:"checksum_algorithm"`
	Checksum  string  `json:"checksum"`
	Signed    *string `json:"signature_algorithm"`
	Signature *string `json:"signature"`
	Key       *string `json:"key_id"`
}

// exported is a bundle in a response.
type exported struct {
	bundle
	Integrity integrity `json:"integrity"`
}

// ControlPlane is the control_plane member in every response of the workflow routes: the requested operation and its
// result. It repeats further members of the answer.
type ControlPlane struct {
	Schema        string       `json:"schema"`
	Version       int          `json:"version"`
	Operation     string       `json:"operation"`
	WorkflowID    string       `json:"workflow_id,omitempty"`
	OperationName string       `json:"operation_name,omitempty"`
	NameField     string       `json:"operation_name_field,omitempty" enum:"signal_name,query_name,update_name"`
	Contract      contractNote `json:"contract"`
}

// The following types are the parameters of queries.

type pageQuery struct {
	PageSize  int    `json:"page_size" minimum:"1" maximum:"200"`
	PageToken string `json:"next_page_token"` // token of the previous page
}

type queuesQuery struct {
	PageSize  int    `json:"page_size" minimum:"1" maximum:"1000"` // items per page; absent: all items in one page
	PageToken string `json:"next_page_token"`                      // token of the previous page
}

type deploymentsQuery struct {
	Queue string `json:"task_queue"` // only deployments of this queue
}

// buildBody names a build ID. It is required; null means the workers without a build ID.
type buildBody struct {
	BuildID *string `json:"build_id"`
}

type runsQuery struct {
	Type string `json:"workflow_type"`
	// only workflows, or only activity runs; workflow_type is then their activity type
	Kind   string `json:"kind" enum:"workflow,activity"`
	Status string `json:"status"` // a bucket (running, completed, failed) or a stored status
	// one stored status; "failed" excludes runs that timed out, were cancelled or were terminated
	Stored string `json:"stored_status" enum:"running,completed,failed,timed_out,cancelled,terminated,continued"`
	Query  string `json:"query"`        // a part of the workflow id or of the business key
	Stuck  bool   `json:"stuck"`        // only stuck runs: they make no progress and need an operator
	Waits  bool   `json:"wait_reasons"` // include the wait reason of each open run
	// return the runs found so far, with searched_to, if the search is slow; else a search of more than two seconds is
	// rejected
	Partial bool `json:"partial"`
	pageQuery
	valuesQuery
}

type historyQuery struct {
	PageSize  int    `json:"page_size" minimum:"1" maximum:"1000"` // 1000 when absent
	PageToken string `json:"next_page_token"`
	Wait      bool   `json:"wait_new_event"` // hold the request until an event after the token exists, at most 30 s
	Decoded   bool   `json:"decoded"`        // show encoded values as plain JSON too
	// the sequence of the event before the page, instead of a token: event 7 alone is after=6&page_size=1
	After int64 `json:"after" minimum:"0"`
	valuesQuery
}

// valuesQuery selects the values that a response contains.
type valuesQuery struct {
	// full, if absent: encoded values, as stored; preview: decoded values of at most 4096 bytes, and the beginnings of
	// larger ones in truncated; none: only their sizes, in truncated
	Values protocol.Values `json:"values" enum:"full,preview,none"`
}

type workersQuery struct {
	Queue     string                `json:"task_queue"`
	Status    protocol.WorkerStatus `json:"status"`
	PageSize  int                   `json:"page_size" minimum:"1" maximum:"1000"` // items per page; absent: all items in one page
	PageToken string                `json:"next_page_token"`                      // token of the previous page
}

type sessionsQuery struct {
	Status   protocol.SessionStatus `json:"status"`
	Owner    string                 `json:"owner"` // worker that owns the session
	Queue    string                 `json:"queue"`
	Workflow string                 `json:"workflow_id"`
	Query    string                 `json:"query"` // substring of the ID
	pageQuery
}

type timelineQuery struct {
	PageSize  int    `json:"page_size" minimum:"1" maximum:"500"`
	PageToken string `json:"next_page_token"` // token of the previous page, or timeline_page_token of the session
}

type attemptsQuery struct {
	Epoch int `json:"epoch" minimum:"0"` // only attempts in this epoch; 0 or absent: in all epochs
	pageQuery
}

type scheduleHistoryQuery struct {
	Limit  int  `json:"limit" minimum:"1" maximum:"1000"`
	After  int  `json:"after_sequence" minimum:"0"`
	Newest bool `json:"newest_first"`                // back in time, from before_sequence on
	Before int  `json:"before_sequence" minimum:"0"` // with newest_first; 0 or absent: from the newest
}

type resultQuery struct {
	WaitSeconds int `json:"wait_seconds" minimum:"1" maximum:"60"` // 30 when absent
	// full adds the input, the open steps, the possible actions and the run count; absent: without them
	View string `json:"view" enum:"full"`
}

type scheduleTimesQuery struct {
	Spec  string `json:"spec"`                            // a schedule's spec, as JSON
	Count int    `json:"count" minimum:"1" maximum:"100"` // 5 when absent
}

type auditQuery struct {
	Limit int `json:"limit" minimum:"1" maximum:"1000"`
}

type forgetQuery struct {
	Forget bool `json:"forget"` // also remove the token from the list
}

// scheduleNote is the body of a pause or resume.
type scheduleNote struct {
	Note *string `json:"note" maxLength:"1000"` // why, for people
}

type backfillBody struct {
	Start   string  `json:"start_time" format:"date-time"` // RFC 3339
	End     string  `json:"end_time" format:"date-time"`
	Overlap *string `json:"overlap_policy" enum:"skip,buffer_one,buffer_all,allow_all,cancel_other,terminate_other"`
}

type triggerBody struct {
	Overlap *string `json:"overlap_policy" enum:"skip,buffer_one,buffer_all,allow_all,cancel_other,terminate_other"`
}

type signInBody struct {
	Token string `json:"token"`
}

type nothing struct{}
