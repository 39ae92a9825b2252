package sojourn_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/sojourn-run/sojourn"

// common represents, in the table, the contracts and helpers that every package may import.
const common = "common"

var commonPackages = []string{
	"shared/...", "internal/budget", "internal/certs", "internal/config", "internal/connlimit", "internal/filelock",
	"internal/httpjson", "internal/mask", "internal/process", "internal/rawjson", "internal/release",
	"internal/retry",
	"internal/rpc", "internal/slogbridge", "internal/socketio/...", "internal/stack", "internal/suggest",
}

type direction struct {
	packages string   // a path inside the module, or a tree of them
	may      []string // packages of the module that they may import
}

// directions lists, for every package of the module, the packages of the module that its code may import. An entry
// "x/..." means x and everything below it. Tests may import any package. A package that is not listed fails the test,
// so that a reviewer sees a new package or a new dependency as a changed line. An unused entry fails it too, and so
// does an entry for a tree of which only one package is used.
//
// The table is in order of layers: a package never imports a package that is listed below it.
var directions = []direction{
	// Contracts that both processes compile against.
	{common, []string{common}},
	{"sandbox/...", []string{"sandbox/...", "shared/payload", "internal/filelock", "internal/stack"}},
	{"web", nil},
	{"docs", nil},

	// The control plane, from the pure core outwards.
	{"app/engine", []string{common}},
	{"app/internal/quota", []string{"app/engine", "shared/protocol"}},
	{"app/store", []string{"app/internal/quota", "app/engine", common}},
	{"app/store/internal/db", []string{"app/store"}},
	{"app/store/internal/clock", nil},
	{"app/store/internal/record", []string{
		"app/store/internal/db", "app/store", "app/engine", "shared/history", "shared/protocol", "internal/rawjson",
	}},
	{"app/store/internal/read", []string{
		"app/store/internal/record", "app/store/internal/db", "app/store/internal/clock", "app/store", "app/engine",
		"shared/history", "shared/protocol",
	}},
	{"app/store/sqldb", []string{"app/store/internal/...", "app/store", "app/internal/quota", "app/engine", common}},
	{"app/store/sqlite", []string{
		"app/store/sqldb", "app/store/internal/db", "app/store", "internal/process", "internal/filelock",
	}},
	{"app/store/postgres", []string{
		"app/store/sqldb", "app/store/internal/db", "app/store", "app/engine", "shared/protocol",
	}},
	{"app/internal/storetest", []string{"app/store", "app/engine", common}},
	{"app/auth", []string{"app/store", "app/engine", common}},
	{"app/internal/transaction", []string{"app/auth", "app/store", "app/engine", "shared/history", "shared/protocol"}},
	{"app/dispatch", []string{"app/store", "app/engine", "shared/protocol"}},
	{"app/internal/membership", []string{
		"app/internal/transaction", "app/dispatch", "app/auth", "app/store", "app/engine", "shared/history",
		"shared/protocol",
		"internal/release",
	}},
	{"app/internal/filter", []string{"app/store", "app/engine", "shared/history", "shared/protocol"}},
	{"app/view", []string{
		"app/internal/filter", "app/internal/membership", "app/internal/transaction", "app/dispatch", "app/store",
		"app/engine", common,
	}},
	{"app/internal/querytask", []string{
		"app/internal/transaction", "app/store", "app/engine", "shared/history", "shared/payload", "shared/protocol",
	}},
	{"app/internal/fleet", []string{
		"app/view", "app/internal/membership", "app/internal/transaction", "app/dispatch", "app/store", "app/engine",
		"shared/history",
		"shared/protocol",
	}},
	{"app/internal/evict", []string{
		"app/internal/membership", "app/internal/transaction", "app/dispatch", "app/store", "app/engine",
		"shared/protocol",
	}},
	{"app/internal/logs", []string{"app/internal/transaction", "app/store", "app/engine", "shared/protocol"}},
	{"app/broker", []string{
		"app/internal/fleet", "app/internal/evict", "app/internal/logs", "app/internal/querytask",
		"app/internal/membership", "app/view", "app/dispatch", "app/internal/transaction",
		"app/auth", "app/store", "app/internal/quota", "app/engine", common,
	}},
	{"app/internal/sweep", []string{"app/store", "app/engine"}},
	{"app/internal/admission", nil},
	{"app/internal/serve", []string{"app/internal/admission", "app/auth", "app/store", common}},
	{"app/internal/httpapi", []string{
		"app/internal/serve", "app/internal/admission", "app/view", "app/auth", "app/store", "app/engine", "docs", common,
	}},
	{"app/internal/workerapi", []string{
		"app/internal/serve", "app/internal/admission", "app/auth", "app/dispatch", "app/store", "app/engine", common,
	}},
	{"app/internal/workerconn", []string{
		"app/auth", "app/dispatch", "app/store", "shared/payload", "shared/protocol",
	}},
	{"app/internal/channel", []string{"app/internal/workerconn", "app/dispatch", "app/store", common}},
	{"app/server", []string{
		"app/internal/httpapi", "app/internal/workerapi", "app/internal/channel", "app/internal/workerconn",
		"app/internal/sweep", "app/internal/admission", "app/broker", "app/view", "app/dispatch",
		"app/auth", "app/store", "app/engine", "internal/budget", "shared/protocol",
	}},
	{"app", []string{
		"app/server", "web", "internal/connlimit", "internal/httpjson", "internal/process", "shared/protocol",
	}},
	{"internal/docnumbers", nil}, // for tests only: compares numbers in the guide with the program
	// a tool: not in the binary
	{"app/internal/openapi", []string{
		"app/internal/httpapi", "app/internal/workerapi", "app/internal/serve", "app/auth", common,
	}},
	{"app/internal/openapi/write", []string{"app/internal/openapi"}},
	{"app/apptest", []string{"app", "app/server", "app/internal/...", "app/store/...", "docs"}},
	{"app/sessiontest/invariants", nil},
	{"app/sessiontest", nil}, // tests only

	// The worker process, and the packages that users import.
	{"internal/codecs", []string{"shared/history", "shared/payload", "shared/protocol"}},
	{"codec", []string{"internal/codecs", "shared/payload"}},
	{"internal/userfunc", []string{"shared/payload"}},
	{"worker/activity", []string{"internal/userfunc", common}},
	{"internal/activitywire", []string{"internal/codecs", "internal/userfunc", "worker/activity", common}},
	{"internal/replay", []string{"internal/codecs", "shared/history", "shared/payload", "shared/protocol"}},
	{"worker/workflow", []string{
		"codec", "internal/codecs", "internal/replay", "internal/userfunc", "internal/activitywire", "worker/activity",
		common,
	}},
	{"internal/link", []string{common}},
	{"internal/workeropt", []string{
		"internal/link", "internal/replay", "sandbox", common,
	}},
	{"internal/link/linktest", []string{"shared/protocol"}},
	{"worker/internal/clock", nil},
	{"worker/session", []string{"shared/protocol"}},
	{"worker/internal/runner", []string{
		"internal/codecs", "worker/internal/clock", "worker/session", "internal/link", "internal/replay", "worker/workflow",
		"worker/activity", "internal/userfunc", "internal/activitywire", "sandbox",
		common,
	}},
	{"worker", []string{
		"codec", "internal/codecs", "worker/internal/runner", "worker/session", "internal/link", "internal/workeropt",
		"internal/activitywire", "worker/workflow",
		"worker/activity", "sandbox",
		common,
	}},
	{"internal/apiclient", []string{common}}, // for package client and the command line
	{"client", []string{
		"codec", "internal/codecs", "internal/activitywire", "internal/apiclient", "internal/userfunc", "worker/workflow",
		common,
	}},
	{"workflowtest", []string{ // for the tests of its users: a whole app, in virtual time
		"internal/codecs", "internal/activitywire", "worker", "client", "internal/link", "internal/replay",
		"internal/workeropt", "worker/workflow", "worker/activity",
		"app/engine", "app/server", "app/store", "app/store/sqldb", "app/store/sqlite", common,
	}},

	// Where app and worker meet.
	{"internal/cli/bench", []string{
		"client", "internal/apiclient",
		"app", "app/server", "app/engine", "app/broker", "app/view", "app/dispatch", "app/store/...", "worker",
		"internal/link", "internal/workeropt", "internal/replay", "worker/workflow", "sandbox", "sandbox/frame",
		common,
	}},
	{"internal/cli/conformance", nil},
	{"internal/cli", []string{
		"internal/apiclient",
		"internal/cli/...", "docs", "web", "app", "app/server", "app/auth", "app/engine", "app/broker", "app/dispatch",
		"app/store/...", "worker", "worker/workflow", "internal/workeropt", "internal/link", "sandbox",
		"examples/look", "examples/research", common,
	}},
	{"", []string{"internal/cli", "worker"}},
	{"cmd/sojourn", []string{"", "examples"}},
	{"deploy/image", nil}, // a tool: builds the image without an engine
	{"examples/...", []string{"", "client", "codec", "worker/...", "examples/..."}},
}

// pure packages have no side effects: equal arguments give equal results, also in a later replay.
var pure = []string{"app/engine", "app/internal/filter", "shared/history"}

// impure lists what a pure package must not import; an entry covers the packages below it.
var impure = []string{
	"context", "net", "os", "sync", "database", "log", "io/ioutil", "math/rand", "crypto/rand", "syscall", "runtime",
	"github.com/rs/zerolog", "go.opentelemetry.io", "github.com/prometheus", "gorm.io", "github.com/jackc",
	"modernc.org",
}

// clocks are the names of package time that read the clock or wait for it.
var clocks = []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer", "Sleep"}

// databases may be imported only by the CLI, tests and test helpers. Other packages import only the store's contract.
var databases = []string{"app/store/sqlite", "app/store/postgres"}

type pkg struct {
	ImportPath string
	Dir        string
	Doc        string // first sentence of the package comment
	GoFiles    []string
	CgoFiles   []string
	Imports    []string

	TestGoFiles, XTestGoFiles []string
}

func (p pkg) name() string { return short(p.ImportPath) }

// short is a package's path inside the module; the module's root is "".
func short(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }

func ours(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// covers reports whether a pattern of the table matches name.
func covers(pattern, name string) bool {
	if pattern == common {
		return coveredBy(commonPackages, name)
	}
	if base, tree := strings.CutSuffix(pattern, "/..."); tree {
		return name == base || strings.HasPrefix(name, base+"/")
	}
	return pattern == name
}

func coveredBy(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return covers(p, name) })
}

// list returns the packages of the module. The result is shared by all tests.
func list(t *testing.T) []pkg {
	t.Helper()
	all, err := packages()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

var packages = sync.OnceValues(func() (all []pkg, err error) {
	out, err := exec.Command(
		"go", "list", "-e", "-json=ImportPath,Dir,Doc,GoFiles,CgoFiles,Imports,TestGoFiles,XTestGoFiles", "./...",
	).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("%w\n%s", err, exit.Stderr)
	} else if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if !strings.Contains(p.ImportPath, "/node_modules/") { // some npm packages carry Go files
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no package found")
	}
	return all, nil
})

// violations names every arrow of p that the table does not draw.
func violations(p pkg) []string {
	row := slices.IndexFunc(directions, func(d direction) bool { return covers(d.packages, p.name()) })
	if row < 0 {
		return []string{
			fmt.Sprintf("package %s is not in the table of arch_test.go: say there what it may import", p.ImportPath),
		}
	}
	var found []string
	for _, path := range p.Imports {
		if ours(path) && !coveredBy(directions[row].may, short(path)) {
			found = append(found, fmt.Sprintf("%s imports %s, which arch_test.go does not allow", p.ImportPath, path))
		}
		if ours(path) && slices.Contains(databases, short(path)) &&
			!coveredBy([]string{"internal/cli/...", "app/apptest", "workflowtest"}, p.name()) {
			found = append(found, fmt.Sprintf("%s imports %s: only cli and tests open a database", p.ImportPath, path))
		}
		if slices.Contains(pure, p.name()) && slices.ContainsFunc(impure, func(i string) bool {
			return covers(i+"/...", path)
		}) {
			found = append(found, fmt.Sprintf("%s imports %s: it must stay pure", p.ImportPath, path))
		}
	}
	return found
}

// clockReads names every use of the clock in a Go source, whatever name package time was imported under.
func clockReads(name string, src any) ([]string, error) {
	file, err := parse(name, src)
	if err != nil {
		return nil, err
	}
	alias := ""
	for _, i := range file.Imports {
		if path, _ := strconv.Unquote(i.Path.Value); path == "time" {
			alias = "time"
			if i.Name != nil {
				alias = i.Name.Name
			}
		}
	}
	if alias == "" {
		return nil, nil
	}
	if alias == "." {
		return []string{fmt.Sprintf("%s: package time is imported with a dot", name)}, nil
	}
	var found []string
	ast.Inspect(file.File, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || !slices.Contains(clocks, sel.Sel.Name) {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == alias {
			found = append(found, fmt.Sprintf("%s: %s.%s", file.at(sel), alias, sel.Sel.Name))
		}
		return true
	})
	return found, nil
}

func TestPackagesImportOnlyInTheAllowedDirections(t *testing.T) {
	for _, p := range list(t) {
		for _, v := range violations(p) {
			t.Error(v)
		}
	}
}

// slack lists permissions without an import: a row without a package, a permission that no package uses, a tree of
// which only one package is used. A tree of shared is always permitted.
func slack(rows []direction, all []pkg) (found []string) {
	used := map[int][]string{} // by row: imports of its packages
	for _, p := range all {
		row := slices.IndexFunc(rows, func(d direction) bool { return covers(d.packages, p.name()) })
		if row < 0 {
			continue
		}
		used[row] = append(used[row], "*")
		for _, path := range p.Imports {
			if ours(path) && !slices.Contains(used[row], short(path)) {
				used[row] = append(used[row], short(path))
			}
		}
	}
	for i, row := range rows {
		if used[i] == nil {
			found = append(found, fmt.Sprintf("%q is no package", row.packages))
			continue
		}
		for _, entry := range row.may {
			by := slices.DeleteFunc(slices.Clone(used[i]), func(name string) bool { return name == "*" || !covers(entry, name) })
			switch {
			case len(by) == 0:
				found = append(found, fmt.Sprintf("%s imports nothing of %q", row.packages, entry))
			case len(by) == 1 && by[0] != entry && entry != common:
				found = append(found, fmt.Sprintf("%s imports of %q only %q", row.packages, entry, by[0]))
			}
		}
	}
	return found
}

func TestTheTableOfDirectionsPermitsNothingThatIsNotUsed(t *testing.T) {
	for _, s := range slack(directions, list(t)) {
		t.Errorf("%s: take it out of arch_test.go", s)
	}
}

func TestPurePackagesNeverReadTheClock(t *testing.T) {
	for _, p := range list(t) {
		if !slices.Contains(pure, p.name()) {
			continue
		}
		for _, f := range append(slices.Clone(p.GoFiles), p.CgoFiles...) {
			reads, err := clockReads(filepath.Join(p.Dir, f), nil)
			if err != nil {
				t.Error(err)
			}
			for _, r := range reads {
				t.Errorf("%s: a pure package takes the time as an argument", r)
			}
		}
	}
}

// joins are the packages that may connect a dispatch to a store: app/server, which all other packages use, and the
// tests of the two packages that it connects.
var joins = []string{"app/server", "app/dispatch", "app/broker"}

// One package assembles the control plane, so that tests run the same control plane as the app.
func TestOnlyThePlaneJoinsAControlPlane(t *testing.T) {
	joined := false
	for _, p := range list(t) {
		for _, f := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			binds, err := bindings(filepath.Join(p.Dir, f), nil)
			if err != nil {
				t.Error(err)
			}
			for _, b := range binds {
				joined = joined || p.name() == "app/server"
				if !slices.Contains(joins, p.name()) {
					t.Errorf("%s joins a control plane by hand: open an app/server", b)
				}
			}
		}
	}
	if !joined {
		t.Error("app/server binds nothing: this test looks for the wrong call")
	}
}

// bindings names every call of a method Bind in a Go source that knows the dispatch.
func bindings(name string, src any) ([]string, error) {
	file, err := parse(name, src)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
		return i.Path.Value == strconv.Quote(module+"/app/dispatch")
	}) {
		return nil, nil
	}
	var found []string
	ast.Inspect(file.File, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if method, ok := call.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Bind" {
				found = append(found, file.at(call).String())
			}
		}
		return true
	})
	return found, nil
}

// The checks above pass silently on a clean tree, so they are shown here to fail on a bad one.
func TestArchitectureChecksFindViolations(t *testing.T) {
	at := func(name string, imports ...string) pkg {
		path := module
		if name != "" {
			path += "/" + name
		}
		return pkg{ImportPath: path, Imports: imports}
	}
	for _, c := range []struct {
		p    pkg
		want int
	}{
		{at("app/engine", "time", "sort", module+"/shared/history"), 0},
		{at("app/engine", "context"), 1},
		{at("app/engine", "net/http", "sync/atomic", "log/slog", "math/rand/v2", "os/exec"), 5},
		{at("shared/history", "sync"), 1},
		{at("shared/protocol", module+"/app/engine"), 1},
		{at("sandbox/process", module+"/shared/payload"), 0},
		{at("sandbox", module+"/shared/history"), 1},
		{at("app/broker", module+"/worker"), 1},
		{at("worker/internal/runner", module+"/app/broker"), 1},
		{at("app", module+"/app/store/sqlite"), 2},
		{at("app/server", module+"/app/store/sqlite"), 2},
		{at("internal/cli", module+"/app/store/sqlite", module+"/worker"), 0},
		{at("app/novelty"), 1},
		{at("", module+"/internal/cli"), 0},
		{at("worker", module+"/app/store/postgres"), 2},
	} {
		if got := violations(c.p); len(got) != c.want {
			t.Errorf("%s importing %v: got %d violations %q, want %d", c.p.name(), c.p.Imports, len(got), got, c.want)
		}
	}
	rows := []direction{{"a", []string{"b/...", "c", common}}, {"gone", nil}}
	for _, c := range []struct {
		imports []string
		want    int
	}{
		{[]string{module + "/b", module + "/b/x", module + "/c", module + "/shared/y"}, 1},
		{[]string{module + "/b/x", module + "/c", module + "/shared/y"}, 2},
		{[]string{"time"}, 4},
	} {
		if got := slack(rows, []pkg{at("a", c.imports...)}); len(got) != c.want {
			t.Errorf("importing %v: got %q, want %d that say too much", c.imports, got, c.want)
		}
	}
	for src, want := range map[string]int{
		"package p\nimport \"time\"\nvar x = time.Now()":                       1,
		"package p\nimport clock \"time\"\nvar x, y = clock.Now, clock.Since":  2,
		"package p\nimport . \"time\"\nvar x = Now()":                          1,
		"package p\nimport \"time\"\nvar d = time.Second":                      0,
		"package p\ntype t struct{}\nfunc (t) Now() {}\nvar _ = t{}.Now":       0,
		"package p\nimport \"time\"\nfunc f() { time.AfterFunc(1, func(){}) }": 1,
	} {
		got, err := clockReads("p.go", src)
		if err != nil || len(got) != want {
			t.Errorf("clock reads of %q: got %q, %v; want %d", src, got, err, want)
		}
	}
}
