package bench

import (
	"testing"

	"github.com/rs/zerolog"
)

// Polls that cannot run the tasks of a queue add no costs to these tasks: neither allocations in sequential workflows,
// nor candidates for leases.
func TestForeignPollersCostNothing(t *testing.T) {
	const ops = 40
	n, err := openNode(t.Context(), nodeOptions{store: "sqlite", worker: "in-process", log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	}()
	measure := func() (allocs, candidates float64) {
		_, candidates, allocs = n.spent(t, ops, func() error {
			_, err := runTogether(1)(t.Context(), n, ops)
			return err
		})
		return allocs, candidates
	}
	measure() // warm-up
	alone, few := measure()
	stop, err := waitForeign(t.Context(), n, foreigners)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	loaded, more := measure()
	t.Logf("allocations %.0f and %.0f, candidates %.2f and %.2f a workflow", alone, loaded, few, more)
	if loaded > 1.05*alone {
		t.Errorf("%.0f allocations a workflow next to %d foreign pollers, %.0f alone", loaded, foreigners, alone)
	}
	if more > few+0.5 {
		t.Errorf("%.2f candidates a workflow beside %d foreign pollers, %.2f alone", more, foreigners, few)
	}
}
