// Package store is the interface of durable storage: changes that are committed in groups, and reads next to them.
package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/quota"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The sentinels of every store.
var (
	ErrNotFound = errors.New("not found")
	// writes answer this until one succeeds; what was under way may be stored all the same
	ErrUnavailable = errors.New("store unavailable")
	// ErrOutcome is an ErrUnavailable during a commit whose outcome is unknown: the changes may or may not be stored.
	ErrOutcome = fmt.Errorf("%w: the outcome of the commit is unknown", ErrUnavailable)
	ErrClosed  = errors.New("store closed")
	ErrBusy    = errors.New("database in use") // another process holds the file; the message names it
	// ErrDamaged says that the database is malformed, or lacks work that was acknowledged; the message says what to do.
	ErrDamaged = errors.New("the database is damaged")
	// ErrSchema says that a newer release has migrated the database beyond what this binary may serve; the message
	// names both.
	ErrSchema = errors.New("the schema is newer than this binary may serve")
)

// Store keeps everything durable. All methods may be called from any goroutine.
type Store interface {
	// Commit runs one change in the next batch and returns the Answer of the Decide whose writes were stored: durable
	// when the error is nil. An error of Decide is returned as it is and leaves nothing behind. A cancelled ctx ends
	// the waiting, never the change.
	Commit(ctx context.Context, c Change) (any, error)
	// Claim leases ready tasks from the backlog, after the writes of the batch it travels in. It may return fewer than
	// asked, or none.
	Claim(ctx context.Context, r ClaimRequest) ([]Leased, error)
	// View reads on connections of its own; what it sees is committed.
	View(ctx context.Context, fn func(Reader) error) error
	// Queue is what was decided about a task queue, as this process knows it, without asking the database; nil for
	// nothing. A decision of another process is known a moment after it.
	Queue(k engine.QueueKey) *engine.Queue
	// Now is the store's clock: the only one leases are judged by.
	Now(ctx context.Context) (time.Time, error)
	// About is the store's clock as far as it is known without asking: perhaps a little behind it, never ahead. It is
	// good for saying how old an answer is, and no lease is judged by it. Zero: not known yet.
	About() time.Time
	// Unusable receives one error when this process has to stop: store.ErrSchema if another process migrated the database
	// beyond what this binary may serve, store.ErrDamaged if the database is damaged.
	Unusable() <-chan error
	// ClockJumps has an entry for each jump of the store's clock that this process found, once the leases follow the
	// clock.
	ClockJumps() <-chan ClockJump
	// Writable says whether it takes writes, as the last one showed: only while that failed is a write tried.
	Writable(ctx context.Context) error
	// Hears says whether this process is told what others commit. While it is not, what it remembers may be out of date
	// without a word.
	Hears() bool
	// Stats counts what was sent to the database since it was opened.
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

// ClockJump says by how much the store's clock differed from the time that this process measured: forward, or back
// below zero. Moved counts the rows whose leases and back-offs were made to follow it.
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

// Schema is the version of a database's schema: the one found, 0 where there is none yet, and the one this release
// works with. Refused is an ErrSchema when the one found is newer than this binary may serve.
type Schema struct {
	Found, Wanted int64
	Refused       error
	Durability    *Durability // of a PostgreSQL server; nil for SQLite
}

// Durability are the settings of a PostgreSQL server that decide whether it keeps acknowledged commits in a crash, as
// the server shows them.
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
type Stats struct{ Statements, RoundTrips, Commits, Changes, Rows, Reads, Candidates int64 }

// Change is one verb's write, as data. Decide is pure: it only reads rows and now, and may be called again with fresher
// rows when a batch is retried.
type Change struct {
	Needs  Keys
	Decide func(Rows, time.Time) (Writes, error)
	// Recall says that Decide may first be given rows as this process remembers them, at a time that has just passed:
	// what it decides is stored only where both are still right. It is for changes that are made often, and that a
	// moment earlier would be decided the same way.
	Recall bool
	// NotBefore is a time that has passed, as the caller has it from the store: with Recall Decide is given none
	// before.
	NotBefore time.Time
	// Class is whose it is, where its run cannot tell because there is none yet.
	Class Class
	// Background says that nobody waits for the change, as for one that cleans up: while others wait, a batch has no
	// more of these than of those.
	Background bool
}

// Class is a fairness key of a namespace, with its weight. The zero value is nobody's.
type Class struct {
	Namespace, Key string
	Weight         int
}

// Keys are the rows a change wants loaded (and, where several apps share the database, locked). What does not exist is
// nil in Rows, and stays locked against being made by somebody else.
type Keys struct {
	Workflows []engine.WorkflowKey
	New       bool     // the ids in Workflows are taken to be free, until that shows to be wrong
	Current   bool     // also the current run of each workflow named
	Runs      []string // each with all that is open in it
	Chain     bool     // also the workflow-scoped sessions of each run's workflow id, and its workflow row
	// Former names children that earlier runs of the workflow ids of Runs, and of the current runs of Workflows, may
	// have started and that are open.
	Former []string
	Bound  bool // also those of them that go by a close policy: for a step that may end the last run
	// Attached are also those that the runs are attached to: for a step that may ask them to end.
	Attached bool
	// Activities names activities of Runs whose sessions are wanted too.
	Activities []int64
	AllTasks   bool // the sessions of all open activities of Runs: for a step that may end them all
	Sessions   []engine.SessionKey
	// Apart says that Sessions that another app has locked hold up nothing: the change is decided without them, and
	// Rows.Apart says which they are.
	Apart   bool
	Lately  bool // also when the holders of Sessions last did something in them, where their rows do not tell
	Exactly bool // with Lately: whatever their rows tell
	Workers []engine.WorkerKey
	// Present says that Workers are wanted where they exist: of one that does not, another app may make the row
	// meanwhile.
	Present    bool
	Holdings   bool // also how many sessions each worker named holds
	Receipts   []ReceiptKey
	Tokens     []string
	Namespaces []string
	Schedules  []engine.ScheduleKey
	Queues     []engine.QueueKey // for a decision about them; Rows.Queue needs no naming
}

// Rows are what Decide sees: the committed rows with the writes of the changes before it in the batch. Nothing in them
// may be changed; a decision works on a Fork. A row that does not exist is nil.
type Rows interface {
	Workflow(engine.WorkflowKey) *engine.Workflow
	Run(id string) *engine.Run
	Session(engine.SessionKey) *engine.Session
	// ChainSessions are the loaded workflow-scoped sessions of a workflow id that are not terminal.
	ChainSessions(engine.WorkflowKey) []*engine.Session
	// FormerChild is one of the loaded open children that earlier runs of a workflow id started, BoundChildren are
	// those that go by a close policy.
	FormerChild(engine.FormerKey) *engine.FormerChild
	BoundChildren(engine.WorkflowKey) []*engine.FormerChild
	Worker(engine.WorkerKey) *engine.Worker
	// Holding is how many sessions a worker of Needs holds at now, next to the one named.
	Holding(w engine.WorkerKey, beside engine.SessionKey, now time.Time) int
	Receipt(ReceiptKey) *Receipt
	Token(id string) *Token
	Namespace(name string) *Namespace
	Schedule(engine.ScheduleKey) *engine.Schedule
	// Apart says that another app has the session's row, so that whether it exists is not known; only of a change with
	// Keys.Apart.
	Apart(engine.SessionKey) bool
	// Queue is what was decided about a task queue: the row of those in Needs, what this process knows of the others.
	Queue(engine.QueueKey) *engine.Queue
	// EpochFloor is the highest epoch clean-up ever removed in the namespace; a claim goes above it.
	EpochFloor(namespace string) int64
	// Quotas is how much of its quotas a namespace uses, as this process knows it.
	Quotas(namespace string) engine.QuotaStanding
}

// Writes is all a change changes. Answer goes back to the caller of Commit.
type Writes struct {
	Runs        []engine.Decision // a run that was not loaded is inserted
	Workflows   []engine.Workflow
	Sessions    []engine.SessionChange
	Workers     []engine.Worker
	DropWorkers []engine.WorkerKey
	// Reconnected are workers that speak over another connection now: what a poll that they left open on an older
	// one, at whichever app, were given would be lost.
	Reconnected []engine.WorkerKey
	Receipts    []Receipt
	Tokens      []Token
	// TokenUses are tokens of which only UsedAt is another: nobody is told that they have changed.
	TokenUses  []Token
	DropTokens []string
	Namespaces []Namespace
	Queues     []engine.Queue
	Schedules  []engine.ScheduleDecision // their starts and ends are other writes of the same change
	// DropTimelines removes what is kept of sessions, which must be loaded.
	DropTimelines []engine.SessionKey
	// DropNamespaces removes namespaces with what belongs to nothing else in them, the timelines of their sessions too;
	// audits stay, and lanes for a day.
	DropNamespaces []string
	// DropLanes removes what is remembered of kinds of tasks that no queue had ready for a day, for claims to look
	// there.
	DropLanes bool
	// EpochFloors raises the epoch floors of namespaces.
	EpochFloors map[string]int64
	// Unserved marks runs as stuck for want of a worker, or removes the mark. A run that another app has locked, or that
	// is gone, is left out.
	Unserved []UnservedRun
	// DropRuns removes runs, open or closed, with their histories, open rows, receipts and logs; each must be loaded
	// with its workflow.
	DropRuns []string
	Logs     []LogPart // a part that is there already stays as it is
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

// Token is a stored credential: the secret itself is never kept.
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

// ClaimRequest asks for ready tasks of one queue and kind for pollers that wait, first come first served.
type ClaimRequest struct {
	Namespace string
	Queue     string
	Kind      protocol.TaskKind
	Pollers   []Poller
	// Keepers are the processes that have a run in their memory, the best first: its workflow task goes to the first of
	// them that polls and has room, else to the first poller. It must not block. nil: nobody keeps anything.
	Keepers func(run string) []Process
	// Full hears of each worker that holds as many sessions as it may after this claim, and of the routes it was not
	// shown for that. It must not block. nil: nobody wants to know.
	Full func(w engine.WorkerKey, routes []string)
}

// Process is a worker as one process of it registered.
type Process struct {
	Worker      engine.WorkerKey
	Incarnation string
}

// Poller is one waiting poller of a claim: what it may be given, how many tasks and how many bytes of them.
type Poller struct {
	Lessee engine.Lessee
	Max    int
	// Bytes is the rest of the budget of its response. The claim stops at the first task that does not fit, so that no
	// task is passed over for a smaller one. First: the response has no task yet, and the first task always fits. Zero
	// values mean no limit.
	Bytes int64
	First bool
	Gone  *atomic.Bool // set when its worker's registration is over, so that it is given nothing; nil: it has no such end
}

// Leased is a task in the hands of a worker, with what was in memory when it was leased.
type Leased struct {
	Kind     protocol.TaskKind
	Head     engine.Head      // of its run, after the lease
	Activity *engine.Activity // kind activity
	Session  *engine.Session  // when the activity runs in one, after the lease
	Question *Question        // kinds query and update_validation
	// the first task of the session's epoch that its holder sees: one whose delivery was undone does not count
	IsNew     bool
	Claimed   bool            // the lease claimed the session
	Class     string          // its fairness class, where keys share its queue
	Poller    int             // index into ClaimRequest.Pollers; of no meaning for a hand-over
	Size      int64           // of the delivery, as it was subtracted from the poller's Bytes
	Arguments string          // blob; only when Known
	Known     bool            // Arguments is filled, and Events where the cache holds the history
	Events    []history.Event // the last events up to Head.LastSeq, as far back as the cache holds them; nil: read them
	Bytes     int             // of the payloads of Events
}

// Dispatcher is asked and told by the committer, on its own goroutine: nothing here may block.
type Dispatcher interface {
	// Reserve picks the longest-waiting suitable poller of this process for a task about to become ready, or nil.
	Reserve(o Offer) Reservation
	// Backlog says that ready tasks of this queue were committed with nobody to take them, or may have been left by
	// others. An empty queue means all of the namespace, no lanes that the tasks may be of any.
	Backlog(namespace, queue string, kind protocol.TaskKind, lanes ...Lane)
	// LeaseExpired reports that a lease of this worker expired, or that the worker reconnected on another connection.
	// The worker may have ended or be paused, so its earlier polls must not receive tasks.
	LeaseExpired(k engine.WorkerKey)
	// Gone reports that the registration of a process has ended: the process deregistered, was removed, or was replaced
	// by another process, at this app or at another. It is called before the tasks of the same commit are delivered.
	// Open polls of the process receive no more tasks.
	Gone(p Process)
	// Isolate is called when a process holds a blamed task and receives no other task, and when that has ended.
	Isolate(p Process, alone bool)
	// Throttled says, before the answer of a claim, that a budget kept tasks from it. The backlog is told again when a
	// lease of such a queue ends; after the Wait of t, unless that is 0, it is worth another claim.
	Throttled(namespace, queue string, kind protocol.TaskKind, t engine.Throttle)
	// Queue says that something was decided about a queue, here or elsewhere.
	Queue(q *engine.Queue)
	// Due says that something committed wants the sweeper at this time.
	Due(at time.Time)
	// Changed tells, after the commit, which runs got events and which sessions moved: hints for long polls and
	// dashboards.
	Changed(c Changed)
	// Missed says that other apps committed things this process was not told of: there may be ready tasks in any queue,
	// and anything may have changed.
	Missed()
}

// Lane is what a task asks of any worker, next to its queue and kind. Priority is that of the most urgent task that is
// told of with it.
type Lane struct {
	Type, BuildID string
	Requirements  []string
	Priority      int
}

// Changed is what a batch touched.
type Changed struct {
	Runs     []RunChange
	Sessions []engine.SessionKey
	Loose    bool // some of Sessions are held by nobody, or gone
	Workers  []engine.WorkerKey
	Moves    []SessionMove
	// Superseded are processes of workers of whom another app took a newer registration, or took it away. Older
	// releases do not say which process it was.
	Superseded []Process
	Said       []Process // processes that said to another app that they drain, or the opposite
	Answers    []string  // questions that were answered
	Tokens     []string  // tokens that were made, changed or dropped, here or elsewhere
}

// SessionMove is an entry that was added to a session's timeline. Of those of other apps only the ends of holdings are
// heard, and not all.
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
	// Still: nothing but leases were renewed, so a list of runs says what it said before.
	Still     bool
	Cancelled []CancelledAttempt // leased attempts that were cancelled or whose run closed
}

// CancelledAttempt tells a worker to stop.
type CancelledAttempt struct{ Worker, TaskID, AttemptID string }

// Offer is a task about to become ready. Session is the row as it will be, nil for a plain task. First says that nobody
// holds the session and that whoever is reserved may claim it with the task: the store counts what the worker holds,
// under the lock of its row, and undoes the reservation if that is too much.
type Offer struct {
	Kind         protocol.TaskKind
	Run          string
	Namespace    string
	Queue        string
	Type         string
	BuildID      string
	Requirements []string
	Session      *engine.Session
	First        bool
	Priority     int
	Fair         bool          // classes share the queue, so that its order is nobody's to change
	Past         bool          // it may go past older tasks, no more urgent ones, to who made it
	Settings     *engine.Queue // of its queue, nil: none
	Now          time.Time
	// Bytes is the size of the delivery; KeptBytes that to a worker that keeps the run in memory.
	Bytes, KeptBytes int64
}

// Reservation is a poller taken out of its lines for a task. Exactly one of Deliver, Undo and Doubt is called, when all
// is known of the outcome of the commit that can be: with Doubt, that the task may be leased to the poller or not.
type Reservation interface {
	Lessee() engine.Lessee
	Past() bool // the poller could have had older tasks, of this kind or another
	Deliver(Leased)
	Undo()
	Doubt(error)
}
