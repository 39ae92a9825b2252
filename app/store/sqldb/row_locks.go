package sqldb

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// A batch never waits for a row lock, because the app that holds the lock may be paused. While a batch loads, it
// records the key of each row that another transaction has locked, and defers the transactions that need this row to a
// later batch. Deferred transactions are not decided, because the batch cannot find out whether the row exists.

// errRowsLocked means that another transaction has locked rows which a batch needs after its decisions. If the
// transactions that need them are known, they are in batch.blocked.
var errRowsLocked = errors.New("the row is locked by another transaction")

// These types are keys of rows without a key type in package engine. chainKey stands for the sessions of a workflow ID,
// inheritedKey for the children of its earlier runs; a lock of any of these rows counts as a lock of the key.
type (
	runKey       string
	tokenKey     string
	namespaceKey string
	chainKey     engine.WorkflowKey
	inheritedKey engine.WorkflowKey
)

// markLocked records that another transaction has locked the row with this key.
func (b *batch) markLocked(key any) {
	if b.locked == nil {
		b.locked = map[any]bool{}
	}
	b.locked[key] = true
}

// unlockedItems returns the items whose rows the batch has loaded, and marks the others as deferred.
func (b *batch) unlockedItems(items []*pending) []*pending {
	if len(b.locked) == 0 {
		return items
	}
	free := make([]*pending, 0, len(items))
	for _, p := range items {
		if b.needsLocked(p) {
			b.deferred = append(b.deferred, p)
		} else {
			free = append(free, p)
		}
	}
	return free
}

// needsLocked reports whether another transaction has locked a row that p needs.
func (b *batch) needsLocked(p *pending) bool {
	if p.transaction == nil {
		own := scopes(QueueKey{p.lease.Namespace, p.lease.Queue, p.lease.Kind})
		return anyLocked(b, own[:])
	}
	n := &p.transaction.Needs
	runs := n.Runs
	for _, k := range n.Workflows {
		if b.locked[k] {
			return true
		}
		if f := b.workflows[k]; n.Current && f != nil && f.Workflow != nil && f.RunID != "" {
			runs = append(slices.Clip(runs), f.RunID)
		}
	}
	for _, id := range runs {
		if b.locked[runKey(id)] || b.lockedIn(id, n) {
			return true
		}
	}
	return !n.SkipLocked && anyLocked(b, n.Sessions) ||
		anyLocked(b, n.Workers) || anyLocked(b, n.Receipts) || anyLocked(b, n.Schedules) || anyLocked(b, n.Queues) ||
		anyLocked(b, n.BatchJobs) ||
		slices.ContainsFunc(n.Tokens, func(id string) bool { return b.locked[tokenKey(id)] }) ||
		slices.ContainsFunc(n.Namespaces, func(name string) bool { return b.locked[namespaceKey(name)] })
}

// lockedIn reports whether another transaction has locked a row that belongs to a run: its workflow ID, the sessions of
// its chain, or the sessions of its activities.
func (b *batch) lockedIn(id string, n *store.Keys) bool {
	r := b.runs[id]
	if r == nil || r.Run == nil {
		if k, ok := b.s.cache.owners.get(id); ok && n.Chain {
			return b.locked[k]
		}
		return false
	}
	k := engine.WorkflowKey{Namespace: r.Namespace, ID: r.WorkflowID}
	if n.Chain && (b.locked[k] || b.locked[chainKey(k)]) || needsInherited(n) && b.locked[inheritedKey(k)] {
		return true
	}
	held := func(a engine.Activity) bool {
		return a.SessionID != "" && b.locked[engine.SessionKey{Namespace: r.Namespace, ID: a.SessionID}]
	}
	for _, seq := range n.Activities {
		if a, ok := r.Activities.Get(seq); ok && held(a) {
			return true
		}
	}
	return n.AllTasks && r.Activities.Any(held)
}

func anyLocked[K comparable](b *batch, keys []K) bool {
	return slices.ContainsFunc(keys, func(k K) bool { return b.locked[k] })
}

// deferBlocked marks items to be deferred that made one of these tasks ready or claim from one of these queues: rows
// that they need turned out to be locked after the decision, so the batch cannot be committed with them.
func (b *batch) deferBlocked(tasks map[taskKey]bool, queues map[QueueKey]bool) error {
	for _, p := range b.items {
		late := p.lease != nil && queues[QueueKey{p.lease.Namespace, p.lease.Queue, p.lease.Kind}]
		for _, t := range b.ready[min(p.ready, len(b.ready)):min(p.readied, len(b.ready))] {
			late = late || tasks[t]
		}
		if late {
			b.blocked = append(b.blocked, p)
		}
	}
	return errRowsLocked
}

// takeAdvisoryLocks returns the call that tries to take advisory locks on these keys. The keys need no rows: a row that
// does not exist cannot be locked, but an advisory lock prevents other apps from creating it. A key that another app
// has locked is recorded as locked.
func (b *batch) takeAdvisoryLocks(keys map[int64][]any) []*db.Call {
	if len(keys) == 0 {
		return nil
	}
	if b.advised == nil {
		b.advised = keys
	} else {
		maps.Copy(b.advised, keys)
	}
	return []*db.Call{{Stmt: b.s.st.advisory, Args: []any{slices.Sorted(maps.Keys(keys))}, Row: func(v []any) error {
		for _, k := range keys[db.Int(v[0])] {
			b.markLocked(k)
		}
		return nil
	}}}
}

// advisoryKeys maps the numbers of advisory locks to keys. Two keys with the same number are locked together, which may
// cost a retry and is harmless.
type advisoryKeys map[int64][]any

// A zero byte separates the parts, so that ("ab", "c") and ("a", "bc") have different numbers.
func (n advisoryKeys) add(key any, parts ...string) {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = h.Write([]byte(p))
		_, _ = h.Write([]byte{0})
	}
	at := int64(h.Sum64())
	n[at] = append(n[at], key)
}

func (n advisoryKeys) session(k engine.SessionKey) { n.add(k, "session", k.Namespace, k.ID) }

// advisoryKeysOf returns the keys in w that may not have a row yet, except sessions that probably have one, which are
// checked first. A run needs no key: it is created under the key of its workflow ID.
func advisoryKeysOf(w *wants, likely map[engine.SessionKey]bool) advisoryKeys {
	n := advisoryKeys{}
	for k := range w.workflows {
		n.add(k, "workflow", k.Namespace, k.ID)
	}
	for k := range w.sessions {
		if !likely[k] {
			n.session(k)
		}
	}
	// A worker has a row since its registration; its name is locked only if the transaction may create the row.
	for k, absent := range w.workers {
		if absent {
			n.add(k, "worker", k.Namespace, k.ID)
		}
	}
	for k := range w.schedules {
		n.add(k, "schedule", k.Namespace, k.ID)
	}
	for k := range w.batchJobs {
		n.add(k, "batch job", k.Namespace, k.ID)
	}
	for k := range w.namespaces {
		n.add(namespaceKey(k), "namespace", k)
	}
	for k := range w.queues {
		n.add(k, "queue", k.Namespace, k.Name)
	}
	return n
}

// reloadMissingSessions locks the names of sessions without a row and loads the sessions again, because another app may
// be creating them or have created them.
func (b *batch) reloadMissingSessions(keys map[engine.SessionKey]bool) error {
	if !b.s.cfg.Dialect.Shared {
		return nil
	}
	fresh, reload := advisoryKeys{}, map[engine.SessionKey]bool{}
	for k := range keys {
		if s := b.sessions[k]; s != nil && s.Session == nil && !b.locked[k] {
			one := advisoryKeys{}
			one.session(k)
			for at := range one {
				if b.advised[at] == nil {
					fresh.session(k)
					reload[k] = true
				}
			}
		}
	}
	for k := range reload {
		delete(b.sessions, k)
	}
	if len(reload) == 0 {
		return nil
	}
	return b.send(append(b.takeAdvisoryLocks(fresh), b.loadSessions(reload)...)...)
}

// writeAhead writes rows that are valid even if the batch fails, each in its own transaction: routing keys that are now
// in use or unused, epochs of removed sessions, fairness classes of tasks. If the batch wrote such a row and its app
// were paused, every other app that inserts the same row would be blocked, and the lock could not be tried in advance
// because the row does not exist yet. Most batches have nothing to write here.
func (b *batch) writeAhead() error {
	for _, c := range b.aheadCalls {
		if err := b.s.writeSeparately(c); err != nil {
			return fmt.Errorf("write shared rows before the batch: %w", err)
		}
	}
	b.aheadCalls = nil
	return nil
}

// separateWriteTimeout bounds a statement next to the committer's connection.
const separateWriteTimeout = 2 * time.Second

// writeSeparately runs one statement in its own transaction, on a connection other than the committer's.
func (s *Store) writeSeparately(c *db.Call) error {
	ctx, cancel := context.WithTimeout(context.Background(), separateWriteTimeout)
	defer cancel()
	s.statements.Add(1)
	res, err := s.cfg.Reads.ExecContext(ctx, c.Stmt.SQL, c.Args...)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	s.rows.Add(n)
	return err
}
