package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// serving has the functions of the command line that create a part of a process from its settings, by the roles that
// run them.
var serving = map[string][]Role{
	"app": {App, Both, Dev}, "awaitStore": {App, Both, Dev}, "postgres": {App, Both, Dev}, "inspect": {App, Both, Dev},
	"postgresURL": {App, Both, Dev},
	"keepPrivate": {App, Worker, Both, Dev},
	"othersLease": {App, Both, Dev},
	"worker":      {Worker, Both, Dev}, "settings": {App, Worker, Both, Dev, Client}, "start": {App, Worker, Both, Dev},
	"fromConfig": {Worker, Both, Dev},
}

// reads lists, for each field of Config, the roles in which code outside this package reads it.
func reads(t *testing.T) map[string][]Role {
	t.Helper()
	files, err := filepath.Glob("../../internal/cli/*.go")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]bool{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		fields[f.Name] = true
	}
	found := map[string][]Role{}
	for _, path := range append(files, "../../worker/main.go") {
		if ok, _ := filepath.Match("*_test.go", filepath.Base(path)); ok {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			roles, serves := serving[fn.Name.Name]
			if !serves {
				roles = []Role{Client} // commands that call an app
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && fields[s.Sel.Name] {
					if x, ok := s.X.(*ast.Ident); ok && (x.Name == "s" || x.Name == "c" || x.Name == "cfg") {
						found[s.Sel.Name] = append(found[s.Sel.Name], roles...)
					}
				}
				return true
			})
		}
	}
	return found
}

// The code of every role reads every setting that the role accepts.
func TestEverySettingIsReadInEveryRoleThatHasIt(t *testing.T) {
	found := reads(t)
	field := map[string]string{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		field[f.Tag.Get("koanf")] = f.Name
	}
	for _, s := range settings {
		name := field[s.name]
		if name == "" {
			t.Errorf("%s has no field", s.name)
		}
		for _, role := range s.roles {
			if slices.Contains(found[name], role) {
				continue
			}
			t.Errorf("--%s is a flag of the role %q, which does not read it", s.name, role)
		}
	}
}

// The accepted values of the setting are the isolation levels that executors support.
func TestIsolationIsWhatExecutorsCanHave(t *testing.T) {
	for _, name := range []string{"isolation", "isolation-min-level"} {
		for value, good := range map[string]bool{
			"auto": true, "none": true, "process": true, "confined": true, "namespace": false, "external": false, "wasm": false,
			"command": false,
		} {
			_, _, _, err := load(t, Worker, []string{"--" + name + "=" + value}, nil, "")
			if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "the strongest isolation is confined") {
				t.Errorf("--%s %s: %v", name, value, err)
			}
		}
	}
}
