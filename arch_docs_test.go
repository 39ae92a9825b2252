package sojourn_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
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

// code is what the functions of a package do, by "room.Name" or "room.Type.Name", where a room is the last name of its
// path.
func code(t *testing.T, all []pkg) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, p := range all {
		if !covers("app/...", p.name()) {
			continue
		}
		for _, f := range slices.Concat(p.GoFiles, p.CgoFiles) {
			raw, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, f, raw, parser.SkipObjectResolution)
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
				found[name+fn.Name.Name] = string(raw[fset.Position(fn.Body.Pos()).Offset:fset.Position(fn.Body.End()).Offset])
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
	_, section, _ := strings.Cut(document, "\n## Five walks\n")
	section, _, _ = strings.Cut(section, "\n## ")
	first, last, arrow, end := "", "", "", 0
	for _, at := range arrows.FindAllStringSubmatchIndex(section, -1) {
		switch text := section[at[0]:at[1]]; {
		case strings.HasPrefix(text, "\n"):
			first, last, arrow = "", "", ""
		case at[2] < 0:
			if arrow = text; strings.TrimSpace(section[end:at[0]]) != "" {
				last = first
			}
		default:
			name := section[at[2]:at[3]]
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

// broken says what of the walks the code does not do.
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

func TestTheWalksOfTheArchitectureDocumentAreThoseOfTheCode(t *testing.T) {
	raw, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	does := code(t, list(t))
	walk, names := hops(string(raw))
	if len(walk) < 40 {
		t.Errorf("there are %d hops in the five walks: this test reads them wrong", len(walk))
	}
	for _, b := range broken(walk, names, does) {
		t.Error(b)
	}
	wrong := []hop{{"broker.Broker.Start", "broker.Broker.Poll", true}}
	if len(broken(wrong, []string{"broker.Broker.Novelty"}, does)) != 2 {
		t.Error("a call that is not made, or a function that is not there, is not noticed")
	}
}
