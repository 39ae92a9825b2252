package broker

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/change"
	"github.com/sojourn-run/sojourn/app/store"
)

// The sweeper names what is due, and this moves it. Several apps may sweep at once, and a notice may be old, so
// each decision looks at the time again; the harder question, whether the worker of a lease is dead, is left to
// the app that hears it.

// Due applies the transition of one due row. The decision checks again that the time has come, so several sweepers may
// work on the same rows.
func (b *Broker) Due(ctx context.Context, d store.Due) error {
	var err error
	switch d.Kind {
	case store.DueRun:
		err = b.workers.Lapse(ctx, d, func(h engine.Heard) store.Change {
			needs := store.Keys{Runs: []string{d.Run}, AllTasks: true, Chain: true, Bound: true}
			return change.Step("", d.Run, needs, engine.Due{
				Heard: h,
			})
		})
	case store.DueActivity:
		err = b.workers.Lapse(ctx, d, func(h engine.Heard) store.Change {
			return change.Step("", d.Run, store.Keys{Runs: []string{d.Run}, Activities: []int64{d.Seq}}, engine.DueActivity{
				Seq: d.Seq, Heard: h,
			})
		})
	case store.DueTimer:
		_, err = b.store.Commit(ctx, change.Step("", d.Run, store.Keys{Runs: []string{d.Run}}, engine.FireTimer{Seq: d.Seq}))
	case store.DueMessage:
		err = b.owed(ctx, d)
	case store.DueSchedule:
		err = b.dueSchedule(ctx, d.Schedule)
	case store.DueSession:
		err = b.dueSession(ctx, d.Session)
	}
	// Another sweeper was here first, or what was due has been moved on: nothing is left to do.
	if engine.IsNotDue(err) || engine.IsClosed(err) {
		return nil
	}
	return err
}

// CleanUp deletes sessions that ended or whose lease expired and that have no tasks. A session that got a task
// meanwhile is not deleted.
func (b *Broker) CleanUp(ctx context.Context, keys []engine.SessionKey) error {
	removed := 0
	defer func() {
		if removed > 0 {
			b.log.Debug().Int("sessions", removed).Msg("sessions cleaned up")
		}
	}()
	for _, k := range keys {
		_, err := change.StepSession(ctx, b.store, b.dispatch, k, engine.CleanUp{Kept: time.Now().Add(-b.opt.Retention)})
		if err == nil {
			removed++
		} else if !engine.IsNotDue(err) {
			return err
		}
	}
	return nil
}
