package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// heldEverywhere are the tests of isolation and of the ends of executors. They run in every setting of workers: as root
// and as a user, each also in a container.
var heldEverywhere = []string{
	"TestSettingHasItsProperties",
	"TestAttacks",
	"TestAnotherSessionIsOutOfReach",
	"TestSessionLeavesNoStateForTheNext",
	"TestOrdinaryCodeRunsConfined",
	"TestPackagesScriptsAreConfined",
	"TestEnvironmentHoldsNoSecrets",
	"TestExecutorHasNoPrivilegesAndBoundedResources",
	"TestDescriptorsOfTheWorkerDoNotLeak",
	"TestArtefactsDoNotLeadOutOfTheScratchFolder",
	"TestIsolationLevelIsTheEnforcedOne",
	"TestNoEgress",
	"TestFilteredEgress",
	"TestUsersAreKeptApartWithoutAWall",
	"TestExceededLimitsAreDistinguished",
	"TestMemoryIsLimitedByTheReportedMechanism/none/.*",
	"TestExecutors/.*/a_spinning_handler_is_killed_at_its_deadline",
	"TestExecutors/.*/a_deaf_handler_is_killed_after_its_cancellation",
	"TestProcessesThatStartProcessesEnd",
	"TestProcessesStartAsWithoutConfinement",
	"TestNothingSurvivesAKilledWorker",
	"TestDaemonsDieWithTheirExecutor",
	"TestOrphansAreReaped",
	"TestFloodOfOutputIsTruncatedAndTakesNoMemory",
	"TestBrokenProtocolKillsTheExecutor",
	"TestFramesThatBelongToNoCallAreDropped",
	"TestResultsThatCannotBeStoredAreErrorsOfTheHandler",
	"TestCreatingAndKillingLeavesNothing/native",
}

func TestEverySettingHoldsTheSame(t *testing.T) {
	if Race {
		t.Skip("the tests run under the race detector where they are; settings change nothing about races")
	}
	for _, s := range Settings() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Rerun(t, heldEverywhere)
		})
	}
}

// TestSettingHasItsProperties runs in a setting and verifies it.
func TestSettingHasItsProperties(t *testing.T) {
	here := Here()
	if here.Name == "" {
		t.Skip("runs in the settings of TestEverySettingHoldsTheSame")
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"NoNewPrivs:\t0", "Seccomp:\t0"}
	bounded := "CapBnd:\t00000000a80425fb" // the fourteen of Docker
	if here.Container {
		want = []string{"NoNewPrivs:\t0", "Seccomp:\t2", bounded, "Pid:\t1\n"}
	}
	switch {
	case !here.Root:
		want = append(want, "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "Uid:\t10000\t10000\t10000\t10000")
	case here.Container:
		want = append(want, strings.Replace(bounded, "CapBnd", "CapEff", 1))
	}
	for _, line := range want {
		if !strings.Contains(string(status), line) {
			t.Errorf("%s lacks %q:\n%s", here.Name, line, status)
		}
	}
	if !here.Container {
		return
	}
	var nodes []string
	entries, err := os.ReadDir("/dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type()&os.ModeCharDevice != 0 {
			nodes = append(nodes, e.Name())
		}
	}
	if !slices.Equal(nodes, []string{"full", "null", "random", "tty", "urandom", "zero"}) {
		t.Errorf("devices %q", nodes)
	}
	if text, err := os.ReadFile("/proc/kcore"); len(text) > 0 {
		t.Errorf("/proc/kcore is there: %v", err)
	}
	for _, path := range []string{"/proc/sys/kernel/hostname", "/sys/kernel/profiling"} {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			f.Close()
			t.Errorf("%s is open for writing", path)
		}
	}
	if all, _ := filepath.Glob("/proc/[0-9]*"); len(all) != 1 {
		t.Errorf("beside this process: %s", fmt.Sprint(all))
	}
}
