package presence

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// A lease that ran out is a loss if its worker died and none if the worker let it lapse. Only who hears the worker
// knows; the others wait a moment for that app to act, and then go by what is stored.

// leftToOthers is how long a lease that ended is left to the app that heard its worker last, which alone knows whether
// the worker lives: what is stored of a living one may be half a minute old.
const leftToOthers = 2 * time.Second

// unheardHere ends a decision that asks whether a worker lives which another app may hear.
type unheardHere struct{ process store.Process }

func (e *unheardHere) Error() string {
	return "worker " + e.process.Worker.ID + " is not heard here"
}

// Lapse makes a change that may end a lease, and that has to say whether its worker died. An app that does not hear the
// worker leaves the matter to the one that does. If that one does not act in time, it is gone or is paused. Then what
// is stored counts: a worker that lives has gone to yet another app by the end of its lease.
func (ws *Workers) Lapse(ctx context.Context, d store.Due, step func(engine.Heard) store.Change) error {
	_, err := ws.store.Commit(ctx, step(func(ns string, l engine.Lease) (bool, error) {
		if lives := ws.heardSince(ns, l); lives || !ws.opt.Shared {
			return lives, nil
		}
		return false, &unheardHere{
			store.Process{Worker: engine.WorkerKey{Namespace: ns, ID: l.Owner}, Incarnation: l.Incarnation},
		}
	}))
	if done, err := ws.judgeEnded(ctx, err); done {
		return err
	}
	var who *unheardHere
	if !errors.As(err, &who) {
		return err
	}
	w, err := ws.storedWorker(ctx, who.process.Worker)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	now, err := ws.store.Now(ctx)
	if err != nil {
		return err
	}
	known := w.Incarnation == who.process.Incarnation
	if known && w.HeardBy != ws.opt.App && now.Before(d.At.Add(leftToOthers)) {
		return nil // it is still due, and looked at again soon
	}
	_, err = ws.store.Commit(ctx, step(func(ns string, l engine.Lease) (bool, error) {
		return ws.heardSince(ns, l) || known && now.Sub(w.HeartbeatAt.Time) <= ws.lately(l), nil
	}))
	if done, err := ws.judgeEnded(ctx, err); done {
		return err
	}
	return err
}

// heardSince says whether this app heard the process of a lease recently enough for it to be alive.
func (ws *Workers) heardSince(namespace string, l engine.Lease) (lives bool) {
	ws.With(engine.WorkerKey{Namespace: namespace, ID: l.Owner}, func(h *Heard) {
		lives = h.Worker.Incarnation == l.Incarnation && !h.At.IsZero() && time.Since(h.At) <= ws.lately(l)
	})
	return lives
}

// lately is the second half of a lease that ends now. A worker that renews does so several times in a lease. So
// a worker that died after its last renewal was not heard in the second half; one that was heard then lives,
// and let the lease end.
func (ws *Workers) lately(l engine.Lease) time.Duration {
	return min(ws.opt.Alive, time.Duration(l.Length)*time.Microsecond/2)
}
