package sessiontest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// prepares allows a successor to set up sessions of the definition "llama" while another worker owns them.
func prepares(d *activity.SessionDefinition) { d.HandOver = activity.HandOverPrepare }

// conversation runs "ask" in a session once, and then once for each signal "ask", until the signal has no item.
func conversation(ctx workflow.Context, session string) (states []string, err error) {
	type question struct {
		Item   string
		Millis int
	}
	for q := (question{"first " + session, 10}); q.Item != ""; {
		state, err := workflow.Await[string](ctx, asking(ctx, session, "m.gguf", q.Item, q.Millis))
		if err != nil {
			return nil, err
		}
		states = append(states, strings.TrimSuffix(state, " m.gguf"))
		q = question{}
		if err := workflow.Signal(ctx, "ask").Receive(ctx, &q); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// ask sends a question to a conversation and waits until its code runs.
func (h *harness) ask(run, item string, millis int) {
	h.t.Helper()
	began := h.at()
	h.signal(run, "ask", map[string]any{"Item": item, "Millis": millis})
	r := h.begun(item)
	if r.from-began > sec/2 {
		h.t.Errorf("%s waited %s", item, r.from-began)
	}
}

// begun waits until an item has begun.
func (h *harness) begun(item string) (r ran) {
	h.t.Helper()
	h.until(item+" begins", 10*ms, func() bool {
		list := h.did(item)
		if len(list) > 0 {
			r = list[len(list)-1]
		}
		return len(list) > 0
	})
	return r
}

// draining stops a worker in the background; done waits for its end.
func (p *proc) draining() (done func()) {
	p.end()
	return p.stop
}

// reserved returns the number of places that a worker has reserved for sessions that it prepares.
func (h *harness) reserved(worker string) (n int) {
	h.t.Helper()
	err := h.store.View(h.t.Context(), func(r store.Reader) error {
		held, err := r.Holdings(h.t.Context(), "default")
		n = held[worker].Prepared
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// reports reports whether the app receives the heartbeats of a worker.
func (h *harness) reports(worker string) bool {
	h.t.Helper()
	list, err := h.Workers(h.t.Context(), "default", "", "")
	if err != nil {
		h.t.Fatal(err)
	}
	return slices.ContainsFunc(list, func(w protocol.WorkerView) bool {
		return w.WorkerID == worker && w.Status != protocol.WorkerStale
	})
}

func TestHandOver(t *testing.T) {
	// While the owner drains, it runs the session's tasks. The successor has the state before the session moves.
	bubble(t, "made before broken", func(h *harness) {
		h.defines(2*sec, nil, prepares)
		h.flow("flow", conversation)
		a := h.start("A")
		run := h.begin("flow", "s")
		h.until("first", 10*ms, func() bool { return len(h.did("first s")) == 1 })
		h.start("B")
		done := a.draining()
		h.wait(sec)
		h.ask(run, "meanwhile", 10)
		h.ask(run, "long", 2000)
		h.until("the hand-over", 10*ms, func() bool { return h.owner("s") == "B" })
		h.near("the end of the running task", h.at(), h.once("long").to, sec/10)
		h.ask(run, "afterwards", 10)
		done()
		h.signal(run, "ask", map[string]any{})
		h.equal("states", output[[]string](h, run), []string{"A", "A", "A", "B"})
		h.equal("set-ups", len(h.did("set up")), 2)
		h.equal("set-ups in history", h.setUps(run), []string{"llama completed"})
		h.equal("timeline", h.timeline("s"), []string{"claimed", "set_up", "preparing", "prepared", "released", "reclaimed"})
		h.equal("tear-downs by", distinct(h.did("tear down A")), []string{"A"})
		h.equal("tear-downs of the successor", len(h.did("tear down B")), 0)
		s, _ := h.row("s")
		if s.Prepare != nil || s.SetUpEpoch != s.Epoch {
			t.Errorf("the row is %+v", s)
		}
	})

	// An operator drains the owner: the same, and the worker stays.
	bubble(t, "drained by an operator", func(h *harness) {
		h.defines(2*sec, nil, prepares)
		h.flow("flow", conversation)
		h.start("A")
		run := h.begin("flow", "s")
		h.until("first", 10*ms, func() bool { return len(h.did("first s")) == 1 })
		h.start("B")
		if _, err := h.Fleet().OperateFleet(h.t.Context(), protocol.FleetRequest{
			FleetTarget: protocol.FleetTarget{WorkerID: "A"}, Verb: protocol.FleetDrain,
		}); err != nil {
			h.t.Fatal(err)
		}
		h.wait(sec)
		h.ask(run, "meanwhile", 10)
		h.until("the hand-over", 10*ms, func() bool { return h.owner("s") == "B" })
		h.ask(run, "afterwards", 10)
		h.signal(run, "ask", map[string]any{})
		h.equal("states", output[[]string](h, run), []string{"A", "A", "B"})
		h.equal("set-ups", len(h.did("set up")), 2)
	})

	// A session whose set-up must not run twice is released as before.
	bubble(t, "not allowed", func(h *harness) {
		h.defines(2*sec, nil)
		h.flow("flow", conversation)
		a := h.start("A")
		run := h.begin("flow", "s")
		h.until("first", 10*ms, func() bool { return len(h.did("first s")) == 1 })
		h.start("B")
		a.stop()
		h.signal(run, "ask", map[string]any{"Item": "afterwards", "Millis": 10})
		h.begun("afterwards")
		h.signal(run, "ask", map[string]any{})
		h.equal("states", output[[]string](h, run), []string{"A", "B"})
		h.equal("set-ups in history", h.setUps(run), []string{"llama completed", "llama completed drained"})
	})

	// The successor is killed during its set-up: another one prepares, or none.
	bubble(t, "successor killed", func(h *harness) {
		h.defines(2*sec, nil, prepares)
		h.flow("flow", conversation)
		with := func(o *worker.Options) { lock(4*sec, 0)(o); o.DrainTimeout = time.Minute }
		a := h.start("A", with)
		run := h.begin("flow", "s")
		h.until("first", 10*ms, func() bool { return len(h.did("first s")) == 1 })
		b := h.start("B", with)
		done := a.draining()
		h.until("B prepares", 10*ms, func() bool { return len(h.did("set up")) == 2 })
		b.kill()
		h.start("C", with)
		h.ask(run, "meanwhile", 10)
		h.until("the hand-over", 10*ms, func() bool { return h.owner("s") == "C" })
		h.ask(run, "afterwards", 10)
		done()
		h.signal(run, "ask", map[string]any{})
		h.equal("states", output[[]string](h, run), []string{"A", "A", "C"})
		h.equal("set-ups", len(h.did("set up")), 3)
	})

	// A successor restarts under its ID during its set-ups: the other worker prepares these sessions, and not the new
	// process, so none of them is released without prepared state.
	bubble(t, "successor restarted", func(h *harness) {
		h.defines(2*sec, nil, prepares)
		h.flow("flow", conversation)
		with := func(o *worker.Options) { slots(16)(o); o.DrainTimeout = time.Minute }
		a := h.start("A", with)
		for i := range 4 {
			h.begin("flow", fmt.Sprint("s", i))
		}
		h.until("all are set up", 10*ms, func() bool { return len(h.did("set up")) == 4 && len(h.did()) == 8 })
		h.start("B", with)
		h.wait(sec)
		c := h.start("C", with)
		done := a.draining()
		h.until("both prepare", 10*ms, func() bool { return h.reserved("B") == 2 && h.reserved("C") == 2 })
		c.kill()
		h.start("C", with)
		h.until("the hand-overs", 10*ms, func() bool { return slices.Equal(h.held(), []string{"B", "B", "B", "B"}) })
		done()
		again := 0
		for i := range 4 {
			timeline := h.timeline(fmt.Sprint("s", i))
			if slices.Contains(timeline, protocol.SessionPreparationEnded) {
				again++
			}
			h.equal("end of the timeline", timeline[len(timeline)-3:], []string{"prepared", "released", "reclaimed"})
		}
		h.equal("sessions that were prepared again", again, 2)
	})

	// The owner is killed while its last task runs: the successor acquires the session when the lease ends, with the
	// state that it has prepared.
	bubble(t, "owner killed", func(h *harness) {
		h.defines(sec, nil, prepares)
		h.flow("flow", conversation)
		with := func(o *worker.Options) { lock(4*sec, 0)(o); attempts(4 * sec)(o); o.DrainTimeout = time.Minute }
		a := h.start("A", with)
		run := h.begin("flow", "s")
		h.until("first", 10*ms, func() bool { return len(h.did("first s")) == 1 })
		h.start("B", with)
		h.ask(run, "long", 30_000)
		a.end()
		h.until("B is ready", 10*ms, func() bool { return slices.Contains(h.timeline("s"), protocol.SessionPrepared) })
		a.kill()
		h.until("the hand-over", 10*ms, func() bool { return h.owner("s") == "B" })
		h.signal(run, "ask", map[string]any{"Item": "afterwards", "Millis": 10})
		h.signal(run, "ask", map[string]any{})
		h.equal("states", output[[]string](h, run), []string{"A", "B", "B"})
		h.equal("set-ups", len(h.did("set up")), 2)
	})

	// The successor is frozen: its preparation expires, another worker prepares, and the state of the frozen one is torn
	// down when it continues.
	bubble(t, "successor frozen", func(h *harness) {
		h.defines(2*sec, nil, prepares)
		h.flow("flow", conversation)
		with := func(o *worker.Options) { lock(4*sec, 0)(o); o.DrainTimeout = time.Minute }
		a := h.start("A", with)
		run := h.begin("flow", "s")
		h.until("first", 10*ms, func() bool { return len(h.did("first s")) == 1 })
		b := h.start("B", with)
		h.ask(run, "long", 20_000)
		done := a.draining()
		h.until("B is ready", 10*ms, func() bool { return slices.Contains(h.timeline("s"), protocol.SessionPrepared) })
		mend := b.swallow()
		h.start("C", with)
		h.until("the hand-over", 10*ms, func() bool { return h.owner("s") == "C" })
		mend()
		h.until("the tear-down", 10*ms, func() bool { return len(h.did("tear down B")) == 1 })
		h.ask(run, "afterwards", 10)
		done()
		h.signal(run, "ask", map[string]any{})
		h.equal("states", output[[]string](h, run), []string{"A", "A", "C"})
		h.equal("set-ups", len(h.did("set up")), 3)
	})

	// The owner is frozen while its last task runs: the session moves when its lease has expired, and the frozen worker
	// starts nothing in it when it continues.
	bubble(t, "owner frozen", func(h *harness) {
		h.defines(sec, nil, prepares)
		h.flow("flow", conversation)
		with := func(o *worker.Options) { lock(4*sec, 0)(o); attempts(4 * sec)(o); o.DrainTimeout = time.Minute }
		a := h.start("A", with)
		run := h.begin("flow", "s")
		h.until("first", 10*ms, func() bool { return len(h.did("first s")) == 1 })
		h.start("B", with)
		h.ask(run, "long", 8000)
		done := a.draining()
		h.until("B is ready", 10*ms, func() bool { return slices.Contains(h.timeline("s"), protocol.SessionPrepared) })
		mend := a.swallow()
		h.until("the hand-over", 10*ms, func() bool { return h.owner("s") == "B" })
		h.between("the hand-over", h.at(), h.once("long").from+4*sec, h.once("long").from+6*sec)
		h.wait(10 * sec)
		mend()
		h.ask(run, "afterwards", 10)
		done()
		h.signal(run, "ask", map[string]any{})
		h.equal("states", output[[]string](h, run), []string{"A", "B", "B"})
		h.equal("set-ups", len(h.did("set up")), 2)
	})

	// A set-up that fails at one successor: the app chooses another one, and not the same again.
	bubble(t, "set-up fails", func(h *harness) {
		h.defines(sec, func(p *proc) error {
			if p.name == "C" {
				return errors.New("no GPU here")
			}
			return nil
		}, prepares)
		h.flow("flow", conversation)
		a := h.start("A")
		run := h.begin("flow", "s")
		h.until("first", 10*ms, func() bool { return len(h.did("first s")) == 1 })
		h.start("B")
		h.wait(sec)
		h.start("C") // chosen first, because it has registered later
		done := a.draining()
		h.until("the hand-over", 10*ms, func() bool { return h.owner("s") == "B" })
		h.ask(run, "afterwards", 10)
		done()
		h.signal(run, "ask", map[string]any{})
		h.equal("states", output[[]string](h, run), []string{"A", "B"})
		h.equal("set-ups", len(h.did("set up")), 3)
		h.equal("preparations", h.timeline("s")[2:6], []string{"preparing", "preparation_ended", "preparing", "prepared"})
	})

	// A place is reserved at the successor: it never holds and prepares more sessions than its maximum. The other sessions
	// are released, and their tasks wait for a place.
	bubble(t, "no more than the maximum", func(h *harness) {
		h.defines(3*sec, nil, prepares)
		h.flow("flow", conversation)
		a := h.start("A", slots(16))
		for i := range 3 {
			h.begin("flow", fmt.Sprint("s", i))
		}
		h.until("all are set up", 10*ms, func() bool { return len(h.did("set up")) == 3 && len(h.did()) == 6 })
		h.start("B", most(2), slots(16))
		done := a.draining()
		h.wait(sec)
		h.equal("preparing", h.reserved("B"), 2)
		h.begin("flow", "other")
		h.wait(sec)
		h.equal("a new session waits for a place", len(h.did("first other")), 0)
		h.until("the hand-overs", 10*ms, func() bool { return slices.Equal(h.held(), []string{"B", "B"}) })
		done()
		h.equal("preparing", h.reserved("B"), 0)
	})

	// The session ends while it is prepared: the prepared state is torn down, and its place is free.
	bubble(t, "closed", func(h *harness) {
		h.defines(2*sec, nil, prepares)
		h.flow("flow", conversation)
		a := h.start("A")
		run := h.begin("flow", "s")
		h.until("first", 10*ms, func() bool { return len(h.did("first s")) == 1 })
		h.start("B")
		h.ask(run, "long", 4000)
		done := a.draining()
		h.until("B is ready", 10*ms, func() bool { return slices.Contains(h.timeline("s"), protocol.SessionPrepared) })
		if _, err := h.OperateSession(h.t.Context(), protocol.SessionOperation{
			SessionID: "s", Verb: "close", Identity: "op",
		}); err != nil {
			h.t.Fatal(err)
		}
		h.until("the tear-down", 10*ms, func() bool { return len(h.did("tear down B")) == 1 })
		done()
		s, _ := h.row("s")
		h.equal("preparation", s.Prepare == nil, true)
	})
}

// The app is restarted during a hand-over, and the owner's heartbeat arrives before that of the other workers: the
// session is not released without prepared state, and the owner runs its tasks until a successor is ready.
func TestHandOverOutlivesTheApp(t *testing.T) {
	for name, killed := range map[string]bool{"successor alive": false, "successor killed": true} {
		database := "sqlite:" + filepath.Join(t.TempDir(), "test.db")
		bubbleOn(t, name, serverOptions{Database: database}, func(h *harness) {
			h.flow("flow", conversation)
			w := h.start("W") // runs the workflow, and has no session definition
			h.defines(2*sec, nil, prepares)
			a := h.start("A", lock(4*sec, 0))
			run := h.begin("flow", "s")
			h.until("first", 10*ms, func() bool { return len(h.did("first s")) == 1 })
			b, c := h.start("B", lock(4*sec, 0)), h.start("C", lock(4*sec, 0))
			if _, err := h.Fleet().OperateFleet(h.t.Context(), protocol.FleetRequest{
				FleetTarget: protocol.FleetTarget{WorkerID: "A"}, Verb: protocol.FleetDrain,
			}); err != nil {
				h.t.Fatal(err)
			}
			h.until("the preparation", 10*ms, func() bool { return len(h.did("set up")) == 2 })
			successor, other := b, c
			if h.reserved("C") > 0 {
				successor, other = c, b
			}
			if killed {
				successor.kill()
			}
			for _, p := range []*proc{w, a, b, c} {
				p.drop()
			}
			h.close()
			h.testServer = open(h.t, serverOptions{Database: database})
			w.rejoin()
			a.rejoin()
			h.until("a heartbeat of A", 10*ms, func() bool { return h.reports("A") })
			h.ask(run, "before others", 10)
			h.wait(sec)
			other.rejoin()
			if !killed {
				successor.rejoin()
			}
			h.ask(run, "meanwhile", 10)
			h.until("the hand-over", 10*ms, func() bool { return h.owner("s") != "A" })
			h.ask(run, "afterwards", 10)
			h.signal(run, "ask", map[string]any{})
			if killed {
				successor = other
			}
			h.equal("states", output[[]string](h, run), []string{"A", "A", "A", successor.name})
			timeline := h.timeline("s")
			h.equal("end of the timeline", timeline[len(timeline)-3:], []string{"prepared", "released", "reclaimed"})
			h.equal("set-ups in history", h.setUps(run), []string{"llama completed"})
		})
	}
}

// Four workers are replaced one after the other, with a fifth one as surge. Each session is set up once more, and no
// call waits for a set-up.
func TestRollingRestartPreparesEachSession(t *testing.T) {
	const sessions = 40
	bubble(t, "with surge", func(h *harness) {
		h.defines(sec, nil, prepares)
		h.flow("flow", conversation)
		with := func(o *worker.Options) {
			o.Concurrency, o.DrainTimeout, o.Sessions.MaxSetUps = 40, time.Minute, 4
		}
		var old []*proc
		for i := range 4 {
			old = append(old, h.start(fmt.Sprintf("old-%d", i), with, most(sessions/4)))
		}
		var runs []string
		for i := range sessions {
			runs = append(runs, h.begin("flow", fmt.Sprintf("s%d", i)))
		}
		h.until("all are set up", 100*ms, func() bool { return len(h.did("set up")) == sessions })
		h.wait(2 * sec)
		for i, p := range old {
			h.start(fmt.Sprintf("new-%d", i), with)
			done := p.draining()
			for j := range 4 { // calls while it drains, the first ones at once
				asked := h.at()
				for k, run := range runs {
					h.signal(run, "ask", map[string]any{"Item": fmt.Sprintf("%d %d %d", i, j, k), "Millis": 1})
				}
				for k := range runs {
					item := fmt.Sprintf("%d %d %d", i, j, k)
					if r := h.begun(item); r.from-asked > sec/2 {
						t.Errorf("%s waited %s", item, r.from-asked)
					}
				}
			}
			done()
		}
		for i, run := range runs {
			h.ask(run, fmt.Sprint("last ", i), 1)
			h.signal(run, "ask", map[string]any{})
			states := output[[]string](h, run)
			if last := states[len(states)-1]; !strings.HasPrefix(last, "new-") {
				t.Errorf("session %d is at %s", i, last)
			}
			h.equal(fmt.Sprintf("set-ups in history of %d", i), h.setUps(run), []string{"llama completed"})
		}
		h.equal("set-ups by the restart", len(h.did("set up"))-sessions, sessions)
		owners := map[string]int{}
		for _, o := range h.held() {
			owners[o]++
		}
		h.equal("sessions by worker", owners, map[string]int{"new-0": 10, "new-1": 10, "new-2": 10, "new-3": 10})
	})
}
