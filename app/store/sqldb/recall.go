package sqldb

import (
	"errors"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// On a shared database a batch takes two round trips: the first locks and reads the rows its changes need, the second
// writes. One is enough when this process remembers those rows from its own last write: the changes are decided on
// what is remembered, and guards go ahead of the writes, in the same transaction. They lock, in the order in which
// every batch locks, each row that was looked at, and fail in the server when one is gone, locked by somebody else, or
// not the version that is remembered; then nothing of the batch is stored, and it is run again in two round trips.
//
// A version is the transaction that wrote a row last, which the server keeps with the row (xmin). So whoever else
// writes, another build too, need not know of this. To a run belong the rows of its tasks, since a claim leases a task
// without writing the run; everything else that is open is only ever written together with the run's own row. To a
// session belong the tasks in it, which are counted: see tally.go.

// errForgotten says that a batch needs something that is not remembered, or that it decided something which
// writes nothing and so would not be checked. It never reaches a caller: the batch is run in two round trips.
var errForgotten = errors.New("not remembered")

// mostRemembered is the most tasks a run or a session may have to be remembered: its guard reads them all.
const mostRemembered = 32

// mostLate is how far behind the decisions the server may be when it begins with the batch, and how old the
// reading of its clock may be that the decisions go by. A lease that was judged alive must not have been over
// for longer.
const mostLate = time.Second

// recalled is a run as this process left it, with the versions of its row and of those of its tasks.
type recalled struct {
	run        *run
	row, tasks string
}

// recalledSession is a session, with the versions of its row and of those of its tasks.
type recalledSession struct {
	session    *session
	row, tasks string
}

// recalledFlow is the row of a workflow id.
type recalledFlow struct {
	flow *engine.Workflow
	row  string
}

// memory is what a process remembers of rows that others may write meanwhile. It is only ever a guess that the
// guards check, so a wrong one costs a round trip and nothing else.
type memory struct {
	runs     *lru[string, recalled]
	sessions *lru[engine.SessionKey, recalledSession]
	flows    *lru[engine.WorkflowKey, recalledFlow]

	// A batch that was not right is followed by some that are not tried, by more each time in a row: where two processes
	// write the same runs in turn, trying would cost a round trip each time.
	wrong, skip int

	mu    sync.Mutex
	stale map[string]bool // runs that others have written; guarded by mu
}

func newMemory() *memory {
	return &memory{
		runs: newLRU[string, recalled](mostRuns), flows: newLRU[engine.WorkflowKey, recalledFlow](mostKeys),
		sessions: newLRU[engine.SessionKey, recalledSession](mostSessions), stale: map[string]bool{},
	}
}

func (m *memory) clear() {
	m.runs.clear()
	m.sessions.clear()
	m.flows.clear()
}

// forget drops what a batch may have touched.
func (m *memory) forget(b *batch) {
	for id := range b.runs {
		m.runs.drop(id)
	}
	for k := range b.sessions {
		m.sessions.drop(k)
	}
	for k := range b.workflows {
		m.flows.drop(k)
	}
}

// remember takes over the rows of a committed batch whose versions it read behind its writes.
func (m *memory) remember(b *batch) {
	m.forget(b)
	for _, id := range b.dropped {
		m.runs.drop(id)
	}
	for id, v := range b.versions {
		m.runs.put(id, v, 1)
	}
	for k, v := range b.sessionVersions {
		m.sessions.put(k, v, 1)
	}
	for k, v := range b.flowVersions {
		m.flows.put(k, v, 1)
	}
}

// Elsewhere notes runs that another process has written. Without it the guards would find out, a round trip
// later.
func (s *Store) Elsewhere(runs []store.RunChange) {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range runs {
		if len(m.stale) < mostRuns {
			m.stale[runs[i].RunID] = true
		}
	}
}

// refresh drops what was noted.
func (m *memory) refresh() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.stale {
		m.runs.drop(id)
	}
	clear(m.stale)
}

// mostSkipped is the most batches that are not tried in a row.
const mostSkipped = 64

// was notes whether a batch that was decided on what is remembered was right. After the first miss one batch is
// run in the ordinary way, then two, four, and so on.
func (m *memory) was(right bool) {
	if right {
		m.wrong, m.skip = 0, 0
		return
	}
	m.skip = min(1<<m.wrong, mostSkipped)
	m.wrong = min(m.wrong+1, 6)
}

// recall makes a batch of what is remembered, or nil when that is not all that its changes need.
func (s *Store) recall(items []*pending) *batch {
	if !s.cfg.Dialect.Shared {
		return nil
	}
	for _, p := range items {
		if p.change == nil || !p.change.Recall || p.alone {
			return nil
		}
	}
	if s.memory.skip > 0 {
		s.memory.skip--
		return nil
	}
	s.memory.refresh()
	now, at, ok := s.clock.least(mostLate)
	if !ok {
		return nil
	}
	b := s.newBatch()
	b.recalled, b.now, b.decidedAt = true, now, at
	for _, p := range items {
		// The reading of the clock is some moments old. A caller that has a later time from the store brings it up
		// to that.
		if more := p.change.NotBefore.Sub(b.now); more > 0 && more < mostLate {
			b.now, b.decidedAt = b.now.Add(more), b.decidedAt+more.Microseconds()
		}
		if !b.recallNeeds(&p.change.Needs) {
			return nil
		}
	}
	return b
}

// recallNeeds brings the rows of a change into the batch. Workers are never remembered: what matters about them
// is how many sessions they hold, which is counted over rows that others write.
func (b *batch) recallNeeds(n *store.Keys) bool {
	if n.Lately || len(n.Workers)+len(n.Receipts)+len(n.Tokens)+len(n.Namespaces)+len(n.Schedules)+len(n.Queues) > 0 {
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
		if !ok || n.Chain && r.HasSessions || (n.Bound || len(n.Former) > 0) && r.Former.Open > 0 {
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

// Whatever is taken from memory is put among the guarded at the same time, so that nothing is decided on
// unguarded.
func (b *batch) recallSession(k engine.SessionKey) bool {
	if b.sessions[k] != nil {
		return true
	}
	v, ok := b.s.memory.sessions.get(k)
	if ok {
		b.sessions[k] = v.session
		b.guarded.sessions.s(k.Namespace).s(k.ID).s(v.row).s(v.tasks)
	}
	return ok
}

func (b *batch) recallRun(id string) (*run, bool) {
	if r := b.runs[id]; r != nil {
		return r, true
	}
	v, ok := b.s.memory.runs.get(id)
	if ok {
		b.runs[id] = v.run
		b.guarded.runs.s(id).s(v.row).s(v.tasks)
	}
	return v.run, ok
}

// recallFlow brings the row of a workflow id into the batch: the one that is remembered, or with fresh none.
func (b *batch) recallFlow(k engine.WorkflowKey, fresh bool) bool {
	if b.workflows[k] != nil {
		return true
	}
	v, ok := b.s.memory.flows.get(k)
	switch {
	case ok:
		b.guarded.flows.s(k.Namespace).s(k.ID).s(v.row)
		b.workflows[k] = &workflow{Workflow: v.flow}
	case fresh:
		b.guarded.fresh.s(k.Namespace).s(k.ID)
		b.guarded.names.add(k, "workflow", k.Namespace, k.ID)
		b.workflows[k] = &workflow{}
	}
	return ok || fresh
}

// carry decides a batch on what is remembered and sends it in one round trip. Whatever would need another round
// trip, or would be answered without being checked (a refusal writes nothing, so no guard goes with it), is
// errForgotten.
func (b *batch) carry(items []*pending) error {
	b.items = items
	if taken := b.decide(items); taken < len(items) {
		return errForgotten
	}
	if err := b.route(); err != nil {
		return err
	}
	if err := b.rank(items); err != nil {
		return err
	}
	if err := b.handOver(); err != nil {
		return err
	}
	if err := b.write(true); err != nil {
		return err
	}
	if !b.sealed {
		return errForgotten
	}
	b.finish(items)
	return nil
}
