// Package store is the interface of durable storage: transactions, which are committed in groups, and reads.
package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/quota"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These errors are the same for all stores.
var (
	ErrNotFound = errors.New("not found")
	// ErrUnavailable is returned by writes until one succeeds. An interrupted write may have been stored.
	ErrUnavailable = errors.New("store unavailable")
	// ErrOutcome is an ErrUnavailable for a commit whose outcome is unknown: the transactions may or may not be stored.
	ErrOutcome = fmt.Errorf("%w: the outcome of the commit is unknown", ErrUnavailable)
	ErrClosed  = errors.New("store closed")
	ErrBusy    = errors.New("database in use") // another process has locked the file; the message names it
	// ErrDamaged means that the database is corrupt or lacks acknowledged commits; the message says what to do.
	ErrDamaged = errors.New("the database is damaged")
	// ErrSchema means that a newer release has migrated the database to a schema that this binary does not support; the
	// message names both versions.
	ErrSchema = errors.New("the schema is newer than this binary may serve")
)

// Store is the durable storage of an app. All methods are safe for concurrent use.
type Store interface {
	// Commit runs one transaction in the next batch and returns the Answer of the Decide whose writes were committed:
	// it is durable if the error is nil. An error of Decide is returned unchanged, and nothing is written. A cancelled
	// ctx ends the wait, never the transaction.
	Commit(ctx context.Context, c Transaction) (any, error)
	// LeaseTasks leases ready tasks, after the writes of the batch that contains the claim. It may return fewer tasks
	// than requested, or none.
	LeaseTasks(ctx context.Context, r LeaseRequest) ([]Leased, error)
	// View reads committed data on a separate connection.
	View(ctx context.Context, fn func(Reader) error) error
	// Queue returns the cached settings of a task queue without a database query; nil if there are none. Changes by
	// another process arrive with a short delay.
	Queue(k engine.QueueKey) *engine.Queue
	// Pools returns the cached rows of queues that contain a pool of sessions, sorted by key, without a database query.
	Pools() []*engine.Queue
	// Now returns the time of the store's clock, the only clock that decides about leases.
	Now(ctx context.Context) (time.Time, error)
	// About estimates the store's clock without a query. The estimate may be a little late, never early. Use it to show
	// the age of data, not to decide about leases. Zero: not known yet.
	About() time.Time
	// Unusable returns a channel that receives one error if this process must stop: ErrSchema if another process
	// migrated the database to a schema that this binary does not support, ErrDamaged if the database is corrupt.
	Unusable() <-chan error
	// ClockJumps returns a channel that receives an entry for each jump of the store's clock that this process found,
	// after the leases were adjusted.
	ClockJumps() <-chan ClockJump
	// Writable returns an error if the database does not accept writes. It reports the outcome of the last write, and
	// tries another write only if the last one failed.
	Writable(ctx context.Context) error
	// ReceivesNotices reports whether this process receives the notifications of other processes' commits. While it
	// does not, its caches may be outdated.
	ReceivesNotices() bool
	// Stats returns counters of statements, round trips, commits and reads since the store was opened.
	Stats() Stats
	// Unclean reports whether the previous process did not close the database. It is always false if several processes
	// share the database: their ends show in the rows of apps.
	Unclean() bool
	// CountUsage counts the runs and schedules of a namespace, page by page in one snapshot.
	CountUsage(ctx context.Context, namespace string) (UsageCount, error)
	// Quotas returns the ledger that counts the usage of namespaces by the commits of this process.
	Quotas() *quota.Ledger
	Close() error
}

// ClockJump describes a jump of the store's clock. By is the difference between the clock and the time that this
// process measured; it is negative for a jump back. Moved is the number of rows whose leases and backoffs were
// adjusted.
type ClockJump struct {
	By    time.Duration
	At    time.Time // when the jump was found, by the clock after the jump
	Moved int
	Err   error // why some rows may not have been adjusted; nil: all were
}

// Direction returns the direction of the jump, "forward" or "back", and its length.
func (j ClockJump) Direction() (way string, by time.Duration) {
	if j.By < 0 {
		return "back", -j.By
	}
	return "forward", j.By
}

// Schema contains the versions of a database's schema: the version found (0: an empty database), and the version of
// this release. Refused is an ErrSchema if this binary does not support the version found.
type Schema struct {
	Found, Required int64
	Refused         error
	Durability      *Durability // durability settings of a PostgreSQL server; nil for SQLite
}

// Durability holds the PostgreSQL settings that decide whether acknowledged commits survive a crash of the server, as
// reported by the server.
type Durability struct{ Fsync, SynchronousCommit, FullPageWrites string }

func (d Durability) String() string {
	return "fsync " + d.Fsync + ", synchronous_commit " + d.SynchronousCommit + ", full_page_writes " + d.FullPageWrites
}

// Risk reports whether a crash of the server can lose acknowledged commits.
func (d Durability) Risk() bool {
	return d.Fsync == "off" || d.SynchronousCommit == "off" || d.FullPageWrites == "off"
}

// Stats counts statements (except BEGIN and COMMIT), their round trips, committed batches, transactions in them, rows
// written, reads outside of batches, and the ready tasks among which claims choose.
type Stats struct {
	Statements, RoundTrips, Commits, Changes, Rows, Reads, Candidates int64
	// prepared statements for reads; 0 on PostgreSQL
	Prepared int64
}

// Transaction is one write, as data. Decide is pure: it only reads rows and now, and may be called again with newer
// rows when a batch is retried.
type Transaction struct {
	Needs  Keys
	Decide func(Rows, time.Time) (Writes, error)
	// Recall allows the store to call Decide first with cached rows and with a time that has just passed. The store
	// commits that decision only if both are still correct. It is for frequent transactions whose decision would have
	// been the same a moment earlier.
	Recall bool
	// NotBefore is a time that the caller received from the store. With Recall, Decide is not called with an earlier
	// time.
	NotBefore time.Time
	// Class is the fairness class of a transaction that creates its run; for others, it is read from the run.
	Class Class
	// Background marks a transaction for which no caller waits, such as a clean-up. While other transactions wait, at
	// most half of a batch consists of background transactions.
	Background bool
}

// Class is a fairness key of a namespace, with its weight. The zero value means that there is no key.
type Class struct {
	Namespace, Key string
	Weight         int
}

// Keys names the rows that a transaction needs. They are loaded and, on a shared database, locked. A row that does not
// exist is nil in Rows; its key is locked, so no other app can insert the row.
type Keys struct {
	Workflows []engine.WorkflowKey
	New       bool     // the IDs in Workflows are assumed to be unused, until the insert fails
	Current   bool     // also load the current run of each workflow in Workflows
	Runs      []string // each with everything that is open in it
	Chain     bool     // also load the workflow-scoped sessions of each run's workflow ID, and its workflow row
	// Inherited names open children that earlier runs of the workflow IDs of Runs, and of the current runs of
	// Workflows, may have started.
	Inherited []string
	Bound     bool // also load children with a close policy, for a step that may close the last run
	// Attached also loads the children of earlier runs to which the runs are attached, for a step that may request
	// their cancellation.
	Attached bool
	// Activities names activities of Runs whose sessions are also loaded.
	Activities []int64
	AllTasks   bool // also load the sessions of all open activities of Runs, for a step that may end all of them
	Sessions   []engine.SessionKey
	// SkipLocked lets the transaction continue without those Sessions that another app has locked; Rows.SkippedLocked
	// reports them.
	SkipLocked     bool
	RecentActivity bool // also load the last activity in Sessions whose rows may lag behind it
	ExactActivity  bool // with RecentActivity: load it for all Sessions
	Workers        []engine.WorkerKey
	// Present means that Workers are needed only if they exist: the keys of missing workers are not locked, so another
	// app may insert them.
	Present    bool
	Holdings   bool // also count the sessions that each worker in Workers holds
	Receipts   []ReceiptKey
	Tokens     []string
	Namespaces []string
	Schedules  []engine.ScheduleKey
	BatchJobs  []engine.BatchJobKey
	Queues     []engine.QueueKey // queues whose settings are changed; reading Rows.Queue needs no key
}

// Rows are the input of Decide: the committed rows with the writes of earlier transactions in the batch. They must not
// be modified; a decision works on a Fork. A row that does not exist is nil.
type Rows interface {
	Workflow(engine.WorkflowKey) *engine.Workflow
	Run(id string) *engine.Run
	Session(engine.SessionKey) *engine.Session
	// ChainSessions returns the loaded workflow-scoped sessions of a workflow ID that are not terminal.
	ChainSessions(engine.WorkflowKey) []*engine.Session
	// InheritedChild returns a loaded open child that an earlier run of a workflow ID started. BoundChildren returns
	// those children of earlier runs that have a close policy.
	InheritedChild(engine.InheritedKey) *engine.InheritedChild
	BoundChildren(engine.WorkflowKey) []*engine.InheritedChild
	Worker(engine.WorkerKey) *engine.Worker
	// Holding returns the number of sessions that a worker of Keys holds at now, not counting except.
	Holding(w engine.WorkerKey, except engine.SessionKey, now time.Time) int
	// Used returns the sum of the resources that the sessions of a worker of Keys use at now.
	Used(w *engine.Worker, now time.Time) engine.Amounts
	Receipt(ReceiptKey) *Receipt
	Token(id string) *Token
	Namespace(name string) *Namespace
	Schedule(engine.ScheduleKey) *engine.Schedule
	BatchJob(engine.BatchJobKey) *engine.BatchJob
	// SkippedLocked reports that another app has locked the session's row, so it is unknown whether the row exists. It
	// is used only by transactions with Keys.SkipLocked.
	SkippedLocked(engine.SessionKey) bool
	// Queue returns the settings of a task queue: the locked row for queues in Keys, cached settings for others.
	Queue(engine.QueueKey) *engine.Queue
	// EpochWatermark returns the highest epoch of all removed sessions of the namespace. A new epoch must be higher.
	EpochWatermark(namespace string) int64
	// Quotas returns the namespace's usage of its quotas, as this process knows it.
	Quotas(namespace string) engine.QuotaStanding
}

// Writes contains everything that a transaction writes. Answer is returned to the caller of Commit.
type Writes struct {
	Runs        []engine.Decision // a run that was not loaded is inserted
	Workflows   []engine.Workflow
	Sessions    []engine.SessionChange
	Workers     []engine.Worker
	DropWorkers []engine.WorkerKey
	// Reconnected names workers that now use another connection. A task that is delivered to a poll on an older
	// connection, at any app, would be lost.
	Reconnected []engine.WorkerKey
	Receipts    []Receipt
	Tokens      []Token
	// TokenUses contains tokens of which only UsedAt has changed. Other processes are not notified of them.
	TokenUses  []Token
	DropTokens []string
	Namespaces []Namespace
	Queues     []engine.Queue
	Schedules  []engine.ScheduleDecision // the runs that they start and end are other writes of the same transaction
	// BatchJobs must be loaded. BatchRuns are inserted, or replace the rows with their numbers.
	BatchJobs []engine.BatchJob
	BatchRuns []engine.BatchRun
	// DropBatchRuns and DropBatchJobs delete rows of closed jobs. The runs of a job must be deleted first.
	DropBatchRuns []engine.BatchRunKey
	DropBatchJobs []engine.BatchJobKey
	// DropTimelines deletes the timelines of sessions. The sessions must be loaded.
	DropTimelines []engine.SessionKey
	// DropNamespaces deletes namespaces with all their rows, including timelines of their sessions. Audit entries stay,
	// and routing keys stay for a day.
	DropNamespaces []string
	// DropRoutingKeys deletes the routing keys for which no queue had ready tasks for a day. Claims then no longer
	// search for them.
	DropRoutingKeys bool
	// EpochWatermarks raises the epoch watermarks of namespaces.
	EpochWatermarks map[string]int64
	// Unserved marks runs as stuck because no worker can run their tasks, or removes the mark. Runs that another app
	// has locked, and deleted runs, are skipped.
	Unserved []UnservedRun
	// DropRuns deletes runs, open or closed, with their histories, open rows, receipts and logs; each must be loaded
	// with its workflow.
	DropRuns []string
	// Served are ready tasks that the transaction completes without a lease. They advance the fairness clocks of their
	// queues like leased tasks.
	Served   []ServedTask
	Logs     []LogBatch // an existing batch is not overwritten
	DropLogs []LogKey
	Audit    []Audit
	// DropAudits deletes audit entries by the numbers that AccessReader.OldAudits returns.
	DropAudits []int64
	Answer     any
}

// ServedTask is a ready task with its rank in the fair order of its queue.
type ServedTask struct {
	Namespace, Queue string
	Kind             protocol.TaskKind
	Priority         int
	Rank             int64
}

// ReceiptKey identifies the response to a client's request ID on a workflow.
type ReceiptKey struct{ Namespace, WorkflowID, RequestID string }

// Receipt stores the response to a request ID, with a hash of the request, until the workflow is deleted.
type Receipt struct {
	ReceiptKey
	Hash string
	Body []byte // the response as JSON
	At   history.Time
}

// Token is a stored credential. It contains a hash of the secret and never the secret itself.
type Token struct {
	ID         string
	Hash       []byte // SHA-256 of the secret
	Name       string
	Roles      []string
	Namespaces []string // empty: all
	Queues     []string // for tokens of workers; empty: all
	Group      string
	CreatedAt  history.Time
	ExpiresAt  history.Time // zero: never
	RevokedAt  history.Time
	UsedAt     history.Time // last use, rounded to a minute; zero: never
}

// Audit is one operator action.
type Audit struct {
	At        history.Time
	Identity  string
	Action    string
	Namespace string
	Target    string
	Detail    string
}

// LeaseRequest is a claim: it leases ready tasks of one queue and kind for waiting polls, in their order.
type LeaseRequest struct {
	Namespace string
	Queue     string
	Kind      protocol.TaskKind
	Pollers   []Poller
	// StickyWorkers returns the processes with a run in their sticky caches, the best first. A workflow task of the run
	// is leased to the first of them that polls and has a free slot, otherwise to the first poll. The function must not
	// block. nil: no process caches runs.
	StickyWorkers func(run string) []Process
	// Full is called for each worker that reaches its maximum number of sessions with this claim, with the routing
	// words of the tasks that it did not get for that reason. The function must not block and may be nil.
	Full func(w engine.WorkerKey, routes []string)
}

// Process is one process of a worker.
type Process struct {
	Worker      engine.WorkerKey
	Incarnation string
}

// Poller is one waiting poll of a claim, with the tasks that it accepts and the limits of their number and size.
type Poller struct {
	Lessee engine.Lessee
	Max    int
	// Bytes is the rest of the byte budget of its response. The claim stops at the first task that does not fit, so
	// that no task is skipped for a smaller one. First: the response has no task yet, and the first task always fits.
	// Zero values mean no limit.
	Bytes        int64
	First        bool
	Deregistered *atomic.Bool // set when the poll's process has been deregistered, so it receives no tasks; may be nil
}

// Leased is a leased task, with the data that was in memory when it was leased.
type Leased struct {
	Kind     protocol.TaskKind
	Head     engine.Head      // head of its run after the lease
	Activity *engine.Activity // for kind activity
	Session  *engine.Session  // session of the activity after the lease; nil: none
	Question *Question        // for kinds query and update_validation
	// IsNew: the first task of the session's epoch that its owner receives; a delivery that was undone does not count.
	IsNew           bool
	SessionAcquired bool   // the lease acquired the session
	Class           string // fairness class of the task, if its queue has fairness keys
	Poller          int    // index into LeaseRequest.Pollers; not used for a reserved poll
	Size            int64  // size of the delivery, which was subtracted from the poll's Bytes
	Arguments       string // encoded arguments; only if Cached
	Cached          bool   // Arguments is set, and Events as far as the cache contains the history
	// Events are the last events up to Head.LastSeq, as far back as the cache contains them; nil: read them.
	Events []history.Event
	Bytes  int // size of the payloads of Events
}

// Dispatcher is called by the committer, on the committer's goroutine, so its methods must not block.
type Dispatcher interface {
	// Reserve selects the longest-waiting suitable poll of this process for a task that will become ready; nil: none.
	Reserve(o Offer) Reservation
	// Backlog reports that ready tasks of this queue were committed without a reserved poll, or that other apps may
	// have left ready tasks. An empty queue means every queue of the namespace. Without routing keys, the tasks may
	// have any routing key.
	Backlog(namespace, queue string, kind protocol.TaskKind, keys ...RoutingKey)
	// LeaseExpired reports that a lease of this worker expired, or that the worker connected over another connection.
	// The worker may have ended or be paused, so its earlier polls must not receive tasks.
	LeaseExpired(k engine.WorkerKey)
	// Deregistered reports that the registration of a process has ended: the process deregistered, was removed, or was
	// superseded by another process, at this app or at another. It is called before the tasks of the same commit are
	// delivered. Open polls of the process must receive no more tasks.
	Deregistered(p Process)
	// Isolate reports that a process holds a blamed task and must receive no other task, or that this has ended.
	Isolate(p Process, alone bool)
	// Throttled reports, before a claim returns, that a limit delayed tasks of the claim. Backlog is called again when
	// a lease of the queue ends. After t.Wait, unless it is 0, another claim may succeed.
	Throttled(namespace, queue string, kind protocol.TaskKind, t engine.Throttle)
	// Queue reports that the settings of a queue changed, at this app or at another.
	Queue(q *engine.Queue)
	// Due reports that a commit contains rows for the sweeper that become due at this time.
	Due(at time.Time)
	// Changed reports, after the commit, the runs with new events and the sessions whose owners changed. Long polls and
	// dashboards use these hints.
	Changed(c Changed)
	// Missed reports that notifications of other apps' commits were lost: any queue may have ready tasks, and any row
	// may have changed.
	Missed()
}

// RoutingKey is the routing key of a task within its queue and kind: the requirements that a worker must meet to run
// the task. Priority is the highest priority of the tasks that are reported under this key.
type RoutingKey struct {
	Type, BuildID string
	Requirements  []string
	Priority      int
}

// Changed lists what a batch changed.
type Changed struct {
	Runs     []RunChange
	Sessions []engine.SessionKey
	Loose    bool // some of Sessions have no owner or were removed
	Workers  []engine.WorkerKey
	Moves    []SessionMove
	// Superseded lists processes whose registration another app superseded or removed. Notifications of older releases
	// do not name the process.
	Superseded   []Process
	DrainChanged []Process // processes that started or stopped draining, reported by another app
	Answers      []string  // IDs of questions with a reply
	Tokens       []string  // tokens that were created, changed or deleted, here or elsewhere
	Remote       bool      // another app made the commit
}

// SessionMove is an entry that was added to a session's timeline. For commits of other apps, only ended leases and
// entries about successors are reported, and some of these may be missing.
type SessionMove struct {
	Session engine.SessionKey
	protocol.SessionEvent
	Remote bool `json:"-"` // another app committed it
}

// RunChange is a run with new events.
type RunChange struct {
	Namespace, WorkflowID, RunID string
	LastSeq                      int64
	Closed                       bool
	// ContinuedTo is the ID of the run that continues a closed run; empty if it was the last run of its chain.
	ContinuedTo string `json:",omitempty"`
	// Closing is the closed run as the closing commit stored it; nil if another app made that commit.
	Closing *Closing `json:"-"`
	// OnlyRenewed means that only leases were renewed, so a list of runs looks the same.
	OnlyRenewed bool               `json:"Still"`
	Cancelled   []CancelledAttempt // leased attempts that were cancelled or whose run closed
}

// Closing is a run and its last event as the closing commit stored them. Both are read-only.
type Closing struct {
	Head  *engine.Head
	Event *history.Event
}

// CancelledAttempt is an attempt whose worker must be notified to stop it.
type CancelledAttempt struct{ Worker, TaskID, AttemptID string }

// Offer is a task that will become ready. Session is the session's row after the commit, nil for a task without a
// session. First means that the session has no owner and that the reserved poll may acquire it with this task. The
// store then counts the worker's sessions under the lock of the worker's row, and undoes the reservation if the worker
// holds its maximum.
type Offer struct {
	Kind            protocol.TaskKind
	Run             string
	Namespace       string
	Queue           string
	Type            string
	BuildID         string
	Requirements    []string
	Session         *engine.Session
	AcquiresSession bool
	Priority        int
	Fair            bool          // fairness classes share the queue, so its order must be preserved
	MayOvertake     bool          // its creator may receive it before older tasks, but not before more urgent ones
	Settings        *engine.Queue // settings of its queue; nil: none
	Now             time.Time
	// Bytes is the size of the task in a response; CachedBytes is that size for a worker that has the run in its sticky
	// cache.
	Bytes, CachedBytes int64
}

// Reservation is a poll that has been removed from its queues for one task. Exactly one of Deliver, Undo and Doubt is
// called once the outcome of the commit is known or can no longer be determined. Doubt means that the task may have
// been leased to the poll.
type Reservation interface {
	Lessee() engine.Lessee
	Overtakes() bool // true: older tasks, of any kind, may wait for this poll
	Deliver(Leased)
	Undo()
	Doubt(error)
}
