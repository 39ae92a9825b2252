package sessiontest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// plainly leaves a worker the settings that it has when nobody says anything; the cap of ten sessions is what the house
// gives it, as the binary does.
func plainly(o *worker.Options) { byDefault(o) }

// fill has ten conversations begin and rest at who may have them.
func (h *harness) fill() {
	h.t.Helper()
	for i := range 10 {
		id := fmt.Sprintf("s%d", i)
		output[string](h, h.begin("one", id, id, 10))
	}
}

// last is the newest entry of a session's timeline.
func (h *harness) last(id string) store.TimelineEntry {
	h.t.Helper()
	all := h.entries(id)
	if len(all) == 0 {
		h.t.Fatalf("nothing happened to %s", id)
	}
	return all[len(all)-1]
}

// allHeld checks that none of these sessions gave way.
func (h *harness) allHeld(by string, ids ...string) {
	h.t.Helper()
	for _, id := range ids {
		if got := h.owner(id); got != by {
			h.t.Errorf("%s is held by %q, want %s: %+v", id, got, by, h.last(id))
		}
	}
}

// At its cap a worker gives up the mere id that has been idle for longest when another session waits. All settings are
// the defaults.
func TestASessionThatIsIdleGivesWay(t *testing.T) {
	bubble(t, "the eleventh conversation", func(h *harness) {
		h.flow("one", one)
		h.start("A", plainly)
		h.fill()
		tenth := h.at()
		first := h.did("s0")[0].to
		run := h.begin("one", "s10", "s10", 10)
		h.equal("by", output[string](h, run), "A")
		h.between("it began", h.once("s10").from, first+10*sec, tenth+12*sec)
		gave := h.last("s0")
		if gave.What != "released" || gave.Why != "evicted_cap" || gave.By != "A" || gave.Worker != "A" {
			h.t.Errorf("s0, idle for longest, says %+v, want that A was told and released it", gave.SessionEvent)
		}
		h.allHeld("A", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10")

		// Others that wait have theirs one after the other.
		began := h.at()
		runs := []string{h.begin("one", "s11", "s11", 10), h.begin("one", "s12", "s12", 10), h.begin("one", "s0", "s0", 10)}
		for _, run := range runs {
			output[string](h, run)
		}
		h.between("the last of three", h.at()-began, sec, 5*sec)
		if again := h.last("s0"); again.What != "reclaimed" || !strings.HasPrefix(again.Why, "evicted_cap ") {
			h.t.Errorf("s0 says %+v, want that it was wanted again", again.SessionEvent)
		}
	})

	bubble(t, "a worker with room has it", func(h *harness) {
		h.flow("one", one)
		h.start("A", plainly)
		h.fill()
		h.wait(30 * sec)
		h.start("B", plainly, slots(1))
		busy := h.begin("one", "", "busy", 60_000) // whoever has it
		h.running("busy")
		began := h.at()
		run := h.begin("one", "s10", "s10", 10)
		h.equal("by", output[string](h, run), "B")
		h.between("it began", h.once("s10").from, began, began+60*sec)
		h.finish(busy)
		h.allHeld("A", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9")
	})

	bubble(t, "what never gives way", func(h *harness) {
		h.flow("one", one)
		h.flow("relay", relay)
		h.flow("optioned", func(ctx workflow.Context) (string, error) {
			ctx = workflow.WithActivity(
				ctx, workflow.ActivityOptions{WorkerSession: &workflow.WorkerSession{ID: "optioned", Lease: time.Hour}},
			)
			return workflow.Execute[string](ctx, "work", "optioned", 10)
		})
		h.start("A", byDefault, most(4))
		h.begin("relay", "own", []string{"mine", "later"}, 10)
		h.done("mine")
		output[string](h, h.begin("optioned"))
		h.begin("one", "busy", "busy", 100_000)
		h.running("busy")
		output[string](h, h.begin("one", "idle", "i1", 10))
		h.wait(8 * sec)
		output[string](h, h.begin("one", "idle", "i2", 10)) // idle for 8 s, and not any more
		used := h.at()
		run := h.begin("one", "new", "new", 10)
		output[string](h, run)
		h.between("the new one began", h.once("new").from, used+9900*ms, used+12*sec)
		h.equal("gave way", h.last("idle").Why, "evicted_cap")

		second := h.begin("one", "newer", "newer", 10)
		h.wait(5 * sec)
		output[string](h, h.begin("one", "new", "again", 10)) // a running one is not idle when it ends, either
		h.finish(second)
		h.between("the newer one began", h.once("newer").from, h.once("again").to+9900*ms, h.once("again").to+12*sec)

		h.begin("one", "newer", "long", 200_000)
		h.running("long")
		third := h.begin("one", "third", "third", 10)
		ended := h.done("busy").to
		h.finish(third)
		h.between("the third began", h.once("third").from, ended+9900*ms, ended+12*sec)
		own := h.inSession(h.once("mine").session.ID)
		h.allHeld("A", "optioned", "newer", own[0].session.ID)
	})

	bubble(t, "a holder that cannot be told", func(h *harness) {
		slots, one := 4, 1
		_, err := h.Register(h.t.Context(), protocol.RegisterRequest{
			WorkerID: "X", TaskQueues: []string{"default"}, WorkflowTypes: []string{"one"}, ActivityTypes: []string{"work"},
			Capabilities: []string{broker.CapSessions}, WorkflowSlots: &slots, ActivitySlots: &slots, MaxSessions: &one,
		})
		if err != nil {
			h.t.Fatal(err)
		}
		poll := func(kind protocol.TaskKind) protocol.Task {
			h.t.Helper()
			seconds := int64(50)
			a, err := h.Poll(
				h.t.Context(), protocol.PollRequest{WorkerID: "X", Kinds: []protocol.TaskKind{kind}, Timeout: &seconds},
			)
			if err != nil || len(a.Tasks) != 1 {
				h.t.Fatal(err, a)
			}
			return a.Tasks[0]
		}
		complete := func(item protocol.CompleteItem) {
			h.t.Helper()
			item.Owner = "X"
			out, err := h.Complete(h.t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{item}})
			if err != nil || out.Items[0].Err != nil {
				h.t.Fatal(err, out)
			}
		}
		converse := func(id string) time.Duration {
			h.t.Helper()
			h.begin("one", id)
			f := poll(protocol.KindWorkflow).Workflow
			complete(protocol.CompleteItem{
				Kind: protocol.KindWorkflow, TaskID: f.TaskID, Attempt: f.Attempt,
				Commands: []protocol.Command{
					{Type: protocol.ScheduleActivity, ActivityType: "work", SessionID: id},
				},
			})
			a := poll(protocol.KindActivity).Activity
			at := h.at()
			complete(protocol.CompleteItem{Kind: protocol.KindActivity, TaskID: a.TaskID, AttemptID: a.AttemptID})
			return at
		}
		first := converse("one")
		h.between("the second", converse("two"), first+10*sec, first+12*sec)
		if gave := h.last("one"); gave.Why != "evicted_cap" || gave.By != "" {
			h.t.Errorf("it says %+v", gave.SessionEvent)
		}
	})
}
