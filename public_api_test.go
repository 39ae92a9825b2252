package sojourn_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// publicPackages are the packages with a compatibility promise, as docs/architecture.md lists them.
var publicPackages = []string{"", "client", "codec", "worker", "worker/activity", "worker/workflow", "workflowtest"}

const publicAPI = "docs/api.txt"

// The listing makes each change of the public API a line of the diff that a reviewer sees. With -short the test leaves
// out the two packages for which the whole product must be compiled.
func TestThePublicAPIIsListed(t *testing.T) {
	names := publicPackages
	if testing.Short() && !*update {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" || n == "workflowtest" })
	}
	const head = "# The public Go API, one line per identifier. Written by `go test . -run PublicAPI -update`.\n"
	var b strings.Builder
	b.WriteString(head)
	for _, p := range typesOf(t, names) {
		for _, line := range apiOf(p) {
			fmt.Fprintf(&b, "%s: %s\n", cmp.Or(short(p.Path()), "sojourn"), line)
		}
	}
	if *update {
		if err := os.WriteFile(publicAPI, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(publicAPI)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		name, _, _ := strings.Cut(line, ": ")
		listed[line] = line == head || slices.Contains(names, strings.TrimPrefix(name, "sojourn"))
	}
	for line := range strings.Lines(b.String()) {
		if _, ok := listed[line]; !ok {
			t.Errorf("in the public API, but not listed: %s", line)
		}
		delete(listed, line)
	}
	for line, ours := range listed {
		if ours {
			t.Errorf("removed from the public API, but listed: %s", line)
		}
	}
	if t.Failed() {
		t.Errorf("%s is out of date: go test . -run PublicAPI -update; list the change in CHANGELOG.md", publicAPI)
	}
}

func TestThePublicAPIListingContainsEveryKindOfIdentifier(t *testing.T) {
	const src = `package p
const C = "c"
const N T = 1
const hidden = 2
type T int
var V, W error
func F[E any](list []E, n ...int) (E, error) { panic(0) }
type S struct { A int; b int; T; s }
func (s *S) M(x int) {}
func (S) m() {}
type I interface { N() S; n() }
type A = s
type s struct { B []string }
func (s) O() error { return nil }
type D func(int) bool
`
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "p.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := new(types.Config).Check("p", set, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`const C = "c"`,
		"const N T = 1",
		"field A.B []string",
		"field S.A int",
		"field S.B []string",
		"field S.T T",
		"func F[E any](list []E, n ...int) (E, error)",
		"method (*S) M(x int)",
		"method (A) O() error",
		"method (I) N() S",
		"method (S) O() error",
		"type A = s",
		"type D func(int) bool",
		"type I interface (with unexported methods)",
		"type S struct",
		"type T int",
		"var V error",
		"var W error",
	}
	if got := apiOf(p); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// apiOf lists the exported identifiers of a package with their types, sorted. The members of an alias are those of its
// type, which may be declared in an internal package.
func apiOf(p *types.Package) (lines []string) {
	name := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, id := range p.Scope().Names() {
		if !token.IsExported(id) {
			continue
		}
		switch o := p.Scope().Lookup(id).(type) {
		case *types.Const:
			typ := ""
			if b, ok := o.Type().(*types.Basic); !ok || b.Info()&types.IsUntyped == 0 {
				typ = " " + types.TypeString(o.Type(), name)
			}
			add("const %s%s = %s", id, typ, o.Val().ExactString())
		case *types.Var:
			add("var %s %s", id, types.TypeString(o.Type(), name))
		case *types.Func:
			add("func %s%s", id, strings.TrimPrefix(types.TypeString(o.Type(), name), "func"))
		case *types.TypeName:
			for _, line := range apiOfType(o, name) {
				add("%s", line)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// apiOfType lists a type, its exported fields and its exported methods, including promoted ones.
func apiOfType(o *types.TypeName, name types.Qualifier) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	described := types.TypeString(o.Type().Underlying(), name)
	declared := types.TypeString(o.Type(), name)
	switch under := o.Type().Underlying().(type) {
	case *types.Struct:
		described = "struct"
		for _, f := range fieldsOf(under) {
			add("field %s.%s %s", o.Name(), f.Name(), types.TypeString(f.Type(), name))
		}
	case *types.Interface:
		described = "interface"
		for m := range under.Methods() {
			if !m.Exported() {
				described = "interface (with unexported methods)"
			}
		}
	}
	if o.IsAlias() {
		declared = o.Name()
		described = "= " + types.TypeString(types.Unalias(o.Type()), name)
	}
	add("type %s %s", declared, described)
	value := types.NewMethodSet(o.Type())
	all := value
	if !types.IsInterface(o.Type()) {
		all = types.NewMethodSet(types.NewPointer(o.Type()))
	}
	for m := range all.Methods() {
		if !m.Obj().Exported() {
			continue
		}
		star := "*"
		if value.Lookup(m.Obj().Pkg(), m.Obj().Name()) != nil {
			star = ""
		}
		add("method (%s%s) %s%s", star, o.Name(), m.Obj().Name(),
			strings.TrimPrefix(types.TypeString(m.Type(), name), "func"))
	}
	return lines
}

// fieldsOf lists the exported fields of a struct, including those of embedded structs whose names are not exported.
func fieldsOf(s *types.Struct) (all []*types.Var) {
	for f := range s.Fields() {
		if f.Exported() {
			all = append(all, f)
			continue
		}
		typ := f.Type()
		if p, ok := typ.(*types.Pointer); ok {
			typ = p.Elem()
		}
		if inner, ok := typ.Underlying().(*types.Struct); ok && f.Embedded() {
			all = append(all, fieldsOf(inner)...)
		}
	}
	return all
}

// typesOf returns the types of packages of the module, which the compiler exported.
func typesOf(t *testing.T, names []string) (all []*types.Package) {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export"}
	for _, name := range names {
		args = append(args, "./"+name)
	}
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("go list: %v\n%s", err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(files[path])
	})
	for _, name := range names {
		p, err := from.Import(strings.TrimSuffix(module+"/"+name, "/"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// A constant or variable is documented by its own comment or by that of its group. Methods of interfaces and options
// have comments too; other fields may be clear without.
func TestEveryExportedIdentifierHasADocComment(t *testing.T) {
	for _, p := range list(t) {
		if !slices.Contains(publicPackages, p.name()) {
			continue
		}
		for _, id := range undocumented(t, p) {
			t.Errorf("%s.%s has no doc comment", cmp.Or(p.name(), "sojourn"), id)
		}
	}
}

// undocumented lists the exported identifiers of a package without a doc comment.
func undocumented(t *testing.T, p pkg) (ids []string) {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	d, err := doc.NewFromFiles(set, files, p.ImportPath)
	if err != nil {
		t.Fatal(err)
	}
	values := func(all []*doc.Value) {
		for _, v := range all {
			for _, spec := range v.Decl.Specs {
				s, ok := spec.(*ast.ValueSpec)
				if !ok || v.Doc != "" || s.Doc.Text() != "" || s.Comment.Text() != "" {
					continue
				}
				for _, id := range s.Names {
					if id.IsExported() {
						ids = append(ids, id.Name)
					}
				}
			}
		}
	}
	funcs := func(of string, all []*doc.Func) {
		for _, f := range all {
			if f.Doc == "" {
				ids = append(ids, of+f.Name)
			}
		}
	}
	values(d.Consts)
	values(d.Vars)
	funcs("", d.Funcs)
	members := func(typ *doc.Type) {
		spec, _ := typ.Decl.Specs[0].(*ast.TypeSpec)
		var list *ast.FieldList
		switch in := spec.Type.(type) {
		case *ast.InterfaceType:
			list = in.Methods
		case *ast.StructType:
			if strings.HasSuffix(typ.Name, "Options") {
				list = in.Fields
			}
		}
		if list == nil {
			return
		}
		for _, f := range list.List {
			for _, id := range f.Names {
				if id.IsExported() && f.Doc.Text() == "" && f.Comment.Text() == "" {
					ids = append(ids, typ.Name+"."+id.Name)
				}
			}
		}
	}
	for _, typ := range d.Types {
		members(typ)
		if typ.Doc == "" {
			ids = append(ids, typ.Name)
		}
		values(typ.Consts)
		values(typ.Vars)
		funcs("", typ.Funcs)
		funcs(typ.Name+".", typ.Methods)
	}
	return ids
}

// Each public package shows its use in examples, which the documentation prints.
func TestEveryPublicPackageHasExamples(t *testing.T) {
	total := 0
	for _, p := range list(t) {
		if !slices.Contains(publicPackages, p.name()) {
			continue
		}
		set := token.NewFileSet()
		var files []*ast.File
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		examples := doc.Examples(files...)
		if len(examples) == 0 {
			t.Errorf("package %s has no example", cmp.Or(p.name(), "sojourn"))
		}
		for _, e := range examples {
			if e.Doc == "" && e.Output == "" {
				t.Errorf("%s: Example%s has neither a comment nor an output", cmp.Or(p.name(), "sojourn"), e.Name)
			}
		}
		total += len(examples)
	}
	if total < 20 {
		t.Errorf("%d examples, want at least 20", total)
	}
}
