package sojourn_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/packages.md and docs/api.txt")

// packagesDocument is docs/packages.md: every package with the first sentence of its comment, by top-level folder.
func packagesDocument(all []pkg) string {
	var b strings.Builder
	b.WriteString("# Packages\n\nEvery package with the first sentence of its comment. Written by `go test . -run Packages -update`.\n")
	tree := "/"
	for _, p := range all {
		name := p.name()
		if covers("examples/...", name) {
			continue
		}
		if top, _, _ := strings.Cut(name, "/"); top != tree {
			tree = top
			fmt.Fprintf(&b, "\n## %s\n\n| package | purpose |\n|---|---|\n", cmp.Or(top, "sojourn"))
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", cmp.Or(name, "sojourn"), purpose(p.Doc))
	}
	return b.String()
}

// purpose is the first sentence of a package comment without the name of the package.
func purpose(doc string) string {
	words := strings.SplitN(doc, " ", 3)
	if len(words) < 3 {
		return ""
	}
	return strings.ToUpper(words[2][:1]) + words[2][1:]
}

func TestThePackagesDocumentIsGenerated(t *testing.T) {
	const page = "docs/packages.md"
	all := list(t)
	want := packagesDocument(all)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(raw) != want {
		t.Errorf("%s is out of date: go test . -run Packages -update", page)
	}
	for _, p := range all {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("package %s has no comment", p.name())
		}
	}
}

// designPages are the pages about mechanisms, and the page that leads to them.
func designPages(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("docs/design/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d design pages, %v", len(pages), err)
	}
	return append(pages, "docs/architecture.md")
}

func TestDesignPagesNameTestsThatExist(t *testing.T) {
	for _, page := range designPages(t) {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range shown.FindAllStringSubmatch(string(raw), -1) {
			if !testIn(t, path.Clean(m[1]), m[2]) {
				t.Errorf("%s names %s in %s, which does not exist", page, m[2], m[1])
			}
		}
	}
}

// The architecture page is an overview: details belong to the design pages.
func TestTheArchitecturePageIsShort(t *testing.T) {
	raw, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(raw))); n > 1500 {
		t.Errorf("docs/architecture.md has %d words, at most 1500", n)
	}
}

// code returns the bodies of a package's functions, by "room.Name" or "room.Type.Name", where room is the last element
// of the package's path.
func code(t *testing.T, all []pkg) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, p := range all {
		if !covers("app/...", p.name()) {
			continue
		}
		for file := range p.parsed(t) {
			raw, err := os.ReadFile(file.at(file).Filename)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil {
					continue
				}
				name := path.Base(p.name()) + "."
				if fn.Recv != nil {
					name += receiver(fn.Recv.List[0].Type) + "."
				}
				found[name+fn.Name.Name] = string(raw[file.at(fn.Body).Offset:file.fset.Position(fn.Body.End()).Offset])
			}
		}
	}
	return found
}

// A hop is one arrow of a walk: a call, or a hand-over in which nothing is called by name.
type hop struct {
	from, to string
	call     bool
}

var arrows = regexp.MustCompile("`([a-z]\\w*\\.[\\w.]+)`|→|⇢|\\n\\d+\\. ")

// hops are the arrows of the walks. One that does not follow a name at once goes from the first name of its sentence:
// the caller of several.
func hops(document string) (list []hop, names []string) {
	first, last, arrow, end := "", "", "", 0
	for _, at := range arrows.FindAllStringSubmatchIndex(document, -1) {
		switch text := document[at[0]:at[1]]; {
		case strings.HasPrefix(text, "\n"):
			first, last, arrow = "", "", ""
		case at[2] < 0:
			if arrow = text; strings.TrimSpace(document[end:at[0]]) != "" {
				last = first
			}
		default:
			name := document[at[2]:at[3]]
			names = append(names, name)
			if last == "" || arrow == "" {
				first = name
			} else {
				list = append(list, hop{last, name, arrow == "→"})
			}
			last, arrow = name, ""
		}
		end = at[1]
	}
	return list, names
}

// broken lists the steps of the documented walks that the code does not have.
func broken(list []hop, names []string, does map[string]string) (found []string) {
	for _, n := range names {
		if _, there := does[n]; !there {
			found = append(found, n+" is no function")
		}
	}
	for _, h := range list {
		callee := h.to[strings.LastIndex(h.to, ".")+1:]
		if h.call && !regexp.MustCompile(`\b`+callee+`\b`).MatchString(does[h.from]) {
			found = append(found, h.from+" does not call "+h.to)
		}
	}
	return found
}

func TestCallPathsMatchTheCode(t *testing.T) {
	raw, err := os.ReadFile("docs/design/call-paths.md")
	if err != nil {
		t.Fatal(err)
	}
	does := code(t, list(t))
	walk, names := hops(string(raw))
	if len(walk) < 40 {
		t.Errorf("there are %d hops in the five call paths: this test reads them wrong", len(walk))
	}
	for _, b := range broken(walk, names, does) {
		t.Error(b)
	}
	wrong := []hop{{"broker.Broker.Start", "broker.Broker.Poll", true}}
	if len(broken(wrong, []string{"broker.Broker.Novelty"}, does)) != 2 {
		t.Error("a call that is not made, or a function that is not there, is not noticed")
	}
}
