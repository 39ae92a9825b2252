package read

import (
	"math"
	"testing"
	"time"
)

// A search with a time limit reads at most as many runs at once as fit into the remaining time.
func TestAWindowFitsTheTimeThatIsLeft(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		runs     int
		took, in time.Duration
		want     int
	}{
		{2000, 40 * ms, 20 * ms, 1000},
		{500, ms, 79 * ms, 39_500},
		{500, 0, 80 * ms, math.MaxInt32}, // the clock did not advance
		{500, ms, 0, 0},
		{16_000, 100 * ms, -20 * ms, -3200},
	} {
		if got := fitting(c.runs, c.took, c.in); got != c.want {
			t.Errorf("%d runs in %s, %s left: %d more, want %d", c.runs, c.took, c.in, got, c.want)
		}
	}
}
