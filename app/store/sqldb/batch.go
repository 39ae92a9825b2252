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

// A batch is the working copy of the rows that its changes affect. The second change of a run in one batch must see the
// first, and no other reader may see either before COMMIT. So the batch has copies, and marks for the rows to write.

// batch is one transaction in preparation: the loaded rows, modified by its changes, with marks for the rows to write.
type batch struct {
	s      *Store
	number int64
	now    time.Time
	since  time.Duration // clock.Steady before the first statement was sent
	begun  bool
	sealed bool       // COMMIT was sent
	later  []*db.Call // deferred to the next round trip

	runs             map[string]*run
	sessions         map[engine.SessionKey]*session
	workflows        map[engine.WorkflowKey]*workflow
	inherited        map[engine.InheritedKey]*inheritedRow
	workers          map[engine.WorkerKey]*worker
	holding          map[engine.WorkerKey][]holding // as stored
	receipts         map[store.ReceiptKey]*store.Receipt
	tokens           map[string]*store.Token
	tokenNews        []string         // tokens that were written or dropped
	watermarks       map[string]int64 // nil: not read yet
	raisedWatermarks map[string]int64 // by this batch

	items      []*pending        // that were decided
	deferred   []*pending        // deferred, since other transactions have locked their rows
	blocked    []*pending        // decided, but their rows turned out to be locked; with errRowsLocked
	overflow   []*pending        // that did not fit
	locked     map[any]bool      // keys of rows that another transaction has
	advised    map[int64][]any   // names this batch has locked or tried to
	aheadCalls []*db.Call        // to be written ahead of the batch
	skipped    map[QueueKey]bool // queues with ready tasks that a claim had to skip, locked as they are

	queues    map[engine.QueueKey]*queue
	active    map[activeKey]map[string]int // leased tasks of a namespace by queue, as counted for its budgets
	throttled map[QueueKey]engine.Throttle

	tags      map[tagKey]*tag
	newlyFair map[QueueKey]bool // queues in which this batch has the first task with a fairness key, or another

	namespaces        map[string]*store.Namespace
	schedules         map[engine.ScheduleKey]*schedule
	removal           removal // to be written next
	dropped           []string
	droppedNamespaces []string
	droppedFlows      []engine.WorkflowKey

	events map[string]appended    // by run: added by this batch
	leads  map[string]record.Lead // by run: what its rows of a session may follow, where this batch changes it
	flush  *flush                 // rows to be written next
	bytes  int                    // payload of events
	ready  []taskKey              // tasks that became ready, in that order

	leasedIn    []leasedIn // on a shared database
	deliveries  []delivery
	routingKeys map[queueRoutingKey]bool // used by this batch and not known to be stored; true until written
	// whether the batch removes unused routing keys, and the removed routing keys
	dropRoutingKeys    bool
	droppedRoutingKeys []queueRoutingKey
	unserved           []store.UnservedRun // marks to be written

	unreserved []unreservedTask // ready tasks without a reserved poller
	backlog    map[QueueKey]*backlog
	// queues with ready tasks of which only other apps are notified: their claims may have skipped the tasks while the
	// batch held its locks
	hidden     map[QueueKey]bool
	leasedRuns map[string]bool // runs that claims locked and leased from
	// sessions that claims gave each worker: written with the batch, so that no statement counts them yet
	acquired map[engine.WorkerKey]int
	// processes that this batch isolates (true) or no longer isolates (false)
	isolated        map[process]bool
	touched         map[string]*store.RunChange
	usage           map[string]engine.Usage // changes of this batch in the usage of namespaces
	moves           []store.SessionMove
	timelineWritten int                       // how many of the moves were written
	expiredWorkers  map[engine.WorkerKey]bool // leases of theirs ran out, or they reconnected
	deregistered    []store.Process           // their registrations end with this batch
	drainChanged    []store.Process           // that they drain, or the opposite
	due             history.Time
	dirty           bool  // something was or will be written
	broken          error // rows that Decide requested could not be read
	assume          bool  // ids may be assumed to be free without reading their rows
	assumed         bool  // some were

	// For a batch that is decided on cached rows: that it is, when it was decided by the server's clock, the conditions
	// that must hold, and whether their guards were sent, so that the server executes later statements only if they hold.
	recalled   bool
	decidedAt  int64
	guarded    *guarded
	guardsSent bool
	// What may be remembered of it, once it is committed: the version of the rows it writes, 0 while that is not known.
	version int64
}

// run is a run in a batch. Run is nil if no run has that ID.
type run struct {
	*engine.Run
	partial   bool  // only its head and the batch's own leases: the open rows were not loaded
	changed   bool  // the head has to be written
	wrote     bool  // it was, by this batch
	version   int64 // of its row, on a shared database; 0: not known
	waiting   int64 // how many of its tasks are stored as ready, where it is remembered
	overtakes int   // number of its consecutive tasks dispatched before older ones, as far as this process knows
	stored    readyRow
	// was holds some columns of the head as they are stored, nil without a row. While they stay the same, an
	// update leaves them and their indexes alone.
	was *settled
	// attributed says that its search attributes have to be indexed anew, indexed that there are rows of them.
	attributed, indexed bool
	// What has to be written, and whether the row was stored before.
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
// is ready, for claims; all its other state is in its run's row.
type readyRow struct {
	route    string
	priority int
	rank     int64
	at       int64
}

// session is the state of a session in the batch, and its stored row: if both are equal, as after most steps in a
// session, nothing is written.
type session struct {
	*engine.Session
	row          *engine.Session // as stored; nil: it has no row
	routingWord  string          // stored routing word
	due          int64           // stored
	counted      bool            // its tasks were
	follow       bool            // attempts that end in this batch set the time of its last activity (Lately)
	formerOwners []string        // former owners, which may still run attempts in it
	route        string          // the last part of the routes of its ready tasks
	dirty        bool            // something was decided about it
	touched      bool            // by this batch
	decided      int64           // the number of the batch that decided this state, until it leases in it
	deleted      bool
	wrote        bool  // by this batch
	version      int64 // of its row, on a shared database; 0: not known
}

// changed reports whether what was decided about a session has to be written. Counts that only its tasks hold have
// not.
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
	assumed bool  // assumed to be missing, without a read
	wrote   bool  // by this batch
	version int64 // of its row, on a shared database; 0: not known
}

// worker is the state of a worker in the batch. stored is true if it has a row: the removal of a worker without a row
// needs no DELETE.
type worker struct {
	*engine.Worker
	stored  bool
	dirty   bool
	touched bool
}

// A task by what it is found by: its run, and its step in that.
type taskKey struct {
	run string
	seq int64 // 0: the workflow task
}

// appended holds the events that a batch adds to a history: the number of events already written, and for the others
// the payloads and, if any, the sessions of the attempts that they end.
type appended struct {
	list           []history.Event
	bytes, written int
	payloads       [][]byte
	sessions       []string
	inherits       *engine.InheritedSignals // not written yet; nil: none
}

// delivery is a task leased to a waiting poller, with the reservation that is settled after the commit. The poller is
// not notified before: it must not begin a task whose lease may not be stored.
type delivery struct {
	r      store.Reservation
	run    *run
	leased store.Leased
}

// Its maps are made at once, since nearly every batch needs most of them.
func (s *Store) newBatch() *batch {
	return &batch{
		s: s, number: s.batch, since: s.clock.Steady(),
		runs: map[string]*run{}, sessions: map[engine.SessionKey]*session{}, workflows: map[engine.WorkflowKey]*workflow{},
		inherited: map[engine.InheritedKey]*inheritedRow{},
		workers:   map[engine.WorkerKey]*worker{}, holding: map[engine.WorkerKey][]holding{},
		receipts: map[store.ReceiptKey]*store.Receipt{}, tokens: map[string]*store.Token{},
		events: map[string]appended{}, flush: newFlush(),
		namespaces: map[string]*store.Namespace{}, schedules: map[engine.ScheduleKey]*schedule{}, removal: newRemoval(),
		queues: map[engine.QueueKey]*queue{}, active: map[activeKey]map[string]int{},
		throttled: map[QueueKey]engine.Throttle{},
		tags:      map[tagKey]*tag{}, newlyFair: map[QueueKey]bool{},
		routingKeys: map[queueRoutingKey]bool{}, backlog: map[QueueKey]*backlog{}, hidden: map[QueueKey]bool{},
		leasedRuns: map[string]bool{},
		touched:    map[string]*store.RunChange{},
		acquired:   map[engine.WorkerKey]int{}, skipped: map[QueueKey]bool{},
	}
}

// written forgets what had to be written, because it now is.
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

// mark records that a row changed; had reports whether it is stored, and only the first mark of a row counts.
func mark(m *map[int64]bool, seq int64, had bool) {
	if *m == nil {
		*m = map[int64]bool{}
	}
	if _, ok := (*m)[seq]; !ok {
		(*m)[seq] = had
	}
}

// send runs calls on the committer's connection, opening the transaction first when that is still to be done.
func (b *batch) send(calls ...*db.Call) error {
	if len(calls) == 0 {
		return nil
	}
	// The single round trip is the one that commits. Anything sent before would be a second one.
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

// opened returns the calls deferred to the next round trip, for a caller that cannot wait for it.
func (b *batch) opened() (calls []*db.Call) {
	calls, b.later = b.later, nil
	return calls
}

// opening returns the call that opens the transaction; only the first call returns one.
func (b *batch) opening() []*db.Call {
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
	if !b.s.cfg.Dialect.Shared { // no other process writes, so cached rows need no load
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

// Holding counts sessions in the batch by the batch's rows, and all others by the stored ones. This includes sessions
// whose rows another transaction has locked: without them, a worker could exceed its limit.
func (b *batch) Holding(w engine.WorkerKey, except engine.SessionKey, now time.Time) int {
	n := 0
	for _, h := range b.holding[w] {
		s := b.sessions[h.session]
		stored := s == nil || s.Session == nil && b.locked[h.session]
		if h.session != except && stored && h.until > now.UnixMicro() {
			n++
		}
	}
	for k, s := range b.sessions {
		if k != except && k.Namespace == w.Namespace && s.Session != nil && !s.deleted && s.HeldBy(w.ID, now) {
			n++
		}
	}
	return n
}

func (b *batch) Receipt(k store.ReceiptKey) *store.Receipt { return b.receipts[k] }

func (b *batch) Token(id string) *store.Token { return b.tokens[id] }
