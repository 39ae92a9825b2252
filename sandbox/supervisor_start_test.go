package sandbox_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
)

// A supervisor runs before the other packages of the program are initialised, because that would take longer than
// starting an executor.
func TestASupervisorInitialisesOnlyItsOwnPackages(t *testing.T) {
	var stderr bytes.Buffer
	cmd := &exec.Cmd{
		Path: os.Args[0], Args: []string{supervisor.Name}, Env: []string{"GODEBUG=inittrace=1"}, Stderr: &stderr,
	}
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 2 {
		t.Fatalf("a supervisor without a worker: %v", err)
	}
	if text := stderr.String(); !strings.Contains(text, "init syscall @") || strings.Contains(text, "/sojourn/sandbox @") {
		t.Errorf("it initialised:\n%s", text)
	}
}
