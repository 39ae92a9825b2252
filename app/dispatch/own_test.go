package dispatch

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

var oneOfEach = map[protocol.TaskKind]int{protocol.KindWorkflow: 1, protocol.KindActivity: 1}

// The poll that is sent with the outcome which creates a task may get the task before older tasks, if the store permits
// it, no more urgent task may be ready, and no other worker has the run in its sticky cache.
func TestTaskOvertakesOlderOnesToItsCreator(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		var keepers []store.Process
		d.Prefer(func(string) []store.Process { return keepers })
		w := worker("w", "x", "other")
		s := spec(w, 1, oneOfEach)
		waitFor(t.Context(), d.Enter(s), 0)
		rested() // from now on the queue is known to be empty
		claims := b.sent()
		s.Own = []Own{{"run", protocol.KindActivity}}
		own := d.Enter(s)
		older := activity("other")
		left := func(priority int) {
			d.Backlog(older.Namespace, older.Queue, older.Kind, store.RoutingKey{Type: older.Type, Priority: priority})
			rested()
		}
		goes := func(what string, want bool, change func(*store.Offer)) {
			t.Helper()
			o := activity("x")
			o.Run, o.MayOvertake, o.Priority = "run", true, 5
			if change != nil {
				change(&o)
			}
			r := d.Reserve(o)
			if (r != nil) != want || r != nil && !r.Overtakes() {
				t.Errorf("%s: %v, want %v", what, r, want)
			}
			if r != nil {
				r.Undo()
			}
		}
		r := mustReserve(t, d, activity("x"))
		if r.Overtakes() {
			t.Error("a task was delivered before older tasks")
		}
		r.Undo()
		left(5)
		goes("an older task lies there", true, nil)
		goes("it was past others too often", false, func(o *store.Offer) { o.MayOvertake = false })
		goes("another run", false, func(o *store.Offer) { o.Run = "other" })
		goes("the worker may not have it", false, func(o *store.Offer) { o.Requirements = []string{"gpu"} })
		left(6)
		goes("what lies there is less urgent", true, nil)
		goes("what lies there is more urgent", false, func(o *store.Offer) { o.Priority = 6 })
		left(4)
		goes("something more urgent lies there", false, nil)
		goes("it is as urgent", true, func(o *store.Offer) { o.Priority = 4 })
		flow := func(o *store.Offer) { o.Kind = protocol.KindWorkflow }
		d.Backlog(older.Namespace, older.Queue, protocol.KindWorkflow, store.RoutingKey{Type: older.Type, Priority: 5})
		goes("nobody keeps the run", true, flow)
		keepers = []store.Process{process(worker("another"))}
		goes("another keeps the run", false, flow)
		keepers = append(keepers, process(w))
		goes("it keeps the run, too", true, flow)
		d.Backlog(older.Namespace, older.Queue, older.Kind) // without routing keys
		goes("anything may lie there", false, nil)
		if b.sent() != claims {
			t.Error("the slot of its own task was claimed")
		}
		own.Close()
		goes("it has left", false, nil)
		if len(d.runWaiters) > 0 {
			t.Errorf("%d runs are remembered", len(d.runWaiters))
		}
	})
}

// A poll also reports outcomes. If these create no next task for the worker, the poll leases ready tasks once, and ends
// if there are none. Slots that the next tasks do not need are filled immediately.
func TestWorkerWithoutNewTasksReceivesTheBacklog(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		w := worker("w", "x")
		s := spec(w, 1, oneOfEach)
		waitFor(t.Context(), d.Enter(s), 0)
		rested()
		s.Own = []Own{{"run", protocol.KindWorkflow}}
		b.addReady(activity("x"))
		before := b.sent()
		one := d.Enter(s)
		rested()
		if b.sent() != before {
			t.Fatal("the slot of its own task was claimed")
		}
		if got := names(one.Collect(t.Context())); len(got) != 1 {
			t.Errorf("the poll got %v, want the waiting task", got)
		}
		began := time.Now()
		if got := d.Enter(s).Collect(t.Context()); len(got) > 0 || time.Since(began) > 2*b.took {
			t.Errorf("the poll got %v after %s", got, time.Since(began))
		}

		b.addReady(activity("x"), activity("x"), activity("x"))
		many := spec(w, 4, map[protocol.TaskKind]int{protocol.KindWorkflow: 1, protocol.KindActivity: 3})
		many.Own = s.Own
		before = b.sent()
		three := d.Enter(many)
		rested()
		if b.sent() == before {
			t.Error("the slots that its own task does not need were not claimed")
		}
		if got := names(three.Collect(t.Context())); len(got) != 3 {
			t.Errorf("the poll got %v, want three", got)
		}

		b.addReady(activity("x"))
		none := spec(w, 1, oneActivity)
		none.Own = s.Own
		before = b.sent()
		only := d.Enter(none)
		rested()
		if b.sent() == before {
			t.Error("the only slot, which its own task does not need, was not claimed")
		}
		if got := names(only.Collect(t.Context())); len(got) != 1 {
			t.Errorf("the poll got %v, want one", got)
		}
	})
}

// If fairness classes share a queue, no task may be dispatched before an older one, so claims need not reserve a slot
// for own tasks.
func TestNoSlotIsKeptWhereClassesShareAQueue(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		s := spec(worker("w", "x"), 1, oneActivity)
		waitFor(t.Context(), d.Enter(s), 0)
		rested()
		o := activity("x")
		o.Fair = true
		if r := d.Reserve(o); r != nil {
			t.Fatal("a task was delivered to an ended poll")
		}
		b.addReady(activity("x"))
		s.Own = []Own{{"run", protocol.KindActivity}}
		w := d.Enter(s)
		rested()
		if b.sent() != 2 {
			t.Error("no claim was sent for the poll")
		}
		if got := names(w.Collect(t.Context())); len(got) != 1 {
			t.Errorf("the poll got %v", got)
		}
	})
}
