package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a drain relies on stands in the unit of every role.
func TestSystemdUnitsWaitForADrain(t *testing.T) {
	units, err := filepath.Glob("../deploy/systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("got %q, %v", units, err)
	}
	for _, unit := range units {
		raw, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		lines := map[string]bool{}
		for line := range strings.Lines(string(raw)) {
			lines[strings.TrimSpace(line)] = true
		}
		for _, want := range []string{
			"TimeoutStopSec=40", "KillMode=mixed", "Restart=on-failure", "RestartPreventExitStatus=2",
			"DynamicUser=yes",
		} {
			if !lines[want] {
				t.Errorf("%s has no line %s", unit, want)
			}
		}
	}
}
