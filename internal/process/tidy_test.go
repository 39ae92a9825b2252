package process

import (
	"fmt"
	"testing"
)

// A process returns memory to the system after a load and while it is idle, not during a load, and not small amounts.
func TestIdleProcessReturnsMemory(t *testing.T) {
	const mb = 1 << 20
	var m allocationTotals
	got := ""
	for _, at := range []uint64{1000 * mb, 5000 * mb, 5001 * mb, 5002 * mb, 5017 * mb, 5018 * mb, 5060 * mb, 6000 * mb} {
		if m.due(at) {
			got += fmt.Sprint(" ", at/mb)
		}
	}
	if want := " 5001 5017 5060"; got != want {
		t.Errorf("tidied at%s, want%s", got, want)
	}
}
