package bench

import (
	"math"
	"testing"
)

// The costs of each of 1,000 parallel activities are limits that may only decrease: 3.1 rows and about 175 allocations,
// as for each of 100. The test uses the lowest of a few measurements, since a task that finds no waiting poll is
// written once more.
func TestAThousandParallelActivitiesCostNoMoreEachThanAHundred(t *testing.T) {
	const growth = 1.2
	onStores(t, func(t *testing.T, _ string, n *node) {
		least := func(wide, times int) (rows, allocs float64) {
			c := watch(&n.app.Dispatch().Hub)
			defer c.stop()
			rows, allocs = math.Inf(1), math.Inf(1)
			for range times {
				r, _, a := n.spent(t, float64(wide), func() error { return c.wide(t.Context(), n, wide) })
				t.Logf("%d wide: %.2f rows, %.0f allocations each", wide, r, a)
				rows, allocs = min(rows, r), min(allocs, a)
			}
			n.arrivals.takeAll()
			return rows, allocs
		}
		least(100, 1) // warm-up: some statements run only once
		_, few := least(100, 5)
		rows, many := least(1000, 5)
		if rows > 4 || many > growth*few {
			t.Errorf("%.2f rows and %.0f allocations each, of 100 %.0f; want at most 4, and %.1f times as many", rows, many, few,
				growth)
		}
	})
}
