package protocol

// RunStatus is the stored state of a run, spelled the same in Go, SQL and JSON.
type RunStatus string

// The statuses of a run; all but running are final.
const (
	RunRunning    RunStatus = "running"
	RunCompleted  RunStatus = "completed"
	RunFailed     RunStatus = "failed"
	RunCancelled  RunStatus = "cancelled"
	RunTerminated RunStatus = "terminated"
	RunTimedOut   RunStatus = "timed_out"
	RunContinued  RunStatus = "continued"
)

// RunStatuses has all statuses, in the order in which the CLI and the dashboard offer them.
var RunStatuses = []RunStatus{
	RunRunning, RunCompleted, RunFailed, RunTimedOut, RunCancelled, RunTerminated, RunContinued,
}

// publicRuns maps a status to the status and bucket of the control plane's contract, which are less exact: a run that
// timed out is shown as failed, and the bucket failed has all runs that did not complete. Filters, lists, the CLI and
// the dashboard use this table.
var publicRuns = map[RunStatus]struct{ shown, bucket string }{
	RunRunning:    {"running", "running"}, // or pending, or waiting
	RunCompleted:  {"completed", "completed"},
	RunContinued:  {"completed", "completed"},
	RunFailed:     {"failed", "failed"},
	RunTimedOut:   {"failed", "failed"},
	RunCancelled:  {"cancelled", "failed"},
	RunTerminated: {"terminated", "failed"},
}

// StoredRun is the stored status of a run that is shown with a status and a closed reason.
func StoredRun(status string, closedReason *string) RunStatus {
	switch {
	case closedReason != nil:
		return RunStatus(*closedReason)
	case status == "pending" || status == "waiting":
		return RunRunning
	}
	return RunStatus(status)
}

// Open reports whether the run can still change.
func (s RunStatus) Open() bool { return s == RunRunning }

// SessionStatus is the stored state of a session.
type SessionStatus string

// The statuses of a session. Closed is terminal, and so is expired when the TTL passed; the others may be claimed
// again.
const (
	SessionActive   SessionStatus = "active"
	SessionClosed   SessionStatus = "closed"
	SessionExpired  SessionStatus = "expired"
	SessionFailed   SessionStatus = "failed"
	SessionOrphaned SessionStatus = "orphaned"
)

// WorkerStatus is the state of a worker's registration as listings show it.
type WorkerStatus string

// The statuses of a worker.
const (
	WorkerActive     WorkerStatus = "active"
	WorkerDraining   WorkerStatus = "draining"
	WorkerMismatched WorkerStatus = "mismatched"
	WorkerStale      WorkerStatus = "stale"
)

// TaskKind is the kind of a task.
type TaskKind string

// The kinds of tasks.
const (
	KindWorkflow TaskKind = "workflow"
	KindActivity TaskKind = "activity"
	KindQuery    TaskKind = "query"
	// KindValidation runs the validator of an update.
	KindValidation TaskKind = "update_validation"
)

// Asked reports whether a caller waits for the result of a task of this kind. Such tasks are dropped when the caller
// disconnects.
func (k TaskKind) Asked() bool { return k == KindQuery || k == KindValidation }

// PublicRun returns the status of a run in the control plane's routes. leasedEver reports whether a task of the run was
// ever leased, busy whether one is ready or leased now.
func PublicRun(s RunStatus, leasedEver, busy bool) (status, bucket, closedReason string) {
	word := publicRuns[s]
	switch {
	case !s.Open():
		return word.shown, word.bucket, string(s)
	case !leasedEver:
		return "pending", word.bucket, ""
	case !busy:
		return "waiting", word.bucket, ""
	}
	return word.shown, word.bucket, ""
}
