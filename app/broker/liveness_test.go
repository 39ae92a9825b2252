package broker_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Polls of a superseded incarnation are rejected. They do not affect the liveness of its successor.
func TestAnOlderProcessDoesNotAffectTheRunningOne(t *testing.T) {
	a := newApp(t)
	const older, newer = "01K0000000000000000000000A", "01K0000000000000000000000B"
	for _, process := range []string{older, newer} {
		must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
			WorkerID: "w", Incarnation: process, TaskQueue: "default", WorkflowTypes: []string{"wf"},
			Capabilities: []string{broker.CapSessions},
		}))
	}
	beat := func(process string) error {
		_, err := a.WorkerHeartbeat(
			t.Context(), protocol.WorkerHeartbeat{WorkerID: "w", Incarnation: process, Machine: []byte(`{"hostname":"h"}`)},
		)
		return err
	}
	if err := beat(newer); err != nil {
		t.Fatal(err)
	}
	if err := beat(older); protocol.ReasonOf(err) != protocol.ReasonStaleRegistration {
		t.Fatalf("the older process: %v, want %s", err, protocol.ReasonStaleRegistration)
	}
	v, err := a.Worker(t.Context(), "", "w")
	if err != nil || v.Status != protocol.WorkerActive {
		t.Errorf("the living process is %s (%v), want %s", v.Status, err, protocol.WorkerActive)
	}
}
