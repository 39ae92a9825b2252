package sojourn_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// Every -run pattern of the Makefile and of the scripts in .ci matches a test: "go test" passes when a pattern matches
// none, so a renamed test would no longer run.
func TestRunPatternsMatchTests(t *testing.T) {
	list, err := exec.Command("git", "grep", "-hoE", "^func (Test|Fuzz)[A-Za-z0-9_]+", "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	tests := strings.Split(strings.ReplaceAll(string(list), "func ", ""), "\n")
	scripts, err := exec.Command("git", "ls-files", "Makefile", ".ci").Output()
	if err != nil {
		t.Fatal(err)
	}
	argument := regexp.MustCompile(`-run[ =]\(?'?([A-Za-z0-9_|^$]+)`)
	seen := 0
	for name := range strings.Lines(string(scripts)) {
		name = strings.TrimSpace(name)
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text, 0) >= 0 {
			continue
		}
		for _, m := range argument.FindAllStringSubmatch(string(text), -1) {
			for pattern := range strings.SplitSeq(m[1], "|") {
				if strings.Trim(pattern, "^$") == "" {
					continue // a variable of the shell
				}
				seen++
				matches, matched := regexp.MustCompile(pattern), false
				for _, test := range tests {
					matched = matched || matches.MatchString(test)
				}
				if !matched {
					t.Errorf("%s: no test matches -run %s", name, pattern)
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("found %d patterns, want at least 10", seen)
	}
}
