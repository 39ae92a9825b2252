package sqldb

import (
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// The first task of a session determines its holder. Two apps may choose at the same time, each for its own worker, and
// another app may already have filled the worker's session limit. The holder is therefore chosen as in a claim: with
// the worker's row locked and its sessions counted.

// firsts is what one hand-over knows of workers that claim sessions with it: their rows, locked on a shared database,
// nil for those that get no session here.
type firsts struct {
	rows map[engine.WorkerKey]*engine.Worker
	over bool // a worker was refused, and would be reserved again and again: the rest is left to claims
}

// reserve finds a poller for a task, and says who it is. A session that nobody holds is claimed with its first
// task, in the batch that makes the task, so that neither is written twice. What the worker holds is counted as
// a claim counts it. A poller that may not have the task goes back to its place, and a claim decides.
func (b *batch) reserve(o store.Offer, f *firsts) (store.Reservation, engine.Lessee, error) {
	o.First = o.Session != nil && !o.Session.Held(b.now) && !f.over
	res := b.s.cfg.Dispatch.Reserve(o)
	if res == nil {
		return nil, engine.Lessee{}, nil
	}
	l := res.Lessee()
	// Its polls end with this batch, or it receives nothing else; who else waits finds the task by a claim.
	if b.leaves(l.Worker) || b.isolates(processOf(l.Worker)) {
		res.Undo()
		return nil, engine.Lessee{}, nil
	}
	if !o.First {
		return res, l, nil
	}
	w, err := b.counted(l.Worker, f)
	if err == nil && w != nil && w.Incarnation == l.Worker.Incarnation && w.Left.IsZero() {
		l.Worker, l.Sessions, l.Counted = w, b.Holding(w.Key(), o.Session.Key(), b.now), true
		if engine.AdmitSession(o.Session, l, b.now, false).OK {
			return res, l, nil
		}
	}
	f.over = true
	res.Undo()
	return nil, engine.Lessee{}, err
}

// leaves says whether the registration of this process ends with this batch.
func (b *batch) leaves(w *engine.Worker) bool {
	return len(b.gone) > 0 && slices.Contains(b.gone, store.Process{Worker: w.Key(), Incarnation: w.Incarnation})
}

// counted is a worker's row with the sessions it holds loaded, nil when there is none or somebody else has it locked.
func (b *batch) counted(w *engine.Worker, f *firsts) (*engine.Worker, error) {
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
		}, func([]any) {}) // a claim finds out when it can be had
	} else {
		calls = b.loadWorkers(key)
	}
	if err := b.send(append(calls, b.loadHoldings(key)...)...); err != nil {
		return nil, err
	}
	if !b.s.cfg.Dialect.Shared {
		f.rows[k] = b.workers[k].Worker
	}
	return f.rows[k], nil
}
