package link

import (
	"context"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestHangingTelemetryDoesNotBlockHeartbeats(t *testing.T) {
	release := make(chan struct{})
	m := watchMachine(t.TempDir(), func(context.Context, string) protocol.MachineInformation { // ignores its context
		<-release
		return protocol.MachineInformation{Cores: 7}
	})
	done := make(chan protocol.MachineInformation)
	go func() { done <- m.Latest() }()
	select {
	case now := <-done:
		if now.Cores != 0 {
			t.Errorf("got %+v", now)
		}
	case <-time.After(2 * time.Minute):
		t.Error("asking for the machine waits for its telemetry")
	}
	close(release)
	m.Close()
	if now := m.Latest(); now.Cores != 7 {
		t.Errorf("got %+v", now)
	}
}

func TestMachineIsReal(t *testing.T) {
	now := sample(t.Context(), t.TempDir())
	if now.Cores <= 0 || now.TotalRAM == 0 || now.Disk == nil || now.Disk.Total == 0 {
		t.Errorf("got %+v", now)
	}
}
