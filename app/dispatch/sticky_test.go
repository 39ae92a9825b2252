package dispatch

import (
	"errors"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

var oneWorkflow = map[protocol.TaskKind]int{protocol.KindWorkflow: 1}

func process(w *engine.Worker) store.Process {
	return store.Process{Worker: w.Key(), Incarnation: w.Incarnation}
}

func TestWorkflowTaskPrefersTheStickyWorker(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		var keepers []store.Process
		d.Prefer(func(run string) []store.Process {
			if run != "run" {
				return nil
			}
			return keepers
		})
		first := waitFor(
			t.Context(), d.Enter(spec(worker("a", "run", "other", "older", "younger"), 1, oneWorkflow)), time.Minute,
		)
		second := waitFor(
			t.Context(), d.Enter(spec(worker("b", "run", "other", "older", "younger"), 1, oneWorkflow)), time.Minute,
		)
		third := waitFor(
			t.Context(), d.Enter(spec(worker("c", "run", "other", "older", "younger"), 1, oneWorkflow)), time.Minute,
		)
		rested()
		of := func(run string) store.Offer { o := workflow(run); o.Run = run; return o }
		// goes checks which worker's poll a task is reserved for, and undoes the reservation.
		goes := func(what string, o store.Offer, want string) {
			t.Helper()
			r := mustReserve(t, d, o)
			if got := r.Lessee().Worker.ID; got != want {
				t.Errorf("%s: offered to %s, want %s", what, got, want)
			}
			r.Undo()
		}
		gone := process(worker("b", "run", "other", "older", "younger"))
		gone.Incarnation = "an older process"
		foreign := process(worker("nobody", "run", "other", "older", "younger"))

		goes("nobody keeps it", of("run"), "a")
		keepers = []store.Process{foreign, gone}
		goes("who kept it is gone", of("run"), "a")
		keepers = []store.Process{
			foreign, process(worker("c", "run", "other", "older", "younger")),
			process(worker("b", "run", "other", "older", "younger")),
		}
		goes("two keep it", of("run"), "c")
		goes("another run", of("other"), "a")
		if o := activity("x"); d.Reserve(o) != nil {
			t.Error("an activity was offered to a poll for workflow tasks")
		}

		taken := mustReserve(t, d, of("run"))
		goes("the best keeper is taken", of("run"), "b")
		taken.Deliver(lease(of("run"), 0))
		wantTasks(t, third, "run")
		r := mustReserve(t, d, of("run"))
		r.Deliver(lease(of("run"), 0))
		wantTasks(t, second, "run")
		goes("no keeper waits", of("run"), "a")
		mustReserve(t, d, of("run")).Deliver(lease(of("run"), 0))
		wantTasks(t, first, "run")
	})
}

// Older tasks come first: a sticky worker gets no new task while an older one for it may be ready.
func TestStickyWorkerDoesNotOvertakeAnOlderTask(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		keeper := worker("keeper", "run", "other", "older", "younger")
		d.Prefer(func(string) []store.Process { return []store.Process{process(keeper)} })
		got := waitFor(t.Context(), d.Enter(spec(keeper, 1, oneWorkflow)), time.Minute)
		rested()
		b.mu.Lock()
		b.ready = append(b.ready, workflow("older"))
		b.fail, b.took = errors.New("the store is away"), time.Millisecond
		b.mu.Unlock()
		d.Backlog("default", "q", protocol.KindWorkflow)
		rested()
		if d.Reserve(workflow("younger")) != nil {
			t.Fatal("a younger task was delivered")
		}
		b.set(nil, time.Millisecond)
		wantTasks(t, got, "older")
	})
}
