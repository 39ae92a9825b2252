package bench

import (
	"encoding/json"
	"math"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// The session data of an activity is cached like its run, or is read together with it: a workflow in a held session
// needs as many round trips and statements as a workflow without one.
func TestAStepInAHeldSessionMakesNoRoundTripOfItsOwn(t *testing.T) {
	onStores(t, func(t *testing.T, _ string, n *node) {
		const ops = 40
		in, err := input()
		if err != nil {
			t.Fatal(err)
		}
		c := watch(&n.app.Dispatch().Hub)
		defer c.stop()
		run := func(workflow string, times int) store.Stats {
			before := n.app.Store().Stats()
			for range times {
				if err := c.workflow(t.Context(), n, workflow, in); err != nil {
					t.Fatal(err)
				}
			}
			now := n.app.Store().Stats()
			return store.Stats{
				Statements: now.Statements - before.Statements, RoundTrips: now.RoundTrips - before.RoundTrips,
			}
		}
		run("five", 5)
		run(heldIn(0), 5) // from now on the session is held
		plain, held := run("five", ops), run(heldIn(0), ops)
		each := func(n int64) float64 { return float64(n) / ops }
		t.Logf("round trips %.2f and %.2f, statements %.2f and %.2f a workflow", each(plain.RoundTrips), each(held.RoundTrips),
			each(plain.Statements), each(held.Statements))
		if each(held.RoundTrips) > each(plain.RoundTrips)+0.5 {
			t.Errorf("%.2f round trips a workflow in a held session, %.2f without one", each(held.RoundTrips),
				each(plain.RoundTrips))
		}
		if each(held.Statements) > each(plain.Statements)+1 {
			t.Errorf("%.2f statements a workflow in a held session, %.2f without one", each(held.Statements),
				each(plain.Statements))
		}
	})
}

// registerTurns registers workflows with sequential activities, with and without a session.
func registerTurns(r *worker.Registry) {
	in := func(session func(workflow.Context) string) func(workflow.Context, int) error {
		return func(ctx workflow.Context, n int) error {
			if id := session(ctx); id != "" {
				ctx = workflow.InSession(ctx, id)
			}
			for range n {
				if err := workflow.ExecuteActivity(ctx, "echo", "").Get(ctx, nil); err != nil {
					return err
				}
			}
			return nil
		}
	}
	r.Workflow("no session", in(func(workflow.Context) string { return "" }))
	r.Workflow("an id that is held", in(func(workflow.Context) string { return "held" }))
	r.Workflow("a mere id", in(func(ctx workflow.Context) string { return "of " + workflow.Info(ctx).RunID }))
	r.Workflow("a started session", func(ctx workflow.Context, n int) error {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
		if err != nil {
			return err
		}
		for range n {
			if err := s.Execute(ctx, "echo", "").Get(ctx, nil); err != nil {
				return err
			}
		}
		return s.End(ctx)
	})
}

// A session costs rows at its beginning and its end, and none for a step in it.
func TestASessionCostsItsBeginningAndItsEnd(t *testing.T) {
	onStores(t, func(t *testing.T, _ string, n *node) {
		const ops = 10
		c := watch(&n.app.Dispatch().Hub)
		defer c.stop()
		// least returns the number of rows that a workflow writes, from the round with the fewest: a task that finds no
		// waiting poll is written twice. It measures until the number is at most enough, or gives up.
		least := func(workflow string, activities int, enough float64) (fewest float64) {
			in := json.RawMessage("[" + strconv.Itoa(activities) + "]")
			for i := 0; i < 3 || i < 20 && fewest > enough; i++ {
				before := n.app.Store().Stats().Rows
				for range ops {
					if err := c.workflow(t.Context(), n, workflow, in); err != nil {
						t.Fatal(err)
					}
				}
				if each := float64(n.app.Store().Stats().Rows-before) / ops; i == 0 || each < fewest {
					fewest = each
				}
			}
			return fewest
		}
		least("an id that is held", 1, math.Inf(1)) // from now on the session is held
		for _, activities := range []int{5, 15} {
			plain := least("no session", activities, math.Inf(1))
			for _, s := range []struct {
				what string
				most float64 // additional rows for the session, for any number of activities
			}{{"a mere id", 2}, {"an id that is held", 0}, {"a started session", 10}} {
				got := least(s.what, activities, plain+s.most+0.5)
				t.Logf("%s: %d activities write %.1f rows, %.1f without", s.what, activities, got, plain)
				if got > plain+s.most+0.5 {
					t.Errorf("want at most %.0f more", s.most)
				}
			}
		}
	})
}

// Limits the additional allocations of a step in a held session: the state of the session, which is loaded once per
// decision, and the session data that is sent to the owner.
func TestAStepInAHeldSessionAllocatesLittleMore(t *testing.T) {
	onStores(t, func(t *testing.T, _ string, n *node) {
		const mostAllocs, mostKilobytes = 74, 17
		const turns, ops = 8, 10
		in, err := input()
		if err != nil {
			t.Fatal(err)
		}
		c := watch(&n.app.Dispatch().Hub)
		defer c.stop()
		run := func(workflow string) (allocs, bytes float64) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range ops {
				if err := c.workflow(t.Context(), n, workflow, in); err != nil {
					t.Fatal(err)
				}
			}
			runtime.ReadMemStats(&after)
			return float64(after.Mallocs-before.Mallocs) / ops, float64(after.TotalAlloc-before.TotalAlloc) / ops / 1024
		}
		run(heldIn(0)) // from now on the session is held
		run("five")
		// Other work of the process affects only single turns, so the median of the differences excludes it.
		var allocs, kilobytes []float64
		for range turns {
			plain, small := run("five")
			held, large := run(heldIn(0))
			allocs, kilobytes = append(allocs, held-plain), append(kilobytes, large-small)
		}
		slices.Sort(allocs)
		slices.Sort(kilobytes)
		more, larger := allocs[turns/2], kilobytes[turns/2]
		t.Logf("%.0f allocations and %.1f KB a workflow more than without a session", more, larger)
		if more > mostAllocs || larger > mostKilobytes {
			t.Errorf("want at most %d and %d KB", mostAllocs, mostKilobytes)
		}
	})
}
