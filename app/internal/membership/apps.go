package membership

import (
	"context"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// The apps of one database register in the workers table, under a namespace that callers cannot use. When an app's row
// expires, the other apps know that no app receives the heartbeats of its workers.

// appsNamespace is the namespace of the apps' rows. Each app reads from them which releases are served. No caller can
// use this namespace.
const appsNamespace = "/apps"

// announce stores the last heartbeats of workers. With self, the same change registers this app for the given time;
// announce then returns the other live apps with the times at which their registrations expire, and deletes the rows of
// apps that died long ago.
func (ws *Workers) announce(
	ctx context.Context, self bool, alive time.Duration, unstored []engine.WorkerKey,
) (others map[string]time.Time, err error) {
	releases := []string{ws.opt.Release}
	others = map[string]time.Time{}
	if ws.opt.Shared {
		var ownRow []func(time.Time) engine.Worker
		if self {
			ownRow = append(ownRow, func(now time.Time) engine.Worker { return ws.appRow(now, alive) })
		}
		first := unstored[:min(len(unstored), maxStoredHeartbeats)]
		now, err := ws.storeHeartbeatRows(ctx, first, ownRow...)
		if err != nil {
			return nil, err
		}
		for rest := range slices.Chunk(unstored[len(first):], maxStoredHeartbeats) {
			if err := ws.storeAlive(ctx, rest...); err != nil {
				return nil, err
			}
		}
		if !self {
			return nil, nil
		}
		var dead []engine.WorkerKey
		var ended time.Time // when the liveness of the app that died last expired
		if until := ws.aliveUntil; !until.IsZero() && now.After(until) {
			// The other apps considered this app dead, because it was paused or could not reach the database.
			ended = now
		}
		ws.aliveUntil = now.Add(alive)
		err = ws.store.View(ctx, func(r store.Reader) error {
			apps, err := r.Workers(ctx, store.WorkerQuery{Namespace: appsNamespace, Limit: 10_000})
			for _, w := range apps {
				if !w.AliveUntil.After(now) && w.AliveUntil.After(ended) && w.AliveUntil.After(ws.lastEnded) {
					ended = w.AliveUntil.Time
				}
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
		if !ended.IsZero() && ws.opt.AppEnded != nil {
			ws.lastEnded = ended
			ws.opt.AppEnded(ended)
		}
		if len(dead) > 0 {
			_, err = ws.store.Commit(ctx, store.Transaction{Decide: func(store.Rows, time.Time) (store.Writes, error) {
				return store.Writes{DropWorkers: dead}, nil
			}})
		}
		if err != nil {
			return nil, err
		}
	}
	ws.Serve(releases)
	return others, nil
}

// appRow returns the row of this app, with the given lifetime.
func (ws *Workers) appRow(now time.Time, alive time.Duration) engine.Worker {
	return engine.Worker{
		Namespace: appsNamespace, ID: ws.opt.App, Release: ws.opt.Release, Queues: []string{"-"},
		HeartbeatAt: history.At(now), UpdatedAt: history.At(now), AliveUntil: history.At(now.Add(alive)),
	}
}

// Withdraw deletes this app's registration. The commit names the row, so the other apps are notified as if a worker
// process left.
func (ws *Workers) Withdraw(ctx context.Context) error {
	if !ws.opt.Shared {
		return nil
	}
	own := []engine.WorkerKey{{Namespace: appsNamespace, ID: ws.opt.App}}
	_, err := ws.store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Workers: own, Present: true},
		Decide: func(store.Rows, time.Time) (store.Writes, error) {
			return store.Writes{DropWorkers: own}, nil
		},
	})
	return err
}

// HasOtherApps reports whether another app uses the database, or did when the oldest poll that a worker may still
// repeat was answered.
func (ws *Workers) HasOtherApps() bool {
	until := ws.otherAppsUntil.Load()
	return ws.opt.Shared && (until == 0 || time.Now().UnixNano() < until)
}

// updateApps records until when the other apps are considered alive.
func (ws *Workers) updateApps(apps map[string]time.Time) {
	last := ws.otherAppsUntil.Load()
	// this app knew no other app; workers of apps that ended earlier are detected when they connect to this app
	if last == 0 {
		last = ws.started.UnixNano()
	}
	for id, until := range apps {
		if id != ws.opt.App {
			last = max(last, until.Add(ws.opt.PollKept).UnixNano())
		}
	}
	ws.otherAppsUntil.Store(last)
}
