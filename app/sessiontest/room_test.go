package sessiontest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// plainly sets a maximum of ten sessions and otherwise the default settings.
func plainly(o *worker.Options) {
	byDefault(o)
	o.Sessions.Max = 10
}

// own runs an item in a session that the workflow starts, and runs it again after each signal "go".
func own(ctx workflow.Context, item string, pinned bool) error {
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{Pinned: pinned})
	if err != nil {
		return err
	}
	for {
		if _, err := workflow.Await[string](ctx, s.Execute(ctx, "work", item, 10)); err != nil {
			return err
		}
		if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
			return err
		}
	}
}

// optioned runs an item in a session with this id and these options.
func optioned(ctx workflow.Context, id string, o workflow.WorkerSession) (string, error) {
	o.ID = id
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{WorkerSession: &o})
	return workflow.Execute[string](ctx, "work", id, 10)
}

// fill runs a step of ten conversations, whose sessions then are idle.
func (h *harness) fill() {
	h.t.Helper()
	for i := range 10 {
		id := fmt.Sprintf("s%d", i)
		output[string](h, h.begin("one", id, id, 10))
	}
}

// last returns the newest entry of a session's timeline.
func (h *harness) last(id string) store.TimelineEntry {
	h.t.Helper()
	all := h.entries(id)
	if len(all) == 0 {
		h.t.Fatalf("nothing happened to %s", id)
	}
	return all[len(all)-1]
}

// allHeld checks that none of these sessions was released.
func (h *harness) allHeld(by string, ids ...string) {
	h.t.Helper()
	for _, id := range ids {
		if got := h.owner(id); got != by {
			h.t.Errorf("%s is held by %q, want %s: %+v", id, got, by, h.last(id))
		}
	}
}

// At its cap a worker releases the session that has been idle for longest when another session waits. All settings but
// the cap are the defaults.
func TestIdleSessionIsEvicted(t *testing.T) {
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

		// Other waiting sessions get a place one after the other.
		began := h.at()
		runs := []string{h.begin("one", "s11", "s11", 10), h.begin("one", "s12", "s12", 10), h.begin("one", "s0", "s0", 10)}
		for _, run := range runs {
			output[string](h, run)
		}
		h.between("the last of three", h.at()-began, sec, 5*sec)
		if repeated := h.last("s0"); repeated.What != "reclaimed" || !strings.HasPrefix(repeated.Why, "evicted_cap ") {
			h.t.Errorf("the timeline of s0 ends with %+v, want the release for another session", repeated.SessionEvent)
		}
	})

	bubble(t, "a worker with room has it", func(h *harness) {
		h.flow("one", one)
		h.start("A", plainly)
		h.fill()
		h.wait(30 * sec)
		h.start("B", plainly, slots(1))
		busy := h.begin("one", "", "busy", 60_000) // an activity without a session, on any worker
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
		h.flow("own", own)
		h.flow("optioned", optioned)
		h.start("A", byDefault, most(4))
		h.begin("own", "mine", true)
		h.done("mine")
		output[string](h, h.begin("optioned", "optioned", workflow.WorkerSession{Lease: time.Hour, Pinned: true}))
		h.begin("one", "busy", "busy", 100_000)
		h.running("busy")
		output[string](h, h.begin("one", "idle", "i1", 10))
		h.wait(8 * sec)
		output[string](h, h.begin("one", "idle", "i2", 10)) // the session was idle for 8 s and is used again
		used := h.at()
		run := h.begin("one", "new", "new", 10)
		output[string](h, run)
		h.between("the new one began", h.once("new").from, used+9900*ms, used+12*sec)
		h.equal("gave way", h.last("idle").Why, "evicted_cap")

		second := h.begin("one", "newer", "newer", 10)
		h.wait(5 * sec)
		// The session of an activity that ran for long is not idle when the activity ends.
		output[string](h, h.begin("one", "new", "again", 10))
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
		x := byHand(h, 1)
		converse := func(id string) time.Duration {
			h.t.Helper()
			h.begin("one", id)
			x.decide(protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "work", SessionID: id})
			a := x.poll(protocol.KindActivity).Activity
			at := h.at()
			x.complete(protocol.CompleteItem{Kind: protocol.KindActivity, TaskID: a.TaskID, AttemptID: a.AttemptID})
			return at
		}
		first := converse("one")
		h.between("the second", converse("two"), first+10*sec, first+12*sec)
		if gave := h.last("one"); gave.Why != "evicted_cap" || gave.By != "" {
			h.t.Errorf("it says %+v", gave.SessionEvent)
		}

		// The stored time of the last activity is older than this activity. The exact time shows that the session is in
		// use.
		h.wait(9 * sec)
		converse("two")
		row, _ := h.row("two")
		release := func() error {
			_, err := h.ReleaseSession(h.t.Context(), protocol.SessionVerb{
				WorkerID: "X", SessionID: "two", Epoch: row.Epoch, Reason: "evicted_cap",
			})
			return err
		}
		if h.wait(9 * sec); protocol.ReasonOf(release()) != protocol.ReasonValidation {
			h.t.Error("the holder released the session 9 s after its last activity")
		}
		if h.wait(sec); release() != nil {
			h.t.Errorf("the holder could not release the session 10 s after its last activity: %v", release())
		}
	})
}

// handWorker is a worker of the HTTP contract, which receives no notices.
type handWorker struct{ h *harness }

// byHand registers worker X with the given maximum of sessions.
func byHand(h *harness, most int) *handWorker {
	h.t.Helper()
	slots := 4
	_, err := h.Register(h.t.Context(), protocol.RegisterRequest{
		WorkerID: "X", TaskQueues: []string{"default"}, WorkflowTypes: []string{"one"}, ActivityTypes: []string{"work"},
		Capabilities: []string{broker.CapSessions}, WorkflowSlots: &slots, ActivitySlots: &slots, MaxSessions: &most,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return &handWorker{h}
}

// poll polls until it receives a task of this kind.
func (x *handWorker) poll(kind protocol.TaskKind) protocol.Task {
	x.h.t.Helper()
	seconds := int64(50)
	for {
		a, err := x.h.Poll(
			x.h.t.Context(), protocol.PollRequest{WorkerID: "X", Kinds: []protocol.TaskKind{kind}, Timeout: &seconds},
		)
		if err != nil {
			x.h.t.Fatal(err)
		}
		if len(a.Tasks) == 1 {
			return a.Tasks[0]
		}
	}
}

func (x *handWorker) complete(item protocol.CompleteItem) {
	x.h.t.Helper()
	item.Owner = "X"
	out, err := x.h.Complete(x.h.t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{item}})
	if err != nil || out.Items[0].Err != nil {
		x.h.t.Fatal(err, out)
	}
}

// decide completes the next workflow task with a command.
func (x *handWorker) decide(c protocol.Command) {
	x.h.t.Helper()
	f := x.poll(protocol.KindWorkflow).Workflow
	x.complete(protocol.CompleteItem{
		Kind: protocol.KindWorkflow, TaskID: f.TaskID, Attempt: f.Attempt, Commands: []protocol.Command{c},
	})
}

// Sessions of every origin are evicted in the order of their last activity, and are acquired again by their next task.
// A session with NoReacquire is not evicted.
func TestSessionsOfEveryOriginAreEvicted(t *testing.T) {
	bubble(t, "to a holder that receives notices", func(h *harness) {
		h.flow("one", one)
		h.flow("own", own)
		h.flow("optioned", optioned)
		h.start("A", byDefault, most(4))
		output[string](h, h.begin("optioned", "last", workflow.WorkerSession{NoReacquire: true}))
		started := h.begin("own", "own", false)
		h.done("own")
		mine := h.once("own").session.ID
		h.wait(sec)
		output[string](h, h.begin("optioned", "device", workflow.WorkerSession{}))
		h.wait(sec)
		output[string](h, h.begin("one", "s", "s", 10))
		// The stored time of the last activity of the session that the workflow started is older than this activity.
		h.wait(sec)
		h.signal(started, "go")
		h.until("its second activity", 5*ms, func() bool { return len(h.did("own")) == 2 })
		h.wait(12 * sec)
		for i, want := range []string{"device", "s", mine} {
			id := fmt.Sprint("new", i)
			output[string](h, h.begin("one", id, id, 10))
			if gave := h.last(want); gave.What != "released" || gave.Why != "evicted_cap" || gave.By != "A" {
				h.t.Errorf("session %d to give way is %s: its timeline ends with %+v", i, want, gave.SessionEvent)
			}
			h.wait(ms)
		}
		h.allHeld("A", "last", "new0", "new1", "new2")
		h.wait(12 * sec)
		h.signal(started, "go")
		h.until("the started session is acquired again", 5*ms, func() bool { return len(h.did("own")) == 3 })
		if second := h.did("own")[2]; second.session.ID != mine || second.session.Epoch <= h.did("own")[0].session.Epoch {
			h.t.Errorf("its third activity ran in %+v", second.session)
		}
	})

	bubble(t, "to a holder without notices, when their leases end", func(h *harness) {
		x := byHand(h, 1)
		began := h.at()
		h.begin("one")
		x.decide(protocol.Command{
			Type: protocol.ScheduleActivity, ActivityType: "work", WorkerSession: &protocol.SessionOptions{SessionID: "device"},
		})
		first := x.poll(protocol.KindActivity).Activity
		x.complete(protocol.CompleteItem{Kind: protocol.KindActivity, TaskID: first.TaskID, AttemptID: first.AttemptID})
		held, _ := h.row("device")
		x.poll(protocol.KindWorkflow) // the next task of the first run, which this test leaves open
		h.begin("one")
		x.decide(protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "work", SessionID: "waits"})
		renew := func() engine.Session {
			h.t.Helper()
			a, err := h.WorkerHeartbeat(h.t.Context(), protocol.WorkerHeartbeat{
				WorkerID: "X", Sessions: []protocol.SessionRenewal{{SessionID: "device", Epoch: held.Epoch}},
			})
			if err != nil || len(a.Sessions) != 1 {
				h.t.Fatal(err, a)
			}
			s, _ := h.row("device")
			return s
		}
		poll := make(chan protocol.Task)
		go func() { poll <- x.poll(protocol.KindActivity) }()
		h.until("the session is marked", sec, func() bool { s, _ := h.row("device"); return s.Yielding })
		h.between("the session was marked", h.at(), began+10*sec, began+13*sec)
		before, _ := h.row("device")
		for range 3 {
			h.wait(10 * sec)
			if s := renew(); s.LeaseUntil != before.LeaseUntil || s.Owner != "X" {
				h.t.Errorf("a renewal of the marked session: %+v", s)
			}
		}
		a := (<-poll).Activity
		h.equal("the next session", a.Session.SessionID, "waits")
		h.between("the next session began", h.at(), before.LeaseUntil.Sub(h.began), before.LeaseUntil.Sub(h.began)+2*sec)
		if gave := h.last("device"); gave.What != "released" || gave.Why != "evicted_cap" {
			h.t.Errorf("its timeline ends with %+v", gave.SessionEvent)
		}
	})
}

// A task that has waited 30 s for a session place is counted once by a metric, and needs attention from then on. A
// pinned session is not evicted for it.
func TestATaskThatWaitsForASessionPlaceNeedsAttention(t *testing.T) {
	bubbleOn(t, "", serverOptions{Metrics: true}, func(h *harness) {
		h.flow("one", one)
		h.flow("own", own)
		h.start("A", byDefault, most(1))
		h.begin("own", "mine", true)
		h.done("mine")
		run := h.begin("one", "waits", "waits", 10)
		reports := func() int { return counted(h.t, "sojourn_session_place_waits_total", h.testServer) }
		attention := func() bool {
			h.t.Helper()
			w := h.waitOf(run)
			h.equal("it waits for", w.Reason, protocol.WaitWorkerSessionsFull)
			return w.Attention
		}
		h.wait(29 * sec)
		h.equal("reports before 30 s", reports(), 0)
		h.equal("attention before 30 s", attention(), false)
		h.wait(3 * sec)
		h.equal("reports after 30 s", reports(), 1)
		h.equal("attention after 30 s", attention(), true)
		h.wait(5 * time.Minute)
		h.equal("reports after 5 min", reports(), 1)
		h.equal("code that ran in it", len(h.did("waits")), 0)
	})
}
