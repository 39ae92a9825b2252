package bench

import (
	"runtime"
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/app/store"
)

// What an activity needs of its session is remembered as its run is, or comes with it: in a session that is held, a
// workflow makes as many round trips as one without, with as many statements, and writes as many rows.
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
				Rows: now.Rows - before.Rows,
			}
		}
		run("five", 5)
		run(heldIn(0), 5) // now it is held
		plain, held := run("five", ops), run(heldIn(0), ops)
		each := func(n int64) float64 { return float64(n) / ops }
		t.Logf("round trips %.2f and %.2f, statements %.2f and %.2f, rows %.2f and %.2f a workflow", each(plain.RoundTrips),
			each(held.RoundTrips), each(plain.Statements), each(held.Statements), each(plain.Rows), each(held.Rows))
		if each(held.RoundTrips) > each(plain.RoundTrips)+0.5 {
			t.Errorf("%.2f round trips a workflow in a held session, %.2f without one", each(held.RoundTrips),
				each(plain.RoundTrips))
		}
		if each(held.Statements) > each(plain.Statements)+1 {
			t.Errorf("%.2f statements a workflow in a held session, %.2f without one", each(held.Statements),
				each(plain.Statements))
		}
		if each(held.Rows) > each(plain.Rows)+0.5 {
			t.Errorf("%.2f rows a workflow in a held session, %.2f without one", each(held.Rows), each(plain.Rows))
		}
	})
}

// What a step in a held session makes garbage of beside what any other makes: the state of the session that it decides
// on, once, and what the holder is told of it.
func TestAStepInAHeldSessionAllocatesLittleMore(t *testing.T) {
	onStores(t, func(t *testing.T, kind string, n *node) {
		most := map[string]struct{ allocs, kilobytes float64 }{"sqlite": {70, 13.5}, "postgres": {65, 15}}[kind]
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
		run(heldIn(0)) // now it is held
		run("five")
		// Whatever else the process does is in single turns: the median of their differences has none of it.
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
		if more > most.allocs || larger > most.kilobytes {
			t.Errorf("want at most %.0f and %.1f KB", most.allocs, most.kilobytes)
		}
	})
}
