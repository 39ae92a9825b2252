package store

import (
	"cmp"
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Reader reads committed data in one snapshot. Looking up a single row that does not exist returns ErrNotFound. Callers
// that need only one part should depend on the interface of that part.
type Reader interface {
	RunReader
	HistoryReader
	LogReader
	SessionReader
	WorkerReader
	DueReader
	QueueReader
	StuckReader
	ScheduleReader
	BatchReader
	FindReader
	NamespaceReader
	AccessReader
	Ping(ctx context.Context) error
}

// RunReader reads runs, and the workflow IDs and chains to which they belong.
type RunReader interface {
	Workflow(ctx context.Context, k engine.WorkflowKey) (engine.Workflow, error)
	// CurrentRuns returns the runs that workflow IDs of a namespace address, by workflow ID. It uses one statement.
	CurrentRuns(ctx context.Context, namespace string, ids []string) (map[string]string, error)
	Run(ctx context.Context, id string) (*engine.Run, error) // with everything that is open in it
	// OpenRuns returns the open runs among the given ones, with all their open rows, in one snapshot. It uses two
	// statements for any number of runs.
	OpenRuns(ctx context.Context, ids []string) (map[string]*engine.Run, error)
	// Step returns a run with one of its open activities (0: none) and without its other open rows. That is sufficient
	// to find the owner of a lease.
	Step(ctx context.Context, id string, seq int64) (*engine.Run, error)
	Runs(ctx context.Context, q RunQuery) (RunList, error) // newest start first
	// Uncarried returns the given search attributes that no run of the namespace has. It reads the index once per
	// attribute, independent of the number of runs.
	Uncarried(ctx context.Context, namespace string, attributes []string) ([]string, error)
	// RunCounts counts all runs of one namespace.
	RunCounts(ctx context.Context, namespace string) (map[protocol.RunStatus]int, error)
	// RunCountsUpTo counts the runs of a namespace by status, at most most per status, and reads no more rows than it
	// counts.
	RunCountsUpTo(ctx context.Context, namespace string, most int) (map[protocol.RunStatus]int, error)
	RunsOf(ctx context.Context, k engine.WorkflowKey) ([]engine.Head, error)
	// InheritedChildren lists open children that earlier runs of a workflow ID started, by ID, at most limit.
	InheritedChildren(ctx context.Context, chain engine.WorkflowKey, limit int) ([]engine.InheritedChild, error)
	// Quarantined lists the quarantined runs of a namespace, newest first, at most limit.
	Quarantined(ctx context.Context, namespace string, limit int) ([]engine.Head, error)
}

// HistoryReader reads the histories of runs.
type HistoryReader interface {
	// Events returns the run's events after a number, up to and including through (0: the last), at most limit of them
	// and about maxBytes of payload.
	Events(ctx context.Context, run string, after, through int64, limit, maxBytes int) ([]history.Event, error)
	// Outlines returns the outlines of the events that Events would return, with at most keep bytes of each value. It
	// does not read the rest of a large value.
	Outlines(ctx context.Context, run string, after, through int64, limit, maxBytes, keep int) ([]history.Outline, error)
	// Arguments returns the encoded arguments that these ActivityScheduled or WorkflowStarted events contain.
	Arguments(ctx context.Context, at []EventKey) (map[EventKey]string, error)
	// Completion returns the terminal event of an activity or an awakeable. It searches the run's events backwards.
	Completion(ctx context.Context, run string, seq int64) (history.Event, error)
	// AttemptEnd returns the event that ended an attempt of an activity, or ErrNotFound.
	AttemptEnd(ctx context.Context, run string, seq, delivery int64) (history.Event, error)
	// LastEvent returns the run's last event, which is the terminal one if the run is closed.
	LastEvent(ctx context.Context, run string) (history.Event, error)
	// InboxSignals returns all signals that a run inherits by an inbox, with their sizes. InboxSizes returns only the
	// sizes of the signals with these numbers, and reads one row for each.
	InboxSignals(ctx context.Context, b *engine.Inbox) (engine.InboxSignals, error)
	InboxSizes(ctx context.Context, inbox string, numbers []int64) (map[int64]engine.InboxSize, error)
}

// LogReader reads activity logs.
type LogReader interface {
	// Logs returns the batches of an attempt's log lines after a number, at most limit. LogSums returns the stored size
	// for each attempt of an activity that has log lines.
	Logs(ctx context.Context, k AttemptKey, after int64, limit int) ([]LogBatch, error)
	LogSums(ctx context.Context, run string, seq int64) ([]LogSum, error)
	// OldLogs lists lines stored before a time, oldest first, at most limit. FirstLog returns the time of the oldest
	// line, zero if there are none.
	OldLogs(ctx context.Context, before time.Time, limit int) ([]LogKey, error)
	FirstLog(ctx context.Context) (time.Time, error)
}

// SessionReader reads sessions and their timelines.
type SessionReader interface {
	Session(ctx context.Context, k engine.SessionKey) (engine.Session, error)
	// SessionArguments returns the arguments of the session's definition; empty if there are none.
	SessionArguments(ctx context.Context, k engine.SessionKey) (string, error)
	// SessionSnapshot returns the payload of the session's snapshot; empty if there is none.
	SessionSnapshot(ctx context.Context, k engine.SessionKey) (string, error)
	Sessions(ctx context.Context, q SessionQuery) ([]engine.Session, error)
	// SessionsByID returns the sessions of a namespace with these IDs, also those that lists omit, in no order.
	SessionsByID(ctx context.Context, namespace string, ids []string) ([]engine.Session, error)
	// SessionCounts counts the sessions that lists show, by status, of one namespace or of all.
	SessionCounts(ctx context.Context, namespace string) (map[protocol.SessionStatus]int, error)
	// SessionCountsUpTo counts the sessions of one namespace by status, at most most per status, and reads few more
	// rows than it counts.
	SessionCountsUpTo(ctx context.Context, namespace string, most int) (map[protocol.SessionStatus]int, error)
	// Timeline returns the newest limit entries with a number below before (0: no limit), oldest first.
	Timeline(ctx context.Context, k engine.SessionKey, before int64, limit int) ([]TimelineEntry, error)
	// LastActivity returns the time of the owner's last activity in a session that was just read. The row may contain
	// an earlier time.
	LastActivity(ctx context.Context, s *engine.Session) (history.Time, error)
	// SessionHistory returns the events that ended attempts in a session, newest first, before the given event unless
	// that is zero.
	SessionHistory(ctx context.Context, k engine.SessionKey, before RunEvent, limit int) ([]RunEvent, error)
	// open activities of the session, leased ones first
	SessionTasks(ctx context.Context, k engine.SessionKey, limit int) ([]engine.Activity, error)
}

// WorkerReader reads workers, their leased tasks and their sessions.
type WorkerReader interface {
	Worker(ctx context.Context, k engine.WorkerKey) (engine.Worker, error)
	Workers(ctx context.Context, q WorkerQuery) ([]engine.Worker, error)
	// Owned lists the tasks that are leased to a worker: to one incarnation, or to all if it is empty.
	Owned(ctx context.Context, k engine.WorkerKey, incarnation string) ([]TaskRef, error)
	// Suspects lists the open tasks of a namespace that are suspects of worker losses, or of all namespaces if it is
	// empty.
	Suspects(ctx context.Context, namespace string) ([]SuspectRef, error)
	// Holdings counts, per worker of the namespace, leased tasks and held sessions.
	Holdings(ctx context.Context, namespace string) (map[string]Holding, error)
}

// DueReader lists rows whose deadline has passed.
type DueReader interface {
	// Due lists rows that are due at or before now, oldest first, at most limit. NextDue returns the earliest due time
	// after a given one (zero: none), and the store's time.
	Due(ctx context.Context, now time.Time, limit int) ([]Due, error)
	NextDue(ctx context.Context, after time.Time) (next, now time.Time, err error)
	// DueActivities lists the activities of one namespace that are due at or before now, oldest first, at most limit.
	DueActivities(ctx context.Context, namespace string, now time.Time, limit int) ([]Due, error)
	// Removable lists ended sessions that clean-up may remove: they have no open tasks, their lease has ended, and
	// terminal ones were last changed before kept.
	Removable(ctx context.Context, now, kept time.Time, limit int) ([]engine.SessionKey, error)
}

// QueueReader reads task queues: their tasks and their settings.
type QueueReader interface {
	// Queues counts the tasks of a namespace, or of all if it is empty, by queue and kind. Leased counts only leased
	// tasks and does not read others.
	Queues(ctx context.Context, namespace string) ([]QueueStats, error)
	// QueuesUpTo counts the waiting tasks of one namespace by queue, kind and state, at most most of each, and reads no
	// more rows than it counts.
	QueuesUpTo(ctx context.Context, namespace string, most int) ([]QueueStats, error)
	Leased(ctx context.Context, namespace string) ([]QueueStats, error)
	// QueueRows lists the settings of the queues of a namespace, or of all namespaces if it is empty. The row without a
	// name applies to all queues of a namespace.
	QueueRows(ctx context.Context, namespace string) ([]engine.Queue, error)
	// QueueLeases lists at most limit leased tasks of a queue in the order in which their leases expire.
	QueueLeases(ctx context.Context, k engine.QueueKey, limit int) ([]QueueLease, error)
	// QueueOrder lists the ready tasks of a queue in the order of dispatch, by kind, at most limit.
	// PoolWaiters lists the steps that wait for a member of the pool of a queue, in the order in which they are served, at
	// most limit.
	PoolWaiters(ctx context.Context, k engine.QueueKey, limit int) ([]PoolWaiter, error)
	QueueOrder(ctx context.Context, k engine.QueueKey, limit int) ([]ReadyTask, error)
	// ReadyOn lists the ready activities with these routing words, which a claim reported, in dispatch order, at most
	// limit per routing word.
	ReadyOn(ctx context.Context, namespace string, routes []string, limit int) ([]engine.Activity, error)
	// OldestReady lists the tasks of one kind in a queue that have been ready for the longest time, at most limit. The
	// Seq of a workflow task is 0.
	OldestReady(ctx context.Context, k engine.QueueKey, kind protocol.TaskKind, limit int) ([]TaskRef, error)
}

// StuckReader reads stuck runs, and the runs that must be marked as stuck.
type StuckReader interface {
	// StuckUpTo counts the stuck runs of a namespace, at most most. StuckCounts counts the stuck runs of all
	// namespaces, by reason.
	StuckUpTo(ctx context.Context, namespace string, most int) (int, error)
	StuckCounts(ctx context.Context) ([]StuckCount, error)
	// ReadyRoutingKeys lists the routing keys of all queues with ready tasks, in one statement.
	ReadyRoutingKeys(ctx context.Context) ([]ReadyRoutingKey, error)
	// Unserved lists the changes of marks that are needed so that exactly the runs with tasks of these routing keys are
	// marked: at most limit runs to mark and limit runs to unmark, in two statements, however many runs there are. A
	// mark with another reason is removed first.
	Unserved(ctx context.Context, keys []UnservedRoutingKey, limit int) ([]UnservedRun, error)
}

// ScheduleReader reads schedules and their histories.
type ScheduleReader interface {
	Schedule(ctx context.Context, k engine.ScheduleKey) (engine.Schedule, error)
	// Schedules lists schedules by ID, after an ID.
	Schedules(ctx context.Context, namespace, after string, limit int) ([]engine.Schedule, error)
	// PlannedSchedules lists the schedules of all namespaces that have a next time, ordered by key, after a key.
	PlannedSchedules(ctx context.Context, after engine.ScheduleKey, limit int) ([]engine.Schedule, error)
	// ScheduleEvents reads entries of a schedule's history after a number.
	ScheduleEvents(ctx context.Context, k engine.ScheduleKey, after int64, limit int) ([]protocol.ScheduleEvent, error)
	// ScheduleEventsBack reads entries before a number, newest first; 0: the newest entries.
	ScheduleEventsBack(
		ctx context.Context, k engine.ScheduleKey, before int64, limit int,
	) ([]protocol.ScheduleEvent, error)
}

// BatchReader reads batch jobs and their runs.
type BatchReader interface {
	BatchJob(ctx context.Context, k engine.BatchJobKey) (engine.BatchJob, error)
	// BatchJobs lists the jobs of a namespace, newest first, after the job created at a time with an ID (zero: from the
	// newest), at most limit.
	BatchJobs(
		ctx context.Context, namespace string, afterCreated history.Time, afterID string, limit int,
	) ([]engine.BatchJob, error)
	// OpenBatchJobs lists the open jobs of all namespaces.
	OpenBatchJobs(ctx context.Context) ([]engine.BatchJob, error)
	// ClosedBatchJobs lists the jobs of a namespace that closed before a time, at most limit.
	ClosedBatchJobs(ctx context.Context, namespace string, before time.Time, limit int) ([]engine.BatchJobKey, error)
	// BatchRuns lists the runs of a job in a state (empty: in any) with higher numbers than after, at most limit.
	BatchRuns(
		ctx context.Context, k engine.BatchJobKey, state protocol.BatchRunState, after int64, limit int,
	) ([]engine.BatchRun, error)
}

// FindReader finds objects of any kind by their IDs.
type FindReader interface {
	// Find reads the objects of a namespace that have an ID, reading at most one index entry of each kind, and for each
	// kind at most prefixes objects whose IDs begin with it, in the order of the IDs.
	Find(ctx context.Context, namespace, text string, prefixes int) (Finding, error)
}

// Finding contains the objects that Find found.
type Finding struct {
	Exact, Prefixes []Found
}

// Found is an object with its ID. The members after ID are those of a run: of the run itself, the current run of a
// workflow ID, the newest run of a business key, or the run of a step.
type Found struct {
	Kind                  protocol.FindKind
	ID                    string
	Run, WorkflowID, Type string
	RunKind               string // history.KindActivity, or empty
	Sequence              int64  // of a step
	Status                protocol.RunStatus
	At                    history.Time // start of the run, or last change of the session or worker
}

// NamespaceReader reads namespaces, and what must be deleted from them.
type NamespaceReader interface {
	Namespace(ctx context.Context, name string) (Namespace, error)
	Namespaces(ctx context.Context) ([]Namespace, error) // by name
	// CountUsage counts the runs and schedules of a namespace in one snapshot. It reads all runs, in pages. Before that
	// it calls begun with the namespace's row and the number of the app's last batch in this snapshot. If begun returns
	// an error, the count ends.
	CountUsage(
		ctx context.Context, namespace, app string, begun func(row Namespace, batch int64) error,
	) (engine.Usage, error)
	// HeldRuns lists runs of a namespace whose first task a quota delays, oldest first, at most limit.
	HeldRuns(ctx context.Context, namespace string, limit int) ([]string, error)
	// Contents returns a part of a namespace's content, at most limit rows of each kind.
	Contents(ctx context.Context, namespace string, limit int) (Contents, error)
	// Outdated lists closed runs that ended before a time, oldest end first, at most limit.
	Outdated(ctx context.Context, namespace string, before time.Time, limit int) ([]engine.Head, error)
	// FirstClosed returns the end of the run that closed first among the stored closed runs; zero if there is none.
	FirstClosed(ctx context.Context, namespace string) (time.Time, error)
	// Forgettable lists sessions of a namespace whose rows were deleted and whose timelines end before a time, at most
	// limit.
	Forgettable(ctx context.Context, namespace string, before time.Time, limit int) ([]engine.SessionKey, error)
}

// AccessReader reads tokens and the audit log.
type AccessReader interface {
	Token(ctx context.Context, id string) (Token, error)
	Tokens(ctx context.Context) ([]Token, error)
	// Audits returns entries of a namespace; with common also entries that concern several or all namespaces.
	Audits(ctx context.Context, namespace string, common bool, limit int) ([]Audit, error)
	// OldAudits lists the numbers of the oldest entries of all namespaces that were written before a time, at most
	// limit.
	OldAudits(ctx context.Context, before time.Time, limit int) ([]int64, error)
}

// EventKey identifies one event of a run.
type EventKey struct {
	Run string
	Seq int64
}

// RunEvent is an event of a run.
type RunEvent struct {
	Run, WorkflowID string
	history.Event
}

// PoolWaiter is a step of a run that waits for a member of a pool.
type PoolWaiter struct {
	Run         string
	Seq         int64
	WorkflowID  string
	Priority    int
	FairnessKey string // of the step; empty: that of the run applies
	Since       history.Time
}

// RunQuery filters and pages runs. After is the position after which the page begins: the start time and run ID of the
// last item of the previous page.
type RunQuery struct {
	Namespace  string
	Type       string
	Statuses   []protocol.RunStatus // empty: all
	Text       string               // substring of a workflow ID or business key, or a complete run ID
	Where      []Condition          // all conditions must hold
	AfterStart history.Time
	AfterRun   string
	Limit      int
	// Budget is how long a search that no index limits may read; 0: until its end.
	Budget time.Duration
}

// RunList is a page of runs. SearchedTo is set if the budget ended the search: there may be more runs after that
// position, although the page is not full.
type RunList struct {
	Heads      []engine.Head
	SearchedTo RunPosition
}

// RunPosition is a position in a list of runs, which has the newest start first.
type RunPosition struct {
	Start history.Time
	Run   string
}

// Compare returns a negative number if p comes after o in the list, and a positive one if p comes before o.
func (p RunPosition) Compare(o RunPosition) int {
	return cmp.Or(cmp.Compare(p.Start.Micros(), o.Start.Micros()), cmp.Compare(p.Run, o.Run))
}

// Before reports whether p comes after o in the list. It is false for every p if o is the position of a complete list.
func (p RunPosition) Before(o RunPosition) bool { return p.Compare(o) < 0 }

// TypeColumn returns a run's type as FieldType compares it. Types of activity runs get a prefix with which no name
// begins, so that a search for a workflow type does not find activities of the same name.
func TypeColumn(kind, typ string) string {
	if kind == history.KindActivity {
		return "\x01" + typ
	}
	return typ
}

// RunField is the field of a run that a condition tests.
type RunField string

// These are the fields of runs. FieldAttribute is a search attribute; the others are columns of the run's row.
const (
	FieldAttribute   RunField = "attribute"
	FieldType        RunField = "type"
	FieldWorkflow    RunField = "workflow_id"
	FieldRun         RunField = "run_id"
	FieldStatus      RunField = "status"
	FieldQueue       RunField = "queue"
	FieldBusinessKey RunField = "business_key"
	FieldBuild       RunField = "build_id"
	FieldStarted     RunField = "started_at" // values are microseconds, as int64
	FieldClosed      RunField = "closed_at"
	FieldStuck       RunField = "stuck" // Present: the run is stuck, Absent: it is not
)

// Comparison is the operator of a condition.
type Comparison string

// These are the operators. In: one of the values. NotIn: none of them. Prefix: a text with this prefix. Between: from
// the first value to the second. Present and Absent: whether there is a value. A run without a value satisfies only
// Absent.
const (
	In      Comparison = "in"
	NotIn   Comparison = "not in"
	Less    Comparison = "<"
	AtMost  Comparison = "<="
	More    Comparison = ">"
	AtLeast Comparison = ">="
	Between Comparison = "between"
	Prefix  Comparison = "prefix"
	Present Comparison = "present"
	Absent  Comparison = "absent"
)

// Condition is one test of a run. Values of search attributes are keys of package engine. If an attribute has several
// values, one match is sufficient; for NotIn all values must differ. If Any is set, the other fields are ignored: one
// of its lists must hold, which means all conditions of that list.
type Condition struct {
	Field  RunField
	Name   string // name of the search attribute
	Test   Comparison
	Not    bool // the condition is negated: there must be a value, and the test must fail
	Values []any
	Any    [][]Condition
}

// SessionQuery filters and pages sessions, last updated first. Sessions that were never acquired are omitted unless a
// workflow started them.
type SessionQuery struct {
	Namespace    string
	Statuses     []protocol.SessionStatus
	Owner        string
	Queue        string
	Workflow     string
	PreparedBy   string // worker that sets the sessions up before it owns them
	Text         string // substring of the session ID
	AfterUpdated history.Time
	AfterID      string
	Limit        int
}

// WorkerQuery filters workers, by id.
type WorkerQuery struct {
	Namespace string
	Queue     string
	Holding   bool // only workers with a leased task or a session
	AfterID   string
	Limit     int
}

// TaskRef identifies a leased task.
type TaskRef struct {
	Kind         protocol.TaskKind
	Run          string
	Seq          int64 // command number of an activity; number of a workflow task
	Delivery     int64
	Session      string
	Incarnation  string // incarnation of the owner
	PollID       string // ID of the poll to which it was leased
	Redeliveries int64  // number of redeliveries to its owner
	App          string // the app that granted the lease, if the owner does not report its leases in heartbeats
	LeasedAt     history.Time
}

// SuspectRef identifies a task that is a suspect; seq 0 is the workflow task.
type SuspectRef struct {
	Namespace, Queue string
	Run              string
	Seq              int64
	State            engine.TaskState
	Suspicion        *engine.Suspicion
}

// Holding contains the numbers of leased tasks and held sessions of a worker.
type Holding struct {
	Leases, WorkflowTasks, Sessions int // Leases includes WorkflowTasks
	Prepared                        int // sessions for which the worker has a reserved place
	Used                            engine.Amounts
	// Suspended are the resources of sessions whose state the last owner may have suspended, by process.
	Suspended map[string]engine.Amounts
}

// Empty reports whether the worker holds and prepares nothing.
func (h Holding) Empty() bool { return h.Leases == 0 && h.Sessions == 0 && h.Prepared == 0 }

// UsedAt returns the sum of the resources that the sessions of a worker use.
func (h Holding) UsedAt(w *engine.Worker) engine.Amounts {
	return h.Used.Plus(h.Suspended[w.Incarnation])
}

// DueKind is the kind of a due row.
type DueKind string

// These are the kinds of due rows: a run's own row, an activity, a timer, a session, an undelivered message of a run.
const (
	DueRun      DueKind = "run"
	DueActivity DueKind = "activity"
	DueTimer    DueKind = "timer"
	DueSession  DueKind = "session"
	DueMessage  DueKind = "message"
	DueSchedule DueKind = "schedule"
)

// Due is one row that is due.
type Due struct {
	Kind     DueKind
	At       time.Time
	Run      string
	Seq      int64
	Session  engine.SessionKey
	Schedule engine.ScheduleKey
}

// QueueStats contains the numbers of tasks of one queue and kind.
type QueueStats struct {
	Namespace, Queue string
	Kind             protocol.TaskKind
	Ready            int
	Delayed          int
	Leased           int
	OldestReady      history.Time
	Expired          int // leased tasks whose lease or timeout has expired and that were not swept yet
}

// ReadyTask is a ready task in the order of its queue. Rank is 0 if no task of the queue has had a fairness key.
type ReadyTask struct {
	Kind     protocol.TaskKind
	Priority int
	Rank     int64
	Class    string
	Weight   int
}

// QueueLease is a leased task in a list of its queue.
type QueueLease struct {
	TaskRef
	WorkflowID string
	Owner      string
	Until      history.Time
}

// TimelineEntry is an entry of a session's timeline with its number; numbers increase.
type TimelineEntry struct {
	Number int64
	protocol.SessionEvent
}
