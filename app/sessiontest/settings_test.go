package sessiontest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/internal/sweep"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// done waits until an item has run, and returns that execution.
func (h *harness) done(item string) ran {
	h.t.Helper()
	var last ran
	h.until(item+" is done", 5*ms, func() bool {
		for _, r := range h.did(item) {
			if last = r; r.to > 0 {
				return true
			}
		}
		return false
	})
	return last
}

// leased returns the duration of a session's lease, counted from its last renewal.
func (h *harness) leased(id string) time.Duration {
	h.t.Helper()
	s, ok := h.row(id)
	if !ok {
		h.t.Fatalf("no row of %s", id)
	}
	return s.LeaseUntil.Sub(s.RenewedAt.Time)
}

// inSession returns the executions in a session or, with "", in none.
func (h *harness) inSession(id string) (list []ran) {
	for _, r := range h.did() {
		if r.session.ID == id {
			list = append(list, r)
		}
	}
	return list
}

// The settings of each worker apply to the leases that it holds.
func TestWorkersWithSettingsOfTheirOwn(t *testing.T) {
	bubble(t, "IS-H1", func(h *harness) {
		h.flow("twice", twice)
		a := h.start("A", lock(5*sec, 0))
		run := h.begin("twice", "s", 10, 10)
		h.done("first")
		h.start("B", lock(60*sec, 0))
		h.wait(7 * sec)
		h.equal("lease", h.leased("s"), 5*sec)
		killed, lease := h.at(), h.lease("s")
		a.kill()
		h.signal(run, "go")
		h.equal("workers", output[[]string](h, run), []string{"A", "B"})
		h.between("B ran", h.once("second").from, lease, killed+5*sec+500*ms)
		h.equal("lease", h.leased("s"), 60*sec)
		h.wait(70 * sec)
		h.equal("owner", h.owner("s"), "B")
		h.equal("lease after renewals", h.leased("s"), 60*sec)
	})

	bubble(t, "IS-H2", func(h *harness) {
		h.flow("twice", twice)
		h.flow("one", one)
		h.start("B", lock(2*sec, 10*time.Minute), most(1))
		output[string](h, h.begin("one", "t", "t", 10))
		claimed := h.at()
		a := h.start("A", lock(2*sec, 3*sec)) // B has its maximum of sessions
		run := h.begin("twice", "s", 10, 10)
		done := h.done("first").to
		h.wait(done + 2900*ms - h.at())
		h.equal("owner", h.owner("s"), "A")
		h.wait(done + 3*sec + sec + 2*sec - h.at())
		h.equal("owner", h.owner("s"), "")
		a.stop()
		h.start("C", lock(2*sec, 10*time.Minute), most(1))
		h.signal(run, "go")
		h.equal("workers", output[[]string](h, run), []string{"A", "C"})
		h.wait(claimed + 9*time.Minute - h.at())
		h.equal("owner of an idle session of B", h.owner("t"), "B")
		h.wait(claimed + 10*time.Minute + 5*sec - h.at())
		h.equal("owner after B's idle time", h.owner("t"), "")
		h.equal("owner of a younger session", h.owner("s"), "C")
	})

	bubble(t, "IS-H3", func(h *harness) {
		h.flow("one", one)
		h.start("A", most(2), slots(4))
		var runs []string
		for i := range 5 {
			runs = append(runs, h.begin("one", fmt.Sprintf("s%d", i), fmt.Sprintf("long%d", i), 10_000))
		}
		h.wait(200 * ms)
		h.equal("sessions of A", len(h.did()), 2)
		h.start("B", most(100), slots(5))
		h.wait(200 * ms)
		h.equal("sessions of both", len(h.did()), 5)
		for i := range 10 {
			runs = append(runs, h.begin("one", "", fmt.Sprintf("plain%d", i), 500))
		}
		for _, run := range runs {
			output[string](h, run)
		}
		held := map[string]int{}
		for i := range 5 {
			held[h.once(fmt.Sprintf("long%d", i)).worker]++
		}
		h.equal("sessions held", held, map[string]int{"A": 2, "B": 3})
		h.equal("workers of plain activities", distinct(h.inSession("")), []string{"A", "B"})
	})

	bubble(t, "IS-H4", func(h *harness) {
		h.flow("one", one)
		h.start("A", most(0), slots(2))
		h.start("B", most(100), slots(2))
		var runs []string
		for i := range 20 {
			session := ""
			if i%2 == 0 && i < 12 {
				session = fmt.Sprintf("s%d", i)
			}
			runs = append(runs, h.begin("one", session, fmt.Sprintf("t%d", i), 300))
		}
		for _, run := range runs {
			output[string](h, run)
		}
		for i := 0; i < 12; i += 2 {
			h.equal("worker", h.once(fmt.Sprintf("t%d", i)).worker, "B")
			h.equal("owner", h.owner(fmt.Sprintf("s%d", i)), "B")
			for _, e := range h.entries(fmt.Sprintf("s%d", i)) { // A never acquired the session
				h.equal("worker of the timeline", e.Worker, "B")
			}
		}
		h.equal("workers of plain activities", distinct(h.inSession("")), []string{"A", "B"})
	})

	bubble(t, "IS-H5", func(h *harness) {
		h.flow("twice", twice)
		h.flow("one", one)
		a := h.start("A", lock(10*sec, 12*sec))
		run := h.begin("twice", "s", 10, 10)
		h.done("first")
		h.until("A unpins", sec, func() bool { return h.owner("s") == "" })
		a.stop()
		b := h.start("B", lock(60*sec, 10*time.Minute))
		h.signal(run, "go")
		h.equal("workers", output[[]string](h, run), []string{"A", "B"})
		h.wait(80 * sec)
		killed, lease := h.at(), h.lease("s")
		b.kill()
		h.start("C", lock(10*sec, 12*sec))
		h.equal("worker", output[string](h, h.begin("one", "s", "third", 10)), "C")
		h.between("C ran", h.once("third").from, lease, killed+60*sec+500*ms)
	})

	bubbleOn(t, "IS-H6", serverOptions{Cleanup: 5 * sec}, func(h *harness) {
		h.flow("turns", func(ctx workflow.Context, session string) ([]string, error) {
			return turns(ctx, session, session+"-", 4, 5000)
		})
		h.flow("one", one)
		slow := sweep.New(h.store, h.Due, sweep.Options{Cleanup: 10 * time.Minute, Remove: h.CleanUp})
		ctx, stop := h.context()
		swept := make(chan struct{})
		go func() { defer close(swept); slow.Run(ctx) }()
		defer func() { stop(); <-swept }()
		a := h.start("A", most(1))
		first := h.begin("turns", "sa")
		h.running("sa-1")
		h.start("B", lock(10*sec, 6*sec))
		second := h.begin("turns", "sb")
		h.running("sb-1")
		for range 15 {
			h.wait(sec)
			h.equal("owner of sa", h.owner("sa"), "A")
			h.equal("owner of sb", h.owner("sb"), "B")
		}
		for _, run := range []string{first, second} {
			if got := output[[]string](h, run); len(slices.Compact(got)) != 1 {
				h.t.Errorf("a session ran on %q", got)
			}
		}
		h.until("B unpins sb", sec, func() bool { return h.owner("sb") == "" })
		h.wait(6 * sec)
		if s, ok := h.row("sb"); ok {
			h.t.Errorf("the row of an expired session without items is still there: %+v", s)
		}
		if _, ok := h.row("sa"); !ok {
			h.t.Error("the row of a live session is gone")
		}
		a.stop()
	})

	bubble(t, "IS-H7", func(h *harness) {
		h.flow("one", one)
		names := func(o *worker.Options) { o.WorkerID = "" }
		a := h.start("stable-A", most(1))
		output[string](h, h.begin("one", "sa", "a1", 10))
		b := h.start("B", names, lock(10*sec, 0))
		output[string](h, h.begin("one", "sb", "b1", 10))
		h.equal("owner of sa", h.owner("sa"), "stable-A")
		h.equal("owner of sb", h.owner("sb"), b.ID())
		a.kill()
		b.kill()
		lease := h.lease("sb")
		h.start("stable-A")
		restarted := h.start("B", names, lock(10*sec, 0))
		if restarted.ID() == b.ID() {
			h.t.Errorf("both processes are called %s", b.ID())
		}
		began := h.at()
		ra, rb := h.begin("one", "sa", "a2", 10), h.begin("one", "sb", "b2", 10)
		output[string](h, ra)
		output[string](h, rb)
		h.equal("worker of sa", h.once("a2").worker, "stable-A")
		h.near("it ran", h.once("a2").from, began, 200*ms)
		h.between("the other session moved", h.once("b2").from, lease, lease+500*ms)
	})

	bubble(t, "IS-H8", func(h *harness) {
		h.flow("one", one)
		h.start("A", slots(1))
		long := h.begin("one", "s", "long", 30_000)
		h.running("long")
		h.start("B", slots(4))
		began := h.at()
		var runs []string
		for i := range 8 {
			runs = append(runs, h.begin("one", "", fmt.Sprintf("plain%d", i), 1000))
		}
		for _, run := range runs {
			h.equal("worker", output[string](h, run), "B")
		}
		h.near("plain activities done", h.at(), began+2*sec, 300*ms)
		h.equal("worker", output[string](h, long), "A")
	})

	for _, c := range []struct {
		name        string
		lease, idle time.Duration
		long, bump  time.Duration
		session     time.Duration
	}{
		{"IS-H9", 30 * sec, 5 * time.Minute, 3 * time.Minute, 25 * sec, 30 * sec},
		{"IS-H9-scaled", 2 * sec, 3 * sec, 8 * sec, sec, 2 * sec},
	} {
		bubble(t, c.name, func(h *harness) {
			h.flow("two", func(ctx workflow.Context) ([]string, error) {
				a, err := in(ctx, "s", "long", int(c.long/ms))
				if err != nil {
					return nil, err
				}
				b, err := in(ctx, "s", "next", 10)
				return []string{a, b}, err
			})
			with := func(o *worker.Options) { attempts(c.lease)(o); lock(c.session, c.idle)(o) }
			h.start("A", with)
			run := h.begin("two")
			h.running("long")
			h.start("B", with)
			for h.once("long").to == 0 {
				h.wait(c.bump / 5)
				s, _ := h.row("s")
				if rests := time.Since(s.LastActivity.Time); s.Owner != "A" || rests > c.bump+50*ms {
					h.t.Fatalf("at %s: last activity %s ago, owner %q", h.at(), rests, s.Owner)
				}
			}
			h.equal("workers", output[[]string](h, run), []string{"A", "A"})
			h.equal("attempt", h.once("long").attempt, 1)
		})
	}

	bubble(t, "IS-H10", func(h *harness) {
		h.flow("one", one)
		for _, c := range []struct {
			attempt, idle time.Duration
			values        []string // empty: it starts
		}{
			{10 * time.Minute, 5 * time.Minute, []string{"300", "595"}},
			{30 * sec, 25 * sec, []string{"25"}},
			{30 * sec, 26 * sec, nil},
		} {
			p, err := h.make("A", attempts(c.attempt), func(o *worker.Options) { o.Sessions.Idle = c.idle })
			if len(c.values) == 0 {
				if err != nil {
					h.t.Errorf("lease %s, idle %s: %v", c.attempt, c.idle, err)
				} else {
					p.stop()
				}
				continue
			}
			if err == nil {
				h.t.Errorf("lease %s, idle %s: it started", c.attempt, c.idle)
				p.stop()
				continue
			}
			for _, v := range c.values {
				if !strings.Contains(err.Error(), v) {
					h.t.Errorf("%q does not say %s", err, v)
				}
			}
		}
	})
}
