package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The number of drains of a namespace is limited. Drains of single workers that have deregistered are removed after a
// day.
func TestDrainsOfDeregisteredWorkersAreRemoved(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var q Queue
	here := func(worker string) bool { return worker == "w0" }
	drain := func(target protocol.FleetTarget, after time.Duration) error {
		return DrainFleet{Drain: Drain{FleetTarget: target}, Here: here}.decide(&q, history.At(began.Add(after)))
	}
	one := func(i int) protocol.FleetTarget { return protocol.FleetTarget{WorkerID: fmt.Sprint("w", i)} }
	group := protocol.FleetTarget{Group: "g"}
	if err := drain(group, 0); err != nil {
		t.Fatal(err)
	}
	for i := range maxDrains - 1 {
		if err := drain(one(i), 0); err != nil {
			t.Fatalf("drain %d: %v", i, err)
		}
	}
	if err := drain(one(maxDrains), forgetDrain-time.Second); protocol.ReasonOf(err) != protocol.ReasonValidation {
		t.Errorf("one more: %v", err)
	}
	if err := drain(one(7), forgetDrain-time.Second); err != nil || len(q.Drains) != maxDrains {
		t.Errorf("drain of one of these workers again: %v, %d drains", err, len(q.Drains))
	}
	if err := drain(one(maxDrains), forgetDrain); err != nil || len(q.Drains) != 3 || q.Drains[0].FleetTarget != group ||
		q.Drains[1].FleetTarget != one(0) {
		t.Errorf("a day later: %v, %d drains", err, len(q.Drains))
	}
}
