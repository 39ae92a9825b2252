// Package store is the interface of durable storage: changes that are committed in groups, and reads next to them.
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

// The sentinels of every store.
var (
	ErrNotFound = errors.New("not found")
	// ErrUnavailable is returned by writes until one succeeds; an interrupted write may have been stored.
	ErrUnavailable = errors.New("store unavailable")
	// ErrOutcome is an ErrUnavailable during a commit whose outcome is unknown: the changes may or may not be stored.
	ErrOutcome = fmt.Errorf("%w: the outcome of the commit is unknown", ErrUnavailable)
	ErrClosed  = errors.New("store closed")
	ErrBusy    = errors.New("database in use") // another process holds the file; the message names it
	// ErrDamaged means that the database is malformed or lacks acknowledged work; the message names the remedy.
	ErrDamaged = errors.New("the database is damaged")
	// ErrSchema means that a newer release has migrated the database beyond the versions that this binary supports; the
	// message names both versions.
	ErrSchema = errors.New("the schema is newer than this binary may serve")
)

// Store is the durable storage of an app. All methods may be called from any goroutine.
type Store interface {
	// Commit runs one transaction in the next batch and returns the Answer of the Decide whose writes were committed: it
	// is durable if the error is nil. An error of Decide is returned unchanged, and nothing is written. A cancelled ctx
	// ends the wait, never the transaction.
	Commit(ctx context.Context, c Transaction) (any, error)
	// LeaseTasks leases ready tasks from the backlog, after the writes of the batch it travels in. It may return fewer
	// than asked, or none.
	LeaseTasks(ctx context.Context, r LeaseRequest) ([]Leased, error)
	// View reads committed data on separate connections.
	View(ctx context.Context, fn func(Reader) error) error
	// Queue returns the cached settings of a task queue without a query to the database; nil if there are none.
	// Changes by another process arrive with a short delay.
	Queue(k engine.QueueKey) *engine.Queue
	// Now returns the time of the store's clock, the only clock by which leases expire.
	Now(ctx context.Context) (time.Time, error)
	// About estimates the store's clock without a query: it may be a little behind, never ahead. It
	// serves to show the age of data, not to expire leases. Zero: not known yet.
	About() time.Time
	// Unusable receives one error if this process has to stop: store.ErrSchema if another process migrated the database
	// to a schema that this binary may not serve, store.ErrDamaged if the database is damaged.
	Unusable() <-chan error
	// ClockJumps has an entry for each jump of the store's clock that this process found, once the leases follow the
	// clock.
	ClockJumps() <-chan ClockJump
	// Writable returns an error if the database does not accept writes. It reports the outcome of the last write, and
	// tries another write only if the last one failed.
	Writable(ctx context.Context) error
	// ReceivesNotices reports whether this process receives the notices of other processes' commits. While it does not,
	// its caches may be out of date without its knowledge.
	ReceivesNotices() bool
	// Stats returns counters of statements, round trips, commits and reads since the store was opened.
	Stats() Stats
	// Unclean reports whether the process before did not close the database. It is false where processes share one: their
	// ends show in the rows of apps.
	Unclean() bool
	// CountUsage counts the runs and schedules of a namespace, in pages of one snapshot.
	CountUsage(ctx context.Context, namespace string) (UsageCount, error)
	// Quotas returns the ledger that counts the usage of namespaces by the commits of this process.
	Quotas() *quota.Ledger
	Close() error
}

// ClockJump describes a jump of the store's clock: By is its difference from the time that this process measured,
// negative for a jump back. Moved counts the rows whose leases and backoffs were shifted with the clock.
type ClockJump struct {
	By    time.Duration
	At    time.Time // by the clock after the jump, when it was found
	Moved int
	Err   error // why rows may not follow the clock; nil: all do
}

// Direction returns the direction of the jump, "forward" or "back", and its length.
func (j ClockJump) Direction() (way string, by time.Duration) {
	if j.By < 0 {
		return "back", -j.By
	}
	return "forward", j.By
}

// Schema is the version of a database's schema: the version found, 0 for an empty database, and the version of this
// release. Refused is an ErrSchema if the version found is newer than this binary may serve.
type Schema struct {
	Found, Required int64
	Refused         error
	Durability      *Durability // of a PostgreSQL server; nil for SQLite
}

// Durability holds the PostgreSQL settings that decide whether acknowledged commits survive a crash of the server, as
// reported by the server.
type Durability struct{ Fsync, SynchronousCommit, FullPageWrites string }

func (d Durability) String() string {
	return "fsync " + d.Fsync + ", synchronous_commit " + d.SynchronousCommit + ", full_page_writes " + d.FullPageWrites
}

// Risk reports that a crash of the server can lose acknowledged commits.
func (d Durability) Risk() bool {
	return d.Fsync == "off" || d.SynchronousCommit == "off" || d.FullPageWrites == "off"
}

// Stats counts statements next to BEGIN and COMMIT, the round trips they took, commits of batches, changes in them,
// rows written, reads next to the batches, and the ready tasks that claims read to choose from.
type Stats struct {
	Statements, RoundTrips, Commits, Changes, Rows, Reads, Candidates int64
	Prepared                                                          int64 // statements for reading; 0 on PostgreSQL
}

// Transaction is one verb's write, as data. Decide is pure: it only reads rows and now, and may be called again with
// fresher rows when a batch is retried.
type Transaction struct {
	Needs  Keys
	Decide func(Rows, time.Time) (Writes, error)
	// Recall allows the store to call Decide first with cached rows and with a time that has just passed. The store
	// commits that decision only if both are still correct. Recall is meant for frequent changes whose decision would
	// have been the same a moment earlier.
	Recall bool
	// NotBefore is an earlier time that the caller received from the store. With Recall, Decide is not called with a
	// time before it.
	NotBefore time.Time
	// Class is the fairness class of a transaction that creates its run; otherwise the class is read from the run.
	Class Class
	// Background marks a transaction that no caller waits for, such as a clean-up. While other transactions are waiting,
	// at most half of the changes in a batch are background changes.
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
	New       bool     // the ids in Workflows are taken to be free, until that shows to be wrong
	Current   bool     // also the current run of each workflow named
	Runs      []string // each with all that is open in it
	Chain     bool     // also the workflow-scoped sessions of each run's workflow id, and its workflow row
	// Inherited names children that earlier runs of the workflow ids of Runs, and of the current runs of Workflows, may
	// have started and that are open.
	Inherited []string
	Bound     bool // also children to which a close policy applies: for a step that may end the last run
	// Attached adds the former children that the runs are attached to, for a step that may request their cancellation.
	Attached bool
	// Activities names activities of Runs whose sessions are wanted too.
	Activities []int64
	AllTasks   bool // the sessions of all open activities of Runs: for a step that may end them all
	Sessions   []engine.SessionKey
	// SkipLocked lets the transaction proceed without those Sessions that another app has locked; Rows.SkippedLocked
	// reports them.
	SkipLocked     bool
	RecentActivity bool // also the last activity of the holders of Sessions, if their rows do not show it
	ExactActivity  bool // with Lately: whatever their rows show
	Workers        []engine.WorkerKey
	// Present means that Workers are needed only if they exist: the keys of missing workers are not locked, so another
	// app may insert them.
	Present    bool
	Holdings   bool // also how many sessions each worker named holds
	Receipts   []ReceiptKey
	Tokens     []string
	Namespaces []string
	Schedules  []engine.ScheduleKey
	Queues     []engine.QueueKey // for a decision about them; Rows.Queue needs no naming
}

// Rows are the input of Decide: the committed rows with the writes of earlier changes in the batch. They must not be
// modified; a decision works on a Fork. A row that does not exist is nil.
type Rows interface {
	Workflow(engine.WorkflowKey) *engine.Workflow
	Run(id string) *engine.Run
	Session(engine.SessionKey) *engine.Session
	// ChainSessions are the loaded workflow-scoped sessions of a workflow id that are not terminal.
	ChainSessions(engine.WorkflowKey) []*engine.Session
	// InheritedChild returns a loaded open child that an earlier run of a workflow id started. BoundChildren returns the
	// former children that a close policy applies to.
	InheritedChild(engine.InheritedKey) *engine.InheritedChild
	BoundChildren(engine.WorkflowKey) []*engine.InheritedChild
	Worker(engine.WorkerKey) *engine.Worker
	// Holding returns the number of sessions that a worker of Needs holds at now, without the given one.
	Holding(w engine.WorkerKey, except engine.SessionKey, now time.Time) int
	Receipt(ReceiptKey) *Receipt
	Token(id string) *Token
	Namespace(name string) *Namespace
	Schedule(engine.ScheduleKey) *engine.Schedule
	// SkippedLocked reports that another app has locked the session's row, so it is unknown whether the row exists. It is
	// used only by changes with Keys.SkipLocked.
	SkippedLocked(engine.SessionKey) bool
	// Queue returns the settings of a task queue: the locked row for queues in Needs, cached settings for others.
	Queue(engine.QueueKey) *engine.Queue
	// EpochWatermark is the highest epoch of any removed session of the namespace. A new epoch is higher.
	EpochWatermark(namespace string) int64
	// Quotas returns the namespace's usage of its quotas, as this process knows it.
	Quotas(namespace string) engine.QuotaStanding
}

// Writes holds everything that a transaction writes. Answer is returned to the caller of Commit.
type Writes struct {
	Runs        []engine.Decision // a run that was not loaded is inserted
	Workflows   []engine.Workflow
	Sessions    []engine.SessionChange
	Workers     []engine.Worker
	DropWorkers []engine.WorkerKey
	// Reconnected names workers that now use another connection. A task delivered to a poll on an older connection, at
	// any app, would be lost.
	Reconnected []engine.WorkerKey
	Receipts    []Receipt
	Tokens      []Token
	// TokenUses holds tokens of which only UsedAt has changed. Other processes are not notified of them.
	TokenUses  []Token
	DropTokens []string
	Namespaces []Namespace
	Queues     []engine.Queue
	Schedules  []engine.ScheduleDecision // their starts and ends are other writes of the same transaction
	// DropTimelines removes the timelines of sessions. The sessions must be loaded.
	DropTimelines []engine.SessionKey
	// DropNamespaces removes namespaces with all their rows, including timelines of their sessions; audits stay, and
	// routing keys stay for a day.
	DropNamespaces []string
	// DropRoutingKeys removes routing keys that no queue had ready tasks of for a day. Claims then no longer search for
	// them.
	DropRoutingKeys bool
	// EpochWatermarks raises the epoch watermarks of namespaces.
	EpochWatermarks map[string]int64
	// Unserved marks runs that no worker serves, or removes the mark. Runs that another app has locked, and deleted
	// runs, are skipped.
	Unserved []UnservedRun
	// DropRuns removes runs, open or closed, with their histories, open rows, receipts and logs; each must be loaded
	// with its workflow.
	DropRuns []string
	Logs     []LogBatch // an existing part is not overwritten
	DropLogs []LogKey
	Audit    []Audit
	// DropAudits removes audit entries by the numbers that AccessReader.OldAudits names.
	DropAudits []int64
	Answer     any
}

// ReceiptKey names the answer to a client's request id on a workflow.
type ReceiptKey struct{ Namespace, WorkflowID, RequestID string }

// Receipt stores the response to a request id, with a hash of the request, until the workflow is removed.
type Receipt struct {
	ReceiptKey
	Hash string
	Body []byte // JSON
	At   history.Time
}

// Token is a stored credential. It holds a hash of the secret and never the secret itself.
type Token struct {
	ID         string
	Hash       []byte // SHA-256 of the secret
	Name       string
	Roles      []string
	Namespaces []string // empty: all
	Queues     []string // for workers; empty: all
	Group      string
	CreatedAt  history.Time
	ExpiresAt  history.Time // zero: never
	RevokedAt  history.Time
	UsedAt     history.Time // last, to a minute; zero: never
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

// LeaseRequest asks for ready tasks of one queue and kind for pollers that wait, first come first served.
type LeaseRequest struct {
	Namespace string
	Queue     string
	Kind      protocol.TaskKind
	Pollers   []Poller
	// StickyWorkers returns the processes that have a run in their sticky cache, the best first. A workflow task of the
	// run is leased to the first of them that polls and has room, else to the first poller. The function must not block.
	// nil: no process caches runs.
	StickyWorkers func(run string) []Process
	// Full is called for each worker that reaches its session limit with this claim, with the routes whose tasks were
	// withheld from it for that reason. The function must not block and may be nil.
	Full func(w engine.WorkerKey, routes []string)
}

// Process is a worker as one process of it registered.
type Process struct {
	Worker      engine.WorkerKey
	Incarnation string
}

// Poller is one waiting poller of a claim, with the tasks that it accepts and the limits of their number and size.
type Poller struct {
	Lessee engine.Lessee
	Max    int
	// Bytes is the rest of the budget of its response. The claim stops at the first task that does not fit, so that no
	// task is passed over for a smaller one. First: the response has no task yet, and the first task always fits. Zero
	// values mean no limit.
	Bytes        int64
	First        bool
	Deregistered *atomic.Bool // set when its process has been deregistered: it receives no tasks; may be nil
}

// Leased is a task in the hands of a worker, with what was in memory when it was leased.
type Leased struct {
	Kind     protocol.TaskKind
	Head     engine.Head      // of its run, after the lease
	Activity *engine.Activity // kind activity
	Session  *engine.Session  // when the activity runs in one, after the lease
	Question *Question        // kinds query and update_validation
	// the first task of the session's epoch that its holder sees: one whose delivery was undone does not count
	IsNew           bool
	SessionAcquired bool   // the lease claimed the session
	Class           string // its fairness class, where keys share its queue
	Poller          int    // index into LeaseRequest.Pollers; of no meaning for a hand-over
	Size            int64  // of the delivery, as it was subtracted from the poller's Bytes
	Arguments       string // blob; only when Known
	Cached          bool   // Arguments is filled, and Events where the cache holds the history
	// Events are the last events up to Head.LastSeq, as far back as the cache holds them; nil: read them.
	Events []history.Event
	Bytes  int // of the payloads of Events
}

// Dispatcher is called by the committer, on the committer's goroutine; its methods must not block.
type Dispatcher interface {
	// Reserve picks the longest-waiting suitable poller of this process for a task about to become ready, or nil.
	Reserve(o Offer) Reservation
	// Backlog reports that ready tasks of this queue were committed without a poller, or that other apps may have left
	// ready tasks. An empty queue means every queue of the namespace. Without routing keys, the tasks may have any
	// routing key.
	Backlog(namespace, queue string, kind protocol.TaskKind, keys ...RoutingKey)
	// LeaseExpired reports that a lease of this worker expired, or that the worker reconnected on another connection.
	// The worker may have ended or be paused, so its earlier polls must not receive tasks.
	LeaseExpired(k engine.WorkerKey)
	// Deregistered reports that the registration of a process has ended: the process deregistered, was removed, or was
	// replaced by another process, at this app or at another. It is called before the tasks of the same commit are
	// delivered. Open polls of the process receive no more tasks.
	Deregistered(p Process)
	// Isolate is called when a process holds a blamed task and receives no other task, and when that has ended.
	Isolate(p Process, alone bool)
	// Throttled reports, before a claim is answered, that a budget withheld tasks from the claim. Backlog is called
	// again when a lease of the queue ends. After t.Wait, unless it is 0, another claim may succeed.
	Throttled(namespace, queue string, kind protocol.TaskKind, t engine.Throttle)
	// Queue reports a new decision about a queue, made at this app or at another.
	Queue(q *engine.Queue)
	// Due reports that a commit contains work for the sweeper that becomes due at this time.
	Due(at time.Time)
	// Changed reports, after the commit, the runs that got events and the sessions whose holders changed. Long polls
	// and dashboards use these hints.
	Changed(c Changed)
	// Missed reports that notices of other apps' commits were lost: any queue may have ready tasks, and any row may
	// have changed.
	Missed()
}

// RoutingKey is the routing key of a task within its queue and kind: the requirements that every worker must meet.
// Priority is the highest priority of the tasks that are announced under this key.
type RoutingKey struct {
	Type, BuildID string
	Requirements  []string
	Priority      int
}

// Changed is the notice of a batch's changes.
type Changed struct {
	Runs     []RunChange
	Sessions []engine.SessionKey
	Loose    bool // some of Sessions have no holder or were removed
	Workers  []engine.WorkerKey
	Moves    []SessionMove
	// Superseded names processes whose registration was replaced or removed by another app. Notices of older releases
	// do not name the process.
	Superseded   []Process
	DrainChanged []Process // processes that started or stopped draining, reported by another app
	Answers      []string  // questions that were answered
	Tokens       []string  // tokens that were made, changed or dropped, here or elsewhere
	Remote       bool      // another app made the commit
}

// SessionMove is an entry that was added to a session's timeline. Of the sessions of other apps, only ended leases are
// reported, and some of these may be missing.
type SessionMove struct {
	Session engine.SessionKey
	protocol.SessionEvent
	Remote bool `json:"-"` // another app committed it
}

// RunChange is a run that got events.
type RunChange struct {
	Namespace, WorkflowID, RunID string
	LastSeq                      int64
	Closed                       bool
	// ContinuedTo is the ID of the run that continues a closed run; empty if the chain of runs ended with it.
	ContinuedTo string `json:",omitempty"`
	// Closing is the closed run as the closing commit stored it; nil if another app made that commit.
	Closing *Closing `json:"-"`
	// OnlyRenewed means that only leases were renewed, so a listing of runs shows no difference.
	OnlyRenewed bool               `json:"Still"`
	Cancelled   []CancelledAttempt // leased attempts that were cancelled or whose run closed
}

// Closing is a run and its last event as the closing commit stored them. Both are read-only.
type Closing struct {
	Head  *engine.Head
	Event *history.Event
}

// CancelledAttempt names an attempt whose worker must be notified to stop it.
type CancelledAttempt struct{ Worker, TaskID, AttemptID string }

// Offer is a task that is about to become ready. Session is the session's row after the commit, nil for a task without
// a session. First means that the session has no holder and that the reserved poller may acquire it with this task. The
// store then counts the worker's sessions under the lock of the worker's row, and undoes the reservation if the worker
// is at its limit.
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
	Fair            bool          // classes share the queue, so its order must be preserved
	MayOvertake     bool          // it may be delivered before older tasks, but not more urgent ones, to its creator
	Settings        *engine.Queue // of its queue, nil: none
	Now             time.Time
	// Bytes is the size of the delivery; CachedBytes is its size for a worker that has the run in its sticky cache.
	Bytes, CachedBytes int64
}

// Reservation is a poller that has been removed from its queues for one task. Exactly one of Deliver, Undo and Doubt is
// called once the outcome of the commit is known or can no longer be determined. Doubt means that the task may have
// been leased to the poller.
type Reservation interface {
	Lessee() engine.Lessee
	Overtakes() bool // older tasks, of any kind, may wait for this poller
	Deliver(Leased)
	Undo()
	Doubt(error)
}
