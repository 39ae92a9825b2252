package sojourn_test

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mostMethods is the maximum number of methods of an interface. An interface with more has several duties, and every
// fake of it in a test must implement them all.
const mostMethods = 12

// larger lists the interfaces with more methods, and why.
var larger = map[string]string{
	"app/store.Store":                  "commits, claims and reads, with the clock, the health and the counts of one database",
	"app/store.Reader":                 "all that is committed, as of one moment: joined of ten nouns, none of them large",
	"app/store.Rows":                   "what a change loaded: a look-up for each table, for all deciders",
	"shared/protocol.WorkerConnection": "the twelve verbs of a worker, and the settings that it asks for first",
	"internal/link.Conn":               "the same over a carrier, which can end",
}

// interfaceType is an interface of the module, with the names of its embedded interfaces as "package.Name".
type interfaceType struct {
	own    []string
	embeds []string
}

// interfaces lists the interfaces that a package's code declares.
func interfaces(t *testing.T, p pkg) map[string]interfaceType {
	t.Helper()
	found := map[string]interfaceType{}
	for file := range p.parsed(t) {
		names := map[string]string{} // import paths by local names
		for _, i := range file.Imports {
			from, _ := strconv.Unquote(i.Path.Value)
			name := path.Base(from)
			if i.Name != nil {
				name = i.Name.Name
			}
			names[name] = from
		}
		ast.Inspect(file.File, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			in, ok := spec.Type.(*ast.InterfaceType)
			if !ok {
				return true
			}
			var it interfaceType
			for _, m := range in.Methods.List {
				switch e := m.Type.(type) {
				case *ast.FuncType:
					for _, name := range m.Names {
						it.own = append(it.own, name.Name)
					}
				case *ast.Ident:
					it.embeds = append(it.embeds, p.ImportPath+"."+e.Name)
				case *ast.SelectorExpr:
					it.embeds = append(it.embeds, names[e.X.(*ast.Ident).Name]+"."+e.Sel.Name)
				}
			}
			found[p.ImportPath+"."+spec.Name.Name] = it
			return true
		})
	}
	return found
}

// methods lists the methods of an interface, including embedded ones. An interface of another module counts as one
// method.
func methods(all map[string]interfaceType, name string) (list []string) {
	it, ours := all[name]
	if !ours {
		return []string{name}
	}
	list = slices.Clone(it.own)
	for _, e := range it.embeds {
		list = append(list, methods(all, e)...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func TestNoInterfaceHasMoreThanTwelveMethods(t *testing.T) {
	all := map[string]interfaceType{}
	for _, p := range list(t) {
		for name, it := range interfaces(t, p) {
			all[name] = it
		}
	}
	if got := len(methods(all, module+"/shared/protocol.WorkerVerbs")); got != mostMethods {
		t.Errorf("protocol.WorkerVerbs is said to have %d methods: this test counts wrong, or its bound can be lower", got)
	}
	for name := range all {
		n, why := len(methods(all, name)), larger[short(name)]
		switch {
		case n > mostMethods && why == "":
			t.Errorf("%s has %d methods, at most %d: what it is asked for is more than one duty", short(name), n, mostMethods)
		case n <= mostMethods && why != "":
			t.Errorf("%s has %d methods: take it out of the list of those that have more", short(name), n)
		}
	}
	for name := range larger {
		if _, there := all[module+"/"+name]; !there {
			t.Errorf("%s is no interface", name)
		}
	}
}

// alike returns methods of one type whose names differ only in case: a reader may confuse them.
func alike(t *testing.T, p pkg) (found []string) {
	t.Helper()
	byType := map[string]map[string]string{}
	for file := range p.parsed(t) {
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			on := receiver(fn.Recv.List[0].Type)
			if byType[on] == nil {
				byType[on] = map[string]string{}
			}
			low := strings.ToLower(fn.Name.Name)
			if other, taken := byType[on][low]; taken && other != fn.Name.Name {
				found = append(found, fmt.Sprintf("%s: %s has %s and %s", p.name(), on, other, fn.Name.Name))
			}
			byType[on][low] = fn.Name.Name
		}
	}
	return found
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func TestNoTwoMethodsDifferByCaseAlone(t *testing.T) {
	for _, p := range list(t) {
		for _, f := range alike(t, p) {
			t.Error(f)
		}
	}
}
