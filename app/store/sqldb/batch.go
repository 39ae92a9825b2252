package sqldb

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A batch is the working copy of the rows that its transactions affect. The second transaction of a run in one batch
// must see the first one, and no other reader may see either before COMMIT. So the batch has copies of the rows, and
// marks the rows to write.

// batch is one database transaction in preparation: the loaded rows, changed by its transactions, with marks for the
// rows to write.
type batch struct {
	s      *Store
	number int64
	now    time.Time
	since  time.Duration // value of clock.Steady before the first statement was sent
	begun  bool
	sealed bool       // COMMIT was sent
	later  []*db.Call // calls that are sent with the next round trip

	runs             map[string]*run
	sessions         map[engine.SessionKey]*session
	workflows        map[engine.WorkflowKey]*workflow
	inherited        map[engine.InheritedKey]*inheritedRow
	workers          map[engine.WorkerKey]*worker
	holding          map[engine.WorkerKey][]holding // sessions that workers hold, as stored
	receipts         map[store.ReceiptKey]*store.Receipt
	tokens           map[string]*store.Token
	tokenNews        []string         // tokens that were written or deleted
	watermarks       map[string]int64 // epoch watermarks by namespace; nil: not read yet
	raisedWatermarks map[string]int64 // watermarks that this batch raised

	items      []*pending        // transactions that were decided
	deferred   []*pending        // transactions that were deferred, since other transactions have locked their rows
	blocked    []*pending        // decided transactions whose rows turned out to be locked; with errRowsLocked
	overflow   []*pending        // transactions that did not fit
	locked     map[any]bool      // keys of rows that another transaction has locked
	advised    map[int64][]any   // names for which this batch took or tried advisory locks
	aheadCalls []*db.Call        // writes that must precede those of the batch
	skipped    map[QueueKey]bool // queues with ready tasks that a claim skipped because they are locked

	queues    map[engine.QueueKey]*queue
	active    map[activeKey]map[string]int // leased tasks of a namespace by queue, as counted for its limits
	throttled map[QueueKey]engine.Throttle

	tags      map[tagKey]*tag
	newlyFair map[QueueKey]bool // queues whose tasks have ranks from this batch on
	served    []store.ServedTask

	namespaces        map[string]*store.Namespace
	schedules         map[engine.ScheduleKey]*schedule
	batchJobs         map[engine.BatchJobKey]*engine.BatchJob
	removal           removal // rows that the next write deletes
	dropped           []string
	droppedNamespaces []string
	droppedFlows      []engine.WorkflowKey

	events map[string]appended    // events that this batch adds, by run
	leads  map[string]record.Lead // by run: what the session rows of its events may follow in this batch
	flush  *flush                 // rows of the next write
	bytes  int                    // size of the payloads of the events
	ready  []taskKey              // tasks that became ready, in the order of the decisions

	leasedIn   []leasedIn // on a shared database
	deliveries []delivery
	// routing keys of this batch that are not known to be stored; true until written
	routingKeys map[queueRoutingKey]bool
	// whether the batch removes unused routing keys, and the removed routing keys
	dropRoutingKeys    bool
	droppedRoutingKeys []queueRoutingKey
	unserved           []store.UnservedRun // stuck marks to be written

	unreserved []unreservedTask // ready tasks for which no poll was reserved
	backlog    map[QueueKey]*backlog
	// queues with ready tasks of which only other apps are notified: their claims may have skipped the tasks while the
	// batch held its locks
	hidden     map[QueueKey]bool
	leasedRuns map[string]bool // runs that claims locked and from which they leased tasks
	// acquired counts the sessions that claims of this batch acquired for each worker. The batch has not written them
	// yet, so statements do not count them.
	acquired map[engine.WorkerKey]load
	// processes that this batch isolates (true) or no longer isolates (false)
	isolated        map[process]bool
	touched         map[string]*store.RunChange
	usage           map[string]engine.Usage // changes of namespaces' usage by this batch
	moves           []store.SessionMove
	timelineWritten int                       // number of moves that were written
	expiredWorkers  map[engine.WorkerKey]bool // workers whose leases expired, or that reconnected
	deregistered    []store.Process           // processes whose registrations end with this batch
	drainChanged    []store.Process           // processes that start or stop draining
	due             history.Time
	dirty           bool  // something was written or must be written
	broken          error // error of reading rows that Decide requested
	assume          bool  // workflow IDs may be assumed to be unused without reading their rows
	assumed         bool  // some IDs were assumed to be unused

	// These fields are for a batch that is decided on cached rows: recalled marks such a batch; the others are the
	// server's time of the decision, the conditions that must hold, and whether their guards were sent. The server
	// executes later statements only if the guards succeed.
	recalled   bool
	decidedAt  int64
	guarded    *guarded
	guardsSent bool
	// version is stored in the cache after the commit: the version of the rows that the batch writes; 0: not known.
	version int64
}

// run is a run in a batch. Run is nil if no run has that ID.
type run struct {
	*engine.Run
	partial bool  // only its head and the leases of this batch are known: the open rows were not loaded
	changed bool  // the head must be written
	wrote   bool  // this batch has written the head
	version int64 // version of its row, on a shared database; 0: not known
	waiting int64 // number of its tasks that are stored as ready, for a cached run
	// number of its consecutive tasks that were dispatched before older ones, as far as this process knows
	overtakes int
	stored    readyRow
	// was contains some columns of the head as they are stored; nil: there is no row. While they do not change, an
	// update writes neither them nor their indexes.
	was *settled
	// attributed means that the search attributes of the run must be indexed again; indexed, that rows of them are
	// stored.
	attributed, indexed bool
	// These maps contain the keys of the rows to write; the value is true if the row was stored before.
	activities, timers, waits, signals, unread, updates, children, attached, owed map[int64]bool
}

// settled are the columns of a run's row that change seldom and are indexed. An UPDATE that sets them rewrites the
// index entries even if the value is the same.
type settled struct {
	status  protocol.RunStatus
	closed  int64
	failing protocol.WaitReason
}

func settledOf(h *engine.Head) settled {
	s := settled{status: h.Status, closed: h.ClosedAt.Micros()}
	if f := h.Failing(); f != nil {
		s.failing = f.Reason
	}
	return s
}

// readyRow is the stored row of a ready workflow task; zero if there is none. A workflow task has a row only while it
// is ready, for claims; the rest of its state is in its run's row.
type readyRow struct {
	route    string
	priority int
	rank     int64
	at       int64
}

// session is the state of a session in the batch, with its stored row. If both are equal, as after most steps in a
// session, nothing is written.
type session struct {
	*engine.Session
	row          *engine.Session // the stored row; nil: none
	routingWord  string          // stored routing word
	due          int64           // stored due time
	counted      bool            // the tasks of the session were counted
	follow       bool            // attempts that end in this batch set the time of its last activity
	formerOwners []string        // former owners, which may still run attempts in it
	route        string          // last part of the routes of its ready tasks
	dirty        bool            // a decision changed the session
	touched      bool            // this batch changed the session
	// number of the batch that decided this state, until that batch leases a task in the session
	decided int64
	deleted bool
	wrote   bool  // this batch wrote the row
	version int64 // version of its row, on a shared database; 0: not known
}

// changed reports whether the session's row must be written after decisions. Counts are compared only if they cannot be
// derived from the rows of the tasks.
func (s *session) changed(routingWord string) bool {
	return s.row == nil || routingWord != s.routingWord || s.DueAt().Micros() != s.due ||
		s.row != s.Session && !s.Session.Same(s.row)
}

// upToDate reports whether the stored row and the routes of the ready tasks are up to date.
func (s *session) upToDate(now time.Time) bool {
	w := s.RoutingWord(now, s.routingWord)
	if s.StoredRoutingWord(w) != s.route || s.changed(w) {
		return false
	}
	s.dirty = false
	return true
}

type workflow struct {
	*engine.Workflow
	dirty   bool
	assumed bool  // the row was assumed to be missing, without a read
	wrote   bool  // this batch wrote the row
	version int64 // version of its row, on a shared database; 0: not known
}

// worker is the state of a worker in the batch. stored is true if it has a row: removing a worker without a row needs
// no DELETE.
type worker struct {
	*engine.Worker
	stored  bool
	dirty   bool
	touched bool
}

// taskKey identifies a task by its run and the number of its command.
type taskKey struct {
	run string
	seq int64 // 0: the workflow task
}

// appended contains the events that a batch adds to a history: the number of events already written and, for the
// others, their payloads and the sessions of the attempts that they end, if any.
type appended struct {
	list           []history.Event
	bytes, written int
	payloads       [][]byte
	sessions       []string
	inherits       *engine.InheritedSignals // inherited signals that are not written yet; nil: none
}

// delivery is a task that was leased to a waiting poll, with the reservation of the poll, which is settled after the
// commit. The poll is not notified before, because it must not begin a task whose lease may not be stored.
type delivery struct {
	r      store.Reservation
	run    *run
	leased store.Leased
}

// newBatch creates the maps of a batch immediately, since nearly every batch needs most of them.
func (s *Store) newBatch() *batch {
	return &batch{
		s: s, number: s.batch, since: s.clock.Steady(),
		runs: map[string]*run{}, sessions: map[engine.SessionKey]*session{}, workflows: map[engine.WorkflowKey]*workflow{},
		inherited: map[engine.InheritedKey]*inheritedRow{},
		workers:   map[engine.WorkerKey]*worker{}, holding: map[engine.WorkerKey][]holding{},
		receipts: map[store.ReceiptKey]*store.Receipt{}, tokens: map[string]*store.Token{},
		events: map[string]appended{}, flush: newFlush(),
		namespaces: map[string]*store.Namespace{}, schedules: map[engine.ScheduleKey]*schedule{}, removal: newRemoval(),
		batchJobs: map[engine.BatchJobKey]*engine.BatchJob{},
		queues:    map[engine.QueueKey]*queue{}, active: map[activeKey]map[string]int{},
		throttled: map[QueueKey]engine.Throttle{},
		tags:      map[tagKey]*tag{}, newlyFair: map[QueueKey]bool{},
		routingKeys: map[queueRoutingKey]bool{}, backlog: map[QueueKey]*backlog{}, hidden: map[QueueKey]bool{},
		leasedRuns: map[string]bool{},
		touched:    map[string]*store.RunChange{},
		acquired:   map[engine.WorkerKey]load{}, skipped: map[QueueKey]bool{},
	}
}

// written clears the marks of changed rows, after they were written.
func (r *run) written() {
	r.changed, r.attributed, r.indexed = false, false, false
	clear(r.activities)
	clear(r.timers)
	clear(r.waits)
	clear(r.signals)
	clear(r.unread)
	clear(r.updates)
	clear(r.children)
	clear(r.attached)
	clear(r.owed)
}

// markRow records that a row changed. had is true if the row is stored; only the first mark of a row counts.
func markRow(m *map[int64]bool, seq int64, had bool) {
	if *m == nil {
		*m = map[int64]bool{}
	}
	if _, ok := (*m)[seq]; !ok {
		(*m)[seq] = had
	}
}

// send runs calls on the committer's connection. It opens the transaction first if necessary.
func (b *batch) send(calls ...*db.Call) error {
	if len(calls) == 0 {
		return nil
	}
	// The only round trip is the one that commits. A statement before it would cost a second one.
	if b.recalled && !b.guardsSent {
		return errNotCached
	}
	if len(b.later) > 0 {
		calls, b.later = append(b.later, calls...), nil
	}
	for _, c := range calls {
		if !c.Stmt.Control {
			b.s.statements.Add(1)
		}
	}
	b.s.trips.Add(1)
	err := b.s.cfg.Conn.Send(context.Background(), calls)
	for _, c := range calls {
		b.s.rows.Add(c.Affected)
	}
	return err
}

// takeDeferred returns the calls that were deferred to the next round trip, for a caller that needs their results now.
func (b *batch) takeDeferred() (calls []*db.Call) {
	calls, b.later = b.later, nil
	return calls
}

// openTransaction returns the call that opens the transaction; only its first call returns one.
func (b *batch) openTransaction() []*db.Call {
	if b.begun {
		return nil
	}
	b.begun = true
	return []*db.Call{{Stmt: b.s.st.begin}}
}

// The methods Workflow, Run, Session, ChainSessions, Worker, Holding, Receipt and Token implement store.Rows for the
// transactions of a batch; EpochWatermark is in epoch_watermark.go.

func (b *batch) Workflow(k engine.WorkflowKey) *engine.Workflow {
	if w := b.workflows[k]; w != nil {
		return w.Workflow
	}
	return nil
}

func (b *batch) Run(id string) *engine.Run {
	if r := b.runs[id]; r != nil {
		if r.partial {
			return nil
		}
		return r.Run
	}
	if !b.s.cfg.Dialect.Shared { // no other process writes, so cached rows are up to date
		if r, ok := b.s.cache.runs.get(id); ok {
			b.runs[id] = r
			return r.Run
		}
	}
	return nil
}

func (b *batch) Session(k engine.SessionKey) *engine.Session {
	if s := b.sessions[k]; s != nil && !s.deleted {
		return s.Session
	}
	return nil
}

func (b *batch) SkippedLocked(k engine.SessionKey) bool { return b.locked[k] }

func (b *batch) ChainSessions(k engine.WorkflowKey) []*engine.Session {
	var list []*engine.Session
	for _, s := range b.sessions {
		if s.Session != nil && !s.deleted && s.WorkflowID == k.ID && s.Namespace == k.Namespace && !s.Terminal {
			list = append(list, s.Session)
		}
	}
	sortSessions(list)
	return list
}

func (b *batch) Worker(k engine.WorkerKey) *engine.Worker {
	if w := b.workers[k]; w != nil {
		return w.Worker
	}
	return nil
}

// Holding counts sessions in the batch by the batch's rows, and all others by the stored rows. That includes sessions
// whose rows another transaction has locked: otherwise, a worker could exceed its maximum.
func (b *batch) Holding(w engine.WorkerKey, except engine.SessionKey, now time.Time) int {
	n := 0
	for _, h := range b.holding[w] {
		if h.session != except && b.countsAsStored(h) && h.place && h.until > now.UnixMicro() {
			n++
		}
	}
	for k, s := range b.sessions {
		if k == except || k.Namespace != w.Namespace || s.Session == nil || s.deleted {
			continue
		}
		if p := s.Preparing(now); s.HeldBy(w.ID, now) || p != nil && p.Worker == w.ID {
			n++
		}
	}
	return n
}

// countsAsStored reports whether a session counts by its stored row: the batch has not loaded it, or could not, because
// another transaction has locked it.
func (b *batch) countsAsStored(h holding) bool {
	s := b.sessions[h.session]
	return s == nil || s.Session == nil && b.locked[h.session]
}

// Used sums the resources of a worker's sessions like Holding counts them, and those of suspended state.
func (b *batch) Used(w *engine.Worker, now time.Time) (used engine.Amounts) {
	at := now.UnixMicro()
	for _, h := range b.holding[w.Key()] {
		suspended := !h.prepared && h.used.Incarnation == w.Incarnation &&
			h.until > at-engine.SuspendedTime.Microseconds()
		if b.countsAsStored(h) && (h.place && h.until > at || suspended) {
			used.Add(h.used.Resources, 1)
		}
	}
	for k, s := range b.sessions {
		if k.Namespace == w.Namespace && s.Session != nil && !s.deleted {
			used.Add(s.UsedBy(w, now), 1)
		}
	}
	return used
}

func (b *batch) Receipt(k store.ReceiptKey) *store.Receipt { return b.receipts[k] }

func (b *batch) Token(id string) *store.Token { return b.tokens[id] }
