package sessiontest

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A task of an implicit session waits in a queue that the session's owner does not poll. The wait reason of the task
// reports this at once, and the session moves when it has been idle for 10 s and a live worker polls that queue. A
// session with a task in its owner's queue does not move.
func TestASessionMovesToTheQueueOfItsTasks(t *testing.T) {
	serving := func(queues ...string) func(*worker.Options) {
		return func(o *worker.Options) { byDefault(o); o.Queues = queues }
	}
	at := func(ctx workflow.Context, session, queue, item string, millis int) workflow.Future {
		return begin(workflow.WithActivity(ctx, workflow.ActivityOptions{Queue: queue}), session, item, millis)
	}
	setup := func(h *harness) {
		h.flow("across", func(ctx workflow.Context, session string) (by []string, err error) {
			for _, queue := range []string{"default", "other"} {
				w, err := workflow.Await[string](ctx, at(ctx, session, queue, session+" in "+queue, 10))
				if err != nil {
					return nil, err
				}
				by = append(by, w)
			}
			return by, nil
		})
		h.flow("both", func(ctx workflow.Context, session string) error {
			one, other := at(ctx, session, "default", "one", 20_000), at(ctx, session, "other", "another", 10)
			if err := one.Get(ctx, nil); err != nil {
				return err
			}
			return other.Get(ctx, nil)
		})
		h.flow("one", one)
	}
	bubble(t, "when it is idle", func(h *harness) {
		setup(h)
		h.start("A", serving("default"))
		run := h.begin("across", "s")
		h.done("s in default")
		h.wait(sec)
		w := h.waitOf(run)
		h.equal("it waits", w.Reason, protocol.WaitSessionOtherQueue)
		h.equal("it needs attention", w.Attention, true)
		h.equal("its sentence", w.Message,
			`activity "work": session s is held by worker A, which polls default but not queue "other"`)
		h.wait(time.Minute)
		h.allHeld("A", "s") // no worker serves the other queue
		began := h.at()
		h.start("B", serving("other"))
		output[[]string](h, run)
		did := h.once("s in other")
		h.between("it began", did.from, began, began+12*sec)
		h.equal("by", did.worker, "B")
		if before := h.once("s in default").session.Epoch; did.session.Epoch <= before {
			h.t.Errorf("epoch %d after %d", did.session.Epoch, before)
		}
		moved := false
		for _, e := range h.entries("s") {
			moved = moved || e.What == "released" && e.Why == "other_queue: a task waits in queue other" && e.Worker == "A"
		}
		if !moved {
			h.t.Errorf("its timeline: %+v", h.entries("s"))
		}
	})
	bubble(t, "10 s after its last activity", func(h *harness) {
		setup(h)
		h.start("A", serving("default"))
		h.start("B", serving("other"))
		run := h.begin("across", "s")
		h.done("s in default")
		for range 3 { // use the session
			h.wait(6 * sec)
			output[string](h, h.begin("one", "s", "use", 10))
		}
		h.equal("runs in the other queue while the session is in use", len(h.did("s in other")), 0)
		used := h.at()
		output[[]string](h, run)
		h.between("it began", h.once("s in other").from, used+9*sec, used+13*sec)
	})
	bubble(t, "when both tasks were ready before it was acquired", func(h *harness) {
		setup(h)
		h.start("A", serving("default"))
		h.start("B", serving("other"))
		run := h.begin("both", "s")
		h.finish(run)
		first, second := h.once("one"), h.once("another")
		if second.from < first.from {
			first, second = second, first
		}
		h.between("the second began", second.from, first.to+9*sec, first.to+13*sec)
		h.equal("open", h.types(run)[len(h.types(run))-1], "WorkflowCompleted")
	})
	bubble(t, "not while a task waits in the holder's queue", func(h *harness) {
		setup(h)
		a := h.start("A", serving("default"), slots(1))
		h.start("B", serving("other"))
		run := h.begin("across", "s")
		h.done("s in default")
		busy := h.begin("one", "", "busy", 40_000) // an activity that occupies the only slot of A
		h.running("busy")
		own := h.begin("one", "s", "own", 10) // waits for A
		ended := h.done("busy").to
		output[string](h, own)
		h.equal("by", h.once("own").worker, a.name)
		h.finish(busy)
		output[[]string](h, run)
		h.between("the session moved", h.once("s in other").from, ended+9*sec, ended+14*sec)
	})
}
