package broker

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
)

// The sweeper lists rows whose deadline has passed, and the broker applies the deadlines. Several apps may sweep at
// once, and an entry may be outdated, so each decision checks the time again. Only the app that receives a worker's
// heartbeats decides whether the worker of an expired lease is dead.

// Due applies the passed deadlines of one row. The decision checks the time again, so several sweepers may work on the
// same rows.
func (b *Broker) Due(ctx context.Context, d store.Due) error {
	var err error
	switch d.Kind {
	case store.DueRun:
		err = b.workers.ExpireLease(ctx, d, func(l engine.Liveness) store.Transaction {
			needs := store.Keys{Runs: []string{d.Run}, AllTasks: true, Chain: true, Bound: true}
			return transaction.UpdateRun("", d.Run, needs, engine.Due{
				Liveness: l,
			})
		})
	case store.DueActivity:
		err = b.workers.ExpireLease(ctx, d, func(l engine.Liveness) store.Transaction {
			needs := store.Keys{Runs: []string{d.Run}, Activities: []int64{d.Seq}}
			return transaction.UpdateRun("", d.Run, needs, engine.DueActivity{Seq: d.Seq, Liveness: l})
		})
	case store.DueTimer:
		_, err = b.store.Commit(
			ctx, transaction.UpdateRun("", d.Run, store.Keys{Runs: []string{d.Run}}, engine.FireTimer{Seq: d.Seq}),
		)
	case store.DueMessage:
		err = b.deliverMessage(ctx, d)
	case store.DueSchedule:
		err = b.dueSchedule(ctx, d.Schedule)
	case store.DueSession:
		err = b.dueSession(ctx, d.Session)
	}
	// Another sweeper has applied the deadline, or the deadline was moved: nothing remains to do.
	if engine.IsNotDue(err) || engine.IsClosed(err) {
		return nil
	}
	return err
}

// CleanUp deletes sessions that have ended or expired and have no tasks. A session that got a task meanwhile is not
// deleted.
func (b *Broker) CleanUp(ctx context.Context, keys []engine.SessionKey) error {
	removed := 0
	defer func() {
		if removed > 0 {
			b.log.Debug().Int("sessions", removed).Msg("sessions cleaned up")
		}
	}()
	for _, k := range keys {
		_, err := transaction.UpdateSession(
			ctx, b.store, b.dispatch, k, engine.CleanUp{Before: time.Now().Add(-b.opt.Retention)},
		)
		if err == nil {
			removed++
		} else if !engine.IsNotDue(err) {
			return err
		}
	}
	return nil
}
