package broker

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/presence"
	"github.com/sojourn-run/sojourn/app/store"
)

// How long a worker stays among the workers after its last sign of life, and when that of one that lives is stored
// anew. A worker that only polls is stored by nothing else, and each app looks once a day at least: between the two
// lies more than one look.
const (
	removedAfter = 3 * 24 * time.Hour
	renewal      = removedAfter / 6
)

// returnTime is how long after its start an app without company waits for workers whose signs of life it did not store.
const returnTime = time.Hour

// removeExpiredWorkers removes the workers of a namespace that gave no sign of life for so long that nothing of theirs
// can be left: each start of a worker without a name of its own leaves one.
func (b *Broker) removeExpiredWorkers(ctx context.Context, namespace string, now time.Time) error {
	var list []engine.Worker
	for after := ""; ; after = list[len(list)-1].ID {
		err := b.store.View(ctx, func(r store.Reader) (err error) {
			list, err = r.Workers(ctx, store.WorkerQuery{Namespace: namespace, AfterID: after, Limit: piece})
			return err
		})
		if err != nil {
			return err
		}
		for i := range list {
			if err := b.removeIfExpired(ctx, &list[i], now); err != nil {
				return err
			}
		}
		if len(list) < piece {
			return nil
		}
	}
}

func (b *Broker) removeIfExpired(ctx context.Context, w *engine.Worker, now time.Time) error {
	silent := now.Sub(lastSign(w))
	if silent < renewal {
		return nil
	}
	here := false
	b.workers.With(w.Key(), func(h *presence.Heard) { here = b.workers.Hears(*h) })
	switch {
	case here && b.opt.Shared:
		return b.storeAlive(ctx, w.Key())
	case here, silent < removedAfter, !b.opt.Shared && time.Since(b.started) < returnTime:
		return nil
	}
	removed, err := change.Commit[bool](ctx, b.store, store.Change{
		Needs: store.Keys{Workers: []engine.WorkerKey{w.Key()}},
		Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
			if now := rows.Worker(w.Key()); now == nil || now.Incarnation != w.Incarnation || !lastSign(now).Equal(lastSign(w)) {
				return store.Writes{Answer: false}, nil // it came back
			}
			return store.Writes{DropWorkers: []engine.WorkerKey{w.Key()}, Answer: true}, nil
		},
	})
	if removed {
		b.workers.Drop(w.Key())
	}
	return err
}

// lastSign is the last sign of life of a worker that is stored.
func lastSign(w *engine.Worker) time.Time {
	if w.HeartbeatAt.After(w.RegisteredAt.Time) {
		return w.HeartbeatAt.Time
	}
	return w.RegisteredAt.Time
}
