package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The decision uses the current row of the session, not the row that the sweeper read: the owner may have renewed the
// session since, or another app may have handled it.

// dueSession applies the passed deadlines of a session, and fails the tasks in it that no worker can run any more.
func (b *Broker) dueSession(ctx context.Context, key engine.SessionKey) error {
	now, err := b.store.Now(ctx)
	if err != nil {
		return err
	}
	due := engine.DueSession{Served: b.workers.Releases()}
	err = b.store.View(ctx, func(r store.Reader) error {
		s, err := r.Session(ctx, key)
		if err != nil {
			return ignore(err, store.ErrNotFound)
		}
		if due.Stale, err = b.workers.StaleHolder(ctx, r, &s, now); err != nil {
			return err
		}
		due.Other, err = b.tasksInOtherQueues(ctx, r, &s, now)
		return err
	})
	if err != nil {
		return err
	}
	c, err := transaction.UpdateSession(ctx, b.store, b.dispatch, key, due)
	if err != nil || !c.Session.Unsettled() {
		return err
	}
	return b.failQueuedTasks(ctx, key)
}

// tasksInOtherQueues reads the open tasks of a session whose check for queues that its owner does not poll is due; nil
// for any other session.
func (b *Broker) tasksInOtherQueues(
	ctx context.Context, r store.Reader, s *engine.Session, now time.Time,
) (*engine.OtherQueue, error) {
	if s.OtherAt.IsZero() || s.OtherAt.After(now) {
		return nil, nil
	}
	tasks, err := r.SessionTasks(ctx, s.Key(), 10_000)
	if err != nil {
		return nil, err
	}
	o := &engine.OtherQueue{}
	var waits *engine.Activity
	for i := range tasks {
		a := &tasks[i]
		switch {
		case a.State == engine.LeasedState, a.State == engine.Pending:
		case slices.Contains(s.HolderQueues, a.Queue):
			o.Served++
		case a.State == engine.Ready && waits == nil:
			waits, o.Queue = a, a.Queue
		}
		if a.State == engine.Ready {
			o.Ready++
		}
	}
	if waits == nil || o.Served > 0 {
		return o, nil
	}
	o.Taker, err = b.hasWorkerFor(ctx, r, waits, *s, now)
	return o, err
}

// hasWorkerFor reports whether a live worker may run a task of a session once its owner has released it. A worker at
// its maximum number of sessions counts, since an idle session can be evicted there.
func (b *Broker) hasWorkerFor(
	ctx context.Context, r store.Reader, a *engine.Activity, s engine.Session, now time.Time,
) (bool, error) {
	known, err := b.workers.Roster(ctx, r, s.Namespace)
	if err != nil {
		return false, err
	}
	s.Owner, s.Incarnation, s.LeaseUntil, s.Reason = "", "", history.At(now), engine.ReasonReleased
	want := engine.TaskRequirements{
		Kind: protocol.KindActivity, Type: a.Type, Requirements: a.Requirements, Session: &s,
		Queue: b.store.Queue(engine.QueueKey{Namespace: s.Namespace, Name: a.Queue}),
	}
	for _, h := range known {
		if !h.Worker.Serves(a.Queue) || h.Gate != "" || b.workers.Stopped(&h) || !b.workers.Alive(h, now) {
			continue
		}
		v := engine.Admit(want, engine.Lessee{Worker: h.Worker, Counted: true}, now)
		if v.OK {
			return true, nil
		}
	}
	return false, nil
}

func ignore(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

// failQueuedTasks fails the tasks that are queued in a session which has ended, or whose policy demands it; otherwise
// they would wait forever.
func (b *Broker) failQueuedTasks(ctx context.Context, key engine.SessionKey) error {
	var tasks []engine.Activity
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		tasks, err = r.SessionTasks(ctx, key, 10_000)
		return err
	})
	if err != nil {
		return err
	}
	ended, queued := 0, false
	for _, a := range tasks {
		// A worker runs this task, and its lease ends it; or its outcome is pending outside of a worker.
		if a.State == engine.LeasedState || a.State == engine.Pending {
			continue
		}
		queued = queued || a.State == engine.Ready
		needs := store.Keys{Runs: []string{a.RunID}, Activities: []int64{a.Seq}}
		_, err := b.store.Commit(ctx, transaction.UpdateRun("", a.RunID, needs, engine.EndQueued{Seq: a.Seq}))
		switch {
		case err == nil:
			ended++
		case !engine.IsNotDue(err) && !engine.IsClosed(err):
			return err
		}
	}
	if ended > 0 {
		b.log.Info().Str("session_id", key.ID).Int("tasks", ended).Msg("failed the pending tasks of an ended session")
	}
	// No task is ready, but the session's row still counts some. Reset the count; otherwise the sweeper visits the
	// session in every round.
	if !queued {
		_, err = transaction.UpdateSession(ctx, b.store, b.dispatch, key, engine.DueSession{Settled: true})
	}
	return err
}
