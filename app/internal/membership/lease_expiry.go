package membership

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// A lease may expire because its worker died or because a live worker did not renew it. Only the app that receives the
// worker's heartbeats knows which. The other apps leave the expiry to it for expiryGrace, then decide by the worker's
// row.

// expiryGrace is the time after the end of a lease in which only the app with the worker's last heartbeat may expire
// the lease. The heartbeat in a live worker's row may be half a minute old.
const expiryGrace = 2 * time.Second

// noHeartbeatsHere aborts a decision that depends on whether a worker is alive whose heartbeats another app may
// receive.
type noHeartbeatsHere struct{ process store.Process }

func (e *noHeartbeatsHere) Error() string {
	return "worker " + e.process.Worker.ID + " sends no heartbeats to this app"
}

// ExpireLease commits a change that may expire a lease and that records whether the worker died. If this app does not
// receive the worker's heartbeats, ExpireLease leaves the expiry to the app that does. If that app does not act within
// expiryGrace, it is dead or paused, and ExpireLease decides by the worker's row: a live worker has connected to
// another app before its lease ends, and that app has stored a heartbeat.
func (ws *Workers) ExpireLease(ctx context.Context, d store.Due, step func(engine.Liveness) store.Transaction) error {
	_, err := ws.store.Commit(ctx, step(func(ns string, l engine.Lease) (bool, error) {
		if lives := ws.hasRecentHeartbeat(ns, l); lives || !ws.opt.Shared {
			return lives, nil
		}
		return false, &noHeartbeatsHere{
			store.Process{Worker: engine.WorkerKey{Namespace: ns, ID: l.Owner}, Incarnation: l.Incarnation},
		}
	}))
	if done, err := ws.judgeEndedProcess(ctx, err); done {
		return err
	}
	var expired *noHeartbeatsHere
	if !errors.As(err, &expired) {
		return err
	}
	w, err := ws.storedWorker(ctx, expired.process.Worker)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	now, err := ws.store.Now(ctx)
	if err != nil {
		return err
	}
	known := w.Incarnation == expired.process.Incarnation
	if known && w.HeartbeatApp != ws.opt.App && now.Before(d.At.Add(expiryGrace)) {
		return nil // the lease is still due; the sweeper retries soon
	}
	_, err = ws.store.Commit(ctx, step(func(ns string, l engine.Lease) (bool, error) {
		return ws.hasRecentHeartbeat(ns, l) || known && now.Sub(w.HeartbeatAt.Time) <= ws.maxHeartbeatAge(l), nil
	}))
	if done, err := ws.judgeEndedProcess(ctx, err); done {
		return err
	}
	return err
}

// hasRecentHeartbeat reports whether this app has received a heartbeat of the lease's process within maxHeartbeatAge.
func (ws *Workers) hasRecentHeartbeat(namespace string, l engine.Lease) (lives bool) {
	ws.With(engine.WorkerKey{Namespace: namespace, ID: l.Owner}, func(h *TrackedWorker) {
		lives = h.Worker.Incarnation == l.Incarnation && !h.At.IsZero() && time.Since(h.At) <= ws.maxHeartbeatAge(l)
	})
	return lives
}

// maxHeartbeatAge returns the age at which a heartbeat no longer shows that the worker of an ended lease is alive: half
// of the lease, at most Options.Alive. A worker that renews its leases does so several times per lease. So a worker
// that died after its last renewal sent nothing in the second half of the lease; a worker with a heartbeat in that half
// is alive and did not renew.
func (ws *Workers) maxHeartbeatAge(l engine.Lease) time.Duration {
	return min(ws.opt.Alive, time.Duration(l.Length)*time.Microsecond/2)
}
