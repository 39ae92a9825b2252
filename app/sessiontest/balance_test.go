package sessiontest

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// converse starts runs with one session each and waits until all are set up.
func (h *harness) converse(n int) (runs []string) {
	h.t.Helper()
	for i := range n {
		runs = append(runs, h.begin("flow", fmt.Sprintf("s%d", i)))
	}
	h.until("all are set up", 100*ms, func() bool { return len(h.did("set up")) == n && len(h.did()) == 2*n })
	return runs
}

// counts returns the number of sessions by owner.
func (h *harness) counts() map[string]int {
	h.t.Helper()
	owners := map[string]int{}
	for _, o := range h.held() {
		owners[o]++
	}
	return owners
}

// imbalance returns by how much the worker with the most sessions exceeds the one with the fewest, in percent. Workers
// without sessions must be named.
func (h *harness) imbalance(workers ...string) int {
	h.t.Helper()
	owners := h.counts()
	least, most := 1<<30, 0
	for _, w := range workers {
		least, most = min(least, owners[w]), max(most, owners[w])
	}
	if least == 0 {
		return 1 << 30
	}
	return (most - least) * 100 / least
}

// moves returns the times at which sessions began to move to a worker for balance.
func (h *harness) moves(worker string, sessions int) (at []time.Duration) {
	h.t.Helper()
	for i := range sessions {
		for _, e := range h.entries(fmt.Sprintf("s%d", i)) {
			if e.What == protocol.SessionPreparing && e.Why == protocol.EndedRebalanced && e.Worker == worker {
				at = append(at, e.At.Sub(h.began))
			}
		}
	}
	slices.Sort(at)
	return at
}

// checkPace checks that sessions moved to a worker at most once per minute.
func (h *harness) checkPace(worker string, sessions int) {
	h.t.Helper()
	at := h.moves(worker, sessions)
	for i := 1; i < len(at); i++ {
		if at[i]-at[i-1] < time.Minute {
			h.t.Errorf("sessions moved to %s at %s and %s", worker, at[i-1], at[i])
		}
	}
}

// Four workers are replaced one after the other. Ten minutes later, no worker holds over 20 % more sessions than
// another one, and no call has waited for a set-up of the balance.
func TestARollingRestartIsBalancedTenMinutesLater(t *testing.T) {
	const sessions = 40
	with := func(o *worker.Options) { o.Concurrency, o.DrainTimeout, o.Sessions.MaxSetUps = 40, time.Minute, 4 }
	var names []string
	for i := range 4 {
		names = append(names, fmt.Sprint("new-", i))
	}
	settle := func(h *harness, runs []string) {
		since := h.at()
		for i := range 10 {
			h.wait(since + time.Duration(i+1)*59*sec - h.at())
			for k, run := range runs {
				h.ask(run, fmt.Sprint("minute ", i, " ", k), 1)
			}
		}
		h.wait(since + 10*time.Minute - h.at())
		if n := h.imbalance(names...); n > 20 {
			h.t.Errorf("an imbalance of %d %%: %v", n, h.counts())
		}
		for _, name := range names {
			h.checkPace(name, sessions)
		}
		for k, run := range runs {
			h.signal(run, "ask", map[string]any{})
			output[[]string](h, run)
			h.equal(fmt.Sprint("set-ups in history of ", k), len(h.setUps(run)), 1)
		}
	}

	// The old worker drains while the new one has already registered. Its sessions go to any of the others.
	bubble(t, "with surge", func(h *harness) {
		h.defines(sec, nil, prepares)
		h.flow("flow", conversation)
		var old []*proc
		for i := range 4 {
			old = append(old, h.start(fmt.Sprint("old-", i), with, most(sessions/4)))
		}
		runs := h.converse(sessions)
		for i, p := range old {
			h.start(names[i], with)
			p.stop()
		}
		settle(h, runs)
	})

	// The new worker registers after the old one has stopped: the last one holds nothing at first.
	bubble(t, "without surge", func(h *harness) {
		h.defines(sec, nil, prepares)
		h.flow("flow", conversation)
		var old []*proc
		for i := range 4 {
			old = append(old, h.start(fmt.Sprint("old-", i), with))
		}
		runs := h.converse(sessions)
		for i, p := range old {
			p.stop()
			h.start(names[i], with)
		}
		h.equal("sessions of the last worker", h.counts()[names[3]], 0)
		settle(h, runs)
		if n := len(h.moves(names[3], sessions)); n < 8 {
			t.Errorf("%d sessions moved to the last worker", n)
		}
	})
}

// roomy is a worker with many slots, which does not release its idle sessions during a test.
func roomy(o *worker.Options) { slots(16)(o); lock(0, time.Hour)(o) }

func TestBalance(t *testing.T) {
	// Idle sessions move from half a minute after the registration on, one per minute, until the difference is small.
	bubble(t, "moves idle sessions", func(h *harness) {
		h.defines(2*sec, nil, prepares)
		h.flow("flow", conversation)
		h.start("A", roomy)
		runs := h.converse(6)
		began := h.at()
		h.start("B", roomy)
		h.wait(29 * sec)
		h.equal("moves within half a minute", len(h.moves("B", 6)), 0)
		h.until("the first move", 100*ms, func() bool { return h.reserved("B") == 1 })
		first := -1
		for i := range runs {
			if s, _ := h.row(fmt.Sprint("s", i)); s.Prepare != nil {
				first = i
			}
		}
		h.ask(runs[first], "meanwhile", 10) // at the owner
		h.until("the hand-over", 100*ms, func() bool { return h.owner(fmt.Sprint("s", first)) == "B" })
		h.ask(runs[first], "afterwards", 10)
		h.equal("timeline", h.timeline(fmt.Sprint("s", first)),
			[]string{"claimed", "set_up", "preparing", "prepared", "released", "reclaimed"})
		for _, e := range h.entries(fmt.Sprint("s", first)) {
			if e.What == protocol.SessionPreparing || e.What == "released" {
				h.equal("reason of "+e.What, e.Why, protocol.EndedRebalanced)
			}
		}
		h.wait(began + 10*time.Minute + 30*sec - h.at())
		h.equal("sessions", h.counts(), map[string]int{"A": 3, "B": 3})
		h.checkPace("B", 6)
		h.equal("moves", len(h.moves("B", 6)), 3)
		h.equal("tear-downs at A", len(h.did("tear down A")), 3)
		h.signal(runs[first], "ask", map[string]any{})
		h.equal("states", output[[]string](h, runs[first]), []string{"A", "A", "B"})
	})

	// A worker that holds almost as many sessions gets none: the move would not reduce the difference, or it is small.
	bubble(t, "not for a small difference", func(h *harness) {
		h.defines(100*ms, nil, prepares)
		h.flow("flow", conversation)
		h.start("B", roomy, most(2))
		h.converse(2)
		h.start("A", roomy)
		h.begin("flow", "s2")
		h.until("the third one", 100*ms, func() bool { return len(h.did("first s2")) == 1 })
		h.wait(11 * time.Minute)
		h.equal("sessions", h.counts(), map[string]int{"A": 1, "B": 2})
		h.equal("set-ups", len(h.did("set up")), 3)
	})

	// Sessions without a hand-over, and busy ones, stay. So do all sessions while an operator has switched balance off.
	bubble(t, "others stay", func(h *harness) {
		h.defines(100*ms, nil)
		h.flow("flow", conversation)
		h.start("A", roomy)
		h.converse(4)
		h.start("B", roomy)
		h.wait(11 * time.Minute)
		h.equal("sessions", h.counts(), map[string]int{"A": 4})
	})
	bubble(t, "busy sessions stay", func(h *harness) {
		h.defines(100*ms, nil, prepares)
		h.flow("flow", conversation)
		h.start("A", roomy)
		runs := h.converse(4)
		for i, run := range runs {
			h.ask(run, fmt.Sprint("long ", i), int(12*time.Minute/ms))
		}
		h.start("B", roomy)
		h.wait(11 * time.Minute)
		h.equal("sessions", h.counts(), map[string]int{"A": 4})
		h.equal("set-ups", len(h.did("set up")), 4)
	})
	bubble(t, "off", func(h *harness) {
		h.defines(100*ms, nil, prepares)
		h.flow("flow", conversation)
		h.start("A", roomy)
		h.converse(4)
		h.start("B", roomy)
		if _, err := h.Fleet().SetFleet(h.t.Context(), protocol.FleetSettingsRequest{
			FleetSettings: protocol.FleetSettings{Rebalance: protocol.RebalanceOff},
		}); err != nil {
			h.t.Fatal(err)
		}
		h.wait(3 * time.Minute)
		h.equal("sessions", h.counts(), map[string]int{"A": 4})
		if _, err := h.Fleet().SetFleet(h.t.Context(), protocol.FleetSettingsRequest{}); err != nil {
			h.t.Fatal(err)
		}
		h.wait(7 * time.Minute)
		h.equal("sessions", h.counts(), map[string]int{"A": 2, "B": 2})
	})

	// A session that becomes busy during the set-up stays with its owner, which still receives its tasks; the prepared
	// state is torn down after a minute.
	bubble(t, "busy after the choice", func(h *harness) {
		h.defines(5*sec, nil, prepares)
		h.flow("flow", conversation)
		h.start("A", roomy)
		runs := h.converse(2)
		h.start("B", roomy)
		h.until("the choice", 100*ms, func() bool { return h.reserved("B") == 1 })
		for i, run := range runs {
			h.ask(run, fmt.Sprint("long ", i), int(20*time.Minute/ms))
		}
		h.until("the tear-down", 100*ms, func() bool { return len(h.did("tear down B")) == 1 })
		h.between("the tear-down", h.at(), h.did("set up")[2].to+55*sec, h.did("set up")[2].to+65*sec)
		h.wait(10 * time.Minute)
		h.equal("sessions", h.counts(), map[string]int{"A": 2})
		h.equal("set-ups", len(h.did("set up")), 3)
	})

	// The owner drains during the set-up: the session moves when its running activity has ended, as in every drain.
	bubble(t, "the owner drains", func(h *harness) {
		h.defines(5*sec, nil, prepares)
		h.flow("flow", conversation)
		with := func(o *worker.Options) { roomy(o); o.DrainTimeout = 2 * time.Minute }
		a := h.start("A", with)
		runs := h.converse(2)
		h.start("B", with)
		h.until("the choice", 100*ms, func() bool { return h.reserved("B") == 1 })
		for i, run := range runs {
			h.ask(run, fmt.Sprint("long ", i), int(30*sec/ms))
		}
		done := a.draining()
		h.until("the hand-overs", 100*ms, func() bool { return h.counts()["B"] == 2 })
		h.near("the end of the running tasks", h.at(), h.once("long 1").to, sec)
		done()
		h.equal("set-ups", len(h.did("set up")), 4)
	})

	// The app is restarted between two moves: the limit of one per minute and the ten minutes still apply.
	database := "sqlite:" + filepath.Join(t.TempDir(), "test.db")
	bubbleOn(t, "after a restart of the app", serverOptions{Database: database}, func(h *harness) {
		h.defines(100*ms, nil, prepares)
		h.flow("flow", conversation)
		a := h.start("A", roomy)
		h.converse(8)
		b := h.start("B", roomy)
		h.until("the first move", 100*ms, func() bool { return h.counts()["B"] == 1 })
		for _, p := range []*proc{a, b} {
			p.drop()
		}
		h.close()
		h.testServer = open(h.t, serverOptions{Database: database})
		a.rejoin()
		b.rejoin()
		h.wait(11 * time.Minute)
		h.equal("sessions", h.counts(), map[string]int{"A": 4, "B": 4})
		h.checkPace("B", 8)
		h.equal("moves", len(h.moves("B", 8)), 4)
	})
}
