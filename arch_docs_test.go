package sojourn_test

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile("`([^`]+)`")

// described are the packages that the table of docs/architecture.md speaks of: those of a row's first column, and below
// them the names in its second.
func described(document string) func(pkg string) bool {
	type row struct {
		trees []string
		words []string
	}
	var rows []row
	_, table, _ := strings.Cut(document, "| package | what it is for |\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			break
		}
		var r row
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			r.trees = append(r.trees, strings.TrimSuffix(m[1], "/…"))
		}
		r.words = regexp.MustCompile(`[a-z]+`).FindAllString(cells[2], -1)
		rows = append(rows, r)
	}
	return func(pkg string) bool {
		return slices.ContainsFunc(rows, func(r row) bool {
			return slices.Contains(r.trees, pkg) ||
				slices.Contains(r.trees, path.Dir(pkg)) && slices.Contains(r.words, path.Base(pkg))
		})
	}
}

func TestTheArchitectureDocumentSpeaksOfEveryPackage(t *testing.T) {
	raw, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	known := described(string(raw))
	for _, p := range list(t) {
		switch name := p.name(); {
		case name == "", covers("examples/...", name):
		case !known(name):
			t.Errorf("docs/architecture.md says nothing of %s", name)
		}
	}
	if known("app/novelty") || known("shared/novelty") {
		t.Error("docs/architecture.md is said to speak of a package that is not there")
	}
}
