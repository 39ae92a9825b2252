package sqldb

import (
	"cmp"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// The rows that a batch needs are read in a fixed order, which is also the order of the locks on a shared database. If
// two batches need the same rows, one of them fails at the first of these rows, before it locks others that the other
// batch needs.

// wants contains the keys of rows that a batch must still load, each once.
type wants struct {
	workflows map[engine.WorkflowKey]bool
	runs      map[string]bool
	sessions  map[engine.SessionKey]bool
	chains    map[engine.WorkflowKey]bool
	workers   map[engine.WorkerKey]bool
	holdings  map[engine.WorkerKey]bool
	receipts  map[store.ReceiptKey]bool
	tokens    map[string]bool

	namespaces map[string]bool
	schedules  map[engine.ScheduleKey]bool
	batchJobs  map[engine.BatchJobKey]bool
	queues     map[engine.QueueKey]bool
}

// load reads, and on a shared database locks, the rows that the transactions need: names first, then workflows, runs,
// sessions, workers and the rest. It records rows that other transactions have locked and does not wait for them. It
// does not read rows that are in a valid cache.
func (b *batch) load(items []*pending) error {
	w := wants{
		map[engine.WorkflowKey]bool{},
		map[string]bool{},
		map[engine.SessionKey]bool{},
		map[engine.WorkflowKey]bool{},
		map[engine.WorkerKey]bool{},
		map[engine.WorkerKey]bool{},
		map[store.ReceiptKey]bool{},
		map[string]bool{},
		map[string]bool{},
		map[engine.ScheduleKey]bool{},
		map[engine.BatchJobKey]bool{},
		map[engine.QueueKey]bool{},
	}
	if !b.s.cfg.Dialect.Shared {
		// Apps that share a database must agree on which leases have expired, so they use the server's clock, which is
		// read in the first round trip. A process that uses the database alone uses its own clock.
		b.now = b.s.clock.Now()
		if err := b.s.clockJumped(); err != nil {
			return err
		}
	}
	asked := map[engine.SessionKey]bool{} // sessions whose last activity is read; true: whatever the row shows
	var current []engine.WorkflowKey
	var chain []string
	for _, p := range items {
		if p.transaction == nil {
			// Claims have no keys. They find tasks after the writes; before that, only the rows of limits are needed,
			// and locked.
			b.addLimitKeys(p.lease, w.queues)
			continue
		}
		n := &p.transaction.Needs
		for _, k := range n.Workflows {
			if b.assume && n.New && b.assumeAbsent(k) {
				continue
			}
			w.workflows[k] = true
			if n.Current {
				current = append(current, k)
			}
		}
		for _, id := range n.Runs {
			w.runs[id] = true
			if n.Chain {
				chain = append(chain, id)
			}
		}
		add(w.sessions, n.Sessions)
		if n.RecentActivity {
			for _, k := range n.Sessions {
				asked[k] = asked[k] || n.ExactActivity
			}
		}
		for _, k := range n.Workers {
			w.workers[k] = w.workers[k] || !n.Present
		}
		if n.Holdings {
			add(w.holdings, n.Workers)
		}
		add(w.receipts, n.Receipts)
		add(w.tokens, n.Tokens)
		add(w.namespaces, n.Namespaces)
		add(w.schedules, n.Schedules)
		add(w.batchJobs, n.BatchJobs)
		add(w.queues, n.Queues)
	}
	likely := b.likelySessions(items)
	var locks advisoryKeys
	if b.s.cfg.Dialect.Shared {
		locks = advisoryKeysOf(&w, likely)
	}
	// A chain is locked under its workflow ID, so the IDs must be known before the first row is locked.
	keys, err := b.workflowKeys(chain)
	if err != nil {
		return err
	}
	add(w.workflows, keys)
	claims := len(locks) == 0 && !slices.ContainsFunc(items, func(p *pending) bool { return p.transaction != nil })
	if err := b.loadFirst(&w, locks, current, likely, claims); err != nil {
		return err
	}
	if err := b.reloadMissingSessions(w.sessions); err != nil {
		return err
	}
	b.sessionsOf(items, &w)
	// The runs that have just been read determine which sessions, chains and children to load.
	if err := b.loadOthers(&w, b.loadInherited(b.neededInherited(items))); err != nil {
		return err
	}
	return b.loadActivity(asked)
}

// assumeAbsent assumes that a workflow ID that is not cached is unused. Its row is then inserted instead of upserted,
// so that the database reports a conflict if the ID is in use; in this case the batch is run again and reads the row. A
// shared database has guards for this (see recall.go).
func (b *batch) assumeAbsent(k engine.WorkflowKey) bool {
	if f := b.workflows[k]; f != nil {
		return f.assumed
	}
	if _, ok := b.s.cache.workflows.get(k); ok {
		return false
	}
	b.workflows[k] = &workflow{assumed: true}
	b.assumed = true
	return true
}

func add[K comparable](set map[K]bool, keys []K) {
	for _, k := range keys {
		set[k] = true
	}
}

// workflowKeys returns the workflow IDs to which runs belong. They never change, so they are read without a lock.
func (b *batch) workflowKeys(ids []string) ([]engine.WorkflowKey, error) {
	var keys []engine.WorkflowKey
	missing := db.NewRowset(record.Runs.Key())
	for _, id := range ids {
		if k, ok := b.s.cache.owners.get(id); ok {
			keys = append(keys, k)
		} else if r, ok := b.s.cache.runs.get(id); ok {
			keys = append(keys, engine.WorkflowKey{Namespace: r.Namespace, ID: r.WorkflowID})
		} else {
			missing.S(id)
		}
	}
	if missing.Empty() {
		return keys, nil
	}
	args := []any{missing.JSON()}
	if b.s.cfg.Dialect.Shared {
		args = missing.Arrays()
	}
	return keys, b.send(&db.Call{Stmt: b.s.st.owners, Args: args, Row: func(v []any) error {
		k := engine.WorkflowKey{Namespace: db.Str(v[1]), ID: db.Str(v[2])}
		b.s.cache.owners.add(db.Str(v[0]), k, 1)
		keys = append(keys, k)
		return nil
	}})
}

// loadFirst opens the transaction of a shared database and loads workflows, then runs with their open rows, and the
// sessions that will probably be needed. A batch that consists of claims has nothing to load.
func (b *batch) loadFirst(
	w *wants, locks advisoryKeys, current []engine.WorkflowKey, likely map[engine.SessionKey]bool, claims bool,
) error {
	var calls []*db.Call
	if b.s.cfg.Dialect.Shared {
		calls = append(b.openTransaction(), &db.Call{Stmt: b.s.st.batch, Args: []any{b.s.cfg.App, b.number}, Row: b.stamped})
		calls = append(calls, b.takeAdvisoryLocks(locks)...)
		if claims {
			b.later = calls // these are sent with the first query of the claims
			return nil
		}
	}
	calls = append(calls, b.loadWorkflows(w.workflows)...)
	// The locked row contains the current run, so reading that run takes another round trip.
	if len(current) > 0 {
		if err := b.send(calls...); err != nil {
			return err
		}
		calls = nil
		for _, k := range current {
			if f := b.workflows[k]; f != nil && f.Workflow != nil && f.RunID != "" {
				w.runs[f.RunID] = true
			}
		}
	}
	calls = append(calls, b.loadRuns(sorted(w.runs), true)...)
	calls = append(calls, b.loadSessions(likely)...)
	return b.send(calls...)
}

// likelySessions returns the cached sessions that the batch will probably need: sessions that transactions name, and
// sessions of the activities that transactions name. They are loaded together with the runs, which saves a round trip.
// Their names are not locked, because that would only prevent the creation of rows, which exist.
func (b *batch) likelySessions(items []*pending) map[engine.SessionKey]bool {
	if !b.s.cfg.Dialect.Shared {
		return nil // they are in a valid cache
	}
	keys := map[engine.SessionKey]bool{}
	for _, p := range items {
		if p.transaction == nil {
			continue
		}
		n := &p.transaction.Needs
		for _, k := range n.Sessions {
			if _, ok := b.s.cache.stored.get(k); ok {
				keys[k] = true
			}
		}
		for _, id := range n.Runs {
			for _, seq := range n.Activities {
				k, ok := b.s.memory.sessionOf(taskKey{id, seq})
				if !ok {
					k, ok = b.s.cache.sessionOf.get(taskKey{id, seq})
				}
				if ok {
					keys[k] = true
				}
			}
		}
	}
	return keys
}

// loadOthers loads all other rows.
func (b *batch) loadOthers(w *wants, more []*db.Call) error {
	calls := slices.Concat(more, b.loadSessions(w.sessions))
	calls = append(calls, b.loadChains(w.chains)...)
	calls = append(calls, b.loadWorkers(w.workers)...)
	// under the locks of the workers' rows, which every claim takes
	calls = append(calls, b.loadHeldSessions(w.holdings)...)
	calls = append(calls, b.loadReceipts(w.receipts)...)
	calls = append(calls, b.loadTokens(w.tokens)...)
	calls = append(calls, b.loadNamespaces(w.namespaces)...)
	calls = append(calls, b.loadSchedules(w.schedules)...)
	calls = append(calls, b.loadBatchJobs(w.batchJobs)...)
	calls = append(calls, b.loadQueues(w.queues)...)
	if err := b.send(calls...); err != nil {
		return err
	}
	return b.recordRoutes()
}

// sessionsOf adds the sessions of the activities that the transactions name, and those of the workflow IDs whose chains
// they need.
func (b *batch) sessionsOf(items []*pending, w *wants) {
	want := func(a *engine.Activity, namespace string) {
		if a.SessionID != "" {
			w.sessions[engine.SessionKey{Namespace: namespace, ID: a.SessionID}] = true
		}
	}
	for _, p := range items {
		if p.transaction == nil {
			continue
		}
		n := &p.transaction.Needs
		for _, id := range b.runsOf(n) {
			r := b.runs[id]
			if r == nil || r.Run == nil {
				continue
			}
			if n.Chain && r.HasSessions {
				w.chains[engine.WorkflowKey{Namespace: r.Namespace, ID: r.WorkflowID}] = true
			}
			for _, seq := range n.Activities {
				if a, ok := r.Activities.Get(seq); ok {
					want(&a, r.Namespace)
				}
			}
			if n.AllTasks {
				for _, a := range r.Activities.All() {
					want(&a, r.Namespace)
				}
			}
		}
	}
}

// runsOf returns the runs that a transaction names, by run ID or as the current run of a workflow ID.
func (b *batch) runsOf(n *store.Keys) []string {
	runs := n.Runs
	if n.Current {
		for _, k := range n.Workflows {
			if f := b.workflows[k]; f != nil && f.Workflow != nil && f.RunID != "" {
				runs = append(slices.Clip(runs), f.RunID)
			}
		}
	}
	return runs
}

// sorted returns the keys in the order in which all batches lock and write rows, which prevents deadlocks.
func sorted[K cmp.Ordered](set map[K]bool) []K {
	keys := make([]K, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func sortSessions(list []*engine.Session) {
	slices.SortFunc(list, func(a, b *engine.Session) int { return cmp.Compare(a.ID, b.ID) })
}
