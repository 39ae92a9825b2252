package sqldb

import (
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// The first task of a session determines its owner. Two apps may choose at the same time, each for its own worker, and
// another app may already have filled the worker's maximum of sessions. Therefore the owner is chosen as in a claim:
// with the worker's row locked and its sessions counted.

// sessionAssignment contains the workers that acquire sessions in one dispatch: their rows, locked on a shared
// database; nil for workers that acquire no session here.
type sessionAssignment struct {
	rows      map[engine.WorkerKey]*engine.Worker
	exhausted bool // a worker was refused and would be reserved again and again, so claims dispatch the remaining tasks
}

// reserve finds a poll for a task. A session without an owner is acquired with its first task, in the batch that
// creates the task, so that neither is written twice. The worker's sessions are counted as in a claim. If the worker
// must not run the task, its poll returns to the queue, and a claim dispatches the task.
func (b *batch) reserve(o store.Offer, f *sessionAssignment) (store.Reservation, engine.Lessee, error) {
	// A claim compares the room of all workers that poll, which matters for a session that needs resources.
	o.AcquiresSession = o.Session != nil && !o.Session.Held(b.now) && !f.exhausted && len(o.Session.Resources) == 0
	res := b.s.cfg.Dispatch.Reserve(o)
	if res == nil {
		return nil, engine.Lessee{}, nil
	}
	l := res.Lessee()
	// The worker's polls end with this batch, or it runs an isolated task. A claim dispatches the task to another
	// worker.
	if b.deregisters(l.Worker) || b.isolates(processOf(l.Worker)) {
		res.Undo()
		return nil, engine.Lessee{}, nil
	}
	if !o.AcquiresSession {
		return res, l, nil
	}
	w, err := b.countedWorker(l.Worker, f)
	if err == nil && w != nil && w.Incarnation == l.Worker.Incarnation && w.DeregisteredAt.IsZero() {
		l.Worker, l.Sessions, l.Counted = w, b.Holding(w.Key(), o.Session.Key(), b.now), true
		l.Used = b.Used(w, b.now)
		if engine.AdmitSession(o.Session, l, b.now, false).OK {
			return res, l, nil
		}
	}
	f.exhausted = true
	res.Undo()
	return nil, engine.Lessee{}, err
}

// deregisters reports whether the registration of this process ends with this batch.
func (b *batch) deregisters(w *engine.Worker) bool {
	return len(b.deregistered) > 0 &&
		slices.Contains(b.deregistered, store.Process{Worker: w.Key(), Incarnation: w.Incarnation})
}

// countedWorker returns a worker's row with its held sessions loaded, or nil if the row does not exist or is locked.
func (b *batch) countedWorker(w *engine.Worker, f *sessionAssignment) (*engine.Worker, error) {
	k := w.Key()
	if row, ok := f.rows[k]; ok {
		return row, nil
	}
	if f.rows == nil {
		f.rows = map[engine.WorkerKey]*engine.Worker{}
	}
	f.rows[k] = nil
	key := map[engine.WorkerKey]bool{k: true}
	var calls []*db.Call
	if b.s.cfg.Dialect.Shared {
		keys := db.NewRowset(record.Workers.Key())
		keys.S(k.Namespace).S(k.ID)
		calls = b.fetch(b.s.st.workers, keys, func(v []any) error {
			row, err := record.ReadWorker(v)
			f.rows[k] = &row
			return err
		}, func([]any) {}) // a claim will find out when it is no longer locked
	} else {
		calls = b.loadWorkers(key)
	}
	if err := b.send(append(calls, b.loadHeldSessions(key)...)...); err != nil {
		return nil, err
	}
	if !b.s.cfg.Dialect.Shared {
		f.rows[k] = b.workers[k].Worker
	}
	return f.rows[k], nil
}
