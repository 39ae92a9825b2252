package membership

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
)

// Tasks of soft sessions do not wait for a holder that has missed two heartbeats. Only heartbeats count: a worker that
// sends none may be silent while it works.

// twoHeartbeats is the silence after which a worker has missed two heartbeats, with time for the second to arrive. The
// interval is that of the worker's registration, else the one that the app's responses contain.
func (ws *Workers) twoHeartbeats(w *engine.Worker) time.Duration {
	every := ws.opt.Heartbeat
	if w.HeartbeatSecs > 0 {
		every = time.Duration(w.HeartbeatSecs) * time.Second
	}
	return 2*every + every/4
}

// skipSilent records in a worker's soft sessions that the worker has missed two heartbeats at every app, or that it
// sends heartbeats again.
func (ws *Workers) skipSilent(ctx context.Context, k engine.WorkerKey, h TrackedWorker) error {
	if h.At.IsZero() || !h.SendsHeartbeats() {
		return nil
	}
	silent := time.Since(h.At) >= ws.twoHeartbeats(h.Worker)
	if silent && ws.opt.Shared {
		var err error
		if silent, err = ws.missedElsewhere(ctx, k, h); err != nil {
			return err
		}
	}
	if silent == h.Skipped {
		return nil
	}
	held, err := transaction.SessionsOwnedBy(ctx, ws.store, k)
	if err != nil {
		return err
	}
	in := engine.SkipHolder{Worker: k.ID, Incarnation: h.Worker.Incarnation, Silent: silent}
	for i := range held {
		if held[i].Fallback == 0 {
			continue
		}
		_, err := transaction.UpdateSession(ctx, ws.store, ws.dispatch, held[i].Key(), in)
		if err != nil && !engine.IsNotDue(err) {
			return err
		}
	}
	ws.With(k, func(n *TrackedWorker) { n.Skipped = silent })
	return nil
}

// missedElsewhere reports whether a worker that has missed two heartbeats here has missed them at the other apps too.
// An app that may have received a heartbeat that is not stored has an entry in HeardUntil.
func (ws *Workers) missedElsewhere(ctx context.Context, k engine.WorkerKey, h TrackedWorker) (bool, error) {
	w, err := ws.storedWorker(ctx, k)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	now, err := ws.store.Now(ctx)
	if err != nil {
		return false, err
	}
	return w.Incarnation == h.Worker.Incarnation && now.Sub(w.HeartbeatAt.Time) >= ws.twoHeartbeats(&w) &&
		!w.AliveByApp[ws.opt.App].After(now) && len(heartbeatsElsewhere(&w, ws.opt.App, ws.opt.Alive, now)) == 0, nil
}
