package sojourn_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	// source is the definition of a link to a file of another project, at a commit.
	source = regexp.MustCompile(`^\[([a-z]-[a-z0-9]+)\]: https://github\.com/[\w.-]+/[\w.-]+/blob/[0-9a-f]{40}/\S+$`)
	cited  = regexp.MustCompile(`\]\[([^\]]*)\]`)
	// verdicts are the values of a cell about another system.
	verdicts = regexp.MustCompile(`^\[(yes|no|partly|not found)\]\[`)
)

// Every cell of docs/compared.md about another system has a source at a commit, and every feature that Sojourn has is
// shown by tests that exist.
func TestTheComparisonHasSourcesAndTests(t *testing.T) {
	raw, err := os.ReadFile("docs/compared.md")
	if err != nil {
		t.Fatal(err)
	}
	own, tested := map[string]bool{}, map[string]bool{}
	defined, used := map[string]bool{}, map[string]bool{}
	features := 0
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			if m := source.FindStringSubmatch(line); m == nil {
				t.Errorf("not a link to a file at a commit: %s", line)
			} else {
				defined[m[1]] = true
			}
			continue
		}
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.HasPrefix(line, "|--") || strings.HasPrefix(line, "| feature |") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) == 4 {
			tests := shown.FindAllStringSubmatch(cells[2], -1)
			tested[cells[1]] = len(tests) > 0
			for _, m := range tests {
				if !testIn(t, path.Clean(m[1]), m[2]) {
					t.Errorf("no test %s in %s, which is named for: %s", m[2], m[1], cells[1])
				}
			}
			continue
		}
		features++
		own[cells[1]] = strings.HasPrefix(cells[2], "[yes](")
		if !own[cells[1]] && !strings.HasPrefix(cells[2], "no") {
			t.Errorf("Sojourn's cell is neither yes with a link nor no: %s", cells[1])
		}
		if len(cells) != 11 {
			t.Fatalf("%d columns instead of 9: %s", len(cells)-2, cells[1])
		}
		for _, cell := range cells[3:10] {
			if !verdicts.MatchString(cell) {
				t.Errorf("%s: no verdict with a source: %q", cells[1], cell)
			}
			for _, m := range cited.FindAllStringSubmatch(cell, -1) {
				used[m[1]] = true
			}
		}
	}
	for feature, has := range own {
		if has != tested[feature] {
			t.Errorf("%s: Sojourn has it: %t, tests show it: %t", feature, has, tested[feature])
		}
	}
	for feature := range tested {
		if _, ok := own[feature]; !ok {
			t.Errorf("tests show a feature that is not compared: %s", feature)
		}
	}
	for name := range used {
		if !defined[name] {
			t.Errorf("source %s is not defined", name)
		}
	}
	for name := range defined {
		if !used[name] {
			t.Errorf("source %s is not used", name)
		}
	}
	if features < 20 {
		t.Errorf("only %d features were read", features)
	}
}
