package bench

import (
	"math"
	"testing"
)

// What each of a hundred workflows over HTTP costs, all open at once on fifty connections, may only fall: a worker that
// completes a task goes on with the run, so that of its tasks two in eleven have to be written ready and found. It is
// 40 rows, 2.3 candidates and 12.5 requests, and 4,100 allocations of app and client; before, it was 52, 10 and 13.5.
// The lesser of two measurements counts, as on a busy machine connections wait for one another.
func TestAWorkflowOverHTTPCostsNoMoreThanItDid(t *testing.T) {
	onStores(t, func(t *testing.T, _ string, n *node) {
		for _, ops := range []int{100, 200} {
			rows, candidates, allocs, trips := math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)
			for range 2 {
				before := n.trips.Load()
				r, c, a := n.spent(t, float64(ops), func() error {
					_, err := overHTTP(t.Context(), n, ops)
					return err
				})
				rows, candidates, allocs = min(rows, r), min(candidates, c), min(allocs, a)
				trips = min(trips, float64(n.trips.Load()-before)/float64(ops))
			}
			t.Logf("%d: %.1f rows, %.1f candidates, %.1f requests, %.0f allocations each", ops, rows, candidates, trips, allocs)
			if rows > 43 || candidates > 4 || trips > 13.2 || allocs > 4500 {
				t.Errorf("want at most 43 rows, 4 candidates, 13.2 requests, 4500 allocations")
			}
		}
	})
}
