package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/sojourn-run/sojourn/internal/rawjson"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// ChannelVersion is the protocol version in a worker's CONNECT.
const ChannelVersion = 1

// SocketProcess is the incarnation of a socket worker that names none. It is the same after a reconnect: a new
// incarnation would supersede the worker's running attempts.
const SocketProcess = "socket"

// Names of the worker channel: its path, namespaces and events.
const (
	ChannelPath        = "/api/socket.io"
	NamespaceWorkers   = "/"
	NamespaceDashboard = "/dashboard"
	EventFetchSettings = "FETCH_WORKER_SETTINGS"
	EventHint          = "hint"
	EventWatch         = "watch" // event of a dashboard: {topics}, replaces its subscriptions
)

// Methods that a worker calls on the app. A method without a comment has the request and response of the HTTP route of
// the same name.
const (
	MethodSettings         = "fetchSettings" // EventFetchSettings for transports without events
	MethodRegister         = "register"
	MethodDeregister       = "deregister"
	MethodPoll             = "poll"
	MethodExtendLock       = "extendLock"
	MethodCompleteJob      = "completeJob"
	MethodReturnJob        = "returnJob"
	MethodFetchHistory     = "fetchHistory"
	MethodHeartbeat        = "heartbeat"
	MethodReportProgress   = "reportProgress"
	MethodUploadLogs       = "uploadLogs"
	MethodCreateSession    = "createSession"
	MethodHeartbeatSession = "heartbeatSession"
	MethodReleaseSession   = "releaseSession"
	MethodCloseSession     = "closeSession"
)

// Notices from the app to a worker. A notice may be lost; the response to the next heartbeat contains the same facts.
const (
	NoticeCancel   = "cancel"   // CancelNotice: stop this attempt
	NoticeDrain    = "drain"    // finish the running tasks and end
	NoticePause    = "pause"    // PauseNotice: finish the running tasks; polls return none until NoticeResume
	NoticeResume   = "resume"   // poll again
	NoticeSettings = "settings" // fetch the settings again
	// NoticeSession carries a SessionNotice: the worker no longer holds the session.
	NoticeSession = "closeSession"
	// NoticeYield carries a SessionNotice: another session waits for the place of this one. The worker releases it with
	// that reason if nothing runs in it; if the worker does not, the app releases it.
	NoticeYield = "yieldSession"
	// NoticePrepare has no content: sessions that the worker prepares, or should prepare, have changed. The worker sends a
	// heartbeat.
	NoticePrepare = "prepareSessions"
	// NoticeEvict carries an EvictNotice: runs in the worker's sticky cache have ended.
	NoticeEvict = "evictRuns"
)

// ChannelAuth is the auth object of a worker's CONNECT. GroupID is ignored: the token determines the worker's group.
type ChannelAuth struct {
	Token     string `json:"token,omitempty"`
	WorkerID  string `json:"workerId"`
	GroupID   string `json:"workerGroupId,omitempty"`
	Protocol  int    `json:"protocol"`
	Namespace string `json:"namespace,omitempty"` // ours; empty: default
}

// MachineInformation describes a worker's machine and its process.
type MachineInformation struct {
	WorkerID  string        `json:"workerId,omitempty"`
	IP        string        `json:"ip,omitempty"`
	CPU       float64       `json:"cpuUsagePercentage"`
	RAM       float64       `json:"ramUsagePercentage"`
	TotalRAM  uint64        `json:"totalAvailableRamInBytes"`
	Cores     int           `json:"totalCpuCores"`
	Disk      *DiskInfo     `json:"diskInfo,omitempty"`
	Props     *WorkerProps  `json:"workerProps,omitempty"`
	Sandboxes []SandboxInfo `json:"sandboxes,omitempty"`
	// Packages is the state of the packages that the worker's handlers import.
	Packages []PackagesInfo `json:"handlerPackages,omitempty"`
}

// DiskInfo is the usage of the disk with the worker's data, in bytes.
type DiskInfo struct {
	Total      uint64  `json:"total"`
	Free       uint64  `json:"free"`
	Used       uint64  `json:"used"`
	Percentage float64 `json:"percentage"`
}

// WorkerProps identify a worker. Version is the worker's release; the release gate compares it with the app's.
type WorkerProps struct {
	ExecutionMode string `json:"EXECUTION_MODE,omitempty"`
	Concurrency   Text   `json:"WORKER_CONCURRENCY,omitempty"`
	MemoryLimit   Text   `json:"SANDBOX_MEMORY_LIMIT,omitempty"`
	ReuseSandbox  Text   `json:"REUSE_SANDBOX,omitempty"`
	Version       string `json:"version,omitempty"`
}

// SandboxInfo is one executor of a worker.
type SandboxInfo struct {
	SandboxID string       `json:"sandboxId"`
	Runtime   string       `json:"runtime,omitempty"`
	SessionID string       `json:"sessionId,omitempty"`
	Epoch     int64        `json:"epoch,omitempty"` // epoch of the session
	Busy      bool         `json:"busy"`
	Calls     int          `json:"calls,omitempty"` // calls that it served
	Memory    int64        `json:"memoryUsageBytes"`
	Since     history.Time `json:"since,omitzero"` // time at which it was started
}

// PackagesInfo is the state of the packages that the handlers of one runtime of a worker need.
type PackagesInfo struct {
	Runtime string       `json:"runtime"`
	Files   []string     `json:"files,omitempty"`  // files that list the packages
	State   string       `json:"state"`            // installed, installing, failed, pending, others (not Sojourn's)
	Detail  string       `json:"detail,omitempty"` // last output of the installer, or the error
	Path    string       `json:"path,omitempty"`
	Bytes   int64        `json:"bytes,omitempty"` // size of the packages
	Since   history.Time `json:"since,omitzero"`  // start of this state
	RetryAt history.Time `json:"again,omitzero"`  // next try after a failure
}

// Text is a string that is also read from a JSON number or truth value, since workers of different languages send
// either.
type Text string

// UnmarshalJSON accepts a string, a number, true or false, and null for "".
func (t *Text) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(t))
	}
	if bytes.ContainsAny(raw, "{[") {
		return fmt.Errorf("must be a string, a number or a boolean, not %.20s", raw)
	}
	*t = Text(raw)
	if string(raw) == "null" {
		*t = ""
	}
	return nil
}

// WorkerSettings are the settings that an app sends to a worker on connect. They contain no secrets. Times are seconds.
type WorkerSettings struct {
	Release       string `json:"APP_VERSION"`
	Strict        bool   `json:"RELEASE_STRICT"`
	ExecutionMode string `json:"EXECUTION_MODE"`
	MemoryLimit   int64  `json:"SANDBOX_MEMORY_LIMIT,omitempty"` // bytes; 0: the worker's own
	LogLevel      string `json:"LOG_LEVEL,omitempty"`            // empty: the worker's own
	PublicURL     string `json:"PUBLIC_URL,omitempty"`
	PollSeconds   int64  `json:"POLL_TIMEOUT_SECONDS"`        // maximum duration of a poll
	LockSeconds   int64  `json:"JOB_LOCK_SECONDS"`            // lock of a job if the worker named none
	ExtendSeconds int64  `json:"JOB_LOCK_EXTEND_SECONDS"`     // interval of lock extensions
	BeatSeconds   int64  `json:"WORKER_HEARTBEAT_SECONDS"`    // interval of heartbeats
	DrainSeconds  int64  `json:"WORKER_DRAIN_SECONDS"`        // maximum duration of a shutdown
	MaxPayload    int    `json:"MAX_PAYLOAD_BYTES,omitempty"` // maximum size of a value
	// Revision counts the changes by operators to the settings of the namespace's workers: LOG_LEVEL and the fields
	// below. A worker registers again with the revision that it applied. 0: operators changed nothing.
	Revision     int64  `json:"SETTINGS_REVISION,omitempty"`
	Concurrency  int    `json:"WORKER_CONCURRENCY,omitempty"`  // activities at once; 0: the worker's own
	IsolationMin string `json:"ISOLATION_MIN_LEVEL,omitempty"` // minimum isolation of executors; empty: the worker's own
	Fresh        bool   `json:"EXECUTORS_FRESH,omitempty"`     // outside sessions each call has a new executor
}

// ChannelPoll requests tasks. Without Max the response is one task or null, not a list. The description of the worker's
// machine is optional.
type ChannelPoll struct {
	*MachineInformation
	Queues    []string         `json:"queues,omitempty"`
	Kinds     []TaskKind       `json:"kinds,omitempty"`
	Free      map[TaskKind]int `json:"free,omitempty"` // slots per kind
	Max       int              `json:"max,omitempty"`
	PollID    string           `json:"pollRequestId,omitempty"`
	TimeoutMS *int64           `json:"timeoutMs,omitempty"` // maximum wait for work; maximum and default 50 s
	Release   string           `json:"release,omitempty"`   // instead of workerProps.version
	BuildID   string           `json:"buildId,omitempty"`
	PageSize  int              `json:"historyPageSize,omitempty"`
	// PagedQueries: the worker fetches the further pages of the history of a query or a validation, as it does for a
	// workflow task.
	PagedQueries bool `json:"pagedQueries,omitempty"`
	PagedSignals bool `json:"pagedSignals,omitempty"` // as in PollRequest
	HandOver     bool `json:"handOver,omitempty"`     // as in PollRequest
	EagerTasks   bool `json:"turns,omitempty"`        // as in PollRequest
}

// Job is a task on the channel. Task is the object that an HTTP poll returns, unchanged.
type Job struct {
	ID            string
	Kind          TaskKind
	Queue         string
	Token         string // opaque; every later call about the job contains it
	LockExpiresAt history.Time
	Release       string
	Session       *JobSession
	Task          Task
}

// JobSession is the session a job runs in.
type JobSession struct {
	SessionID string `json:"sessionId"`
	Epoch     int64  `json:"epoch"`
	IsNew     bool   `json:"isNew"`
}

type jobFrame[T any] struct {
	ID            string       `json:"jobId"`
	Kind          TaskKind     `json:"kind"`
	Queue         string       `json:"queue"`
	Token         string       `json:"token"`
	LockExpiresAt history.Time `json:"lockExpiresAt"`
	Release       string       `json:"release"`
	Session       *JobSession  `json:"session,omitempty"`
	Task          T            `json:"task"`
}

// MarshalJSON writes {jobId, kind, queue, token, lockExpiresAt, release, session?, task}.
func (j Job) MarshalJSON() ([]byte, error) { return json.Marshal(j.frame()) }

func (j Job) frame() jobFrame[any] {
	f := jobFrame[any]{
		ID: j.ID, Kind: j.Kind, Queue: j.Queue, Token: j.Token, LockExpiresAt: j.LockExpiresAt, Release: j.Release,
		Session: j.Session,
	}
	switch j.Kind {
	case KindWorkflow:
		f.Task = j.Task.Workflow
	case KindActivity:
		f.Task = j.Task.Activity
	case KindQuery:
		f.Task = j.Task.Query
	case KindValidation:
		f.Task = j.Task.Validation
	}
	return f
}

// UnmarshalJSON reads that form.
func (j *Job) UnmarshalJSON(raw []byte) error {
	f, err := readJob(raw)
	if err != nil {
		return err
	}
	*j = Job{
		ID: f.ID, Kind: f.Kind, Queue: f.Queue, Token: f.Token, LockExpiresAt: f.LockExpiresAt, Release: f.Release,
		Session: f.Session,
	}
	j.Task.Kind = f.Kind
	switch f.Kind {
	case KindWorkflow:
		return json.Unmarshal(f.Task, &j.Task.Workflow)
	case KindActivity:
		return json.Unmarshal(f.Task, &j.Task.Activity)
	case KindQuery:
		return json.Unmarshal(f.Task, &j.Task.Query)
	case KindValidation:
		return json.Unmarshal(f.Task, &j.Task.Validation)
	}
	return fmt.Errorf("job %s is of the unknown kind %q", f.ID, f.Kind)
}

func readJob(raw []byte) (jobFrame[json.RawMessage], error) {
	var f jobFrame[json.RawMessage]
	if rawjson.Read(raw,
		rawjson.Field{Name: "jobId", Into: &f.ID}, rawjson.Field{Name: "kind", Into: (*string)(&f.Kind)},
		rawjson.Field{Name: "queue", Into: &f.Queue},
		rawjson.Field{Name: "token", Into: &f.Token}, rawjson.Field{Name: "lockExpiresAt", Into: &f.LockExpiresAt},
		rawjson.Field{Name: "release", Into: &f.Release}, rawjson.Field{Name: "session", Into: &f.Session},
		rawjson.Field{Name: "task", Into: &f.Task}) {
		return f, nil
	}
	f = jobFrame[json.RawMessage]{}
	return f, json.Unmarshal(raw, &f)
}

// ChannelPollResponse is the response to a poll. It is encoded as one job or null, or, with Many (the poll named a
// max), as the whole object.
type ChannelPollResponse struct {
	Many       bool       `json:"-"`
	Jobs       []Job      `json:"jobs"`
	Status     PollStatus `json:"pollStatus"`
	Reason     string     `json:"reason,omitempty"`
	RetryAfter int64      `json:"retryAfterMs,omitempty"`
	AppRelease string     `json:"appRelease,omitempty"`
	// StoreTime is a lower bound of the store's clock when the app created the response. A worker that was paused
	// computes the age of the response from it.
	StoreTime history.Time `json:"storeTime,omitzero"`
	Error     *ErrorBody   `json:"error,omitempty"` // refusal of the next poll
}

type pollResponseFrame ChannelPollResponse

// pollResponseWire is the whole object without types that have MarshalJSON: encoding/json checks and copies the output
// of MarshalJSON again.
type pollResponseWire struct {
	Jobs       []jobFrame[any] `json:"jobs"`
	Status     PollStatus      `json:"pollStatus"`
	Reason     string          `json:"reason,omitempty"`
	RetryAfter int64           `json:"retryAfterMs,omitempty"`
	AppRelease string          `json:"appRelease,omitempty"`
	StoreTime  history.Time    `json:"storeTime,omitzero"`
	Error      *ErrorBody      `json:"error,omitempty"`
}

// Wire returns the value to encode: null, a job, or {jobs, pollStatus, reason?, retryAfterMs?, appRelease?,
// storeTime?}.
func (a ChannelPollResponse) Wire() any {
	switch {
	case a.Many:
		w := pollResponseWire{
			make([]jobFrame[any], len(a.Jobs)), a.Status, a.Reason, a.RetryAfter, a.AppRelease, a.StoreTime, a.Error,
		}
		for i, j := range a.Jobs {
			w.Jobs[i] = j.frame()
		}
		return w
	case len(a.Jobs) == 0:
		return nil
	}
	return a.Jobs[0].frame()
}

// MarshalJSON writes the form of Wire.
func (a ChannelPollResponse) MarshalJSON() ([]byte, error) { return json.Marshal(a.Wire()) }

// UnmarshalJSON reads each of the three forms.
func (a *ChannelPollResponse) UnmarshalJSON(raw []byte) error {
	if many, ok := readPollResponse(raw); ok {
		*a = many
		return nil
	}
	var probe struct {
		Status *PollStatus `json:"pollStatus"`
		Job    *string     `json:"jobId"`
	}
	if err := json.Unmarshal(raw, &probe); err != nil {
		return err
	}
	*a = ChannelPollResponse{Status: PollEmpty}
	switch {
	case probe.Status != nil:
		a.Many = true
		return json.Unmarshal(raw, (*pollResponseFrame)(a))
	case probe.Job != nil:
		a.Status, a.Jobs = PollLeased, make([]Job, 1)
		return a.Jobs[0].UnmarshalJSON(raw)
	}
	return nil
}

// readPollResponse reads the form with many jobs; false for any other.
func readPollResponse(raw []byte) (ChannelPollResponse, bool) {
	a := ChannelPollResponse{Many: true}
	var jobs json.RawMessage
	if !rawjson.Read(raw,
		rawjson.Field{Name: "jobs", Into: &jobs}, rawjson.Field{Name: "pollStatus", Into: (*string)(&a.Status)},
		rawjson.Field{Name: "reason", Into: &a.Reason}, rawjson.Field{Name: "retryAfterMs", Into: &a.RetryAfter},
		rawjson.Field{Name: "appRelease", Into: &a.AppRelease}, rawjson.Field{Name: "storeTime", Into: &a.StoreTime}) {
		return a, false
	}
	list, ok := rawjson.Elements(jobs)
	a.Jobs = make([]Job, len(list))
	for i, job := range list {
		ok = ok && a.Jobs[i].UnmarshalJSON(job) == nil
	}
	return a, ok
}

// JobStatus is the outcome of a job.
type JobStatus string

// The outcomes of a job. Only the first two have a response.
const (
	JobOK              JobStatus = "OK"
	JobUserFailure     JobStatus = "USER_FAILURE"
	JobTimeout         JobStatus = "TIMEOUT"
	JobMemoryIssue     JobStatus = "MEMORY_ISSUE"
	JobLogSizeExceeded JobStatus = "LOG_SIZE_EXCEEDED"
	JobInternalError   JobStatus = "INTERNAL_ERROR" // failure of the worker: the job is returned, counted as lost
)

// JobRef identifies a job and proves that the caller has leased it.
type JobRef struct {
	ID    string `json:"jobId,omitempty"`
	Token string `json:"token,omitempty"`
}

// TaskToken is the content of a job's token: the kind and delivery of a task, and the worker that leased it. The token
// is opaque for other programs; all releases of app and worker use this encoding.
type TaskToken struct {
	Kind     TaskKind
	Delivery int64
	Owner    string
}

// TaskTokenOf identifies the attempt of an activity by its ID, any other task by its delivery.
func TaskTokenOf(kind TaskKind, taskID, attemptID string, attempt int64, owner string) TaskToken {
	if kind == KindActivity {
		// The delivery is the last part of the attempt's id.
		attempt, _ = strconv.ParseInt(strings.TrimPrefix(attemptID, taskID+"-"), 10, 64)
	}
	return TaskToken{kind, attempt, owner}
}

// Token returns the encoded token.
func (g TaskToken) Token() string {
	return string(g.Kind[:1]) + strconv.FormatInt(g.Delivery, 36) + "." + g.Owner
}

// ParseToken decodes a token; false if Token did not create it.
func ParseToken(token string) (g TaskToken, ok bool) {
	head, owner, ok := strings.Cut(token, ".")
	if !ok || len(head) < 2 {
		return g, false
	}
	for _, k := range []TaskKind{KindWorkflow, KindActivity, KindQuery, KindValidation} {
		if head[0] == k[0] {
			g.Kind = k
		}
	}
	n, err := strconv.ParseInt(head[1:], 36, 64)
	g.Delivery, g.Owner = n, owner
	return g, err == nil && n > 0 && g.Kind != ""
}

// AttemptID returns the attempt ID of an activity; empty for other tasks.
func (g TaskToken) AttemptID(taskID string) string {
	if g.Kind != KindActivity {
		return ""
	}
	return taskID + "-" + strconv.FormatInt(g.Delivery, 10)
}

// Attempt returns the delivery of a task that is not an activity; 0 for an activity.
func (g TaskToken) Attempt() int64 {
	if g.Kind == KindActivity {
		return 0
	}
	return g.Delivery
}

// JobOutcome is the outcome of one job.
type JobOutcome struct {
	JobRef
	Status       JobStatus       `json:"status,omitempty"`
	ErrorMessage string          `json:"errorMessage,omitempty"`
	Logs         json.RawMessage `json:"logs,omitempty"`
	Response     *JobResponse    `json:"response,omitempty"`
	// returns the job for this reason, as returnJob does; then there is no status
	Returned string `json:"returned,omitempty"`
	Began    *bool  `json:"began,omitempty"` // as in CompleteItem
	// Executor reports that the attempt's executor ended.
	Executor *ExecutorLoss `json:"executor,omitempty"`
	// Lines are log lines of the job's code that no response to uploadLogs confirmed.
	Lines []LogChunk `json:"lines,omitempty"`
	// Malformed is the error of an outcome that could not be decoded. The app rejects only this outcome. Outline has
	// the commands' types and members of it, as far as they could be decoded.
	Malformed error    `json:"-"`
	Outline   *Outline `json:"-"`
}

// JobResponse is the result of a job, in members of the HTTP contract: workflow {commands}, activity {result} or
// {failure}, query {result_envelope} or {failure}. A query may have its result in the member result instead.
type JobResponse struct {
	Commands []Command `json:"commands,omitempty"`
	// RecordFrom is as in CompleteItem.
	RecordFrom int64 `json:"record_from,omitempty"`
	StreamWaits
	Kept           int64           `json:"kept,omitempty"`
	Result         Value           `json:"result,omitzero"`         // an envelope, or any JSON
	Codec          string          `json:"payload_codec,omitempty"` // codec of a result without an envelope
	ResultEnvelope payload.Payload `json:"result_envelope,omitzero"`
	Failure        *Failure        `json:"failure,omitempty"`
	Epoch          int64           `json:"session_epoch,omitempty"`
	Recovered      *Recovered      `json:"recovered,omitempty"`
	CodeVersion    string          `json:"code_version,omitempty"` // as in CompleteItem
	Eager          *EagerTask      `json:"then,omitempty"`         // as in CompleteItem
}

// ChannelComplete reports the outcome of one job, or with Items of many, and may contain the next poll.
type ChannelComplete struct {
	JobOutcome
	Items []JobOutcome `json:"items,omitempty"`
	Next  *ChannelPoll `json:"next,omitempty"`
	// NextMalformed is the error of a next poll that could not be decoded. The outcomes are recorded anyway.
	NextMalformed error `json:"-"`
}

// JobReceipt reports whether one outcome was recorded.
type JobReceipt struct {
	ID       string       `json:"jobId"`
	Outcome  string       `json:"outcome"`
	Recorded bool         `json:"recorded"`
	Reason   string       `json:"reason,omitempty"`
	Created  []string     `json:"createdJobIds,omitempty"`
	Eager    *EagerResult `json:"then,omitempty"`     // as in CompleteResponse
	Warnings []Warning    `json:"warnings,omitempty"` // as in CompleteResponse
	Error    *ErrorBody   `json:"error,omitempty"`
}

// ChannelCompleteResponse is encoded as null or the next job, or, with Many (the request had items), as {items, next?}.
type ChannelCompleteResponse struct {
	Many  bool                 `json:"-"`
	Items []JobReceipt         `json:"items"`
	Next  *ChannelPollResponse `json:"next,omitempty"`
}

type completeResponseFrame ChannelCompleteResponse

// Wire returns the value to encode: the response to the next poll, or with Many {items, next?}.
func (a ChannelCompleteResponse) Wire() any {
	switch {
	case a.Many && a.Next != nil:
		return struct {
			Items []JobReceipt `json:"items"`
			Next  any          `json:"next"`
		}{a.Items, a.Next.Wire()}
	case a.Many:
		return completeResponseFrame(a)
	case a.Next == nil:
		return nil
	}
	return a.Next.Wire()
}

// MarshalJSON writes the form of Wire.
func (a ChannelCompleteResponse) MarshalJSON() ([]byte, error) { return json.Marshal(a.Wire()) }

// UnmarshalJSON reads both forms.
func (a *ChannelCompleteResponse) UnmarshalJSON(raw []byte) error {
	var next json.RawMessage
	*a = ChannelCompleteResponse{Many: true}
	if rawjson.Read(raw, rawjson.Field{Name: "items", Into: &a.Items}, rawjson.Field{Name: "next", Into: &next}) &&
		a.Items != nil {
		if next == nil || string(next) == "null" {
			return nil
		}
		a.Next = &ChannelPollResponse{}
		return a.Next.UnmarshalJSON(next)
	}
	var probe struct {
		Items json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &probe); err != nil {
		return err
	}
	*a = ChannelCompleteResponse{}
	if probe.Items != nil {
		a.Many = true
		return json.Unmarshal(raw, (*completeResponseFrame)(a))
	}
	a.Next = &ChannelPollResponse{}
	return a.Next.UnmarshalJSON(raw)
}

// JobLock is the lock of a job after it was extended.
type JobLock struct {
	LockExpiresAt   history.Time `json:"lockExpiresAt"`
	CancelRequested bool         `json:"cancelRequested"`
}

// JobReturn returns a job: it is ready at once, and counts as a delivery but not as a failure.
type JobReturn struct {
	JobRef
	Reason string `json:"reason,omitempty"`
	Began  *bool  `json:"began,omitempty"` // see CompleteItem
}

// JobHistory requests a page of the history of a workflow job or a query. An empty token requests the first page.
type JobHistory struct {
	JobRef
	PageToken string `json:"pageToken,omitempty"`
	After     int64  `json:"afterSequence,omitempty"` // instead of a token: the caller's last event
	PageSize  int    `json:"pageSize,omitempty"`
}

// JobProgress is a heartbeat of a job's own code. Progress is plain JSON {message?, current?, total?, unit?, details?}.
type JobProgress struct {
	JobRef
	Progress json.RawMessage `json:"progress,omitempty"`
	Rebuild  *Recovered      `json:"rebuild,omitempty"` // as in HeartbeatRequest
}

// JobLines are log lines of a job's code.
type JobLines struct {
	JobRef
	LogChunk
	Malformed error `json:"-"` // decoding error; the app rejects only these lines
}

// JobLogs uploads log lines of one job, or with Items of many.
type JobLogs struct {
	JobLines
	Items []JobLines `json:"items,omitempty"`
}

// JobLogsResponse reports for each job whether its lines were recorded.
type JobLogsResponse struct {
	Items []JobLogReceipt `json:"items"`
}

// JobLogReceipt is the response for the lines of one job.
type JobLogReceipt struct {
	ID       string `json:"jobId"`
	Recorded bool   `json:"recorded"` // false without a reason: the job's log is full
	Reason   Reason `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
}

// SessionNotice notifies a worker that it no longer holds a session under this epoch. Attempts that run in the session
// are cancelled by their own notices.
type SessionNotice struct {
	SessionID string `json:"session_id"`
	Epoch     int64  `json:"epoch"`
	Reason    string `json:"reason"`
}

// EvictNotice notifies a worker that runs in its sticky cache have ended.
type EvictNotice struct {
	Runs []string `json:"runs"`
}

// CancelNotice notifies a worker that it must stop an attempt.
type CancelNotice struct {
	TaskID    string `json:"taskId"`
	AttemptID string `json:"attemptId"`
}

// Topic is a subscription of a dashboard: one object by its ID, or, with an empty ID, all objects of the kind in the
// namespace.
type Topic struct {
	Kind      string `json:"kind"` // run, session, worker
	ID        string `json:"id,omitempty"`
	Namespace string `json:"namespace"`
}

// Hint notifies a dashboard that an object of a topic changed. A hint may be duplicated, late or lost.
type Hint struct {
	Kind       string `json:"kind"` // run, session, worker
	ID         string `json:"id"`   // empty: any of the kind
	Namespace  string `json:"namespace,omitempty"`
	WorkflowID string `json:"workflow_id,omitempty"`
	LastSeq    int64  `json:"last_seq,omitempty"`
}
