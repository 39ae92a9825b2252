package bench

import (
	"math"
	"slices"
	"testing"
	"time"
)

// The order within a pair alternates, the last turn may be shorter, and pairs with interference are ignored.
func TestMeasurementsAlternateInPairs(t *testing.T) {
	var order []string
	var sizes []int
	side := func(name string, used ...time.Duration) func(int) (sample, error) {
		return func(ops int) (sample, error) {
			one := sample{used: used[0], each: make([]time.Duration, ops)}
			order, sizes, used = append(order, name), append(sizes, ops), used[1:]
			return one, nil
		}
	}
	s, err := inTurns(35, 10, side("plain", 100, 100, 100, 100), side("with", 103, 900, 10, 105))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"plain", "with", "with", "plain", "plain", "with", "with", "plain"}; !slices.Equal(order, want) {
		t.Errorf("in the order %v", order)
	}
	if want := []int{10, 10, 10, 10, 10, 10, 5, 5}; !slices.Equal(sizes, want) {
		t.Errorf("turns of %v", sizes)
	}
	if len(s.each) != 35 || len(s.without) != 35 {
		t.Errorf("%d and %d operations", len(s.each), len(s.without))
	}
	if got := spent(s); math.Abs(got-4) > 0.001 {
		t.Errorf("%.2f %% more", got)
	}
}
