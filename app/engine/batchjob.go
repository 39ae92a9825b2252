package engine

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A batch job first stores the IDs of the runs that its query matches, then applies its action to each of them. One app
// at a time owns a job, under a lease with an epoch. The transaction that applies the action to a run also stores its
// result and checks the epoch in the job's row, so no run gets the action twice.

// BatchJobKey identifies a batch job.
type BatchJobKey struct{ Namespace, ID string }

// BatchJob is the row of a batch job.
type BatchJob struct {
	Namespace string                 `json:"-"`
	ID        string                 `json:"-"`
	CreatedAt history.Time           `json:"-"`
	ClosedAt  history.Time           `json:"-"`
	State     protocol.BatchJobState `json:"state"`

	Query    string               `json:"query"`
	Action   protocol.BatchAction `json:"action"`
	Limit    int                  `json:"limit"`
	Rate     int                  `json:"rate_per_second"`
	Reason   string               `json:"reason,omitempty"`
	Identity string               `json:"identity,omitempty"` // name of the token that created the job
	Signal   string               `json:"signal_name,omitempty"`
	Input    json.RawMessage      `json:"input,omitempty"` // argument of the signal, as in the request
	ResetTo  protocol.ResetTo     `json:"reset_to,omitempty"`
	Reapply  *bool                `json:"reapply,omitempty"`
	Hash     string               `json:"hash,omitempty"` // hash of the request; empty: it had no request ID

	Owner      string       `json:"owner,omitempty"` // app that runs the job
	Epoch      int64        `json:"epoch,omitempty"` // number of acquisitions
	LeaseUntil history.Time `json:"lease_until,omitzero"`

	// AfterStart and AfterRun are the position in the list of runs after which the collection continues.
	AfterStart history.Time `json:"after_start,omitzero"`
	AfterRun   string       `json:"after_run,omitempty"`

	Runs    int64  `json:"runs,omitempty"` // stored run IDs
	Done    int64  `json:"done,omitempty"`
	Refused int64  `json:"refused,omitempty"`
	EndedBy string `json:"ended_by,omitempty"` // name of the token that stopped the job
	Why     string `json:"why,omitempty"`      // reason of the stop, or error that ended the job
}

// Key returns the job's key.
func (j *BatchJob) Key() BatchJobKey { return BatchJobKey{j.Namespace, j.ID} }

// Open reports whether the job may still change runs.
func (j *BatchJob) Open() bool { return j.ClosedAt.IsZero() }

// Pending returns the number of runs without a result.
func (j *BatchJob) Pending() int64 { return j.Runs - j.Done - j.Refused }

// BatchRun is one run of a batch job. The numbers of a job's runs begin with 1.
type BatchRun struct {
	BatchJobKey
	Number     int64
	Run        string
	WorkflowID string
	State      protocol.BatchRunState
	At         history.Time // time of the result
	Reason     protocol.Reason
	Message    string
}

// BatchRunKey identifies a run of a batch job.
type BatchRunKey struct {
	BatchJobKey
	Number int64
}

// ErrBatchLost means that an app no longer owns a batch job: the job has closed, or another app has acquired it.
var ErrBatchLost = errors.New("the batch job is closed or another app has acquired it")

// Acquire returns the job with app as its owner. It returns false if the job is closed, or if another app has a lease.
// If only one app uses the database, another owner is a process that has ended, and its lease is ignored.
func (j *BatchJob) Acquire(app string, shared bool, lease time.Duration, now time.Time) (BatchJob, bool) {
	if j == nil || !j.Open() || shared && j.Owner != "" && j.Owner != app && now.Before(j.LeaseUntil.Time) {
		return BatchJob{}, false
	}
	next := *j
	next.Owner, next.LeaseUntil = app, history.At(now.Add(lease))
	next.Epoch++
	return next, true
}

// Renew returns the job with a renewed lease, or ErrBatchLost if the app does not own this epoch of it.
func (j *BatchJob) Renew(app string, epoch int64, lease time.Duration, now time.Time) (BatchJob, error) {
	if j == nil || !j.Open() || j.Owner != app || j.Epoch != epoch {
		return BatchJob{}, ErrBatchLost
	}
	next := *j
	next.LeaseUntil = history.At(now.Add(lease))
	return next, nil
}

// Release returns the job without an owner, so that another app may acquire it before the lease expires.
func (j BatchJob) Release() BatchJob {
	j.Owner, j.LeaseUntil = "", history.Time{}
	return j
}

// Collect adds runs to the job, in the order of the list, and returns their rows. complete: the list has no more runs.
func (j BatchJob) Collect(runs []Head, complete bool) (BatchJob, []BatchRun) {
	rows := make([]BatchRun, 0, len(runs))
	for i := range runs {
		j.Runs++
		rows = append(rows, BatchRun{
			BatchJobKey: j.Key(), Number: j.Runs, Run: runs[i].ID, WorkflowID: runs[i].WorkflowID,
			State: protocol.BatchRunPending,
		})
		j.AfterStart, j.AfterRun = runs[i].StartedAt, runs[i].ID
	}
	if complete || j.Runs >= int64(j.Limit) {
		j.State = protocol.BatchRunning
	}
	return j, rows
}

// Record counts the result of one run.
func (j BatchJob) Record(s protocol.BatchRunState) BatchJob {
	if s == protocol.BatchRunDone {
		j.Done++
	} else {
		j.Refused++
	}
	return j
}

// Close returns the closed job.
func (j BatchJob) Close(s protocol.BatchJobState, by, why string, now time.Time) BatchJob {
	j.State, j.EndedBy, j.Why, j.ClosedAt = s, by, why, history.At(now)
	return j.Release()
}
