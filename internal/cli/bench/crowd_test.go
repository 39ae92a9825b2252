package bench

import "testing"

// The costs of each of a hundred concurrent workflows of five activities are limits that may only decrease: 21.2 rows,
// no candidate and 1,350 allocations of the process. With a thousand workers that cannot run them, the costs are the
// same. A task that finds no waiting poll is first written as ready, which happens for some workflows on a busy
// machine. Therefore the test uses the lowest of a few measurements.
func TestAHundredWorkflowsTogetherCostNoMoreThanTheyDid(t *testing.T) {
	const atOnce = 100
	onStores(t, func(t *testing.T, _ string, n *node) {
		measure := func() (rows, candidates, allocs float64) {
			return n.spent(t, atOnce, func() error {
				_, err := runTogether(atOnce)(t.Context(), n, atOnce)
				return err
			})
		}
		least := func() (rows, candidates, allocs float64) {
			rows, candidates, allocs = measure()
			for range 4 {
				r, c, a := measure()
				rows, candidates, allocs = min(rows, r), min(candidates, c), min(allocs, a)
			}
			return rows, candidates, allocs
		}
		measure() // warm-up
		rows, candidates, alone := least()
		stop, err := waitForeign(t.Context(), n, foreigners)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		rowsLoaded, candidatesLoaded, loaded := least()
		t.Logf(
			"%.2f rows, %.2f candidates, %.0f allocations each; beside %d foreign pollers %.2f, %.2f, %.0f",
			rows, candidates, alone, foreigners, rowsLoaded, candidatesLoaded, loaded,
		)
		if rows > 22 || candidates > 0.5 || alone > 1500 {
			t.Errorf("want at most 22 rows, 0.5 candidates, 1500 allocations")
		}
		if rowsLoaded > 1.05*rows || candidatesLoaded > 0.5 || loaded > 1.05*alone {
			t.Errorf("want at most a twentieth more beside them")
		}
	})
}
