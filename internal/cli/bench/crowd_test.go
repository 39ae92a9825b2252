package bench

import "testing"

// What each of a hundred workflows of five activities, all at once, costs may only fall; and beside a thousand workers
// that cannot serve them each costs what it does alone. It is 21.2 rows and no candidate; 1,350 allocations, of all of
// the process. A task that finds no poll free is written ready first, on a busy
// machine for some of the workflows: so the least of a few measurements counts, which is what the code costs.
func TestAHundredWorkflowsTogetherCostNoMoreThanTheyDid(t *testing.T) {
	const atOnce = 100
	onStores(t, func(t *testing.T, _ string, n *node) {
		measure := func() (rows, candidates, allocs float64) {
			return n.spent(t, atOnce, func() error {
				_, err := together(atOnce)(t.Context(), n, atOnce)
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
		measure() // what is made once
		rows, candidates, alone := least()
		stop, err := waitForeign(t.Context(), n, foreigners)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		rowsBeside, candidatesBeside, beside := least()
		t.Logf(
			"%.2f rows, %.2f candidates, %.0f allocations each; beside %d foreign pollers %.2f, %.2f, %.0f",
			rows, candidates, alone, foreigners, rowsBeside, candidatesBeside, beside,
		)
		if rows > 22 || candidates > 0.5 || alone > 1450 {
			t.Errorf("want at most 22 rows, 0.5 candidates, 1450 allocations")
		}
		if rowsBeside > 1.05*rows || candidatesBeside > 0.5 || beside > 1.05*alone {
			t.Errorf("want at most a twentieth more beside them")
		}
	})
}
