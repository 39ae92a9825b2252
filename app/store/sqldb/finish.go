package sqldb

import (
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Callers, polls and other processes are notified only after COMMIT has succeeded. Before that they would read rows
// that do not exist yet, or never will.

// finish completes a committed batch: it updates the caches, delivers tasks to reserved polls, returns results to
// callers and notifies subscribers.
func (b *batch) finish(items []*pending) {
	s := b.s
	s.routingKeys.remember(b)
	b.rememberIsolated()
	if b.sealed {
		s.commits.Add(1)
		s.health.failed.Store(false)
		if s.cfg.Committed != nil {
			s.cfg.Committed(b.number)
		}
	}
	for _, p := range items {
		if p.transaction != nil {
			s.changes.Add(1)
		}
	}
	b.reportUnlocked()
	b.commitUsage()
	s.recordSkipped(b)
	changed := b.changed()
	s.cache.remember(b, !s.cfg.Dialect.Shared)
	s.memory.remember(b)
	decided, fairnessChanged := b.rememberQueues(), b.rememberFair()
	if s.cfg.Dispatch != nil {
		// Notify subscribers before callers get their results, so that a caller that reads afterwards does not get
		// outdated cached data.
		if len(changed.Runs)+len(changed.Sessions)+len(changed.Workers)+len(changed.Moves)+len(changed.Tokens) > 0 ||
			b.leasedAny(items) {
			s.cfg.Dispatch.Changed(changed)
		}
		for _, p := range b.deregistered {
			s.cfg.Dispatch.Deregistered(p)
		}
	}
	for i := range b.deliveries {
		b.arguments(b.deliveries[i].run, &b.deliveries[i].leased)
		b.deliveries[i].r.Deliver(b.deliveries[i].leased)
	}
	b.notifyQueues(decided)
	b.notifyBacklog()
	for _, p := range items {
		for i := range p.leased {
			b.arguments(p.runs[i], &p.leased[i])
		}
		close(p.done)
	}
	b.sendNotices(changed, fairnessChanged)
}

// leasedAny reports whether the batch leased tasks to workers, which does not change the runs that subscribers watch.
func (b *batch) leasedAny(items []*pending) bool {
	return len(b.deliveries) > 0 || slices.ContainsFunc(items, func(p *pending) bool { return len(p.leased) > 0 })
}

// notifyBacklog reports the queues with ready tasks that no poll leased. It runs before callers get their results, so
// if a claim returns without such a notification, no task remains.
func (b *batch) notifyBacklog() {
	b.addUnreservedToBacklog()
	if b.s.cfg.Dispatch == nil {
		return
	}
	for q, left := range b.backlog {
		b.s.cfg.Dispatch.Backlog(q.Namespace, q.Queue, q.Kind, left.keys...)
	}
}

// reportUnlocked reports the ready tasks of the runs that this batch had locked: a claim of another app may have
// skipped them meanwhile, even in runs that did not change. The tasks that this batch's claims left in locked runs are
// already in hidden.
func (b *batch) reportUnlocked() {
	if !b.s.cfg.Dialect.Shared {
		return
	}
	for id, r := range b.runs {
		if r.Run == nil || r.partial {
			continue
		}
		report := func(q QueueKey, _ ...store.RoutingKey) { b.hidden[q] = true }
		if b.touched[id] != nil {
			report = b.addBacklog
		}
		if r.readyRow() != (readyRow{}) {
			report(QueueKey{r.Namespace, r.Queue, protocol.KindWorkflow}, b.routingKeyOf(taskKey{id, 0}))
		}
		r.Activities.Any(func(a engine.Activity) bool {
			if a.State == engine.Ready {
				report(QueueKey{r.Namespace, a.Queue, protocol.KindActivity}, activityRoutingKeyForWorkers(&a))
			}
			return a.State == engine.Ready
		})
	}
}

// gatherReadyInLeased returns the call that reads, after the writes of the batch, which tasks are still ready in the
// runs that its claims locked.
func (b *batch) gatherReadyInLeased() []*db.Call {
	var partial []string // reportUnlocked reports the other runs
	for id := range b.leasedRuns {
		if b.runs[id].partial {
			partial = append(partial, id)
		}
	}
	if !b.s.cfg.Dialect.Shared || len(partial) == 0 {
		return nil
	}
	slices.Sort(partial)
	return []*db.Call{{Stmt: b.s.st.readyIn, Args: []any{partial}, Row: func(v []any) error {
		b.hidden[QueueKey{db.Str(v[0]), db.Str(v[1]), protocol.TaskKind(db.Str(v[2]))}] = true
		return nil
	}}}
}

// changed returns what the batch changed.
func (b *batch) changed() store.Changed {
	c := store.Changed{Moves: b.moves, Tokens: b.tokenNews}
	for _, id := range slices.Sorted(maps.Keys(b.touched)) {
		c.Runs = append(c.Runs, *b.touched[id])
	}
	for k, s := range b.sessions {
		if s.touched {
			if c.Sessions == nil {
				c.Sessions = make([]engine.SessionKey, 0, len(b.sessions))
			}
			c.Sessions = append(c.Sessions, k)
			c.Loose = c.Loose || s.Session == nil || s.deleted || !s.Held(b.now)
			s.touched = false
		}
	}
	for k, w := range b.workers {
		if w.touched {
			c.Workers = append(c.Workers, k)
		}
	}
	return c
}

// sendNotices sends the notifications that follow the results: due times to this process, and what the batch changed to
// other processes.
func (b *batch) sendNotices(c store.Changed, fairnessChanged bool) {
	if d := b.s.cfg.Dispatch; d != nil && !b.due.IsZero() {
		d.Due(b.due.Time)
	}
	ended := slices.DeleteFunc(slices.Clone(c.Moves), func(m store.SessionMove) bool {
		return !m.Ends() && !m.ForSuccessor() && m.What != protocol.SessionSnapshotRequested
	})
	some := len(c.Runs) > 0 || len(b.backlog) > 0 || len(b.hidden) > 0 || len(ended) > 0 || len(b.deregistered) > 0 ||
		len(b.drainChanged) > 0 || len(b.expiredWorkers) > 0 || len(c.Tokens) > 0
	if b.s.cfg.Notify != nil && (some || fairnessChanged) {
		n := Notice{
			Runs: c.Runs, Ended: ended, FairnessChanged: fairnessChanged,
			Expired: slices.Collect(maps.Keys(b.expiredWorkers)), Superseded: b.deregistered,
			DrainChanged: b.drainChanged, Tokens: c.Tokens,
		}
		for q := range b.backlog {
			b.hidden[q] = true
		}
		n.Queues = slices.SortedFunc(maps.Keys(b.hidden), QueueKey.compare)
		b.s.cfg.Notify(n)
	}
}

// dueAt records a due time that was written, for the sweeper.
func (b *batch) dueAt(t history.Time) {
	if !t.IsZero() && (b.due.IsZero() || t.Before(b.due.Time)) {
		b.due = t
	}
}

var _ store.Rows = (*batch)(nil)
