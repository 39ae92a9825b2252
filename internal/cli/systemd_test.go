package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The unit of every role contains the settings that a drain needs.
func TestSystemdUnitsWaitForADrain(t *testing.T) {
	units, err := filepath.Glob("../../deploy/systemd/*.service")
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
			"DynamicUser=yes", "Delegate=yes",
		} {
			if !lines[want] {
				t.Errorf("%s has no line %s", unit, want)
			}
		}
		alone := strings.HasSuffix(unit, "sojourn-worker.service")
		if stable := strings.Contains(string(raw), " SOJOURN_WORKER_ID=%H\n"); stable != alone {
			t.Errorf("%s gives the worker the host name as its ID: %v", unit, stable)
		}
	}
}

// systemd-analyze, if available, reports no errors in the units.
func TestSystemdUnderstandsItsUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("got %q, %v", units, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, unit := range units {
		raw, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		const installed = "ExecStart=/usr/local/lib/sojourn/sojourn"
		if strings.Count(string(raw), installed) != 1 {
			t.Errorf("%s does not say once %s", unit, installed)
		}
		there := filepath.Join(dir, filepath.Base(unit))
		text := strings.ReplaceAll(string(raw), installed, "ExecStart="+self)
		if err := os.WriteFile(there, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(analyze, "verify", "--man=no", there).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
}
