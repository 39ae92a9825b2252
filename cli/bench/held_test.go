package bench

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/store"
)

// What an activity needs of its session is remembered as its run is, or comes with it: in a session that is held, a
// workflow makes as many round trips as one without, with as many statements.
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
			return store.Stats{Statements: now.Statements - before.Statements, RoundTrips: now.RoundTrips - before.RoundTrips}
		}
		run("five", 5)
		run(heldIn(0), 5) // now it is held
		plain, held := run("five", ops), run(heldIn(0), ops)
		each := func(n int64) float64 { return float64(n) / ops }
		t.Logf("round trips %.2f and %.2f, statements %.2f and %.2f a workflow", each(plain.RoundTrips),
			each(held.RoundTrips), each(plain.Statements), each(held.Statements))
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
