package dispatch

import (
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// Reserve picks the longest-waiting poller that may have the task. A task of a session is handed only to the process that holds the session: first
// claims are counted, which only a claim does. The poller it would be gets nothing while older ready tasks may lie in the queue for it; the store then
// tells Backlog, and a claim takes them in their order.
func (d *Dispatch) Reserve(o store.Offer) store.Reservation {
	k := kindOf(o.Kind)
	if k < 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lines[lineKey{o.Namespace, o.Queue, k}]
	if l == nil || d.closed {
		return nil
	}
	want := engine.Wanted{Kind: o.Kind, Type: o.Type, BuildID: o.BuildID, Requirements: o.Requirements, Session: o.Session, Queue: o.Settings}
	var refused *class // a worker often has many pollers in a row
	for e := l.first; e != nil; e = e.next {
		w := e.waiter
		if w.class == refused {
			continue
		}
		worker := w.spec.Lessee.Worker
		if s := o.Session; s != nil && (s.Incarnation != worker.Incarnation || !s.HeldBy(worker.ID, o.Now)) {
			continue
		}
		if !engine.Admit(want, w.spec.Lessee, o.Now).OK {
			refused = w.class
			continue
		}
		if !w.class.clear(l) {
			return nil
		}
		w.hold(k, 1)
		d.open()
		return &reservation{waiter: w, kind: k}
	}
	return nil
}

// reservation is one slot of a waiter, set aside until the outcome of a commit is known.
type reservation struct {
	waiter *Waiter
	kind   int
	over   bool
}

// Lessee is the worker the task goes to.
func (r *reservation) Lessee() engine.Lessee { return r.waiter.spec.Lessee }

// Deliver gives the committed task to the poller, or back when the poller is gone.
func (r *reservation) Deliver(t store.Leased) {
	w, d := r.waiter, r.waiter.d
	d.mu.Lock()
	defer d.mu.Unlock()
	r.finish()
	defer d.settle()
	if w.left {
		w.pending--
		d.giveBack([]store.Leased{t})
		return
	}
	d.count.Handovers++
	w.got = append(w.got, t)
	w.release(r.kind, 0)
}

// Undo puts the poller back at its old place.
func (r *reservation) Undo() {
	w, d := r.waiter, r.waiter.d
	d.mu.Lock()
	defer d.mu.Unlock()
	r.finish()
	defer d.settle()
	d.count.Undone++
	w.release(r.kind, 1)
	d.kick(w)
}

func (r *reservation) finish() {
	if r.over {
		panic("dispatch: a reservation was ended twice")
	}
	r.over = true
}
