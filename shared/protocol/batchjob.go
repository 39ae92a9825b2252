package protocol

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/shared/history"
)

// BatchAction is the action that a batch job applies to each of its runs.
type BatchAction string

// These are the actions of batch jobs. Each is the verb of the same name for a single run.
const (
	BatchCancel BatchAction = "cancel"
	// BatchRequestCancellation lets the code of the workflow clean up; BatchCancel closes the run immediately.
	BatchRequestCancellation BatchAction = "request_cancellation"
	BatchTerminate           BatchAction = "terminate"
	BatchSignal              BatchAction = "signal"
	BatchRepair              BatchAction = "repair"
	BatchRedrive             BatchAction = "redrive"
	BatchReset               BatchAction = "reset"
	BatchArchive             BatchAction = "archive"
	BatchDelete              BatchAction = "delete"
)

// Concerns reports whether the action concerns runs with a status: failed runs, closed runs, open runs, or all runs
// that did not continue as new.
func (a BatchAction) Concerns(s RunStatus) bool {
	switch a {
	case BatchRedrive:
		return s == RunFailed
	case BatchReset:
		return s != RunContinued
	case BatchArchive, BatchDelete:
		return !s.Open()
	}
	return s.Open()
}

// BatchJobState is the state of a batch job.
type BatchJobState string

// These are the states of batch jobs.
const (
	BatchCollecting BatchJobState = "collecting" // the job stores the IDs of the runs that its query matches
	BatchRunning    BatchJobState = "running"    // the job applies its action to the stored runs
	BatchCompleted  BatchJobState = "completed"
	BatchStopped    BatchJobState = "stopped"
	BatchFailed     BatchJobState = "failed" // the query became invalid while the job collected runs
)

// BatchRunState is the state of one run of a batch job.
type BatchRunState string

// These are the states of the runs of a batch job.
const (
	BatchRunPending BatchRunState = "pending"
	BatchRunDone    BatchRunState = "done"
	BatchRunRefused BatchRunState = "refused" // the run refused the action, for example because it has closed
)

// These are limits of batch jobs.
const (
	MaxBatchRuns     = 100_000 // runs of a job
	DefaultBatchRuns = 10_000
	MaxBatchRate     = 1_000 // runs per second
	DefaultBatchRate = 100
	MaxBatchJobs     = 10     // open jobs of a namespace
	MaxBatchPreview  = 10_000 // runs that a preview counts
	// MaxBatchInput is the maximum size of a signal's argument in bytes. The row of the job contains it, and lists of
	// jobs read these rows.
	MaxBatchInput = 64 << 10
)

// BatchJobRequest creates a batch job.
type BatchJobRequest struct {
	Namespace string      `json:"-"`
	Query     string      `json:"query" minLength:"1" maxLength:"4096"` // filter of runs, as in listings
	Action    BatchAction `json:"action" enum:"cancel,request_cancellation,terminate,signal,repair,redrive,reset,archive,delete"`
	// maximum number of runs, newest start first; absent: 10000
	Limit         int             `json:"limit,omitempty" minimum:"1" maximum:"100000"`
	RatePerSecond int             `json:"rate_per_second,omitempty" minimum:"1" maximum:"1000"` // absent: 100
	Reason        string          `json:"reason,omitempty" maxLength:"1000"`                    // for people
	SignalName    string          `json:"signal_name,omitempty" maxLength:"255"`                // of the action signal
	Input         json.RawMessage `json:"input,omitempty"`                                      // argument of the signal
	ResetTo       ResetTo         `json:"reset_to,omitempty" enum:"first_task,last_task"`       // of the action reset
	// of the action reset, as for a single run
	Reapply *bool `json:"reapply,omitempty"`
	// A repeated request with the same ID returns the job that the first one created.
	RequestID string `json:"request_id,omitempty" maxLength:"255"`
	Identity  string `json:"-"`
}

// BatchPreviewRequest counts the runs of a batch job that is not created.
type BatchPreviewRequest struct {
	Namespace string `json:"-"`
	Query     string `json:"query,omitempty" maxLength:"4096"` // filter of runs, as in listings; absent: all runs
	// required; the count covers open or closed runs, as the action requires
	Action BatchAction `json:"action,omitempty" enum:"cancel,request_cancellation,terminate,signal,repair,redrive,reset,archive,delete"`
}

// BatchPreview is the number of runs that a batch job would concern. If it is not complete, there may be more.
type BatchPreview struct {
	Query    string      `json:"query"`
	Action   BatchAction `json:"action"`
	Runs     int         `json:"runs"`
	Complete bool        `json:"complete"` // false: more than 10000, or the search was ended after two seconds
}

// BatchJobView is a batch job with its progress.
type BatchJobView struct {
	JobID         string        `json:"job_id"`
	Namespace     string        `json:"namespace"`
	State         BatchJobState `json:"state" enum:"collecting,running,completed,stopped,failed"`
	Query         string        `json:"query"`
	Action        BatchAction   `json:"action"`
	Limit         int           `json:"limit"`
	RatePerSecond int           `json:"rate_per_second"`
	Reason        string        `json:"reason"`
	SignalName    string        `json:"signal_name"`        // empty for other actions
	ResetTo       ResetTo       `json:"reset_to,omitempty"` // of the action reset
	CreatedBy     string        `json:"created_by"`
	CreatedAt     history.Time  `json:"created_at"`
	ClosedAt      *history.Time `json:"closed_at"`
	Runs          int64         `json:"runs"` // runs of the job; it grows while the job collects them
	Done          int64         `json:"done"`
	Refused       int64         `json:"refused"` // runs that refused the action
	Pending       int64         `json:"pending"` // runs without a result; a stopped job leaves them unchanged
	EndedBy       string        `json:"ended_by"`
	EndReason     string        `json:"end_reason"` // of a stopped or failed job
}

// BatchJobList is a request for the batch jobs of a namespace.
type BatchJobList struct {
	Namespace string `json:"-"`
	PageSize  int    `json:"page_size,omitempty" minimum:"1" maximum:"200"`
	PageToken string `json:"next_page_token,omitempty"` // token of the previous page
}

// BatchJobPage is a page of batch jobs, newest first.
type BatchJobPage struct {
	BatchJobs     []BatchJobView `json:"batch_jobs"`
	NextPageToken *string        `json:"next_page_token"`
}

// BatchResultList is a request for the results of a batch job.
type BatchResultList struct {
	Namespace string        `json:"-"`
	JobID     string        `json:"-"`
	State     BatchRunState `json:"state,omitempty" enum:"pending,done,refused"` // absent: all
	PageSize  int           `json:"page_size,omitempty" minimum:"1" maximum:"1000"`
	PageToken string        `json:"next_page_token,omitempty"` // token of the previous page
}

// BatchResult is the result of a batch job for one run.
type BatchResult struct {
	Number     int64         `json:"number"` // position among the runs of the job, from 1
	WorkflowID string        `json:"workflow_id"`
	RunID      string        `json:"run_id"`
	State      BatchRunState `json:"state" enum:"pending,done,refused"`
	At         *history.Time `json:"at"` // time of the result
	// of a refusal: the reason that the verb for a single run returns, and its message
	Reason  *string `json:"reason"`
	Message *string `json:"message"`
}

// BatchResultPage is a page of the results of a batch job, in the order in which the job applies its action.
type BatchResultPage struct {
	JobID         string        `json:"job_id"`
	Results       []BatchResult `json:"results"`
	NextPageToken *string       `json:"next_page_token"`
}

// BatchStopRequest stops a batch job.
type BatchStopRequest struct {
	Namespace string `json:"-"`
	JobID     string `json:"-"`
	Reason    string `json:"reason,omitempty" maxLength:"1000"` // for people
	Identity  string `json:"-"`
}
