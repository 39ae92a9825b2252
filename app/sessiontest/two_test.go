package sessiontest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// lock sets the lease of sessions and the idle time; 0 keeps the default.
func lock(lease, idle time.Duration) func(*worker.Options) {
	return func(o *worker.Options) { o.Sessions.Lease, o.Sessions.Idle = lease, idle }
}

// work sets the lease of attempts.
func attempts(lease time.Duration) func(*worker.Options) {
	return func(o *worker.Options) { o.AttemptLease = lease }
}

func slots(n int) func(*worker.Options) { return func(o *worker.Options) { o.Concurrency = n } }
func most(n int) func(*worker.Options)  { return func(o *worker.Options) { o.Sessions.Max = n } }

// turns returns n activities of one session, one after another, named by a prefix.
func turns(ctx workflow.Context, session, prefix string, n, millis int) (workers []string, err error) {
	for i := range n {
		w, err := in(ctx, session, fmt.Sprintf("%s%d", prefix, i+1), millis)
		if err != nil {
			return workers, err
		}
		workers = append(workers, w)
	}
	return workers, nil
}

// twice runs "first" in a session, waits for the signal "go" and runs "second" there.
func twice(ctx workflow.Context, session string, first, second int) ([]string, error) {
	a, err := in(ctx, session, "first", first)
	if err != nil {
		return nil, err
	}
	if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
		return nil, err
	}
	b, err := in(ctx, session, "second", second)
	return []string{a, b}, err
}

// one runs an item in a session, or in none.
func one(ctx workflow.Context, session, item string, millis int) (string, error) {
	return in(ctx, session, item, millis)
}

// The acceptance cases of two workers with the same settings.
func TestTwoWorkers(t *testing.T) {
	bubble(t, "IS-M1", func(h *harness) {
		h.flow("five", func(ctx workflow.Context) ([]string, error) { return turns(ctx, "s", "t", 5, 50) })
		h.start("A")
		h.start("B")
		got := output[[]string](h, h.begin("five"))
		if len(got) != 5 || len(slices.Compact(got)) != 1 {
			h.t.Errorf("got %q, want one worker five times", got)
		}
	})

	bubble(t, "IS-M2", func(h *harness) {
		h.flow("mix", func(ctx workflow.Context) ([]string, error) {
			var plain []workflow.Future
			for i := range 12 {
				plain = append(plain, begin(ctx, "", fmt.Sprintf("plain%d", i), 100))
			}
			got, err := turns(ctx, "s", "s", 5, 100)
			if err != nil {
				return got, err
			}
			return got, workflow.Join(ctx, plain...)
		})
		h.start("A", slots(2))
		h.start("B", slots(2))
		if got := output[[]string](h, h.begin("mix")); len(got) != 5 || len(slices.Compact(got)) != 1 {
			h.t.Errorf("the session ran on %q", got)
		}
		var plain []ran
		for _, r := range h.did() {
			if r.session.ID == "" {
				plain = append(plain, r)
			}
		}
		h.equal("workers of plain activities", distinct(plain), []string{"A", "B"})
	})

	bubble(t, "IS-M3", func(h *harness) {
		h.flow("twice", twice)
		a := h.start("A", lock(2*sec, 0))
		run := h.begin("twice", "s", 10, 10)
		h.until("first is done", 10*ms, func() bool { return len(h.did("first")) == 1 && h.once("first").to > 0 })
		h.start("B", lock(2*sec, 0))
		h.wait(3 * sec) // the lease is renewed meanwhile
		killed, lease := h.at(), h.lease("s")
		a.kill()
		h.signal(run, "go")
		h.equal("workers", output[[]string](h, run), []string{"A", "B"})
		h.between("B ran", h.once("second").from, lease, killed+2*sec+500*ms)
	})

	bubble(t, "IS-M4", func(h *harness) {
		h.flow("twice", twice)
		both := func(o *worker.Options) { lock(sec, 3*sec)(o); attempts(2 * sec)(o) }
		h.start("A", both)
		run := h.begin("twice", "s", 10, 10)
		h.until("first is done", 10*ms, func() bool { return len(h.did("first")) == 1 && h.once("first").to > 0 })
		done := h.once("first").to
		h.start("B", both)
		h.wait(done + 2900*ms - h.at())
		h.equal("owner before the idle time is over", h.owner("s"), "A")
		h.wait(done + 3*sec + sec + 500*ms - h.at())
		h.equal("owner afterwards", h.owner("s"), "")
		h.equal("timeline", h.timeline("s"), []string{"claimed", "idle_unpinned"})
		h.signal(run, "go")
		got := output[[]string](h, run)
		h.equal("owner again", h.owner("s"), got[1])
		if h.once("second").session.Epoch <= h.once("first").session.Epoch {
			h.t.Error("the epoch did not rise")
		}
	})

	bubble(t, "IS-M5", func(h *harness) {
		h.flow("two", func(ctx workflow.Context) ([]string, error) {
			long := begin(ctx, "s", "long", 6000)
			if err := workflow.Sleep(ctx, 100*ms); err != nil {
				return nil, err
			}
			short := begin(ctx, "s", "short", 10)
			if err := workflow.Join(ctx, long, short); err != nil {
				return nil, err
			}
			a, _ := workflow.Await[string](ctx, long)
			b, err := workflow.Await[string](ctx, short)
			return []string{a, b}, err
		})
		with := func(o *worker.Options) { lock(2*sec, 0)(o); slots(1)(o) }
		h.start("A", with)
		run := h.begin("two")
		h.running("long")
		h.start("B", with)
		for range 11 { // the lease is renewed at each interval, so more than half of it always remains
			h.wait(500 * ms)
			h.equal("owner", h.owner("s"), "A")
			if left := h.lease("s") - h.at(); left < 900*ms {
				h.t.Errorf("at %s %s of the lease are left", h.at(), left)
			}
		}
		h.equal("workers", output[[]string](h, run), []string{"A", "A"})
		h.equal("attempt", h.once("long").attempt, 1)
		h.equal("attempt", h.once("short").attempt, 1)
	})

	bubble(t, "IS-M6", func(h *harness) {
		h.flow("one", one)
		for i := range 20 {
			a := h.start(fmt.Sprintf("A%d", i))
			b := h.start(fmt.Sprintf("B%d", i))
			session := fmt.Sprintf("s%d", i)
			got := output[string](h, h.begin("one", session, session, 10))
			h.equal("worker", h.once(session).worker, got)
			h.equal("owner", h.owner(session), got)
			h.equal("timeline", h.timeline(session), []string{"claimed"})
			a.stop()
			b.stop()
		}
	})

	bubble(t, "IS-M7", func(h *harness) {
		h.flow("one", one)
		h.start("A", most(1))
		long := h.begin("one", "s1", "long", 20_000)
		h.running("long")
		h.start("B", most(1))
		began := h.at()
		h.equal("worker of s2", output[string](h, h.begin("one", "s2", "short", 10)), "B")
		h.between("s2 ran", h.once("short").from, began, began+500*ms)
		h.equal("worker of s1", output[string](h, long), "A")
	})

	bubble(t, "IS-M8", func(h *harness) {
		h.flow("again", func(ctx workflow.Context, session string, n int, workers []string) ([]string, error) {
			w, err := in(ctx, session, fmt.Sprintf("t%d", n), 10)
			if err != nil {
				return nil, err
			}
			if workers = append(workers, w); n < 2 {
				return nil, workflow.ContinueAsNew(ctx, session, n+1, workers)
			}
			return workers, nil
		})
		h.start("A")
		h.start("B")
		got := output[[]string](h, h.begin("again", "s", 1, []string{}))
		if len(got) != 2 || got[0] != got[1] {
			h.t.Errorf("ran on %q", got)
		}
		h.equal("timeline", h.timeline("s"), []string{"claimed"})
		h.equal("epochs", h.once("t1").session.Epoch, h.once("t2").session.Epoch)
	})

	bubble(t, "IS-M9", func(h *harness) {
		h.flow("one", one)
		h.flow("mix", func(ctx workflow.Context) (int, error) {
			var all []workflow.Future
			for i := range 16 {
				session := ""
				// The first task is in the session; tasks without a session come before and after the other tasks.
				if i%4 == 0 {
					session = "s"
				}
				all = append(all, begin(ctx, session, fmt.Sprintf("t%d", i), 100))
			}
			return len(all), workflow.Join(ctx, all...)
		})
		h.start("A", slots(2))
		h.equal("holder", output[string](h, h.begin("one", "s", "first", 10)), "A")
		h.start("B", slots(1))
		began := h.at()
		output[int](h, h.begin("mix"))
		var plain, bound []ran
		for _, r := range h.did() {
			if r.session.ID == "" {
				plain = append(plain, r)
			} else {
				bound = append(bound, r)
			}
		}
		h.equal("workers of the session", distinct(bound), []string{"A"})
		h.equal("workers of plain activities", distinct(plain), []string{"A", "B"})
		h.equal("items", fmt.Sprint(len(bound), len(plain)), "5 12")
		for _, r := range plain { // B completed all of them in 1.2 s, so none of them waited for the session
			h.between("a plain item ran", r.from, began, began+1200*ms)
		}
	})

	bubble(t, "IS-M10", func(h *harness) {
		h.flow("one", one)
		with := func(o *worker.Options) { lock(2*sec, 0)(o); attempts(2 * sec)(o) }
		a := h.start("A", with)
		run := h.begin("one", "s", "item", 4000)
		first := h.running("item")
		h.start("B", with)
		h.wait(2500 * ms)
		killed, lease := h.at(), h.lease("s")
		a.kill()
		h.equal("result", output[string](h, run), "B")
		both := h.did("item")
		if len(both) != 2 || both[1].worker != "B" || both[1].attempt != 2 {
			h.t.Fatalf("ran %+v", both)
		}
		h.between("B began", both[1].from, lease, killed+2*sec+500*ms)
		result, _ := payload.Encode("late")
		out, err := h.Complete(h.t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{{
			Kind: protocol.KindActivity, TaskID: first.id[:len(first.id)-2], Owner: "A", AttemptID: first.id, Result: result,
		}}})
		if err != nil || protocol.ReasonOf(out.Items[0].Err) == "" {
			h.t.Errorf("a late result of A: %+v, %v", out, err)
		}
		n := 0
		for _, typ := range h.types(run) {
			if typ == "ActivityCompleted" {
				n++
			}
		}
		h.equal("results", n, 1)
	})

	bubble(t, "IS-M11", func(h *harness) {
		h.flow("rounds", func(ctx workflow.Context, session string) ([]string, error) {
			return turns(ctx, session, session+"-", 4, 100)
		})
		h.start("A", slots(3))
		h.start("B", slots(3))
		var runs []string
		for i := range 10 {
			runs = append(runs, h.begin("rounds", fmt.Sprintf("s%d", i)))
		}
		for i, run := range runs {
			if got := output[[]string](h, run); len(got) != 4 || len(slices.Compact(got)) != 1 {
				h.t.Errorf("session %d ran as %+v", i, h.inSession(fmt.Sprintf("s%d", i)))
			}
		}
		h.equal("workers", distinct(h.did()), []string{"A", "B"})
		h.equal("executions", len(h.did()), 40)
	})

	bubble(t, "IS-M12", func(h *harness) {
		h.flow("twice", twice)
		n1 := h.start("n1")
		run := h.begin("twice", "s", 10, 10_000)
		h.until("first is done", 10*ms, func() bool { return len(h.did("first")) == 1 && h.once("first").to > 0 })
		h.start("B")
		n1.kill()
		h.start("n1")
		began := h.at()
		h.signal(run, "go")
		h.near("the restarted worker ran the next item", h.running("second").from, began, 200*ms)
		second := h.did("second")[0]
		h.equal("worker", second.worker, "n1")
		if second.session.Epoch <= h.once("first").session.Epoch || !second.session.IsNew {
			h.t.Errorf("epoch %d, new %t, after %d", second.session.Epoch, second.session.IsNew, h.once("first").session.Epoch)
		}
	})

	bubble(t, "IS-M12-in-flight", func(h *harness) {
		h.flow("one", one)
		n1 := h.start("n1")
		run := h.begin("one", "s", "item", 2000)
		h.running("item")
		h.start("B")
		n1.kill()
		began := h.at()
		h.start("n1")
		h.equal("result", output[string](h, run), "n1")
		both := h.did("item")
		if len(both) != 2 || both[1].attempt != 2 {
			h.t.Fatalf("ran %+v", both)
		}
		h.near("redelivered", both[1].from, began+sec, 200*ms) // a blamed task has a backoff of one second
	})

	bubble(t, "IS-M12-control", func(h *harness) {
		h.flow("twice", twice)
		n1 := h.start("n1", lock(10*sec, 0))
		run := h.begin("twice", "s", 10, 10)
		h.until("first is done", 10*ms, func() bool { return len(h.did("first")) == 1 && h.once("first").to > 0 })
		n1.kill()
		lease := h.lease("s")
		h.start("n2")
		h.signal(run, "go")
		h.equal("workers", output[[]string](h, run), []string{"n1", "n2"})
		h.between("another worker ran it", h.once("second").from, lease, lease+500*ms)
	})
}
