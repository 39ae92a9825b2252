package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/presence"
	"github.com/sojourn-run/sojourn/app/store"
)

// The sweeper names what is due, and this moves it. Several apps may sweep at once, and a notice may be old, so
// each decision looks at the time again; the harder question, whether the worker of a lease is dead, is left to
// the app that hears it.

// Due moves one due thing forward in time. Its decision looks again whether the time has come, so that several sweepers
// at the same work do no harm.
func (b *Broker) Due(ctx context.Context, d store.Due) error {
	var err error
	switch d.Kind {
	case store.DueRun:
		err = b.lapse(ctx, d, func(h engine.Heard) store.Change {
			needs := store.Keys{Runs: []string{d.Run}, AllTasks: true, Chain: true, Bound: true}
			return change.Step("", d.Run, needs, engine.Due{
				Heard: h,
			})
		})
	case store.DueActivity:
		err = b.lapse(ctx, d, func(h engine.Heard) store.Change {
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
	if engine.IsNotDue(err) || engine.IsClosed(err) {
		return nil
	}
	return err
}

// leftToOthers is how long a lease that ended is left to the app that heard its worker last, which alone knows whether
// the worker lives: what is stored of a living one may be half a minute old.
const leftToOthers = 2 * time.Second

// unheardHere ends a decision that asks whether a worker lives which another app may hear.
type unheardHere struct{ process store.Process }

func (e *unheardHere) Error() string {
	return "worker " + e.process.Worker.ID + " is not heard here"
}

// lapse makes a change that may end a lease, and that has to say whether its worker died. An app that does not
// hear the worker leaves the matter to the one that does. If that one does not act in time, it is gone or
// stands still. Then what is stored counts: a worker that lives has gone to yet another app by the end of its
// lease.
func (b *Broker) lapse(ctx context.Context, d store.Due, step func(engine.Heard) store.Change) error {
	_, err := b.store.Commit(ctx, step(func(ns string, l engine.Lease) (bool, error) {
		if lives := b.heardSince(ns, l); lives || !b.opt.Shared {
			return lives, nil
		}
		return false, &unheardHere{
			store.Process{Worker: engine.WorkerKey{Namespace: ns, ID: l.Owner}, Incarnation: l.Incarnation},
		}
	}))
	var who *unheardHere
	if !errors.As(err, &who) {
		return err
	}
	w, err := b.storedWorker(ctx, who.process.Worker)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return err
	}
	known := w.Incarnation == who.process.Incarnation
	if known && w.HeardBy != b.opt.App && now.Before(d.At.Add(leftToOthers)) {
		return nil // it is still due, and looked at again soon
	}
	_, err = b.store.Commit(ctx, step(func(ns string, l engine.Lease) (bool, error) {
		return b.heardSince(ns, l) || known && now.Sub(w.HeartbeatAt.Time) <= b.lately(l), nil
	}))
	return err
}

// heardSince says whether this app heard the process of a lease recently enough for it to be alive.
func (b *Broker) heardSince(namespace string, l engine.Lease) (lives bool) {
	b.workers.With(engine.WorkerKey{Namespace: namespace, ID: l.Owner}, func(h *presence.Heard) {
		lives = h.Worker.Incarnation == l.Incarnation && !h.At.IsZero() && time.Since(h.At) <= b.lately(l)
	})
	return lives
}

// lately is the second half of a lease that ends now. A worker that renews does so several times in a lease. So
// a worker that died after its last renewal was not heard in the second half; one that was heard then lives,
// and let the lease end.
func (b *Broker) lately(l engine.Lease) time.Duration {
	return min(b.opt.Alive, time.Duration(l.Length)*time.Microsecond/2)
}

// CleanUp removes sessions that ended or lapsed and have no work. Those that got some work meanwhile stay.
func (b *Broker) CleanUp(ctx context.Context, keys []engine.SessionKey) error {
	removed := 0
	defer func() {
		if removed > 0 {
			b.log.Info().Int("sessions", removed).Msg("sessions cleaned up")
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
