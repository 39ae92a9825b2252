package apptest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Program skips a test if a program is not installed. The test fails instead if SOJOURN_TEST_REQUIRE contains the name
// of the program, without a version: python for python3.
func Program(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err == nil {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("SOJOURN_TEST_REQUIRE"), ","), strings.TrimRight(name, "0123456789.")) {
		t.Fatalf("%s is not installed, and SOJOURN_TEST_REQUIRE contains it", name)
	}
	t.Skipf("%s is not installed", name)
}
