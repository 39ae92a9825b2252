package process_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/process"
)

// drains is the variable that makes the test binary a process that needs time to end.
const drains = "SOJOURN_TEST_DRAINS"

func TestMain(m *testing.M) {
	if os.Getenv(drains) != "" {
		ctx, _ := process.Interrupts()
		fmt.Println("up")
		<-ctx.Done()
		fmt.Println("drains")
		time.Sleep(time.Minute)
		os.Exit(process.ExitUsage) // there was no second signal
	}
	os.Exit(m.Run())
}

func TestTheSecondSignalEndsAProcessThatDrains(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), drains+"=yes")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(out); lines.Scan(); { // each line requests one signal
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != process.ExitFailed {
			t.Errorf("after two of %s: %v", signal, err)
		}
	}
}
