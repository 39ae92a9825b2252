package sqldb

import (
	"errors"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// On a shared database a batch takes two round trips: the first locks and reads the rows that its changes need, the
// second writes. One round trip is enough if this process has cached these rows since its last write: the changes are
// decided on the cached rows, and guards precede the writes in the same transaction. The guards lock each row that was
// read, in the lock order of all batches. If a row is deleted, locked by another transaction or has another version
// than the cached one, they fail in the server; then nothing of the batch is stored, and it is run again in two round
// trips.
//
// The version of a row is its xmin, the transaction that wrote it last. So it covers writes of every other process,
// also of other builds. Open tasks of a run are only ever written together with the run's row, except that a claim
// leases a task without writing the run. As long as that row is unchanged, nothing else can happen to its tasks, so an
// equal number of ready tasks proves that none was leased. For a session, only the number of its tasks matters (see
// session_counts.go), so the guards count them.
//
// A batch that reads its rows in a separate round trip also compares versions: of runs with an unchanged version it
// reads only the version.

// errNotCached means that a batch needs a row that is not cached, or that a decision writes nothing and so no guard
// would check it. Callers never receive it: the batch is run in two round trips.
var errNotCached = errors.New("a row that the batch needs is not cached")

// maxCachedTasks is the maximum number of tasks of a cached session: its guard counts all of them.
const maxCachedTasks = 32

// maxClockAge is the maximum time between the decisions and the beginning of the batch in the server, and the maximum
// age of the clock reading that the decisions use. It limits how long a lease that counted as valid can have been
// expired.
const maxClockAge = time.Second

// cachedWorkflow is the cached row of a workflow ID.
type cachedWorkflow struct {
	flow    *engine.Workflow
	version int64
}

// memory caches rows that other processes may change. The guards check it, so an outdated entry only costs a round
// trip.
type memory struct {
	runs     *lru[string, *run] // rows as this process last wrote them
	sessions *lru[engine.SessionKey, *session]
	flows    *lru[engine.WorkflowKey, cachedWorkflow]
	guarded  *guarded // rows of the batch that is decided on cached rows

	// After a wrong guess, some batches are not tried on cached rows, more after each consecutive wrong guess: if two
	// processes write the same runs in turn, each try would cost a round trip.
	wrong, skip int

	mu    sync.Mutex
	stale map[string]bool // runs written by other processes; guarded by mu
}

func newMemory() *memory {
	return &memory{
		runs: newLRU[string, *run](maxRuns), flows: newLRU[engine.WorkflowKey, cachedWorkflow](maxKeys),
		sessions: newLRU[engine.SessionKey, *session](maxSessions), stale: map[string]bool{},
		guarded: newGuarded(),
	}
}

func (m *memory) clear() {
	m.runs.clear()
	m.sessions.clear()
	m.flows.clear()
}

// forget removes what a batch may have changed. The sessions of a run's activities stay cached.
func (m *memory) forget(b *batch) {
	for id := range b.runs {
		m.clearVersion(id)
	}
	for k := range b.sessions {
		m.sessions.drop(k)
	}
	for k := range b.workflows {
		m.flows.drop(k)
	}
}

// remember caches the rows of a committed batch whose versions are known.
func (m *memory) remember(b *batch) {
	for id, r := range b.runs {
		if r.wrote {
			r.version, r.wrote = b.version, false
		}
		// If only the head of a run was loaded, its other rows are unknown. A closed run is never decided on again, so
		// it is not cached.
		switch {
		case r.Run != nil && !r.partial && r.Status.Open() && r.version != 0:
			r.waiting = r.readyTasks()
			m.runs.add(id, r, r.weight())
		case r.partial:
			m.clearVersion(id)
		default:
			m.runs.drop(id)
		}
	}
	for k, s := range b.sessions {
		if s.wrote {
			s.version, s.wrote = b.version, false
		}
		if s.isCacheable() {
			m.sessions.add(k, s, 1)
		} else {
			m.sessions.drop(k)
		}
	}
	for k, f := range b.workflows {
		if f.wrote {
			f.version = b.version
		}
		if f.Workflow != nil && f.version != 0 {
			m.flows.add(k, cachedWorkflow{f.Workflow, f.version}, 1)
		} else {
			m.flows.drop(k)
		}
	}
	for i, id := range b.dropped {
		m.runs.drop(id)
		m.flows.drop(b.droppedFlows[i])
	}
}

// clearVersion clears the version of a cached run, so that its row is read again. The cached rows may still be valid.
func (m *memory) clearVersion(id string) {
	if r, ok := m.runs.get(id); ok {
		r.version = 0
	}
}

// sessionOf returns the session of an activity, if it is cached. The session of an activity never changes.
func (m *memory) sessionOf(t taskKey) (engine.SessionKey, bool) {
	r, ok := m.runs.get(t.run)
	if !ok {
		return engine.SessionKey{}, false
	}
	a, ok := r.Activities.Get(t.seq)
	return engine.SessionKey{Namespace: r.Namespace, ID: a.SessionID}, ok && a.SessionID != ""
}

// clearVersions clears the versions of the batch's rows, because another server may have taken over.
func (b *batch) clearVersions() {
	b.version = 0
	for _, r := range b.runs {
		r.version = 0
	}
	for _, s := range b.sessions {
		s.version = 0
	}
	for _, f := range b.workflows {
		f.version = 0
	}
}

// isCacheable reports whether decisions may use the cached session: its row exists, its version is known, and all
// running tasks belong to its owner, by which the guard counts. Sessions with many tasks are excluded, since counting
// them would cost too much.
func (s *session) isCacheable() bool {
	return s.Session != nil && !s.deleted && s.row != nil && s.version != 0 && s.counted && !s.MoreReady &&
		len(s.StaleAttempts) == 0 && len(s.formerOwners) == 0 && s.Active+s.Ready <= maxCachedTasks
}

// readyTasks returns the number of a run's tasks that are stored as ready.
func (r *run) readyTasks() (n int64) {
	if r.stored != (readyRow{}) {
		n++
	}
	r.Activities.Any(func(a engine.Activity) bool {
		if a.State == engine.Ready {
			n++
		}
		return false
	})
	return n
}

// MarkStale marks runs that another process has written. Without the mark, the guards would detect that, one round trip
// later.
func (s *Store) MarkStale(runs []store.RunChange) {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range runs {
		if len(m.stale) < maxRuns {
			m.stale[runs[i].RunID] = true
		}
	}
}

// refresh removes the runs that were marked as stale.
func (m *memory) refresh() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.stale {
		m.clearVersion(id)
	}
	clear(m.stale)
}

// maxSkipped is the maximum number of consecutive batches that are not tried on cached rows.
const maxSkipped = 64

// recordGuess records whether a batch that was decided on cached rows was valid. After the first invalid one, one batch
// runs in the ordinary way, then two, four, and so on.
func (m *memory) recordGuess(right bool) {
	if right {
		m.wrong, m.skip = 0, 0
		return
	}
	m.skip = min(1<<m.wrong, maxSkipped)
	m.wrong = min(m.wrong+1, 6)
}

// cachedBatch returns a batch of cached rows, or nil if the cache does not contain all rows that its transactions need.
func (s *Store) cachedBatch(items []*pending) *batch {
	if !s.cfg.Dialect.Shared {
		return nil
	}
	changes := 0
	for _, p := range items {
		switch {
		case p.separately, p.transaction != nil && !p.transaction.Recall, p.lease != nil && !s.needsNoRows(p.lease):
			return nil
		case p.transaction != nil:
			changes++
		}
	}
	if changes == 0 {
		return nil
	}
	if s.memory.skip > 0 {
		s.memory.skip--
		return nil
	}
	s.memory.refresh()
	now, at, ok := s.clock.LowerBound(maxClockAge)
	if !ok {
		return nil
	}
	b := s.newBatch()
	b.recalled, b.now, b.decidedAt, b.guarded = true, now, at, s.memory.guarded
	b.guarded.clear()
	for _, p := range items {
		if p.transaction == nil {
			continue
		}
		// The clock was read a moment ago. If a caller has received a later time from the store, use that time.
		if more := p.transaction.NotBefore.Sub(b.now); more > 0 && more < maxClockAge {
			b.now, b.decidedAt = b.now.Add(more), b.decidedAt+more.Microseconds()
		}
		if !b.recallNeeds(&p.transaction.Needs) {
			return nil
		}
	}
	return b
}

// needsNoRows reports whether a claim needs no rows before the batch is decided: no limit applies to it, and its queue
// has no ranks.
func (s *Store) needsNoRows(r *store.LeaseRequest) bool {
	q := QueueKey{r.Namespace, r.Queue, r.Kind}
	return !s.queues.bounded(q) && !s.queues.fair(q)
}

// recallNeeds adds the rows of a transaction to the batch. Workers are never cached, because the number of their
// sessions matters, which is counted over rows that other processes write.
func (b *batch) recallNeeds(n *store.Keys) bool {
	if n.RecentActivity ||
		len(n.Workers)+len(n.Receipts)+len(n.Tokens)+len(n.Namespaces)+len(n.Schedules)+len(n.Queues) > 0 {
		return false
	}
	for _, k := range n.Sessions {
		if !b.recallSession(k) {
			return false
		}
	}
	for _, k := range n.Workflows {
		if !b.recallFlow(k, n.New) {
			return false
		}
	}
	for _, id := range b.runsOf(n) {
		r, ok := b.recallRun(id)
		if !ok || n.Chain && r.HasSessions || needsInherited(n) && r.Inherited.Open > 0 {
			return false
		}
		if n.Chain && !b.recallFlow(engine.WorkflowKey{Namespace: r.Namespace, ID: r.WorkflowID}, false) {
			return false
		}
		forgotten := func(a engine.Activity) bool {
			return a.SessionID != "" && !b.recallSession(engine.SessionKey{Namespace: r.Namespace, ID: a.SessionID})
		}
		for _, seq := range n.Activities {
			if a, ok := r.Activities.Get(seq); ok && forgotten(a) {
				return false
			}
		}
		if n.AllTasks && r.Activities.Any(forgotten) {
			return false
		}
	}
	return true
}

// recallSession adds a cached session to the batch and to the guarded rows, so that every decision is guarded.
func (b *batch) recallSession(k engine.SessionKey) bool {
	if b.sessions[k] != nil {
		return true
	}
	s, ok := b.s.memory.sessions.get(k)
	if ok {
		b.sessions[k] = s
		b.guarded.sessions.S(k.Namespace).S(k.ID).I(s.version).S(s.Owner).I(int64(s.Active)).I(int64(s.Ready))
	}
	return ok
}

func (b *batch) recallRun(id string) (*run, bool) {
	if r := b.runs[id]; r != nil {
		return r, true
	}
	r, ok := b.s.memory.runs.get(id)
	if ok = ok && r.version != 0; ok {
		b.runs[id] = r
		b.guarded.runs.S(id).I(r.version).I(r.waiting)
	}
	return r, ok
}

// recallFlow adds the cached row of a workflow ID to the batch. If no row is cached and fresh is set, it assumes that
// the workflow ID has no row.
func (b *batch) recallFlow(k engine.WorkflowKey, fresh bool) bool {
	if b.workflows[k] != nil {
		return true
	}
	v, ok := b.s.memory.flows.get(k)
	switch {
	case ok:
		b.guarded.flows.S(k.Namespace).S(k.ID).I(v.version)
		b.workflows[k] = &workflow{Workflow: v.flow, version: v.version}
	case fresh:
		b.guarded.fresh.S(k.Namespace).S(k.ID)
		b.guarded.names.add(k, "workflow", k.Namespace, k.ID)
		b.workflows[k] = &workflow{}
	}
	return ok || fresh
}

// commitCached decides a batch on cached rows and sends it in one round trip; claims add another. It returns
// errNotCached if it needs another round trip before that, or if a result would not be checked (a refusal writes
// nothing, so no guard runs).
func (b *batch) commitCached(items []*pending) error {
	b.items = items
	if decided := b.decide(items); decided < len(items) {
		return errNotCached
	}
	if err := b.writeDecisions(); err != nil {
		return err
	}
	if !b.sealed {
		return errNotCached
	}
	b.finish(items)
	return nil
}
