package membership

import (
	"context"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// One loop monitors all workers of an app, so its cost does not grow with their number: a check costs no statement
// while all heartbeats arrive, and updates are stored in batches.

// checkInterval is the interval of the liveness checks. A check costs no statement while all heartbeats arrive.
func (ws *Workers) checkInterval() time.Duration { return max(ws.opt.Alive/20, 100*time.Millisecond) }

// untilCheck returns checkInterval, or less while there are workers of a dead app: their stored heartbeats are older
// than heartbeats in the memory of an app.
func (ws *Workers) untilCheck() time.Duration {
	if ws.AnyOrphaned() {
		return max(ws.checkInterval()/3, 100*time.Millisecond)
	}
	return ws.checkInterval()
}

// Watch monitors the workers until ctx ends. If the heartbeats of a worker of this app or of a dead app stop, Watch
// releases the worker's tasks and orphans its sessions. It also stores the liveness of this app and of its workers for
// the other apps.
func (ws *Workers) Watch(ctx context.Context) error {
	paced := ws.checkInterval()
	tick := time.NewTicker(paced)
	defer tick.Stop()
	var watching sync.WaitGroup
	watching.Go(func() { ws.watchSuperseded(ctx) })
	defer watching.Wait()
	// by then all live workers have sent a heartbeat to this app, or their expiry is stored
	behind := Orphans{Due: ws.started.Add(ws.opt.Alive)}
	var announced time.Time
	failed, closely := false, false
	notify := func() {
		// An app has been silent for too long: check its workers at once.
		fell := !behind.Gone.IsZero() && !time.Now().Before(behind.Gone)
		every, close := ws.opt.StoreAlive, ws.AnyStoresEachHeartbeat()
		if close {
			every /= 2
		}
		left := ws.appLeft.Swap(false)
		due := announced.IsZero() || ws.opt.Shared &&
			(time.Since(announced) >= every || fell || left || close && !closely)
		var unstored []engine.WorkerKey
		if ws.opt.Shared {
			unstored = ws.UnstoredHeartbeats(due)
		}
		if !due && len(unstored) == 0 {
			return
		}
		// Storing the app's row together with the rows of workers costs no extra transaction.
		self := due || time.Since(announced) >= every/2
		if self {
			announced, closely = time.Now(), close
		}
		apps, err := ws.announce(ctx, self, 2*every, unstored)
		if failed = err != nil; failed && self {
			announced = announced.Add(-every / 2) // announce again before the registration expires
		}
		switch {
		case failed && ctx.Err() == nil:
			store.Warn(&ws.log, err).Msg("failed to store heartbeats of this app and its workers; retrying")
		case !failed && self:
			if behind.Update(ws.opt.App, apps) {
				ws.appEndedAt.Store(time.Now().UnixNano())
			}
			ws.updateApps(apps)
		}
	}
	for notify(); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ws.unstored:
			if !failed { // the next check retries, not each heartbeat
				notify()
			}
		case <-tick.C:
			notify()
			if !behind.Due.IsZero() && !time.Now().Before(behind.Due) {
				if err := ws.adoptWorkers(ctx); err == nil {
					behind.Due = time.Time{}
				} else if ctx.Err() == nil {
					store.Warn(&ws.log, err).Msg("failed to adopt workers of a dead app; retrying")
				}
			}
			for k, h := range ws.All("") {
				ws.endPolls(k, h)
				if err := ws.skipSilent(ctx, k, h); err != nil && ctx.Err() == nil {
					store.Warn(&ws.log, err).Str("worker_id", k.ID).
						Msg("failed to release tasks of soft sessions from their silent holder; retrying")
				}
				if err := ws.expireSilent(ctx, k, h); err != nil && ctx.Err() == nil {
					ws.log.Error().Err(err).Str("worker_id", k.ID).Msg("failed to expire the leases of a silent worker")
				}
			}
			if err := ws.removeSilent(ctx, &behind); err != nil && ctx.Err() == nil {
				store.Warn(&ws.log, err).Msg("failed to remove registrations of silent workers; retrying later")
			}
			if every := ws.untilCheck(); every != paced {
				paced = every
				tick.Reset(every)
			}
		}
	}
}

// endPolls ends the polls of a connected worker that has been silent for the length of its lease, so that all its
// leases have expired. The worker may be paused, and a task leased to it now would wait for the next expiry. A live
// worker polls again.
func (ws *Workers) endPolls(k engine.WorkerKey, h TrackedWorker) {
	lease := time.Duration(h.Worker.AttemptLease) * time.Microsecond
	if h.PollsEnded || h.At.IsZero() || !h.Worker.Explicit || !h.SendsHeartbeats() || time.Since(h.At) < lease {
		return
	}
	now := false
	ws.With(k, func(n *TrackedWorker) {
		now = n.At.Equal(h.At) // the worker has sent no heartbeat since
		n.PollsEnded = n.PollsEnded || now
	})
	if now {
		ws.dispatch.LeaseExpired(k)
	}
}
