package openapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/openapi"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A member that a route accepts and no code reads would have no effect. Routes share the types of requests, so a member
// counts as read if any code of the app reads its field. A field that is only encoded as JSON with its struct does not.

const module = "github.com/sojourn-run/sojourn"

// unread has the members that no code of the app reads, with the reason why routes accept them.
var unread = map[string]string{
	"history.Parallel.parallel_group_kind":      "recorded in history with its group, for replays",
	"httpapi.buildBody.build_id":                "decoded into another type, which distinguishes null from an absent member",
	"httpapi.integrity.key_id":                  unsigned,
	"httpapi.integrity.signature":               unsigned,
	"httpapi.integrity.signature_algorithm":     unsigned,
	"protocol.JobOutcome.logs":                  "of undefined form in the first version of the channel; the member lines replaces it",
	"protocol.SearchAttribute.outcome":          "set in responses, which have the type of the request",
	"protocol.Command.execution_mode":           "has one valid value; the limits of the member check it",
	"protocol.SessionOptions.scope":             "has one valid value; the limits of the member check it",
	"protocol.MachineInformation":               shown,
	"protocol.DiskInfo":                         shown,
	"protocol.PackagesInfo":                     shown,
	"protocol.SandboxInfo":                      shown,
	"protocol.WorkerProps.EXECUTION_MODE":       shown,
	"protocol.WorkerProps.REUSE_SANDBOX":        shown,
	"protocol.WorkerProps.SANDBOX_MEMORY_LIMIT": shown,
}

const (
	shown    = "stored and shown as JSON"
	unsigned = "set in exports, which are not signed; imports verify the checksum"
)

// loader type-checks the packages of the module from their sources and imports other packages compiled. All packages
// that use a field of the module therefore share one object for it.
type loader struct {
	fset   *token.FileSet
	listed map[string]listedPackage
	others types.Importer
	done   map[string]*checkedPackage
}

type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

type checkedPackage struct {
	types *types.Package
	info  *types.Info
	files []*ast.File
}

var loaded *loader

// load returns the loader that all tests share.
func load(t *testing.T) *loader {
	t.Helper()
	if loaded != nil {
		return loaded
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-export",
		"-json=ImportPath,Dir,Export,GoFiles", "./app/...", "./shared/...")
	list.Dir = filepath.Join("..", "..", "..")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	l := &loader{fset: token.NewFileSet(), listed: map[string]listedPackage{}, done: map[string]*checkedPackage{}}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		l.listed[p.ImportPath] = p
	}
	l.others = importer.ForCompiler(l.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(l.listed[path].Export)
	})
	loaded = l
	return l
}

// Import implements types.Importer.
func (l *loader) Import(path string) (*types.Package, error) {
	if !strings.HasPrefix(path, module+"/") {
		return l.others.Import(path)
	}
	p, err := l.check(path)
	if err != nil {
		return nil, err
	}
	return p.types, nil
}

// ofApp reports whether a package is part of the app or of the contracts and helpers that it shares with workers.
func ofApp(path string) bool {
	path = strings.TrimPrefix(path, module+"/")
	return strings.HasPrefix(path, "app/") || strings.HasPrefix(path, "shared/") || strings.HasPrefix(path, "internal/")
}

func (l *loader) check(path string) (*checkedPackage, error) {
	if p := l.done[path]; p != nil {
		return p, nil
	}
	p := &checkedPackage{info: &types.Info{
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{},
		Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
	}}
	for _, name := range l.listed[path].GoFiles {
		f, err := parser.ParseFile(l.fset, filepath.Join(l.listed[path].Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
	}
	var err error
	if p.types, err = (&types.Config{Importer: l}).Check(path, l.fset, p.files, p.info); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l.done[path] = p
	return p, nil
}

// fields is a set of struct fields.
type fields map[*types.Var]bool

// read adds the fields that the package reads: fields that it selects without an assignment. A conversion to a type
// with other fields reads all fields.
func (p *checkedPackage) read(into fields) {
	for _, f := range p.files {
		set := map[ast.Expr]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, to := range n.Lhs {
					set[to] = n.Tok == token.ASSIGN
				}
			case *ast.CallExpr:
				p.convert(n, into)
			case *ast.SelectorExpr:
				s := p.info.Selections[n]
				if s == nil {
					return true
				}
				if v, ok := s.Obj().(*types.Var); ok && !set[n] {
					into[v] = true
				}
				embedded(s, into)
			}
			return true
		})
	}
}

// convert adds the fields of a struct that is converted to another struct type.
func (p *checkedPackage) convert(call *ast.CallExpr, into fields) {
	to := p.info.Types[call.Fun]
	if !to.IsType() || len(call.Args) != 1 {
		return
	}
	from, ok := p.info.Types[call.Args[0]].Type.Underlying().(*types.Struct)
	if other, is := to.Type.Underlying().(*types.Struct); !ok || !is || other == from {
		return
	}
	for f := range from.Fields() {
		into[f] = true
	}
}

// embedded adds the embedded fields that a selection goes through.
func embedded(s *types.Selection, into fields) {
	t := s.Recv()
	for _, i := range s.Index()[:len(s.Index())-1] {
		if p, ok := t.Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		of, ok := t.Underlying().(*types.Struct)
		if !ok {
			return
		}
		into[of.Field(i)] = true
		t = of.Field(i).Type()
	}
}

// bodies returns a value of each type that a request body of a route, or a call of a socket method, is decoded into.
func bodies() (all []any) {
	for _, rt := range openapi.Routes() {
		if rt.Shape.Body != nil {
			all = append(all, rt.Shape.Body)
		}
	}
	return append(all, protocol.ChannelPoll{}, protocol.ChannelComplete{}, protocol.JobReturn{}, protocol.JobRef{},
		protocol.JobProgress{}, protocol.JobHistory{}, protocol.JobLogs{}, protocol.MachineInformation{},
		protocol.RegisterRequest{}, protocol.DeregisterRequest{}, protocol.WorkerHeartbeat{}, protocol.SessionCreate{},
		protocol.SessionVerb{})
}

func TestEveryMemberOfARequestIsReadBySomeCode(t *testing.T) {
	l := load(t)
	read := fields{}
	for path := range l.listed {
		if ofApp(path) {
			if strings.Contains(path, "test") {
				continue
			}
			p, err := l.check(path)
			if err != nil {
				t.Fatal(err)
			}
			p.read(read)
		}
	}
	members, found := map[string]bool{}, map[string]bool{}
	var visit func(reflect.Type)
	seen := map[reflect.Type]bool{}
	visit = func(rt reflect.Type) {
		for rt.Kind() == reflect.Pointer || rt.Kind() == reflect.Slice || rt.Kind() == reflect.Map {
			rt = rt.Elem()
		}
		if rt.Kind() != reflect.Struct || seen[rt] || !strings.HasPrefix(rt.PkgPath(), module) || rt.Name() == "" {
			return
		}
		seen[rt] = true
		p := l.done[rt.PkgPath()]
		object := p.types.Scope().Lookup(rt.Name())
		if object == nil {
			t.Errorf("%s is not a type of its package", rt)
			return
		}
		of := object.Type().Underlying().(*types.Struct)
		for i := range rt.NumField() {
			f := rt.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && name == "" {
				visit(f.Type)
				continue
			}
			if !f.IsExported() || name == "" || name == "-" {
				continue
			}
			key := rt.String() + "." + name
			members[key] = true
			if !read[of.Field(i)] {
				found[key] = true
			}
			visit(f.Type)
		}
	}
	for _, body := range bodies() {
		visit(reflect.TypeOf(body))
	}
	used := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		of := key[:strings.LastIndexByte(key, '.')]
		switch {
		case unread[key] != "":
			used[key] = true
		case unread[of] != "":
			used[of] = true
		default:
			t.Errorf("no code reads %s", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(unread)) {
		if !used[key] {
			t.Errorf("%s is read, or is not a member: remove the exception", key)
		}
	}
	if len(members) < 200 {
		t.Errorf("only %d members of requests were found", len(members))
	}
}

// parameters returns the string literals in a function and in the functions of its package that it uses.
func (p *checkedPackage) parameters(
	of types.Object, bodies map[types.Object]*ast.FuncDecl, seen map[types.Object]bool,
) []string {
	if bodies[of] == nil || seen[of] {
		return nil
	}
	seen[of] = true
	var all []string
	ast.Inspect(bodies[of], func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil {
				all = append(all, text)
			}
		case *ast.Ident:
			if f, ok := p.info.Uses[n].(*types.Func); ok && f.Pkg() == p.types {
				all = append(all, p.parameters(f, bodies, seen)...)
			}
		}
		return true
	})
	return all
}

func TestEveryParameterOfAQueryIsReadByItsRoute(t *testing.T) {
	l := load(t)
	texts := map[string][]string{} // by operation
	for _, path := range []string{module + "/app/internal/httpapi", module + "/app/internal/workerapi"} {
		p, err := l.check(path)
		if err != nil {
			t.Fatal(err)
		}
		bodies := map[types.Object]*ast.FuncDecl{}
		for _, f := range p.files {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					bodies[p.info.Defs[fn.Name]] = fn
				}
			}
		}
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) < 4 {
					return true
				}
				verb, named := call.Args[len(call.Args)-1], ""
				for _, a := range call.Args[:len(call.Args)-1] {
					if lit, ok := a.(*ast.BasicLit); ok {
						named, _ = strconv.Unquote(lit.Value)
					}
				}
				ast.Inspect(verb, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						texts[named] = append(texts[named], p.parameters(p.info.Uses[id], bodies, map[types.Object]bool{})...)
					}
					return true
				})
				return true
			})
		}
	}
	count := 0
	for _, rt := range openapi.Routes() {
		if rt.Shape.Query == nil {
			continue
		}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(rt.Shape.Query)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				continue
			}
			count++
			if !slices.Contains(texts[rt.Operation], name) {
				t.Errorf("%s %s does not read the parameter %s", rt.Method, rt.Pattern, name)
			}
		}
	}
	if count < 40 {
		t.Errorf("only %d parameters were found", count)
	}
}

// ignored has the members that published SDKs send and the app does not read, with the reason.
var ignored = map[string]string{
	"worker_heartbeat heartbeat_interval_seconds":  "the app sets the interval; its response contains it",
	"request_cancellation cleanup_timeout_seconds": "for cancellation scopes, which the app does not support; the response has a warning",
	"complete_workflow_task sticky_cache":          "statistics of the worker's cache; no decision of the app needs them",
}

// Each route knows the members that the published Python and Rust SDKs send to it. testdata/sdk_members.py and
// testdata/sdk_members_rust.py extracted testdata/sdk_members.json from the sources of the SDKs.
func TestTheMembersThatPublishedSDKsSendAreRead(t *testing.T) {
	raw, err := os.ReadFile("testdata/sdk_members.json")
	if err != nil {
		t.Fatal(err)
	}
	var sdks []struct {
		SDK      string
		Requests map[string][]string
	}
	if err := json.Unmarshal(raw, &sdks); err != nil {
		t.Fatal(err)
	}
	served, used := 0, map[string]bool{}
	for _, sdk := range sdks {
		for request, members := range sdk.Requests {
			for _, rt := range openapi.Routes() {
				if rt.Shape.Body == nil || !serves(rt.Method+" "+rt.Pattern, request) {
					continue
				}
				served++
				known := map[string]bool{}
				for _, f := range reflect.VisibleFields(reflect.TypeOf(rt.Shape.Body)) {
					name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
					known[name] = true
				}
				for _, m := range members {
					key := rt.Operation + " " + m
					switch {
					case known[m]:
					case ignored[key] != "":
						used[key] = true
					default:
						t.Errorf("%s sends %s, which %s does not know", sdk.SDK, m, rt.Operation)
					}
				}
			}
		}
	}
	for key := range ignored {
		if !used[key] {
			t.Errorf("%s is known, or not sent: remove the exception", key)
		}
	}
	if len(sdks) < 3 || served < 85 {
		t.Errorf("%d SDKs, %d of their requests are served", len(sdks), served)
	}
}

// serves reports whether a route serves a recorded request; {} in the request's path matches any segment.
func serves(route, request string) bool {
	method, pattern, _ := strings.Cut(route, " /api")
	sent, path, _ := strings.Cut(request, " ")
	parts, segments := strings.Split(pattern, "/"), strings.Split(path, "/")
	if method != sent || len(parts) != len(segments) {
		return false
	}
	for i, part := range parts {
		if part != segments[i] && !strings.HasPrefix(part, "{") && segments[i] != "{}" {
			return false
		}
	}
	return true
}
