package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// dueSession moves a session forward in time, and ends tasks that wait in it in vain.
func (b *Broker) dueSession(ctx context.Context, key engine.SessionKey) error {
	stale, err := b.holderStale(ctx, key)
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

// holderStale is the worker whose lease on the session is over, if its registration is gone or it has not been heard of
// for longer than a living worker may be silent; else "".
func (b *Broker) holderStale(ctx context.Context, key engine.SessionKey) (string, error) {
	now, err := b.store.Now(ctx)
	if err != nil {
		return "", err
	}
	stale := ""
	err = b.store.View(ctx, func(r store.Reader) error {
		s, err := r.Session(ctx, key)
		if err != nil || s.Terminal || s.Owner == "" || s.Status != protocol.SessionActive || s.LeaseUntil.After(now) {
			return ignore(err, store.ErrNotFound)
		}
		owner := engine.WorkerKey{Namespace: key.Namespace, ID: s.Owner}
		h, known := b.workers.All(key.Namespace)[owner]
		if known && !h.At.IsZero() {
			if time.Since(h.At) > b.opt.Alive {
				stale = s.Owner
			}
			return nil
		}
		w, err := r.Worker(ctx, owner)
		switch {
		case errors.Is(err, store.ErrNotFound):
			stale = s.Owner
		case err != nil:
			return err
		case b.opt.Shared && !w.AliveUntil.After(now), !b.opt.Shared && time.Since(b.started) > b.opt.Alive:
			stale = s.Owner
		}
		return nil
	})
	return stale, err
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
	if !queued {
		_, err = change.StepSession(ctx, b.store, b.dispatch, key, engine.DueSession{Settled: true})
	}
	return err
}

// appsNamespace is where the apps of one database register, so that each knows which releases are served. It is no
// namespace a caller can name.
const appsNamespace = "/apps"

// announce stores the last signs of life of workers, and with self registers this app for so long with the others on
// its database, in the same change, and learns of theirs: it lists those that are alive, and until when they are
// believed to be. Those that have been dead for long are forgotten.
func (b *Broker) announce(
	ctx context.Context, self bool, alive time.Duration, heard []engine.WorkerKey,
) (others map[string]time.Time, err error) {
	releases := []string{b.opt.Release}
	others = map[string]time.Time{}
	if b.opt.Shared {
		var beside []func(time.Time) engine.Worker
		if self {
			beside = append(beside, func(now time.Time) engine.Worker { return b.row(now, alive) })
		}
		first := heard[:min(len(heard), aliveAtOnce)]
		now, err := b.storeSigns(ctx, first, beside...)
		if err != nil {
			return nil, err
		}
		for rest := range slices.Chunk(heard[len(first):], aliveAtOnce) {
			if err := b.storeAlive(ctx, rest...); err != nil {
				return nil, err
			}
		}
		if !self {
			return nil, nil
		}
		var dead []engine.WorkerKey
		err = b.store.View(ctx, func(r store.Reader) error {
			apps, err := r.Workers(ctx, store.WorkerQuery{Namespace: appsNamespace, Limit: 10_000})
			for _, w := range apps {
				switch {
				case w.AliveUntil.After(now):
					releases = append(releases, w.Release)
					others[w.ID] = time.Now().Add(w.AliveUntil.Sub(now))
				case w.AliveUntil.Before(now.Add(-time.Hour)):
					dead = append(dead, w.Key())
				}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(dead) > 0 {
			_, err = b.store.Commit(ctx, store.Change{Decide: func(store.Rows, time.Time) (store.Writes, error) {
				return store.Writes{DropWorkers: dead}, nil
			}})
		}
		if err != nil {
			return nil, err
		}
	}
	b.workers.Serve(releases)
	return others, nil
}

// row is this app's own among those of the apps, believed to be alive for so long.
func (b *Broker) row(now time.Time, alive time.Duration) engine.Worker {
	return engine.Worker{
		Namespace: appsNamespace, ID: b.opt.App, Release: b.opt.Release, Queues: []string{"-"}, HeartbeatAt: history.At(now),
		UpdatedAt: history.At(now), AliveUntil: history.At(now.Add(alive)),
	}
}

// withdraw takes this app's registration away. The others are told, as of a process that left, since its row is named.
func (b *Broker) withdraw(ctx context.Context) error {
	if !b.opt.Shared {
		return nil
	}
	own := []engine.WorkerKey{{Namespace: appsNamespace, ID: b.opt.App}}
	_, err := b.store.Commit(ctx, store.Change{
		Needs: store.Keys{Workers: own, Present: true},
		Decide: func(store.Rows, time.Time) (store.Writes, error) {
			return store.Writes{DropWorkers: own}, nil
		},
	})
	return err
}
