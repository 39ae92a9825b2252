package sqldb

import (
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A batch reads all rows of a table with one statement and applies its transactions to the rows in memory: the second
// transaction of a run sees the first. For a row that another transaction has locked, the statement returns only the
// key, and the transactions that need the row are deferred.

// loadWorkflows returns the calls that load rows of workflow IDs that the batch has not loaded yet.
func (b *batch) loadWorkflows(keys map[engine.WorkflowKey]bool) []*db.Call {
	missing := db.NewRowset(record.Workflows.Key())
	for k := range keys {
		if b.workflows[k] != nil {
			continue
		}
		b.workflows[k] = &workflow{}
		// The cache has entries only if no other process writes (see cache.remember).
		if f, ok := b.s.cache.workflows.get(k); ok {
			b.workflows[k].Workflow = f
			continue
		}
		missing.S(k.Namespace).S(k.ID)
	}
	return b.fetch(b.s.st.workflows, missing, func(v []any) error {
		f := record.ReadWorkflow(v)
		b.workflows[f.Key()].Workflow = &f
		if b.s.cfg.Dialect.Shared {
			b.workflows[f.Key()].version = db.Int(v[len(record.Workflows.Columns)])
		}
		return nil
	}, func(v []any) { b.markLocked(engine.WorkflowKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}) })
}

// loadRuns returns the calls that load runs that the batch has not loaded: their heads, and their open rows if open is
// set. A cached run is used if its row has the same version, and its cached open rows if the database confirms that
// they are unchanged.
func (b *batch) loadRuns(ids []string, open bool) []*db.Call {
	missing, asked := db.NewRowset(record.Runs.Key()), db.NewRowset(versionColumns)
	shared, known := b.s.cfg.Dialect.Shared, map[string]*run{}
	for _, id := range ids {
		if b.runs[id] != nil {
			continue
		}
		if r, ok := b.s.cache.runs.get(id); ok {
			b.runs[id] = r
			continue
		}
		// Recorded before the read: if the result has no row of an ID, the row does not exist, and is not read again.
		b.runs[id] = &run{partial: !open}
		missing.S(id)
		if !open || !shared {
			continue
		}
		var version, waiting int64
		if r, ok := b.s.memory.runs.get(id); ok {
			known[id], version, waiting = r, r.version, r.waiting
		}
		asked.S(id).I(version).I(waiting)
	}
	calls := b.fetch(b.s.st.runs, missing, func(v []any) error {
		r := b.runs[db.Str(v[0])]
		if shared {
			r.version = db.Int(v[len(record.Runs.Columns)])
		}
		if k := known[db.Str(v[0])]; k != nil && k.version == r.version {
			r.Run, r.stored, r.was = &engine.Run{Head: k.Head}, k.stored, k.was
			return nil
		}
		h, err := record.ReadHead(v)
		if err != nil {
			return err
		}
		r.Run = &engine.Run{Head: h}
		was := settledOf(&h)
		was.failing = protocol.WaitReason(db.Str(v[17])) // an earlier build did not write it
		r.stored, r.was = r.readyRow(), &was
		b.s.cache.owners.add(h.ID, engine.WorkflowKey{Namespace: h.Namespace, ID: h.WorkflowID}, 1)
		return nil
	}, func(v []any) { b.markLocked(runKey(db.Str(v[0]))) })
	if !open {
		return calls
	}
	opens := b.s.st.opensOf
	if !shared {
		opens, asked = b.s.st.opens, missing
	}
	return append(calls, b.fetch(&db.Loader{Stmt: opens}, asked, func(v []any) error {
		id, kind := db.Str(v[0]), db.Str(v[1])
		switch r := b.runs[id]; {
		case r.Run == nil: // another transaction has locked the row
			return nil
		case kind == sameKind:
			b.runs[id] = known[id]
			return nil
		default:
			return record.ReadOpen(r.Run, v)
		}
	}, nil)...)
}

// loadSessions returns the calls that load sessions which the batch does not have yet, and count their tasks under the
// lock. After they were sent, routed must be called.
func (b *batch) loadSessions(keys map[engine.SessionKey]bool) []*db.Call {
	missing := db.NewRowset(record.Sessions.Key())
	for k := range keys {
		if b.sessions[k] != nil {
			continue
		}
		if s, ok := b.s.cache.sessions.get(k); ok {
			b.sessions[k] = s
			continue
		}
		b.sessions[k] = &session{counted: true}
		missing.S(k.Namespace).S(k.ID)
	}
	locked := func(v []any) { b.markLocked(engine.SessionKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}) }
	return append(b.fetch(b.s.st.sessions, missing, b.readSession, locked), b.countTasks(missing)...)
}

// loadChains loads the sessions of workflow IDs. They are read even if no other process writes, because the cache may
// not contain all of them.
func (b *batch) loadChains(keys map[engine.WorkflowKey]bool) []*db.Call {
	missing := db.NewRowset([]db.Column{db.Text("namespace"), db.Text("workflow_id")})
	for k := range keys {
		missing.S(k.Namespace).S(k.ID)
	}
	return b.fetch(b.s.st.chains, missing, b.readSession, func(v []any) {
		b.markLocked(engine.SessionKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])})
		b.markLocked(chainKey{Namespace: db.Str(v[0]), ID: db.Str(v[2])})
	})
}

// A row may be returned twice, by its key and as part of its chain. The first one stays, because a decision may be
// based on it.
func (b *batch) readSession(v []any) error {
	s, word, due, err := record.ReadSession(v)
	if err != nil {
		return err
	}
	before := b.sessions[s.Key()]
	if before != nil && before.row != nil {
		return nil
	}
	if had, ok := b.s.cache.sessions.get(s.Key()); ok { // the session was loaded as part of a chain
		b.sessions[s.Key()] = had
		return nil
	}
	behind, err := record.ReadBehind(v)
	if err != nil {
		return err
	}
	read := &session{
		Session: &s, row: &s, routingWord: word, due: due, formerOwners: behind, counted: before != nil && before.counted,
	}
	if b.s.cfg.Dialect.Shared {
		read.version = db.Int(v[len(record.Sessions.Columns)])
	}
	b.sessions[s.Key()] = read
	return nil
}

// stored is recorded, too: deleting a worker without a row needs no statement.
func (b *batch) loadWorkers(keys map[engine.WorkerKey]bool) []*db.Call {
	missing := db.NewRowset(record.Workers.Key())
	for k := range keys {
		if b.workers[k] != nil {
			continue
		}
		b.workers[k] = &worker{}
		if w, ok := b.s.cache.workers.get(k); ok {
			b.workers[k] = &worker{Worker: w, stored: true}
			continue
		}
		missing.S(k.Namespace).S(k.ID)
	}
	return b.fetch(b.s.st.workers, missing, func(v []any) error {
		w, err := record.ReadWorker(v)
		if err != nil {
			return err
		}
		*b.workers[w.Key()] = worker{Worker: &w, stored: true}
		return nil
	}, func(v []any) { b.markLocked(engine.WorkerKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}) })
}

// holding is the stored lease of a session that a worker holds or prepares, or whose state it may have suspended.
type holding struct {
	session  engine.SessionKey
	until    int64
	place    bool // until its lease ends, it counts as a session of the worker
	prepared bool
	used     engine.HeldResources
}

// loadHeldSessions reads the sessions that workers hold.
func (b *batch) loadHeldSessions(keys map[engine.WorkerKey]bool) []*db.Call {
	asked := db.NewRowset(record.Workers.Key())
	for k := range keys {
		b.holding[k] = nil
		asked.S(k.Namespace).S(k.ID)
	}
	return b.fetch(&db.Loader{Stmt: b.s.st.holdings}, asked, func(v []any) error {
		k := engine.WorkerKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}
		in := engine.SessionKey{Namespace: k.Namespace, ID: db.Str(v[2])}
		used, err := record.ReadHeldResources(v[5])
		b.holding[k] = append(b.holding[k], holding{in, db.Int(v[3]), db.Int(v[4]) > 0, db.Int(v[4]) == 2, used})
		return err
	}, nil)
}

// Receipts and tokens are not cached: a receipt is read once, or again by a retry that may reach any app.
func (b *batch) loadReceipts(keys map[store.ReceiptKey]bool) []*db.Call {
	missing := db.NewRowset(record.Receipts.Key())
	for k := range keys {
		missing.S(k.Namespace).S(k.WorkflowID).S(k.RequestID)
	}
	return b.fetch(b.s.st.receipts, missing, func(v []any) error {
		c := record.ReadReceipt(v)
		b.receipts[c.ReceiptKey] = &c
		return nil
	}, func(v []any) {
		b.markLocked(store.ReceiptKey{Namespace: db.Str(v[0]), WorkflowID: db.Str(v[1]), RequestID: db.Str(v[2])})
	})
}

func (b *batch) loadTokens(keys map[string]bool) []*db.Call {
	missing := db.NewRowset(record.Tokens.Key())
	for k := range keys {
		missing.S(k)
	}
	return b.fetch(b.s.st.tokens, missing, func(v []any) error {
		t, err := record.ReadToken(v)
		b.tokens[t.ID] = &t
		return err
	}, func(v []any) { b.markLocked(tokenKey(db.Str(v[0]))) })
}

// fetch returns the calls that load the rows with these keys; none without keys. locked is called with each existing
// row that another transaction has locked.
func (b *batch) fetch(l *db.Loader, keys *db.Rowset, row func(v []any) error, locked func(v []any)) []*db.Call {
	if keys.Empty() {
		return nil
	}
	read := row
	if l.Width > 0 {
		read = func(v []any) error {
			if v[0] == nil { // the first column of a primary key
				locked(v[l.Width:])
				return nil
			}
			return row(v)
		}
	}
	return []*db.Call{b.s.cfg.Dialect.Call(l, keys, read)}
}
