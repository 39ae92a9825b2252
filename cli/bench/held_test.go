package bench

import (
	"os"
	"testing"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/store"
)

// What an activity needs of its session is remembered as its run is, or comes with it: in a session that is held, a
// workflow makes as many round trips as one without.
func TestAStepInAHeldSessionMakesNoRoundTripOfItsOwn(t *testing.T) {
	// Statements that a workflow of five may take more.
	for kind, more := range map[string]float64{"sqlite": 1, "postgres": 4} {
		t.Run(kind, func(t *testing.T) {
			url := os.Getenv("SOJOURN_TEST_POSTGRES")
			if kind == "postgres" && url == "" {
				t.Skip("SOJOURN_TEST_POSTGRES is not set")
			}
			const ops = 40
			n, err := openNode(t.Context(), nodeOptions{store: kind, postgres: url, worker: "in-process", log: zerolog.Nop()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := n.close(); err != nil {
					t.Error(err)
				}
			}()
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
}
