package sojourn_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	linked = regexp.MustCompile(`\]\(([^)#:]+)\)`)
	rooted = regexp.MustCompile("`(shared/[a-z/._]+)`") // a file that is named from the root
	step   = regexp.MustCompile(`(?m)^\d+\. `)
	word   = regexp.MustCompile("`([A-Za-z]+)`")
)

// stale lists the errors of a document: links to missing files, and names in a step that none of its linked files
// contains.
func stale(dir, text string) (found []string) {
	for i, part := range step.Split(text, -1) {
		var sources []byte
		var files []string
		for _, m := range linked.FindAllStringSubmatch(part, -1) {
			files = append(files, filepath.Join(dir, m[1]))
		}
		for _, m := range rooted.FindAllStringSubmatch(part, -1) {
			files = append(files, m[1])
		}
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				found = append(found, file+" is not there")
				continue
			}
			if info.IsDir() {
				continue
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				found = append(found, err.Error())
			}
			sources = append(sources, raw...)
		}
		for _, m := range word.FindAllStringSubmatch(part, -1) {
			if i > 0 && len(sources) > 0 && !regexp.MustCompile(`\b`+m[1]+`\b`).Match(sources) {
				found = append(found, fmt.Sprintf("step %d speaks of %s, which the files it links to do not have", i, m[1]))
			}
		}
	}
	return found
}

// The checklists name code; a change that moves the code must update them.
func TestChecklistsReferToExistingCode(t *testing.T) {
	pages, err := filepath.Glob("docs/checklists/*.md")
	if err != nil || len(pages) < 6 {
		t.Fatalf("found %v: %v", pages, err)
	}
	for _, page := range append(pages, "CONTRIBUTING.md") {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stale(filepath.Dir(page), string(raw)) {
			t.Errorf("%s: %s", page, s)
		}
	}
	for text, want := range map[string]int{
		"1. [a](arch_test.go): `directions` and `module`": 0,
		"1. [a](arch_test.go): `neverWas`":                1,
		"1. [a](novelty.go)":                              1,
		"1. `shared/novelty.go`":                          1,
		"`novelty` stands in no step":                     0,
	} {
		if got := stale(".", text); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}

// docs/testing.md lists the places of tests: they exist, and every package that has only tests is listed.
func TestTheTableOfTestsNamesPlacesThatAreThere(t *testing.T) {
	raw, err := os.ReadFile("docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for _, m := range regexp.MustCompile("`([a-z0-9_./-]+)`").FindAllStringSubmatch(cells[2], -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("docs/testing.md sends tests to %s, which is not there", m[1])
			}
			places = append(places, m[1])
		}
	}
	for _, p := range list(t) {
		if len(p.GoFiles) == 0 && p.name() != "" && !slices.Contains(places, p.name()) {
			t.Errorf("docs/testing.md says nothing of %s, which holds tests alone", p.name())
		}
	}
}
