package broker

import (
	"context"
	"errors"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// A session is moved on by what its row says at the decision, and never by what the sweeper saw: its holder may have
// renewed it since, or another app may have been here first.

// dueSession moves a session forward in time, and ends tasks that wait in it in vain.
func (b *Broker) dueSession(ctx context.Context, key engine.SessionKey) error {
	stale, err := b.workers.StaleHolder(ctx, key)
	if err != nil {
		return err
	}
	due := engine.DueSession{Served: b.workers.Releases(), Stale: stale}
	c, err := change.StepSession(ctx, b.store, b.dispatch, key, due)
	if err != nil || !c.Session.Unsettled() {
		return err
	}
	return b.failQueuedTasks(ctx, key)
}

func ignore(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

// failQueuedTasks fails the tasks that are queued in a session which has ended, or whose policy says so; they would
// wait for ever.
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
		// Somebody is at it, and its lease decides what becomes of it.
		if a.State == engine.LeasedState {
			continue
		}
		queued = queued || a.State == engine.Ready
		needs := store.Keys{Runs: []string{a.RunID}, Activities: []int64{a.Seq}}
		_, err := b.store.Commit(ctx, change.Step("", a.RunID, needs, engine.EndQueued{Seq: a.Seq}))
		switch {
		case err == nil:
			ended++
		case !engine.IsNotDue(err) && !engine.IsClosed(err):
			return err
		}
	}
	if ended > 0 {
		b.log.Info().Str("session_id", key.ID).Int("tasks", ended).Msg("tasks of a session that is over failed")
	}
	// Nothing stood ready in it, so the session need not be looked at again for that.
	if !queued {
		_, err = change.StepSession(ctx, b.store, b.dispatch, key, engine.DueSession{Settled: true})
	}
	return err
}
