package bench

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/store"
)

// What an activity needs of its session is remembered as its run is, or comes with it: in a session that is held, a
// workflow makes as many round trips as one without.
func TestAStepInAHeldSessionMakesNoRoundTripOfItsOwn(t *testing.T) {
	// Statements that a workflow of five may take more: on PostgreSQL one a commit, which reads the versions of the
	// tasks in the session; those of runs a process knows without.
	most := map[string]float64{"sqlite": 1, "postgres": 6.5}
	onStores(t, func(t *testing.T, kind string, n *node) {
		more := most[kind]
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
		if each(held.Statements) > each(plain.Statements)+more {
			t.Errorf("%.2f statements a workflow in a held session, %.2f without one, want at most %v more",
				each(held.Statements), each(plain.Statements), more)
		}
	})
}
