package sojourn_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var shown = regexp.MustCompile("`([a-z/]+)\\.(Test[A-Za-z0-9]+)`")

// Every promise of docs/guarantees.md names tests, and those are there.
func TestGuaranteesAreShownByTestsThatExist(t *testing.T) {
	raw, err := os.ReadFile("docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	promises := 0
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.HasPrefix(line, "|--") || strings.Contains(line, "| shown by |") {
			continue
		}
		promises++
		tests := shown.FindAllStringSubmatch(cells[2], -1)
		if len(tests) == 0 {
			t.Errorf("nothing shows: %s", cells[1])
		}
		for _, m := range tests {
			if !testIn(t, path.Clean(m[1]), m[2]) {
				t.Errorf("there is no %s in %s, which is to show: %s", m[2], m[1], cells[1])
			}
		}
	}
	if promises < 15 {
		t.Errorf("only %d promises were read", promises)
	}
}
