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

// ChannelVersion is what a worker says in the member protocol of its CONNECT.
const ChannelVersion = 1

// SocketProcess stands for the process of a socket worker that names none. It is the same over reconnects, or each of
// them would take the worker's own running attempts away from it.
const SocketProcess = "socket"

// Names of the worker channel: its path, namespaces and events.
const (
	ChannelPath        = "/api/socket.io"
	NamespaceWorkers   = "/"
	NamespaceDashboard = "/dashboard"
	EventFetchSettings = "FETCH_WORKER_SETTINGS"
	EventHint          = "hint"
	EventWatch         = "watch" // of a dashboard: {topics}, all that it wants to hear of from now on
)

// Methods a worker calls on the app. Those that are not explained elsewhere take and give what the HTTP routes of the
// same name do.
const (
	MethodSettings         = "fetchSettings" // what EventFetchSettings is on a socket, for carriers without events
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

// Notices of the app to a worker. They are hints: what matters in them also stands in the next heartbeat's answer.
const (
	NoticeCancel   = "cancel"   // CancelNotice: stop this attempt
	NoticeDrain    = "drain"    // finish and leave
	NoticePause    = "pause"    // PauseNotice: finish what you have, and stay; polls give nothing until NoticeResume
	NoticeResume   = "resume"   // poll again
	NoticeSettings = "settings" // fetch the settings again
	// NoticeSession carries a SessionNotice: a session the worker held is not held any more.
	NoticeSession = "closeSession"
	// NoticeYield carries a SessionNotice: a session the worker holds is to give way to another that waits, if nothing
	// runs in it. The worker releases it with that reason; when it does not, the app takes it away.
	NoticeYield = "yieldSession"
	// NoticeEvict carries an EvictNotice: runs that the worker keeps in memory have ended.
	NoticeEvict = "evictRuns"
)

// ChannelAuth is the auth object of a worker's CONNECT. Which group a worker belongs to its token says; the member is
// read for nobody's benefit.
type ChannelAuth struct {
	Token     string `json:"token,omitempty"`
	WorkerID  string `json:"workerId"`
	GroupID   string `json:"workerGroupId,omitempty"`
	Protocol  int    `json:"protocol"`
	Namespace string `json:"namespace,omitempty"` // ours; empty: default
}

// MachineInformation is what a worker tells of its machine and of itself.
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
	// Packages are those that its handlers need.
	Packages []PackagesInfo `json:"handlerPackages,omitempty"`
}

// DiskInfo is the disk a worker's data lies on, in bytes.
type DiskInfo struct {
	Total      uint64  `json:"total"`
	Free       uint64  `json:"free"`
	Used       uint64  `json:"used"`
	Percentage float64 `json:"percentage"`
}

// WorkerProps are a worker's identity. Version is its release, which the gate compares.
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
	Epoch     int64        `json:"epoch,omitempty"` // of the session
	Busy      bool         `json:"busy"`
	Calls     int          `json:"calls,omitempty"` // that it has served
	Memory    int64        `json:"memoryUsageBytes"`
	Since     history.Time `json:"since,omitzero"` // when it was started
}

// PackagesInfo is how it stands with the packages that the handlers of one runtime of a worker need.
type PackagesInfo struct {
	Runtime string       `json:"runtime"`
	Files   []string     `json:"files,omitempty"`  // that name them
	State   string       `json:"state"`            // installed, installing, failed, pending or others: somebody else's
	Detail  string       `json:"detail,omitempty"` // what the installer said last, or what was wrong
	Path    string       `json:"path,omitempty"`
	Bytes   int64        `json:"bytes,omitempty"` // their size
	Since   history.Time `json:"since,omitzero"`  // they are there, they are being installed, they failed
	Again   history.Time `json:"again,omitzero"`  // the next try, after one that failed
}

// Text is a string that is also read from a JSON number or truth value, since workers of different languages send
// either.
type Text string

// UnmarshalJSON takes a string, a number, true or false, and null for "".
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

// WorkerSettings is what an app hands a worker when it connects. It holds no secrets. Times are seconds.
type WorkerSettings struct {
	Release       string `json:"APP_VERSION"`
	Strict        bool   `json:"RELEASE_STRICT"`
	ExecutionMode string `json:"EXECUTION_MODE"`
	MemoryLimit   int64  `json:"SANDBOX_MEMORY_LIMIT,omitempty"` // bytes; 0: the worker's own
	LogLevel      string `json:"LOG_LEVEL,omitempty"`            // empty: the worker's own
	PublicURL     string `json:"PUBLIC_URL,omitempty"`
	PollSeconds   int64  `json:"POLL_TIMEOUT_SECONDS"`        // the longest poll
	LockSeconds   int64  `json:"JOB_LOCK_SECONDS"`            // of a job, when the worker named none
	ExtendSeconds int64  `json:"JOB_LOCK_EXTEND_SECONDS"`     // how often to extend it
	BeatSeconds   int64  `json:"WORKER_HEARTBEAT_SECONDS"`    // how often to send a heartbeat
	DrainSeconds  int64  `json:"WORKER_DRAIN_SECONDS"`        // how long a shutdown may take
	MaxPayload    int    `json:"MAX_PAYLOAD_BYTES,omitempty"` // of one value
	// Revision counts what operators set for all workers of the namespace: LOG_LEVEL and what follows. A worker registers
	// again with the one it runs with. 0: nothing was ever set.
	Revision     int64  `json:"SETTINGS_REVISION,omitempty"`
	Concurrency  int    `json:"WORKER_CONCURRENCY,omitempty"`  // activities at once; 0: the worker's own
	IsolationMin string `json:"ISOLATION_MIN_LEVEL,omitempty"` // the floor of executors; empty: the worker's own
	Fresh        bool   `json:"EXECUTORS_FRESH,omitempty"`     // outside sessions each call has a new executor
}

// ChannelPoll asks for jobs. Without Max the answer is one job or null. The machine may be left out.
type ChannelPoll struct {
	*MachineInformation
	Queues    []string         `json:"queues,omitempty"`
	Kinds     []TaskKind       `json:"kinds,omitempty"`
	Free      map[TaskKind]int `json:"free,omitempty"` // slots per kind
	Max       int              `json:"max,omitempty"`
	PollID    string           `json:"pollRequestId,omitempty"`
	TimeoutMS *int64           `json:"timeoutMs,omitempty"` // how long to wait for work; at most, and by default, 50 s
	Release   string           `json:"release,omitempty"`   // instead of workerProps.version
	BuildID   string           `json:"buildId,omitempty"`
	PageSize  int              `json:"historyPageSize,omitempty"`
	// PagedQueries: the worker fetches what lies behind the first page of the history of a query or a validation, as of a
	// workflow task's.
	PagedQueries bool `json:"pagedQueries,omitempty"`
	Turns        bool `json:"turns,omitempty"` // as in PollRequest
}

// Job is a task in the words of the channel. Task is the object an HTTP poll gives, untouched.
type Job struct {
	ID            string
	Kind          TaskKind
	Queue         string
	Token         string // opaque; every later call about the job carries it
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

// ChannelPollAnswer is what a poll gives: on the wire one job or null, or with Many, when the poll named a max, the
// whole object.
type ChannelPollAnswer struct {
	Many       bool       `json:"-"`
	Jobs       []Job      `json:"jobs"`
	Status     PollStatus `json:"pollStatus"`
	Reason     string     `json:"reason,omitempty"`
	RetryAfter int64      `json:"retryAfterMs,omitempty"`
	AppRelease string     `json:"appRelease,omitempty"`
	// StoreTime is a lower bound of the store's clock when the app created the response. A worker that was paused
	// computes the age of the response from it.
	StoreTime history.Time `json:"storeTime,omitzero"`
	Error     *ErrorBody   `json:"error,omitempty"` // of a next poll that was refused
}

type pollAnswerFrame ChannelPollAnswer

// pollAnswerWire is the whole object without types that encode themselves, each of which would be encoded, checked and
// copied again.
type pollAnswerWire struct {
	Jobs       []jobFrame[any] `json:"jobs"`
	Status     PollStatus      `json:"pollStatus"`
	Reason     string          `json:"reason,omitempty"`
	RetryAfter int64           `json:"retryAfterMs,omitempty"`
	AppRelease string          `json:"appRelease,omitempty"`
	StoreTime  history.Time    `json:"storeTime,omitzero"`
	Error      *ErrorBody      `json:"error,omitempty"`
}

// Wire is what is encoded: null, a job, or {jobs, pollStatus, reason?, retryAfterMs?, appRelease?, storeTime?}.
func (a ChannelPollAnswer) Wire() any {
	switch {
	case a.Many:
		w := pollAnswerWire{
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
func (a ChannelPollAnswer) MarshalJSON() ([]byte, error) { return json.Marshal(a.Wire()) }

// UnmarshalJSON reads each of the three forms.
func (a *ChannelPollAnswer) UnmarshalJSON(raw []byte) error {
	if many, ok := readPollAnswer(raw); ok {
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
	*a = ChannelPollAnswer{Status: PollEmpty}
	switch {
	case probe.Status != nil:
		a.Many = true
		return json.Unmarshal(raw, (*pollAnswerFrame)(a))
	case probe.Job != nil:
		a.Status, a.Jobs = PollLeased, make([]Job, 1)
		return a.Jobs[0].UnmarshalJSON(raw)
	}
	return nil
}

// readPollAnswer reads the form with many jobs; false for any other.
func readPollAnswer(raw []byte) (ChannelPollAnswer, bool) {
	a := ChannelPollAnswer{Many: true}
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

// JobStatus is how a job ended.
type JobStatus string

// The ways a job ends. Only the first two carry a response.
const (
	JobOK              JobStatus = "OK"
	JobUserFailure     JobStatus = "USER_FAILURE"
	JobTimeout         JobStatus = "TIMEOUT"
	JobMemoryIssue     JobStatus = "MEMORY_ISSUE"
	JobLogSizeExceeded JobStatus = "LOG_SIZE_EXCEEDED"
	JobInternalError   JobStatus = "INTERNAL_ERROR" // the worker's own fault: handed back, counted as lost
)

// JobRef names a job and proves that the caller holds it.
type JobRef struct {
	ID    string `json:"jobId,omitempty"`
	Token string `json:"token,omitempty"`
}

// TaskToken is what a job's token says: which delivery of what kind of task was given to whom. To the world outside the
// token is opaque; app and worker of this repository make it in one way, over all releases.
type TaskToken struct {
	Kind     TaskKind
	Delivery int64
	Owner    string
}

// TaskTokenOf names the attempt of an activity by its id, another task by its delivery.
func TaskTokenOf(kind TaskKind, taskID, attemptID string, attempt int64, owner string) TaskToken {
	if kind == KindActivity {
		// The delivery is the last part of the attempt's id.
		attempt, _ = strconv.ParseInt(strings.TrimPrefix(attemptID, taskID+"-"), 10, 64)
	}
	return TaskToken{kind, attempt, owner}
}

// Token is the token as jobs carry it.
func (g TaskToken) Token() string {
	return string(g.Kind[:1]) + strconv.FormatInt(g.Delivery, 36) + "." + g.Owner
}

// ParseToken reads a token; false for one that Token did not make.
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

// AttemptID names the attempt of an activity; empty for other tasks.
func (g TaskToken) AttemptID(taskID string) string {
	if g.Kind != KindActivity {
		return ""
	}
	return taskID + "-" + strconv.FormatInt(g.Delivery, 10)
}

// Attempt is the delivery of a task that is no activity; 0 for an activity.
func (g TaskToken) Attempt() int64 {
	if g.Kind == KindActivity {
		return 0
	}
	return g.Delivery
}

// JobOutcome is the end of one job.
type JobOutcome struct {
	JobRef
	Status       JobStatus       `json:"status,omitempty"`
	ErrorMessage string          `json:"errorMessage,omitempty"`
	Logs         json.RawMessage `json:"logs,omitempty"`
	Response     *JobResponse    `json:"response,omitempty"`
	// hands the job back for this reason, as returnJob does; no status then
	Returned string `json:"returned,omitempty"`
	Began    *bool  `json:"began,omitempty"` // as in CompleteItem
	// Executor reports that the attempt's executor ended.
	Executor *ExecutorLoss `json:"executor,omitempty"`
	// Lines are what the job's code logged and was not confirmed by an answer to uploadLogs.
	Lines []LogChunk `json:"lines,omitempty"`
	// Malformed says why the outcome could not be decoded; it alone is refused. Outline is what it holds of commands.
	Malformed error    `json:"-"`
	Outline   *Outline `json:"-"`
}

// JobResponse is what a job gave, in the members of the HTTP contract: workflow {commands}, activity {result} or
// {failure}, query {result_envelope} or {failure}. A query may have its answer in result, too.
type JobResponse struct {
	Commands []Command `json:"commands,omitempty"`
	StreamWaits
	Kept           int64           `json:"kept,omitempty"`
	Result         Value           `json:"result,omitzero"`         // an envelope, or any JSON
	Codec          string          `json:"payload_codec,omitempty"` // of a result that is a bare blob
	ResultEnvelope payload.Payload `json:"result_envelope,omitzero"`
	Failure        *Failure        `json:"failure,omitempty"`
	Epoch          int64           `json:"session_epoch,omitempty"`
	Recovered      *Recovered      `json:"recovered,omitempty"`
	CodeVersion    string          `json:"code_version,omitempty"` // as in CompleteItem
	Then           *Then           `json:"then,omitempty"`         // as in CompleteItem
}

// ChannelComplete ends one job, or with Items many, and may carry the next poll.
type ChannelComplete struct {
	JobOutcome
	Items []JobOutcome `json:"items,omitempty"`
	Next  *ChannelPoll `json:"next,omitempty"`
	// NextMalformed says why the next poll could not be decoded; the outcomes stand.
	NextMalformed error `json:"-"`
}

// JobReceipt says what became of one outcome.
type JobReceipt struct {
	ID       string     `json:"jobId"`
	Outcome  string     `json:"outcome"`
	Recorded bool       `json:"recorded"`
	Reason   string     `json:"reason,omitempty"`
	Created  []string   `json:"createdJobIds,omitempty"`
	Then     *Taken     `json:"then,omitempty"`     // as in CompleteAnswer
	Warnings []Warning  `json:"warnings,omitempty"` // as in CompleteAnswer
	Error    *ErrorBody `json:"error,omitempty"`
}

// ChannelCompleteAnswer is on the wire null or the next job, or with Many, for items, {items, next?}.
type ChannelCompleteAnswer struct {
	Many  bool               `json:"-"`
	Items []JobReceipt       `json:"items"`
	Next  *ChannelPollAnswer `json:"next,omitempty"`
}

type completeAnswerFrame ChannelCompleteAnswer

// Wire is what is encoded: what the next poll gave, or with Many {items, next?}.
func (a ChannelCompleteAnswer) Wire() any {
	switch {
	case a.Many && a.Next != nil:
		return struct {
			Items []JobReceipt `json:"items"`
			Next  any          `json:"next"`
		}{a.Items, a.Next.Wire()}
	case a.Many:
		return completeAnswerFrame(a)
	case a.Next == nil:
		return nil
	}
	return a.Next.Wire()
}

// MarshalJSON writes the form of Wire.
func (a ChannelCompleteAnswer) MarshalJSON() ([]byte, error) { return json.Marshal(a.Wire()) }

// UnmarshalJSON reads both forms.
func (a *ChannelCompleteAnswer) UnmarshalJSON(raw []byte) error {
	var next json.RawMessage
	*a = ChannelCompleteAnswer{Many: true}
	if rawjson.Read(raw, rawjson.Field{Name: "items", Into: &a.Items}, rawjson.Field{Name: "next", Into: &next}) &&
		a.Items != nil {
		if next == nil || string(next) == "null" {
			return nil
		}
		a.Next = &ChannelPollAnswer{}
		return a.Next.UnmarshalJSON(next)
	}
	var probe struct {
		Items json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &probe); err != nil {
		return err
	}
	*a = ChannelCompleteAnswer{}
	if probe.Items != nil {
		a.Many = true
		return json.Unmarshal(raw, (*completeAnswerFrame)(a))
	}
	a.Next = &ChannelPollAnswer{}
	return a.Next.UnmarshalJSON(raw)
}

// JobLock is the lock of a job after it was extended.
type JobLock struct {
	LockExpiresAt   history.Time `json:"lockExpiresAt"`
	CancelRequested bool         `json:"cancelRequested"`
}

// JobReturn hands a job back: ready again at once, counted as a delivery and not as a failure.
type JobReturn struct {
	JobRef
	Reason string `json:"reason,omitempty"`
	Began  *bool  `json:"began,omitempty"` // see CompleteItem
}

// JobHistory asks for a page of the history behind a workflow job or a query. An empty token is the first page.
type JobHistory struct {
	JobRef
	PageToken string `json:"pageToken,omitempty"`
	PageSize  int    `json:"pageSize,omitempty"`
}

// JobProgress is a heartbeat of a job's own code. Progress is plain JSON {message?, current?, total?, unit?, details?}.
type JobProgress struct {
	JobRef
	Progress json.RawMessage `json:"progress,omitempty"`
	Rebuild  *Recovered      `json:"rebuild,omitempty"` // as in HeartbeatRequest
}

// JobLines are lines that a job's code logged.
type JobLines struct {
	JobRef
	LogChunk
	Malformed error `json:"-"` // why the lines could not be decoded; they alone are refused
}

// JobLogs brings lines of one job, or with Items of many.
type JobLogs struct {
	JobLines
	Items []JobLines `json:"items,omitempty"`
}

// JobLogsAnswer says of each job whether its lines are kept.
type JobLogsAnswer struct {
	Items []JobLogReceipt `json:"items"`
}

// JobLogReceipt is about the lines of one job.
type JobLogReceipt struct {
	ID       string `json:"jobId"`
	Recorded bool   `json:"recorded"` // false without a reason: the job has as many lines as are kept
	Reason   Reason `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
}

// SessionNotice tells a worker that it holds a session no more, under this epoch, and why. What runs in it is told of
// by itself.
type SessionNotice struct {
	SessionID string `json:"session_id"`
	Epoch     int64  `json:"epoch"`
	Reason    string `json:"reason"`
}

// EvictNotice tells a worker that runs have ended whose code it keeps in memory.
type EvictNotice struct {
	Runs []string `json:"runs"`
}

// CancelNotice tells a worker to stop an attempt.
type CancelNotice struct {
	TaskID    string `json:"taskId"`
	AttemptID string `json:"attemptId"`
}

// Topic is what a dashboard may ask to hear of: one thing by its id, or with an empty id whatever of the kind changes
// in the namespace.
type Topic struct {
	Kind      string `json:"kind"` // run, session, worker
	ID        string `json:"id,omitempty"`
	Namespace string `json:"namespace"`
}

// Hint tells a dashboard that something of a topic changed. It may come twice, late or never.
type Hint struct {
	Kind       string `json:"kind"` // run, session, worker
	ID         string `json:"id"`   // empty: some of the kind
	Namespace  string `json:"namespace,omitempty"`
	WorkflowID string `json:"workflow_id,omitempty"`
	LastSeq    int64  `json:"last_seq,omitempty"`
}
