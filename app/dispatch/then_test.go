package dispatch

import (
	"testing"
	"time"
)

// The worker that sent an eager workflow task has priority over waiting polls for the next activity of this run only,
// and only if it has a free slot, may run the activity, and no older task is ready.
func TestNextActivityOfAnEagerTaskGoesToItsWorker(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		line := waitFor(t.Context(), d.Enter(spec(worker("line"), 1, oneActivity)), time.Minute)
		mine := waitFor(t.Context(), d.Enter(spec(worker("mine"), 1, oneWorkflow)), time.Minute)
		rested() // from now on both workers know that their queues are empty
		s := spec(worker("mine"), 1, oneActivity)
		s.Run = "run"
		own := d.Enter(s)
		goes := func(what, want string, change func()) {
			t.Helper()
			if change != nil {
				change()
			}
			o := activity("any")
			o.Run = "run"
			if what == "another run" {
				o.Run = "other"
			}
			o.Fair = what == "classes share the queue"
			r := d.Reserve(o)
			got := "nobody"
			if r != nil {
				got = r.Lessee().Worker.ID
				r.Undo()
			}
			if got != want {
				t.Errorf("%s: offered to %s, want %s", what, got, want)
			}
		}
		goes("an older task may be there", "line", nil)
		claims := b.sent()
		ask := spec(worker("mine"), 1, oneActivity)
		waitFor(t.Context(), d.Enter(ask), 0) // this poll finds the queue empty for this worker
		rested()
		if b.sent() == claims {
			t.Fatal("nothing was claimed for the worker")
		}
		goes("its own run", "mine", nil)
		goes("another run", "line", nil)
		goes("classes share the queue", "line", nil)
		task := activity("any")
		task.Run = "run"
		mustReserve(t, d, task).Deliver(lease(task, 0))
		goes("its slot is taken", "line", nil)
		if got := names(own.Collect(t.Context())); len(got) != 1 {
			t.Errorf("the poll got %v", got)
		}
		goes("it has left", "line", nil)
		d.Drain()
		<-line
		<-mine
		if d := d.Enter(s); len(d.Collect(t.Context())) > 0 {
			t.Error("a draining app gives tasks")
		}
		if len(d.runWaiters) > 0 {
			t.Errorf("%d runs are remembered", len(d.runWaiters))
		}
	})
}
