package sojourn_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var shown = regexp.MustCompile("`([a-z/]*)\\.(Test[A-Za-z0-9]+)`")

// Tests of this name hold a sentence of a page against the program.
var readsTheGuide = regexp.MustCompile(`(?m)^func (Test(?:GuideStates|TheGuideSays)[A-Za-z0-9]+)\(`)

// guidePages are the pages of the guide, from docs on.
func guidePages(t *testing.T) (pages []string) {
	t.Helper()
	files, err := filepath.Glob("docs/guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := filepath.Base(f); name != "README.md" {
			pages = append(pages, "guide/"+name)
		}
	}
	return pages
}

// Every guarantee in docs/guarantees.md names tests that exist.
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
	for _, page := range guidePages(t) {
		if !strings.Contains(string(raw), "("+page+")") {
			t.Errorf("docs/guarantees.md says nothing of the numbers of %s", page)
		}
	}
	for _, p := range list(t) {
		for _, file := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			code, err := os.ReadFile(path.Join(p.name(), file))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range readsTheGuide.FindAllStringSubmatch(string(code), -1) {
				if shows := "`" + p.name() + "." + m[1] + "`"; !strings.Contains(string(raw), shows) {
					t.Errorf("%s reads a sentence of the guide, and docs/guarantees.md does not name it", shows)
				}
			}
		}
	}
	if promises < 15 {
		t.Errorf("only %d promises were read", promises)
	}
}
