package sessiontest

import (
	"context"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// takeover is the maximum time, with default settings, until other workers have the work of a dead or frozen worker.
const takeover = 35 * sec

// byDefault selects the worker's default settings instead of those of the harness.
func byDefault(o *worker.Options) {
	o.AttemptLease, o.Sessions.Lease, o.Sessions.Buffer, o.Sessions.Idle = 0, 0, 0, 0
}

// relay runs items one after the other, each after a signal. session selects where: no session, a session ID on the
// activity, or a session that the workflow starts.
func relay(ctx workflow.Context, session string, items []string, ms int) (done []string, err error) {
	run := func(item string, ms int) (string, error) {
		return workflow.Execute[string](ctx, "work", item, ms)
	}
	switch session {
	case "":
	case "own":
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
		if err != nil {
			return nil, err
		}
		run = func(item string, ms int) (string, error) {
			return workflow.Await[string](ctx, s.Execute(ctx, "work", item, ms))
		}
	default:
		ctx = workflow.InSession(ctx, session)
	}
	for i, item := range items {
		if i > 0 {
			if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
				return done, err
			}
		} else if len(items) > 1 {
			if _, err := run(item, 1); err != nil {
				return nil, err
			}
			continue
		}
		by, err := run(item, ms)
		if err != nil {
			return done, err
		}
		done = append(done, by)
	}
	return done, nil
}

// still imitates a frozen Sojourn worker: it registered and sent heartbeats, its polls are still open at the app, and
// it ignores the tasks that these polls lease.
type still struct {
	h        *harness
	id       string
	held     []*protocol.ActivityTask // tasks leased before the freeze
	leaseEnd time.Duration            // end of the last lease that the worker knows
}

func (h *harness) still(id string) *still {
	h.t.Helper()
	slots := 16
	_, err := h.Register(h.t.Context(), protocol.RegisterRequest{
		WorkerID: id, Incarnation: id + "-1", TaskQueues: []string{"default"}, WorkflowTypes: []string{"relay"},
		ActivityTypes: []string{"work"},
		Capabilities:  []string{broker.CapSessions}, WorkflowSlots: &slots, ActivitySlots: &slots, AttemptLease: 30,
		Session: &protocol.SessionSettings{LeaseMS: 30_000, BufferMS: 5_000, IdleMS: 300_000},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	s := &still{h: h, id: id}
	s.beat()
	return s
}

// beat sends the worker's last heartbeat.
func (s *still) beat() {
	s.h.t.Helper()
	in := protocol.WorkerHeartbeat{WorkerID: s.id, Incarnation: s.id + "-1"}
	for _, t := range s.held {
		in.Leases = append(
			in.Leases, protocol.HeartbeatRequest{Kind: protocol.KindActivity, TaskID: t.TaskID, AttemptID: t.AttemptID},
		)
	}
	a, err := s.h.WorkerHeartbeat(s.h.t.Context(), in)
	if err != nil {
		s.h.t.Fatal(err)
	}
	for _, l := range a.Leases {
		s.leaseEnd = max(s.leaseEnd, l.LeaseExpiresAt.Sub(s.h.began))
	}
}

func (s *still) poll(ctx context.Context, kind protocol.TaskKind) []protocol.Task {
	seconds := int64(50)
	a, err := s.h.Poll(
		ctx,
		protocol.PollRequest{WorkerID: s.id, Incarnation: s.id + "-1", Kinds: []protocol.TaskKind{kind}, Timeout: &seconds},
	)
	if err != nil {
		return nil
	}
	return a.Tasks
}

// decides makes the frozen worker schedule an item, as relay does.
func (s *still) decides(session, item string, ms int) {
	s.h.t.Helper()
	args, err := payload.EncodeArgs(item, ms)
	if err != nil {
		s.h.t.Fatal(err)
	}
	t := s.poll(s.h.t.Context(), protocol.KindWorkflow)[0].Workflow
	c := protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "work", Arguments: args, SessionID: session}
	commands := []protocol.Command{c}
	if session == "own" {
		commands = []protocol.Command{{Type: protocol.StartSession, WorkerSession: &protocol.SessionOptions{}}, c}
		commands[1].SessionID = t.RunID + "-1"
	}
	out, err := s.h.Complete(s.h.t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{{
		Kind: protocol.KindWorkflow, TaskID: t.TaskID, Owner: s.id, Attempt: t.Attempt, Commands: commands,
	}}})
	if err != nil || out.Items[0].Err != nil {
		s.h.t.Fatal(err, out)
	}
}

// leavesOpen freezes the worker while the given number of polls of each kind are held.
func (s *still) leavesOpen(polls int) {
	for _, k := range []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity} {
		for range polls {
			go s.poll(s.h.t.Context(), k)
		}
	}
	s.h.wait(0)
}

// A worker of Sojourn with default settings dies or freezes while it runs an activity, is idle, or holds nothing, with
// or without a session. Another worker has the work within 35 s, but not before the end of the lease that the first one
// knows.
func TestWorkIsTakenOverByDefault(t *testing.T) {
	for _, session := range []string{"", "s", "own"} {
		name := map[string]string{"": "no session", "s": "a mere id", "own": "the workflow's session"}[session]
		bubble(t, "killed while it works, "+name, func(h *harness) {
			h.flow("relay", relay)
			a := h.start("A", byDefault)
			run := h.begin("relay", session, []string{"item"}, 7*60_000)
			first := h.running("item")
			h.start("B", byDefault)
			h.wait(3*time.Minute + 4*sec) // several renewals
			h.equal("the attempt", len(h.did("item")), 1)
			killed := h.at()
			a.kill()
			h.until("B runs it", ms, func() bool { return len(h.did("item")) == 2 })
			second := h.did("item")[1]
			h.equal("it runs on", second.worker, "B")
			h.between("B begins it", second.from, killed+20*sec, killed+takeover)
			h.equal("done by", output[[]string](h, run), []string{"B"})
			h.equal("attempt", second.attempt, first.attempt+1)
		})
		bubble(t, "killed idle, "+name, func(h *harness) {
			h.flow("relay", relay)
			a := h.start("A", byDefault)
			run := h.begin("relay", session, []string{"first", "second"}, 10)
			h.until("the first is done", ms, func() bool { l := h.did("first"); return len(l) == 1 && l[0].to > 0 })
			h.start("B", byDefault)
			h.wait(40 * sec) // the lease is renewed meanwhile
			killed := h.at()
			a.kill()
			h.signal(run, "go")
			h.equal("done by", output[[]string](h, run), []string{"B"})
			h.between("done", h.at(), killed, killed+takeover)
		})
		bubble(t, "stands still while it works, "+name, func(h *harness) {
			h.flow("relay", relay)
			a := h.still("A")
			run := h.begin("relay", session, []string{"item"}, 10)
			a.decides(session, "item", 10)
			task := a.poll(h.t.Context(), protocol.KindActivity)
			a.held = append(a.held, task[0].Activity)
			h.wait(20 * sec)
			a.beat()
			a.leavesOpen(4)
			froze := h.at()
			h.start("C", byDefault)
			h.equal("done by", output[[]string](h, run), []string{"C"})
			h.between("the last lease that it knows ends", a.leaseEnd, froze+30*sec, froze+30*sec)
			h.between("C begins", h.once("item").from, a.leaseEnd, froze+takeover)
		})
		bubble(t, "stands still while it decides, "+name, func(h *harness) {
			h.flow("relay", relay)
			a := h.still("A")
			run := h.begin("relay", session, []string{"item"}, 10)
			a.poll(h.t.Context(), protocol.KindWorkflow)
			a.leavesOpen(4)
			froze := h.at()
			h.start("C", byDefault)
			h.equal("done by", output[[]string](h, run), []string{"C"})
			h.between("done", h.at(), froze+30*sec, froze+takeover)
		})
		bubble(t, "stands still idle, "+name, func(h *harness) {
			h.flow("relay", relay)
			a := h.still("A")
			a.leavesOpen(4)
			h.start("C", byDefault)
			for _, at := range []time.Duration{0, 5 * sec, 31 * sec} {
				// it receives no tasks once it has missed three heartbeats
				h.wait(at)
				begun := h.at()
				run := h.begin("relay", session+name, []string{"item"}, 10)
				h.equal("done by", output[[]string](h, run), []string{"C"})
				h.between("done", h.at()-begun, 0, takeover)
			}
		})
	}
}

// A frozen worker that holds a session leases tasks of the session through its held polls. Within 35 s another worker
// has the tasks and the session.
func TestSessionOfAFrozenOwnerIsAcquired(t *testing.T) {
	bubble(t, "held", func(h *harness) {
		h.flow("relay", relay)
		a := h.still("A")
		_, err := h.CreateSession(h.t.Context(), protocol.SessionCreate{
			WorkerID: "A", Incarnation: "A-1",
			SessionOptions: protocol.SessionOptions{SessionID: "s", Lease: 30, MaxActivities: 4},
		})
		if err != nil {
			h.t.Fatal(err)
		}
		a.leavesOpen(4)
		h.start("C", byDefault)
		froze := h.at()
		run := h.begin("relay", "s", []string{"item"}, 10)
		h.equal("done by", output[[]string](h, run), []string{"C"})
		h.between("done", h.at(), froze+30*sec, froze+takeover)
	})
}

// The leases renewed by heartbeats survive the loss of two heartbeats in a row.
func TestTwoLostHeartbeatsCostNothing(t *testing.T) {
	bubble(t, "cut off for as long", func(h *harness) {
		h.flow("relay", relay)
		a := h.start("A", byDefault)
		run := h.begin("relay", "s", []string{"item"}, 5*60_000)
		h.running("item")
		h.start("B", byDefault)
		for range 3 {
			h.wait(50 * sec)
			beats := a.called("WorkerHeartbeat")
			a.sever()
			h.wait(10 * sec)
			a.rejoin()
			if n := a.called("WorkerHeartbeat") - beats; n > 15 {
				h.t.Errorf("%d tries within ten seconds", n)
			}
		}
		h.equal("done by", output[[]string](h, run), []string{"A"})
		h.once("item")
	})

	// The heartbeats are lost without an error and time out, the first one right before the renewal of the attempt is
	// due.
	bubble(t, "swallowed", func(h *harness) {
		h.flow("relay", relay)
		a := h.start("A", byDefault)
		h.wait(100 * ms)
		run := h.begin("relay", "s", []string{"item"}, 5*60_000)
		h.running("item")
		h.start("B", byDefault)
		h.wait(7 * sec)
		beats, mend := a.called("WorkerHeartbeat"), a.swallow()
		h.until("the second is on its way", 10*ms, func() bool { return a.called("WorkerHeartbeat") == beats+2 })
		h.wait(8 * sec)
		mend()
		h.equal("done by", output[[]string](h, run), []string{"A"})
		h.once("item")
	})

	// The connection is broken for longer than the interval of renewals. The worker renews at once on the next
	// connection, a few seconds after the network is back, with one heartbeat and not with many empty ones.
	bubble(t, "a lost connection", func(h *harness) {
		h.flow("relay", relay)
		a := h.start("A", byDefault)
		run := h.begin("relay", "s", []string{"item"}, 60_000)
		began := h.running("item").from
		h.start("B", byDefault)
		h.wait(began + 7*sec - h.at())
		a.drop()
		h.wait(14 * sec)
		beats := a.called("WorkerHeartbeat")
		a.rejoin()
		h.until("it is back", 10*ms, func() bool { return a.called("WorkerHeartbeat") > beats })
		h.wait(2 * sec)
		if n := a.called("WorkerHeartbeat") - beats; n > 2 {
			h.t.Errorf("%d heartbeats within two seconds of the new connection", n)
		}
		h.equal("done by", output[[]string](h, run), []string{"A"})
		h.once("item")
	})
}
