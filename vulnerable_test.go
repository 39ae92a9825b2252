package sojourn_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The vulnerability check may be skipped only if its database is unavailable: findings and all other errors fail.
func TestOnlyAnUnreachableDatabaseSkipsTheVulnerabilityCheck(t *testing.T) {
	for name, c := range map[string]struct {
		scanner string
		passes  bool
	}{
		"nothing found": {"echo No vulnerabilities found.", true},
		"no database": {
			`echo 'govulncheck: fetching vulnerabilities: Get "https://vuln.go.dev/index": no such host' >&2; exit 1`, true,
		},
		"a finding":       {"echo 'Vulnerability #1: GO-2026-0001'; exit 3", false},
		"another failure": {"echo 'govulncheck: loading packages: no such module' >&2; exit 1", false},
		"no scanner":      {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			scanner := filepath.Join(t.TempDir(), "scanner")
			if c.scanner != "" {
				if err := os.WriteFile(scanner, []byte("#!/bin/sh\n"+c.scanner+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command(".ci/vulnerable", scanner).CombinedOutput()
			if passes := err == nil; passes != c.passes {
				t.Errorf("passes: %t, want %t: %v\n%s", passes, c.passes, err, out)
			}
			if name == "no database" && !strings.Contains(string(out), "not looked for") {
				t.Errorf("nobody is told that it was left out: %s", out)
			}
		})
	}
}
