package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// BatchAction is the action that a batch job applies to each of its runs.
type BatchAction string

// These are the actions of batch jobs. BatchRedrive concerns failed runs, BatchReset open and closed runs, BatchArchive
// and BatchDelete closed runs, and the others open runs.
const (
	BatchRequestCancellation BatchAction = "request_cancellation" // the code of the workflow can clean up
	BatchCancel              BatchAction = "cancel"               // closes the run immediately
	BatchTerminate           BatchAction = "terminate"
	BatchSignal              BatchAction = "signal"
	BatchRepair              BatchAction = "repair"  // ends the quarantine of a run
	BatchRedrive             BatchAction = "redrive" // continues failed runs; see Workflow.Redrive
	BatchReset               BatchAction = "reset"   // see Workflow.Reset
	BatchArchive             BatchAction = "archive"
	BatchDelete              BatchAction = "delete" // needs the role operator
)

// BatchOptions define a batch job.
type BatchOptions struct {
	Filter        Filter      // runs that the job concerns; required
	Action        BatchAction // see the constants; required
	Limit         int         // maximum number of runs, newest start first; 0: 10,000
	RatePerSecond int         // runs per second, at most 1,000; 0: 100
	Reason        string      // for people; the audit entries contain it
	Signal        string      // name of the signal, for BatchSignal
	Args          Args        // arguments of the signal
	ResetTo       ResetTo     // for BatchReset; required
	NoReapply     bool        // for BatchReset; see ResetOptions
}

// BatchState is the state of a batch job.
type BatchState string

// These are the states of batch jobs.
const (
	BatchCollecting BatchState = "collecting" // the app stores the IDs of the runs that match the filter
	BatchRunning    BatchState = "running"
	BatchCompleted  BatchState = "completed"
	BatchStopped    BatchState = "stopped"
	BatchFailed     BatchState = "failed" // the filter became invalid while the app collected runs
)

// BatchInfo describes a batch job and its progress.
type BatchInfo struct {
	ID            string      `json:"job_id"`
	Namespace     string      `json:"namespace"`
	State         BatchState  `json:"state"`
	Filter        Filter      `json:"query"`
	Action        BatchAction `json:"action"`
	Limit         int         `json:"limit"`
	RatePerSecond int         `json:"rate_per_second"`
	Reason        string      `json:"reason"`
	Signal        string      `json:"signal_name"`
	ResetTo       ResetTo     `json:"reset_to"`
	CreatedBy     string      `json:"created_by"` // name of the token that created the job
	CreatedAt     time.Time   `json:"created_at"`
	ClosedAt      time.Time   `json:"closed_at"` // zero: the job is open
	Runs          int64       `json:"runs"`      // runs of the job; it grows while the app collects them
	Done          int64       `json:"done"`
	Refused       int64       `json:"refused"` // runs that refused the action, for example because they had closed
	Pending       int64       `json:"pending"` // runs without a result
	EndedBy       string      `json:"ended_by"`
	EndReason     string      `json:"end_reason"` // why the job was stopped or has failed
}

// BatchPreview is the number of runs that a batch job would concern.
type BatchPreview struct {
	Filter   Filter      `json:"query"`
	Action   BatchAction `json:"action"`
	Runs     int         `json:"runs"`
	Complete bool        `json:"complete"` // false: there may be more; the count ends at 10,000 runs and after two seconds
}

// BatchResult is the result of a batch job for one run.
type BatchResult struct {
	Number     int64     `json:"number"` // position among the runs of the job, from 1
	WorkflowID string    `json:"workflow_id"`
	RunID      string    `json:"run_id"`
	State      string    `json:"state"`   // pending, done or refused
	At         time.Time `json:"at"`      // time of the result; zero: pending
	Reason     Reason    `json:"reason"`  // of a refusal
	Message    string    `json:"message"` // of a refusal, for people
}

const batchJobsPath = "/api/sojourn/batch-jobs"

// StartBatch creates a batch job, which applies an action to all runs that match a filter. The app stores the IDs of
// the runs and then applies the action to each of them once, in the background. If the namespace has the maximum of
// open batch jobs, the reason of the error is ReasonBatchJobLimit.
func (c *Client) StartBatch(ctx context.Context, o BatchOptions) (*BatchJob, error) {
	input, err := c.rawArgs(o.Args)
	if err != nil {
		return nil, err
	}
	in := protocol.BatchJobRequest{
		Query: string(o.Filter), Action: protocol.BatchAction(o.Action), Limit: o.Limit, RatePerSecond: o.RatePerSecond,
		Reason: o.Reason, SignalName: o.Signal, Input: input, RequestID: apiclient.RequestID(),
		ResetTo: protocol.ResetTo(o.ResetTo),
	}
	if o.NoReapply {
		in.Reapply = new(bool)
	}
	var v BatchInfo
	if err := c.Call(ctx, http.MethodPost, batchJobsPath, in, &v); err != nil {
		return nil, err
	}
	return c.BatchJob(v.ID), nil
}

// PreviewBatch counts the runs that a batch job with this filter and action would concern.
func (c *Client) PreviewBatch(ctx context.Context, filter Filter, action BatchAction) (v BatchPreview, err error) {
	q := url.Values{"query": {string(filter)}, "action": {string(action)}}
	return v, c.Call(ctx, http.MethodGet, "/api/sojourn/batch-preview?"+q.Encode(), nil, &v)
}

// BatchJobs lists the batch jobs of the namespace, newest first.
func (c *Client) BatchJobs(ctx context.Context) iter.Seq2[BatchInfo, error] {
	return pages[BatchInfo](ctx, c, batchJobsPath, "batch_jobs", 200, url.Values{})
}

// BatchJob returns a handle of a batch job. It sends no request and does not check that the job exists.
func (c *Client) BatchJob(id string) *BatchJob { return &BatchJob{client: c, ID: id} }

// BatchJob is a handle of a batch job. If no job has the ID, the reason of the errors is ReasonBatchJobNotFound.
type BatchJob struct {
	client *Client
	ID     string
}

func (j *BatchJob) path(suffix string) string {
	return batchJobsPath + "/" + url.PathEscape(j.ID) + suffix
}

// Describe returns the job with its progress.
func (j *BatchJob) Describe(ctx context.Context) (v BatchInfo, err error) {
	return v, j.client.Call(ctx, http.MethodGet, j.path(""), nil, &v)
}

// Results lists the runs of the job with their results: those in the state pending, done or refused, or all if state is
// empty.
func (j *BatchJob) Results(ctx context.Context, state string) iter.Seq2[BatchResult, error] {
	q := url.Values{}
	if state != "" {
		q.Set("state", state)
	}
	return pages[BatchResult](ctx, j.client, j.path("/results"), "results", 1000, q)
}

// Stop closes the job. Runs without a result do not change. If the job has closed otherwise, the reason of the error is
// ReasonBatchJobClosed.
func (j *BatchJob) Stop(ctx context.Context, reason string) (v BatchInfo, err error) {
	return v, j.client.Call(ctx, http.MethodPost, j.path("/stop"), protocol.BatchStopRequest{Reason: reason}, &v)
}

// batchPoll is the interval at which Wait polls the app.
const batchPoll = time.Second

// Wait waits until the job has closed and returns it. It polls the app once per second.
func (j *BatchJob) Wait(ctx context.Context) (BatchInfo, error) {
	for {
		v, err := j.Describe(ctx)
		if err != nil || !v.ClosedAt.IsZero() {
			return v, err
		}
		select {
		case <-time.After(batchPoll):
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}
